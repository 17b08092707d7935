"""The embedded store: one SQLite file, safe for threads, processes and sudden death.

One connection guarded by a lock serves all threads (:mod:`rmm_core.stores._file`): every statement here is short, and
what takes long, the search, runs on the indexes of :mod:`rmm_core.stores._index` outside of the lock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from typing import ClassVar

from rmm_core.checkup import Finding
from rmm_core.errors import DimensionError, InputError, StoreError
from rmm_core.protocols import BankChange, Entry
from rmm_core.stores import _bank, _talk
from rmm_core.stores._asked import ASKED
from rmm_core.stores._cipher import checked_key
from rmm_core.stores._file import SQLiteFile
from rmm_core.stores._index import BankIndex, IndexCache
from rmm_core.stores._migrations import MIGRATIONS
from rmm_core.stores._sql import Sql
from rmm_core.stores._store import SqlStore
from rmm_core.types import Candidate, Feedback, Kind, Message, Session, Turn, Vector


class SQLiteStore(SqlStore):
    """A :class:`~rmm_core.protocols.MemoryStore` in one file.

    Args:
        path: The file, made when it is not there; ``":memory:"`` for one that ends with the process.
        cache_bytes: Bound on the search indexes kept in memory.
        busy_seconds: How long to wait for another process that is writing.
        key: Encrypts the file with SQLCipher: a passphrase, or 32 bytes that are the key themselves.

    Raises:
        ConfigError: When the key cannot be one.
        MissingDependencyError: When there is a key, and the extra ``encryption`` is not installed.
        StoreError: When the file cannot be opened, or is not ours.
        WrongKeyError: When it does not open with this key, or not without one.
    """

    _own: ClassVar[Mapping[str, str]] = {
        "width": "length(embedding) / 4.0",
        "now": "(julianday('now') - 2440587.5) * 86400.0",
    }
    _owner: ClassVar[str] = "(SELECT own.user_id FROM memories own WHERE own.rowid = memories.rowid)"

    def __init__(
        self,
        path: str,
        *,
        cache_bytes: int = 256 * 1024 * 1024,
        busy_seconds: float = 10.0,
        key: str | bytes | None = None,
    ) -> None:
        self._file = SQLiteFile(path, busy_seconds=busy_seconds, key=None if key is None else checked_key(key))
        self._cache = IndexCache(cache_bytes)

    # -- sessions and turns --------------------------------------------------------------

    def open_session(self, session: Session) -> Session:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.write() as db:
            _talk.open_session(db, session, _next_number(db))
            return _talk.session(db, session.user_id, session.id)

    def append(
        self,
        user_id: str,
        session_id: str,
        messages: Sequence[Message],
        *,
        at: datetime,
        feedback: Feedback | None = None,
    ) -> tuple[Turn, ...]:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.write() as db:
            turns = _talk.append(db, user_id, session_id, messages, at)
            if feedback is not None and (turns or not messages):
                asked_in = _talk.asked_in(db, user_id, session_id, messages, turns)
                _talk.log(db, replace(feedback, asked_in=asked_in or feedback.asked_in))
            return turns

    def fail_session(self, user_id: str, session_id: str, error: str) -> Session:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.write() as db:
            return _talk.fail_session(db, user_id, session_id, error)

    def lease(self, user_id: str, session_id: str, *, holder: str, seconds: float) -> bool:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.write() as db:
            return _talk.lease(db, user_id, session_id, holder, seconds, time.time())

    # -- the bank ------------------------------------------------------------------------

    def commit(self, user_id: str, change: BankChange) -> int:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.write() as db:
            _bank.check(db, user_id, change)
            gone = _bank.remove(db, user_id, change.removed)
            number = _next_number(db)
            _bank.raise_version(db, user_id, number, reset=gone > 0)
            if change.session_id:
                _bank.touch(db, user_id, change.session_id, number)
            _put(db, user_id, change.entries, number)
            return number

    def search(
        self,
        user_id: str,
        vector: Vector,
        *,
        text: str = "",
        limit: int,
        kind: Kind | None = None,
        near: Sequence[str] = (),
    ) -> tuple[Candidate, ...]:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.read() as db:
            width, (version, _) = _bank.width(db), _bank.version(db, user_id)
        if width is not None and width != len(vector):
            raise DimensionError(width, len(vector))
        if not version:  # nothing was ever stored; nothing is cached for it either
            self._cache.drop(user_id)
            return ()
        index = self._cache.get(user_id)
        with index.lock:
            self._follow(user_id, index)
            hits = index.search(vector, text, limit, kind, near)
        entries = self.entries(user_id, list(hits))
        return _bank.candidates(entries.values(), hits, vector)

    def delete(self, user_id: str, memory_id: str) -> bool:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.write() as db:
            was_there = _bank.delete(db, user_id, memory_id)
            if was_there:
                _bank.raise_version(db, user_id, _next_number(db), reset=True)
                _release_width(db)
        if was_there:
            self._file.scrub(whole=False)
        return was_there

    def forget_user(self, user_id: str) -> dict[str, int]:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.write() as db:
            removed = _bank.forget(db, user_id)
            _release_width(db)
        self._cache.drop(user_id)
        self._file.scrub(whole=True)
        return removed

    def purge(self, user_id: str, memory_ids: Sequence[str], *, before: datetime | None = None) -> dict[str, int]:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.write() as db:
            removed = _bank.purge(db, user_id, memory_ids, before)
            if any(removed.values()) and _bank.version(db, user_id)[0]:
                _bank.raise_version(db, user_id, _next_number(db), reset=True)
                _release_width(db)
        self._file.scrub(whole=False)
        return removed

    def restore_user(
        self, user_id: str, sessions: Sequence[Session], turns: Sequence[Turn], entries: Sequence[Entry]
    ) -> None:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.write() as db:
            if user_id in _bank.users(db):
                raise InputError(f"user {user_id!r} has something stored; forget the user or import under another id")
            for session in sessions:
                _talk.open_session(db, session, _next_number(db))
            _talk.insert_turns(db, user_id, turns)
            number = _next_number(db)
            _bank.raise_version(db, user_id, number, reset=True)
            _put(db, user_id, entries, number)

    def reembed(self, banks: dict[str, tuple[int, dict[str, Vector]]]) -> None:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.write() as db:
            _bank.check_all(db, banks)
            db.execute("DELETE FROM settings WHERE name = 'width'")
            for user_id, (_, embeddings) in banks.items():
                for memory_id, vector in embeddings.items():
                    _check_width(db, vector)
                    _bank.set_embedding(db, user_id, memory_id, vector)
                if embeddings:
                    _bank.raise_version(db, user_id, _next_number(db), reset=True)
            db.execute("DELETE FROM feedback")  # it speaks of the earlier embeddings

    # -- learning ------------------------------------------------------------------------

    def add_feedback(self, feedback: Feedback) -> None:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.write() as db:
            _talk.log(db, feedback)

    def remove_feedback(self, last: int, *, user_id: str | None = None) -> int:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.write() as db:
            whose = _talk.unlog(db, last, user_id)
            for name in {name for name in whose if _bank.version(db, name)[0]}:
                _bank.raise_version(db, name, _next_number(db), reset=True)
            return len(whose)

    # -- checking ------------------------------------------------------------------------

    def check(self, *, idle_since: datetime, reads: Callable[[bytes], bool]) -> list[Finding]:
        """See :class:`~rmm_core.checkup.SelfChecking`; of a damaged file, what can still be told."""
        found = [Finding("file", None, fault, _DAMAGED, repairable=False) for fault in self._file.faults()]
        try:
            return found + super().check(idle_since=idle_since, reads=reads)
        except StoreError:
            if not found:
                raise
            return found

    def repair(self, *, reads: Callable[[bytes], bool]) -> list[Finding]:
        """See :class:`~rmm_core.checkup.SelfChecking`; nothing is written into a damaged file."""
        return [] if self._file.faults() else super().repair(reads=reads)

    def rekey(self, key: str | bytes) -> None:
        """Encrypt the file anew, under another key: see :meth:`rmm_core.ReflectiveMemory.rekey`."""
        self._file.rekey(checked_key(key))

    def close(self) -> None:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        self._file.close()
        self._cache.clear()

    # -- how -----------------------------------------------------------------------------

    def _read(self, user_id: str | None = None) -> AbstractContextManager[Sql]:
        return self._file.read()

    def _write(self, user_id: str | None = None) -> AbstractContextManager[Sql]:
        return self._file.write()

    def _schema(self, db: Sql) -> tuple[str, int, int]:
        return "the file", db.execute("PRAGMA user_version").fetchone()[0], len(MIGRATIONS)

    def _reindex(self, db: Sql, user_id: str) -> None:
        _bank.raise_version(db, user_id, _next_number(db), reset=True)

    def _follow(self, user_id: str, index: BankIndex) -> None:
        """Bring an index up to the bank as it stands; the caller holds the index's lock."""
        with self._file.read() as db:
            version, reset = _bank.version(db, user_id)
            if index.version < reset or version == 0:
                index.clear()
            index.asked.add(_talk.logged(db, index.asked.last, ASKED, user_id, newest=True))
            if index.version == version:
                return
            documents, sessions = _bank.documents(db, user_id, index.version, owner=self._owner)
        index.put(documents, sessions)
        index.version = version
        self._cache.settle(user_id, index.size)


_DAMAGED = "put back a copy of the file from before; until then, export_user() gives what of a user can still be read"


def _next_number(db: Sql) -> int:
    """A number that never comes again in this file: versions of banks, and what tells sessions apart."""
    (number,) = db.execute(
        "INSERT INTO settings VALUES ('version', 1) ON CONFLICT DO UPDATE SET value = value + 1 RETURNING value"
    ).fetchone()
    return int(number)


def _put(db: Sql, user_id: str, entries: Sequence[Entry], number: int) -> None:
    for entry in entries:
        _check_width(db, entry.embedding)
    _bank.put(db, user_id, entries, number)


def _check_width(db: Sql, vector: Vector) -> None:
    """Hold every embedding to the width of the first."""
    width = _bank.width(db)
    if width is None:
        db.execute("INSERT INTO settings VALUES ('width', ?)", (len(vector),))
    elif width != len(vector):
        raise DimensionError(width, len(vector))


def _release_width(db: Sql) -> None:
    """A store without memories takes any embedder."""
    db.execute("DELETE FROM settings WHERE name = 'width' AND NOT EXISTS (SELECT 1 FROM memories)")
