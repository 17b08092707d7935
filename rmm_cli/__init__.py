"""The command line ``rmm``, the page that shows a memory, and the MCP server: for people, over ``rmm_core`` alone."""

from __future__ import annotations

import sys


def run() -> None:
    """The command ``rmm``."""
    try:
        from rmm_cli.main import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit("rmm needs an extra: pip install 'reflective-memory[cli]'")
    except KeyboardInterrupt:
        sys.exit(130)
    app(prog_name="rmm")
