"""``python -m rmm_cli``: the command ``rmm``."""

from rmm_cli import run

run()
