"""Commands that serve a memory: as a page to look at, and as tools for an MCP client."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rmm_cli.opening import Opening, writable
from rmm_cli.output import Output
from rmm_cli.text import size

_HOST, _PORT = "127.0.0.1", 8765
_LISTEN = "Where to listen; 0 for a free port."


def inspect(
    at: Opening,
    out: Output,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the page into a file, in place of serving it.")
    ] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, metavar="N", help=_LISTEN, show_default="0")] = None,
    write: Annotated[bool, typer.Option("--write", help="Let the page delete memories and users.")] = False,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open it in a browser.")] = True,
) -> None:
    """Look at a memory in a browser: what it holds, what it would bring up and why, what it learned."""
    from rmm_cli import inspector

    if html is not None and write:
        raise typer.BadParameter("a file deletes nothing: --write goes without --html")
    if html is not None and port is not None:
        raise typer.BadParameter("a file is not served: --port goes without --html")
    if html is None and out.json:
        raise typer.BadParameter("--json goes with --html")
    file = None if html is None else writable(html, at.place)
    with at.memory() as memory:
        if file is None:
            return inspector.serve(memory, port=port or 0, write=write, browser=browser, store_name=at.shown)
        count = inspector.write_html(memory, file, store_name=at.shown)
    if out.json:
        return out.document({"file": str(file), "bytes": count})
    return out.line(f"{file}: {size(count)}")


def mcp(
    at: Opening,
    _: Output,
    http: Annotated[bool, typer.Option("--http", help="Over HTTP; over stdin and stdout when left out.")] = False,
    host: Annotated[str | None, typer.Option(metavar="HOST", help="Where to listen.", show_default=_HOST)] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, metavar="N", help=_LISTEN, show_default=str(_PORT))
    ] = None,
    user: Annotated[str | None, typer.Option(metavar="ID", help="Whose memory; else every call says so.")] = None,
) -> None:
    """Serve a memory to the model of an MCP client, as tools; makes the memory where there is none."""
    from rmm_cli import mcp_server

    for option, given in (("--host", host), ("--port", port)):
        if given is not None and not http:
            raise typer.BadParameter(f"{option} goes with --http")
    with at.memory() as memory:
        mcp_server.serve(
            memory,
            user_id=user,
            transport="http" if http else "stdio",
            host=_HOST if host is None else host,
            port=_PORT if port is None else port,
        )
