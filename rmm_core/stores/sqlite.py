"""The embedded store: one SQLite file, safe for threads, processes and sudden death.

One connection guarded by a lock serves all threads (:mod:`rmm_core.stores._file`): every statement here is short, and
what takes long, the search, runs on the indexes of :mod:`rmm_core.stores._index` outside of the lock.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from datetime import datetime

from rmm_core.errors import ConflictError, DimensionError, InputError, NotFoundError
from rmm_core.protocols import BankChange, Entry, LearnerState
from rmm_core.stores import _bank, _talk
from rmm_core.stores._asked import ASKED
from rmm_core.stores._file import SQLiteFile
from rmm_core.stores._index import BankIndex, IndexCache
from rmm_core.types import Candidate, Feedback, Kind, Memory, Message, Session, Turn, TurnRef, Vector


class SQLiteStore:
    """A :class:`~rmm_core.protocols.MemoryStore` in one file.

    Args:
        path: The file, made when it is not there; ``":memory:"`` for one that ends with the process.
        cache_bytes: Bound on the search indexes kept in memory.
        busy_seconds: How long to wait for another process that is writing.

    Raises:
        StoreError: When the file cannot be opened, or is not ours.
    """

    def __init__(self, path: str, *, cache_bytes: int = 256 * 1024 * 1024, busy_seconds: float = 10.0) -> None:
        self._file = SQLiteFile(path, busy_seconds=busy_seconds)
        self._cache = IndexCache(cache_bytes)

    # -- sessions and turns --------------------------------------------------------------

    def open_session(self, session: Session) -> Session:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.write() as db:
            _talk.open_session(db, session)
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
                _talk.log(db, feedback)
            return turns

    def end_session(self, user_id: str, session_id: str) -> Session:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.write() as db:
            db.execute("UPDATE sessions SET ended = 1 WHERE user_id = ? AND id = ?", (user_id, session_id))
            return _talk.session(db, user_id, session_id)

    def fail_session(self, user_id: str, session_id: str, error: str) -> Session:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.write() as db:
            db.execute(
                "UPDATE sessions SET attempts = attempts + 1, error = ? WHERE user_id = ? AND id = ?",
                (error, user_id, session_id),
            )
            return _talk.session(db, user_id, session_id)

    def lease(self, user_id: str, session_id: str, *, holder: str, seconds: float) -> bool:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.write() as db:
            return _talk.lease(db, user_id, session_id, holder, seconds)

    def release(self, user_id: str, session_id: str, *, holder: str) -> None:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.write() as db:
            _talk.release(db, user_id, session_id, holder)

    def session(self, user_id: str, session_id: str) -> Session:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.read() as db:
            return _talk.session(db, user_id, session_id)

    def sessions(self, user_id: str) -> tuple[Session, ...]:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.read() as db:
            return _talk.sessions(db, user_id)

    def pending(self, *, idle_since: datetime, user_id: str | None = None) -> tuple[Session, ...]:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.read() as db:
            return _talk.pending(db, idle_since, user_id)

    def turns(self, user_id: str, session_id: str, start: int = 0, stop: int | None = None) -> tuple[Turn, ...]:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.read() as db:
            return _talk.turns(db, user_id, session_id, start, stop)

    def turns_at(self, user_id: str, refs: Sequence[TurnRef]) -> dict[TurnRef, Turn]:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.read() as db:
            return _talk.turns_at(db, user_id, refs)

    # -- the bank ------------------------------------------------------------------------

    def bank_version(self, user_id: str) -> int:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.read() as db:
            return _bank.version(db, user_id)[0]

    def commit(self, user_id: str, change: BankChange) -> int:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.write() as db:
            version, _ = _bank.version(db, user_id)
            if version != change.base_version:
                raise ConflictError(f"the bank is at version {version}, the change was made on {change.base_version}")
            if change.session_id:
                session = _talk.session(db, user_id, change.session_id)
                if session.born != change.session_born or session.turns < change.reflected_to:
                    raise ConflictError(f"session {change.session_id!r} was forgotten, and began anew")
                if session.reflected != change.reflected_from:
                    raise ConflictError(f"session {change.session_id!r} was reflected by somebody else")
                db.execute(
                    "UPDATE sessions SET reflected = ?, attempts = 0, error = '' WHERE user_id = ? AND id = ?",
                    (change.reflected_to, user_id, change.session_id),
                )
            gone = [memory_id for memory_id in change.removed if _bank.remove(db, user_id, memory_id)]
            number = _bank.raise_version(db, user_id, reset=bool(gone))
            if change.session_id:
                _bank.touch(db, user_id, change.session_id, number)
            for entry in change.entries:
                _check_width(db, entry.embedding)
                _bank.put(db, user_id, entry, number)
            return number

    def search(
        self, user_id: str, vector: Vector, *, text: str = "", limit: int, kind: Kind | None = None
    ) -> tuple[Candidate, ...]:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.read() as db:
            width, (version, _) = _width(db), _bank.version(db, user_id)
        if width is not None and width != len(vector):
            raise DimensionError(width, len(vector))
        if not version:  # nothing was ever stored; nothing is cached for it either
            self._cache.drop(user_id)
            return ()
        index = self._cache.get(user_id)
        with index.lock:
            self._follow(user_id, index)
            hits = index.search(vector, text, limit, kind)
        entries = self.entries(user_id, list(hits))
        candidates = [
            Candidate(e.memory, e.embedding, hits[i], float(e.embedding @ vector)) for i, e in entries.items()
        ]
        return tuple(sorted(candidates, key=lambda c: (-c.score, c.memory.id)))

    def get(self, user_id: str, memory_id: str) -> Memory:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        entry = self.entries(user_id, [memory_id]).get(memory_id)
        if entry is None:
            raise NotFoundError(f"user {user_id!r} has no memory {memory_id!r}")
        return entry.memory

    def memories(self, user_id: str, *, kind: Kind | None = None) -> tuple[Memory, ...]:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.read() as db:
            found = [e.memory for e in _bank.entries(db, user_id, None)]
        return tuple(
            sorted((m for m in found if kind in (None, m.kind)), key=lambda m: (m.created_at, m.evidence, m.id))
        )

    def entries(self, user_id: str, memory_ids: Sequence[str]) -> dict[str, Entry]:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.read() as db:
            return {e.memory.id: e for e in _bank.entries(db, user_id, memory_ids)}

    def delete(self, user_id: str, memory_id: str) -> bool:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.write() as db:
            was_there = _bank.delete(db, user_id, memory_id)
            if was_there:
                _bank.raise_version(db, user_id, reset=True)
                _release_width(db)
        if was_there:
            self._file.scrub(whole=False)
        return was_there

    def forget_user(self, user_id: str) -> None:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.write() as db:
            for table in ("sessions", "turns", "memories", "evidence", "revisions", "feedback", "banks"):
                db.execute(f"DELETE FROM {table} WHERE user_id = ?", (user_id,))
            db.execute("DELETE FROM learners WHERE scope IN (?1, 'good:' || ?1, 'base:' || ?1)", (f"user:{user_id}",))
            _release_width(db)
        self._cache.drop(user_id)
        self._file.scrub(whole=True)

    def restore_user(
        self, user_id: str, sessions: Sequence[Session], turns: Sequence[Turn], entries: Sequence[Entry]
    ) -> None:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.write() as db:
            if user_id in self.users():
                raise InputError(f"user {user_id!r} has something stored; forget the user or import under another id")
            for session in sessions:
                _talk.open_session(db, session)
            _talk.insert_turns(db, user_id, turns)
            number = _bank.raise_version(db, user_id, reset=True)
            for entry in entries:
                _check_width(db, entry.embedding)
                _bank.put(db, user_id, entry, number)

    def users(self) -> Iterator[str]:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.read() as db:
            names = " UNION ".join(f"SELECT user_id FROM {table}" for table in ("sessions", "banks", "feedback"))
            rows = db.execute(f"{names} ORDER BY 1").fetchall()
        return iter([user_id for (user_id,) in rows])

    def reembed(self, banks: dict[str, tuple[int, dict[str, Vector]]]) -> None:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.write() as db:
            moved = [u for u in {*banks, *self.users()} if _bank.version(db, u)[0] != banks.get(u, (0, {}))[0]]
            if moved:
                raise ConflictError(f"{len(moved)} banks changed while their embeddings were made; do it again")
            db.execute("DELETE FROM settings WHERE name = 'width'")
            for user_id, (_, embeddings) in banks.items():
                for memory_id, vector in embeddings.items():
                    _check_width(db, vector)
                    _bank.set_embedding(db, user_id, memory_id, vector)
                if embeddings:
                    _bank.raise_version(db, user_id, reset=True)
            db.execute("DELETE FROM feedback")  # it speaks of the earlier embeddings

    # -- learning ------------------------------------------------------------------------

    def add_feedback(self, feedback: Feedback) -> None:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.write() as db:
            _talk.log(db, feedback)

    def width(self) -> int | None:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.read() as db:
            return _width(db)

    def feedback(self, *, after: int = 0, limit: int = 100, user_id: str | None = None) -> list[tuple[int, Feedback]]:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.read() as db:
            return _talk.logged(db, after, limit, user_id)

    def remove_feedback(self, last: int, *, user_id: str | None = None) -> int:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.write() as db:
            whose = _talk.unlog(db, last, user_id)
            for name in {name for name in whose if _bank.version(db, name)[0]}:
                _bank.raise_version(db, name, reset=True)
            return len(whose)

    def learner_version(self, scope: str) -> int:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.read() as db:
            return _talk.learner_version(db, scope)

    def learner_state(self, scope: str) -> LearnerState | None:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.read() as db:
            return _talk.learner(db, scope)

    def save_learner_state(self, scope: str, content: bytes, *, base_version: int) -> int:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._file.write() as db:
            return _talk.save_learner(db, scope, content, base_version)

    def close(self) -> None:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        self._file.close()
        self._cache.clear()

    # -- how -----------------------------------------------------------------------------

    def _follow(self, user_id: str, index: BankIndex) -> None:
        """Bring an index up to the bank as it stands; the caller holds the index's lock."""
        with self._file.read() as db:
            version, reset = _bank.version(db, user_id)
            if index.version < reset or version == 0:
                index.clear()
            index.asked.add(_talk.answered(db, user_id, index.asked.last, ASKED))
            if index.version == version:
                return
            documents, sessions = _bank.documents(db, user_id, index.version)
        index.put(documents, sessions)
        index.version = version
        self._cache.settle(user_id, index.size)


def _width(db: sqlite3.Connection) -> int | None:
    row = db.execute("SELECT value FROM settings WHERE name = 'width'").fetchone()
    return None if row is None else int(row[0])


def _check_width(db: sqlite3.Connection, vector: Vector) -> None:
    """Hold every embedding to the width of the first."""
    width = _width(db)
    if width is None:
        db.execute("INSERT INTO settings VALUES ('width', ?)", (len(vector),))
    elif width != len(vector):
        raise DimensionError(width, len(vector))


def _release_width(db: sqlite3.Connection) -> None:
    """A store without memories takes any embedder."""
    db.execute("DELETE FROM settings WHERE name = 'width' AND NOT EXISTS (SELECT 1 FROM memories)")
