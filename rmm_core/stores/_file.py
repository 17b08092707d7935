"""The file of the embedded store: one connection, short transactions, nothing left behind."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rmm_core.errors import StoreClosedError, StoreError
from rmm_core.stores._migrations import migrate


class SQLiteFile:
    """A database file, open.

    Write-ahead log, full synchronisation (a commit survives power loss), secure deletion. One connection guarded by a
    lock serves all threads.

    Args:
        path: The file, made when it is not there; ``":memory:"`` for one that ends with the process.
        busy_seconds: How long to wait for another process that is writing.

    Raises:
        StoreError: When the file cannot be opened, or is not ours.
    """

    def __init__(self, path: str, *, busy_seconds: float) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._db: sqlite3.Connection | None = None
        try:
            db = sqlite3.connect(path, timeout=busy_seconds, check_same_thread=False, isolation_level=None)
        except sqlite3.Error as error:
            raise StoreError(f"cannot open {path!r}: {error}; is its folder there, and writable?") from error
        try:
            for pragma in ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON", "temp_store = MEMORY"):
                db.execute(f"PRAGMA {pragma}")
            migrate(db)
        except sqlite3.Error as error:
            db.close()
            raise StoreError(f"cannot use {path!r} as a memory: {error}") from error
        except BaseException:
            db.close()
            raise
        self._db = db

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """The connection, for statements that see one state of the database."""
        with self._transaction("BEGIN") as db:
            yield db

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """The connection inside a transaction that commits at the end, or leaves no trace."""
        with self._transaction("BEGIN IMMEDIATE") as db:
            yield db

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if self._db is None:
                raise StoreClosedError("this memory is closed; open it again with ReflectiveMemory.open")
            if self._db.in_transaction:  # a read inside of a write joins it
                yield self._db
                return
            try:
                self._db.execute(begin)
                try:
                    yield self._db
                    self._db.execute("COMMIT")
                except BaseException:
                    if self._db.in_transaction:
                        self._db.execute("ROLLBACK")
                    raise
            except (sqlite3.Error, UnicodeEncodeError, OverflowError) as error:
                raise StoreError(f"{self._path}: {error}") from error

    def scrub(self, *, whole: bool) -> None:
        """Remove deleted content from the files: from the log, and by a rewrite from free space."""
        with self._lock:
            if self._db is None:
                return
            try:
                if whole:
                    self._db.execute("VACUUM")
                busy, _, _ = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            except sqlite3.Error as error:
                raise StoreError(f"{self._path}: {_TRACES}: {error}") from error
            if busy > 0:
                raise StoreError(f"{self._path}: {_TRACES}")

    def close(self) -> None:
        """Let go of the file; doing so twice is fine."""
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None


_TRACES = (
    "the data is deleted, but traces remain in the file while another process is reading; delete or forget again then"
)
