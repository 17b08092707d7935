"""The file of the embedded store: one connection, short transactions, nothing left behind."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import WeakSet

from rmm_core.errors import StoreClosedError, StoreError, WrongKeyError
from rmm_core.stores import _cipher
from rmm_core.stores._migrations import migrate, refuse_foreign

MEMORY = ":memory:"
_TRACES = (
    "the data is deleted, but traces remain in the file while another process is reading; delete or forget again then"
)
_OLD_PAGES = (
    "the file has its new key, but pages that the earlier key opens remain while another process is reading; "
    "call rekey again then"
)
_NOT_REKEYED = (
    "the file was not given another key, and this memory is closed; open it again with the key it had, "
    "or the new one should that one not fit"
)
_REKEYED = "the file cannot be read any more: another process gave it another key, or it is damaged; open it again"


class SQLiteFile:
    """A database file, open.

    Write-ahead log, full synchronisation (a commit survives power loss), secure deletion. One connection guarded by a
    lock serves all threads.

    Args:
        path: The file, made when it is not there, for its owner alone; ``":memory:"`` for one that ends with the
            process.
        busy_seconds: How long to wait for another process that is writing.
        key: Encrypts the file; one in memory needs no key, and makes no use of it.

    Raises:
        MissingDependencyError: When there is a key, and SQLCipher is not installed.
        StoreError: When the file cannot be opened, or is not ours.
    """

    def __init__(self, path: str, *, busy_seconds: float, key: _cipher.Key | None = None) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._keyed = key is not None
        self._lost = False  # to somebody who gave the file another key
        key = None if path == MEMORY else key
        self._sql = _cipher.driver(key)
        self._refuse_two_libraries(key)
        _cipher.check(self._sql, path, key)
        self._db: sqlite3.Connection | None = self._connect(busy_seconds, key)
        self._inode = _inode(path)
        with _opening:
            _open.add(self)

    def _connect(self, busy_seconds: float, key: _cipher.Key | None) -> sqlite3.Connection:
        path = self._path if key is None else str(Path(self._path).absolute())  # never a URI to SQLCipher
        if self._path != MEMORY:
            with suppress(OSError):  # it is there, or SQLite says what is in the way
                os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))  # its log gets the same mode
        try:
            db: sqlite3.Connection = self._sql.connect(
                path, timeout=busy_seconds, check_same_thread=False, isolation_level=None
            )
        except self._sql.Error as error:
            raise StoreError(f"cannot open {self._path!r}: {error}; is its folder there, and writable?") from error
        try:
            _cipher.unlock(db, key)
            refuse_foreign(db)
            self._to_log(db, busy_seconds)
            for pragma in ("synchronous = FULL", "secure_delete = ON", "temp_store = MEMORY"):
                db.execute(f"PRAGMA {pragma}")
            migrate(db)
        except (self._sql.Error, UnicodeDecodeError) as error:  # a damaged schema is told of in its own bytes
            db.close()
            if _cipher.is_unreadable(error):
                raise _cipher.mismatch(self._sql, self._path, key) from error
            raise StoreError(f"cannot use {self._path!r} as a memory: {error}") from error
        except BaseException:
            db.close()
            raise
        return db

    def _to_log(self, db: sqlite3.Connection, busy_seconds: float) -> None:
        """Have a new file keep a write-ahead log; for this alone SQLite does not wait for another process by itself."""
        until = time.monotonic() + busy_seconds
        while True:
            try:
                db.execute("PRAGMA journal_mode = WAL")
                return
            except self._sql.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
                time.sleep(0.01)

    def _refuse_two_libraries(self, key: _cipher.Key | None) -> None:
        """Keep SQLite off a file that SQLCipher has open in this process, and the reverse.

        A process that closes a file loses all its POSIX locks on it, those of the other library included: a second
        process would then tidy the log away under the first.
        """
        inode = _inode(self._path)
        with _opening:
            others = [f for f in _open if f._inode == inode is not None and f._sql is not self._sql]
        if others:
            raise _cipher.mismatch(self._sql, self._path, key, plain=True)

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
            self._refuse_if_lost()
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
            except (self._sql.Error, UnicodeError, OverflowError) as error:
                raise self._as_ours(error, str(error)) from error

    def faults(self) -> list[str]:
        """What SQLite finds wrong with the file itself, and SQLCipher with its pages."""
        found: list[str] = []
        try:
            with self.read() as db:
                for pragma in ("cipher_integrity_check", "integrity_check(10)"):  # of the first, SQLite knows nothing
                    found += [" ".join(text.split()) for (text,) in db.execute(f"PRAGMA {pragma}") if text != "ok"]
        except StoreClosedError:
            raise
        except StoreError as error:
            found.append(str(error))
        return found[:10]

    def scrub(self, *, whole: bool) -> None:
        """Remove deleted content from the files: from the log, and by a rewrite from free space."""
        self._tidy(_TRACES, whole=whole)

    def rekey(self, key: _cipher.Key) -> None:
        """Encrypt the file anew under another key, and leave nothing that the earlier one opens.

        Raises:
            StoreError: When the file is not encrypted, or could not be given the key.
        """
        with self._lock:
            if not self._keyed:
                raise StoreError(f"{self._path}: a file without a key cannot be given another. {_cipher.TO_ENCRYPT}")
            begun = False
            try:
                with self.write() as db:
                    begun = True
                    _cipher.change_key(db, key)  # in memory, a pragma that SQLite does not know: it does nothing
                _cipher.check(self._sql, self._path, key)  # believed when it was read, and not before
            except StoreError as error:
                if begun:
                    self.close()
                    raise StoreError(f"{self._path}: {_NOT_REKEYED}") from error
                raise
            self._tidy(_OLD_PAGES)

    def _tidy(self, otherwise: str, *, whole: bool = False) -> None:
        """Bring the log into the file and empty it; ``otherwise`` is said when somebody else is in the way."""
        with self._lock:
            if self._db is None:
                return
            self._refuse_if_lost()
            try:
                if whole:
                    self._db.execute("VACUUM")
                busy, _, _ = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            except self._sql.Error as error:
                raise self._as_ours(error, f"{otherwise}: {error}") from error
            if busy > 0:
                raise StoreError(f"{self._path}: {otherwise}")

    def _refuse_if_lost(self) -> None:
        if self._lost:
            raise WrongKeyError(f"{self._path}: {_REKEYED}")

    def _as_ours(self, error: Exception, message: str) -> StoreError:
        """A database's error as one of ours."""
        if self._keyed and _cipher.is_unreadable(error):
            self._lost = True  # remembered: what SQLite says next of such a file is something else
            return WrongKeyError(f"{self._path}: {_REKEYED}")
        return StoreError(f"{self._path}: {message}")

    def close(self) -> None:
        """Let go of the file; doing so twice is fine."""
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None
                with _opening:
                    _open.discard(self)


_open: WeakSet[SQLiteFile] = WeakSet()
_opening = threading.Lock()


def _inode(path: str) -> tuple[int, int] | None:
    """What the file is, whatever it is called; None where there is none."""
    try:
        stat = Path(path).stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino
