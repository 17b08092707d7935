"""The store to grow into: PostgreSQL with pgvector, for many workers on many machines.

What is kept, and most of the statements, are those of the SQLite store. What differs: nothing is held in the worker but
what a user asked last, since the server searches (:mod:`rmm_core.stores._pg_search`); and writes wait for each other
user by user, not all for one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from typing import ClassVar, cast

from rmm_core.bounded import Bounded
from rmm_core.checkup import Finding
from rmm_core.errors import ConfigError, ConflictError, DimensionError, InputError
from rmm_core.protocols import BankChange, Entry
from rmm_core.stores import _bank, _pg_search, _talk
from rmm_core.stores._asked import ASKED, Asked
from rmm_core.stores._pg_pool import Pool, Transaction, index_width, packed
from rmm_core.stores._pg_schema import MIGRATIONS
from rmm_core.stores._sql import Sql
from rmm_core.stores._store import SqlStore
from rmm_core.types import Candidate, Feedback, Kind, Memory, Message, Session, Turn, Vector


class PostgresStore(SqlStore):
    """A :class:`~rmm_core.protocols.MemoryStore` in a PostgreSQL database.

    Args:
        url: ``postgresql://user:password@host/database``. Everything lies in the schema ``rmm``, or in the first of the
            ``search_path`` that the URL's ``options`` name. The extensions vector and btree_gin are made when they are
            not there.
        connections: How many this process opens at most.
        partitions: Of each table, by the hash of the user, in a database that is new; a large installation takes 64.
        row_security: Have the server, too, hold every transaction to the rows of its user.
        exact_up_to: Memories of a bank up to which every embedding is compared; larger banks are searched by HNSW.

    Raises:
        ConfigError: When the URL cannot be read.
        MissingDependencyError: When the extra ``postgres`` is not installed.
        StoreError: When the server cannot be reached, lacks pgvector, or holds a newer schema.
    """

    _faults = (*SqlStore._faults, _pg_search.UNLIKE_ITS_BANK)
    _own: ClassVar[Mapping[str, str]] = {
        "width": "vector_dims(embedding)",
        "now": "extract(epoch FROM clock_timestamp())",
    }

    def __init__(
        self,
        url: str,
        *,
        connections: int = 8,
        partitions: int = 1,
        row_security: bool = False,
        exact_up_to: int = 10_000,
    ) -> None:
        for name, value, least in (("connections", connections, 1), ("partitions", partitions, 1)):
            if not isinstance(value, int) or value < least:
                raise ConfigError(f"{name} must be a whole number of at least {least}; got {value!r}")
        self._pool = Pool(url, connections=connections, partitions=partitions, row_security=row_security)
        self._exact_up_to = exact_up_to
        self._asked: Bounded[str, tuple[int, Asked]] = Bounded(256)

    # -- sessions and turns --------------------------------------------------------------

    def open_session(self, session: Session) -> Session:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._pool.write(session.user_id) as db:
            _talk.open_session(db, _kept(session), db.next_number())
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
        with self._pool.write(user_id) as db:
            turns = _talk.append(db, user_id, session_id, [_kept_message(m) for m in messages], at)
            if feedback is not None and (turns or not messages):
                asked_in = _talk.asked_in(db, user_id, session_id, messages, turns)
                _log(db, replace(feedback, asked_in=asked_in or feedback.asked_in))
            return turns

    def fail_session(self, user_id: str, session_id: str, error: str) -> Session:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._pool.write(user_id) as db:
            return _talk.fail_session(db, user_id, session_id, _text(error))

    def lease(self, user_id: str, session_id: str, *, holder: str, seconds: float) -> bool:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._pool.write(user_id) as db:
            (now,) = db.execute("SELECT extract(epoch FROM clock_timestamp())::float").fetchone()
            return _talk.lease(db, user_id, session_id, holder, seconds, now)

    # -- the bank ------------------------------------------------------------------------

    def commit(self, user_id: str, change: BankChange) -> int:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._pool.write(user_id) as db:
            _bank.check(db, user_id, change)
            _check_width(db, [e.embedding for e in change.entries])
            number = db.next_number()
            moved = _bank.sessions_of(db, user_id, change.removed) | ({change.session_id} - {""})
            with _pg_search.followed(db, user_id, moved | _sessions_of(change.entries)):
                gone = _bank.remove(db, user_id, change.removed)
                _bank.raise_version(db, user_id, number, reset=gone > 0)
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
        with self._pool.read(user_id) as db:
            row = db.execute(
                "SELECT reset, memories, (SELECT value FROM settings WHERE name = 'width') FROM banks"
                " WHERE user_id = ?",
                (user_id,),
            ).fetchone()
            width = _bank.width(db) if row is None else row[2]
            if width is not None and width != len(vector):
                raise DimensionError(width, len(vector))
            if row is None:
                return ()
            reset, memories, _ = row
            asked = self._follow(db, user_id, reset) if text else Asked()
            exact = memories <= self._exact_up_to
            given = [_text(i) for i in near]
            hits = _pg_search.search(db, user_id, vector, text, limit, kind, asked, near=given, exact=exact)
            entries = _bank.entries(db, user_id, list(hits))
        return _bank.candidates(entries, hits, vector)

    def delete(self, user_id: str, memory_id: str) -> bool:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._pool.write(user_id) as db:
            moved = _bank.sessions_of(db, user_id, [memory_id])
            with _pg_search.followed(db, user_id, moved):
                was_there = _bank.delete(db, user_id, memory_id)
                if was_there:
                    _bank.raise_version(db, user_id, db.next_number(), reset=True)
        if was_there:
            self._release_width()
        return was_there

    def forget_user(self, user_id: str) -> dict[str, int]:
        """See :class:`~rmm_core.protocols.MemoryStore`.

        Rows leave the server's files when it next vacuums their tables, and its log and backups as these are let go.
        """
        with self._pool.write(user_id) as db:
            removed = _bank.forget(db, user_id)
        self._release_width()
        self._asked.pop(user_id)
        return removed

    def purge(self, user_id: str, memory_ids: Sequence[str], *, before: datetime | None = None) -> dict[str, int]:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._pool.write(user_id) as db:
            older = [] if before is None else _bank.sessions_before(db, user_id, before)
            with _pg_search.followed(db, user_id, {*_bank.sessions_of(db, user_id, memory_ids), *older}):
                removed = _bank.purge(db, user_id, memory_ids, before)
                if any(removed.values()) and _bank.version(db, user_id)[0]:
                    _bank.raise_version(db, user_id, db.next_number(), reset=True)
        self._release_width()
        return removed

    def restore_user(
        self, user_id: str, sessions: Sequence[Session], turns: Sequence[Turn], entries: Sequence[Entry]
    ) -> None:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._pool.write(user_id) as db:
            if user_id in _bank.users(db):
                raise InputError(f"user {user_id!r} has something stored; forget the user or import under another id")
            for session in sessions:
                _talk.open_session(db, _kept(session), db.next_number())
            _talk.insert_turns(db, user_id, [replace(t, text=_text(t.text), speaker=_text(t.speaker)) for t in turns])
            _check_width(db, [e.embedding for e in entries])
            number = db.next_number()
            with _pg_search.followed(db, user_id, _sessions_of(entries)):
                _bank.raise_version(db, user_id, number, reset=True)
                _put(db, user_id, entries, number)

    def reembed(self, banks: dict[str, tuple[int, dict[str, Vector]]]) -> None:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._pool.write() as db:
            db.alone("width")
            db.execute("LOCK TABLE banks, memories IN EXCLUSIVE MODE")
            _bank.check_all(db, banks)
            db.execute("DROP INDEX IF EXISTS memories_nearest")
            db.execute("DELETE FROM settings WHERE name = 'width'")
            for user_id, (_, embeddings) in banks.items():
                for memory_id, vector in embeddings.items():
                    _bank.set_embedding(db, user_id, memory_id, vector, pack=packed)
                if embeddings:
                    _bank.raise_version(db, user_id, db.next_number(), reset=True)
            _check_width(db, [v for _, embeddings in banks.values() for v in embeddings.values()])
            db.execute("DELETE FROM feedback")  # it speaks of the earlier embeddings

    # -- learning ------------------------------------------------------------------------

    def add_feedback(self, feedback: Feedback) -> None:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._pool.write(feedback.user_id) as db:
            _log(db, feedback)

    def remove_feedback(self, last: int, *, user_id: str | None = None) -> int:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._pool.write() as db:
            whose = _talk.unlog(db, last, user_id)
            for name in sorted({name for name in whose if _bank.version(db, name)[0]}):
                _bank.raise_version(db, name, db.next_number(), reset=True)
            return len(whose)

    # -- checking ------------------------------------------------------------------------

    def check(self, *, idle_since: datetime, reads: Callable[[bytes], bool]) -> list[Finding]:
        """See :class:`~rmm_core.checkup.SelfChecking`."""
        found = super().check(idle_since=idle_since, reads=reads)
        with self._pool.read() as db:
            return found + [_invalid(name, f"call repair(): {_BUILT}") for name in _pg_search.invalid_indexes(db)]

    def repair(self, *, reads: Callable[[bytes], bool]) -> list[Finding]:
        """See :class:`~rmm_core.checkup.SelfChecking`; writes to a table wait while an index of it is built anew."""
        mended = super().repair(reads=reads)
        with self._pool.read() as db:
            names = _pg_search.invalid_indexes(db)
        for name in names:
            with self._pool.write() as db:
                db.execute(f"REINDEX INDEX {name}")
            mended.append(_invalid(name, _BUILT))
        return mended

    def close(self) -> None:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        self._pool.close()

    # -- how -----------------------------------------------------------------------------

    def _read(self, user_id: str | None = None) -> AbstractContextManager[Sql]:
        return self._pool.read(user_id)

    def _write(self, user_id: str | None = None) -> AbstractContextManager[Sql]:
        return self._pool.write(user_id)

    def _schema(self, db: Sql) -> tuple[str, int, int]:
        return "the database", db.execute("SELECT version FROM schema_version").fetchone()[0], len(MIGRATIONS)

    def _reindex(self, db: Sql, user_id: str) -> None:
        own = cast(Transaction, db)
        _bank.raise_version(own, user_id, own.next_number(), reset=True)
        _pg_search.rebuild(own, user_id)

    def _follow(self, db: Transaction, user_id: str, reset: int) -> Asked:
        """What a user asked before, brought up to the log."""
        since, asked = self._asked.get(user_id) or (reset, Asked())
        if since != reset:
            asked = Asked()
        new = _talk.logged(db, asked.last, ASKED, user_id, newest=True)
        if new:
            asked = asked.copied()
            asked.add(new)
        self._asked.put(user_id, (reset, asked))
        return asked

    def _release_width(self) -> None:
        """A store without memories takes any embedder."""
        with self._pool.write() as db:
            db.alone("width")
            db.execute("DELETE FROM settings WHERE name = 'width' AND NOT EXISTS (SELECT 1 FROM memories)")


_BUILT = "it is built anew"


def _invalid(name: str, remedy: str) -> Finding:
    return Finding("index", None, f"the index {name} is marked as invalid, and not used", remedy, repairable=True)


def _log(db: Transaction, feedback: Feedback) -> None:
    """Append to the learning log; one at a time: numbers become visible in their order, and no reader passes one by."""
    db.alone("feedback")
    _talk.log(db, feedback)


def _put(db: Transaction, user_id: str, entries: Iterable[Entry], number: int) -> None:
    _bank.put(db, user_id, [Entry(_kept_memory(e.memory), e.embedding) for e in entries], number, pack=packed)


def _sessions_of(entries: Iterable[Entry]) -> set[str]:
    return {ref.session_id for e in entries for ref in e.memory.evidence}


def _check_width(db: Transaction, vectors: Iterable[Vector]) -> None:
    """Hold every embedding to the width of the first, which nobody releases meanwhile."""
    widths = list(dict.fromkeys(len(v) for v in vectors))
    if not widths:
        return
    held = _bank.width(db)
    db.alone("width", shared=held is not None)
    if held is not None and _bank.width(db) != held:
        raise ConflictError("the store was emptied meanwhile; do it again")
    held = _bank.width(db)
    if held is None:
        held = widths[0]
        db.execute("INSERT INTO settings VALUES ('width', ?)", (held,))
        index_width(db, held)
    for width in widths:
        if width != held:
            raise DimensionError(held, width)


def _kept(session: Session) -> Session:
    s = session
    return replace(s, user_name=_text(s.user_name), agent_name=_text(s.agent_name), error=_text(s.error))


def _kept_message(message: Message) -> Message:
    return replace(message, text=_text(message.text), speaker=_text(message.speaker))


def _kept_memory(memory: Memory) -> Memory:
    history = tuple(replace(r, summary=_text(r.summary)) for r in memory.history)
    return replace(memory, summary=_text(memory.summary), history=history)


def _text(text: str) -> str:
    """What PostgreSQL holds of a text: all but the character 0, which is shown as one that could not be read."""
    return text.replace("\x00", "\ufffd")
