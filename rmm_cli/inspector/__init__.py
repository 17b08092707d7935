"""A page that shows a memory: served on this machine, or written into one file."""

from __future__ import annotations

import sys
import webbrowser
from contextlib import suppress
from os import PathLike

from rmm_cli.text import printable
from rmm_core import MissingDependencyError, ReflectiveMemory


def serve(
    memory: ReflectiveMemory, *, port: int = 0, write: bool = False, browser: bool = False, store_name: str
) -> None:
    """Show a memory at an address that is printed, until interrupted.

    Args:
        memory: What to show; its embedder ranks what the query box asks for.
        port: Where on 127.0.0.1; a free one for 0.
        write: Whether memories and users can be deleted.
        browser: Whether to open the page.
        store_name: What the page calls the store.

    Raises:
        ConfigError: When something else listens at ``port``.
        MissingDependencyError: When the extra ``cli`` is not installed.
    """
    try:
        from rmm_cli.inspector.server import listening
    except ModuleNotFoundError as error:
        raise MissingDependencyError("the page that shows a memory", "cli") from error
    with listening(memory, port=port, write=write, store_name=store_name) as server:
        sys.stdout.write(f"{printable(store_name)} is shown at {server.url}\nStop with Ctrl+C.\n")
        sys.stdout.flush()
        if browser:
            webbrowser.open(server.url)
        with suppress(KeyboardInterrupt):
            server.serve_forever()


def write_html(memory: ReflectiveMemory, path: str | PathLike[str], *, store_name: str) -> int:
    """Write all of a memory into one HTML file, which needs neither this package nor a network; its size in bytes.

    Only its owner can read the file. An earlier one at ``path`` is replaced, once the new one is complete.

    Args:
        memory: What to show.
        path: The file.
        store_name: What the page calls the store.

    Raises:
        StoreError: When the file cannot be written.
    """
    from rmm_cli.inspector.file import write

    return write(memory, path, store_name)
