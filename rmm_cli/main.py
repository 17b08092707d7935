"""The command ``rmm``: its commands by name."""

from __future__ import annotations

from typing import Annotated

import typer

from rmm_cli import ask, care, change, look, serve
from rmm_cli.commands import StoreCommand, opened
from rmm_core import __version__

app = typer.Typer(
    help="Look at a memory, ask it, take care of it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)

_LOOK, _CHANGE, _CARE, _SERVE = "Look", "Change", "Take care", "Serve"

for name, panel, command in (
    ("users", _LOOK, opened()(look.users)),
    ("show", _LOOK, opened()(look.show)),
    ("history", _LOOK, opened()(look.history)),
    ("ask", _LOOK, opened(embeds=True)(ask.ask)),
    ("export", _LOOK, opened()(look.export)),
    ("stats", _LOOK, opened()(care.stats)),
    ("import", _CHANGE, opened(embeds=True, creates=True)(change.import_)),
    ("forget", _CHANGE, opened()(change.forget)),
    ("reflect", _CHANGE, opened(embeds=True, thinks=True)(change.reflect)),
    ("purge", _CHANGE, opened()(change.purge)),
    ("reembed", _CHANGE, opened(embeds=True)(change.reembed)),
    ("doctor", _CARE, opened()(care.doctor)),
    ("inspect", _SERVE, opened(embeds=True)(serve.inspect)),
    ("mcp", _SERVE, opened(embeds=True, thinks=True, creates=True, json=False)(serve.mcp)),
):
    app.command(name, cls=StoreCommand, rich_help_panel=panel)(command)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"rmm {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which version this is.")
    ] = False,
) -> None:
    """Look at a memory, ask it, take care of it."""
