"""The page on the command line shows commands that there are, and all of them."""

import re
import shlex

import typer

from rmm_cli.main import app
from tests.cli.conftest import ROOT

COMMANDS = typer.main.get_command(app).commands


def examples():
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / "cli.md").read_text(encoding="utf-8"), re.DOTALL)
    lines = [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]
    return [(name, arguments) for program, name, *arguments in lines if program == "rmm"]


def test_every_example_is_understood_and_every_command_has_one():
    for name, arguments in examples():
        COMMANDS[name].make_context(name, arguments)  # raises a usage error
    assert {name for name, _ in examples()} == {*COMMANDS}
