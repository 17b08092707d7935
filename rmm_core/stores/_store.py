"""What both databases do alike: a statement of ``_talk.py`` or ``_bank.py`` in a transaction of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import ClassVar

from rmm_core.checkup import Finding
from rmm_core.errors import NotFoundError
from rmm_core.protocols import Entry, LearnerState
from rmm_core.stores import _bank, _checks, _talk
from rmm_core.stores._sql import Sql
from rmm_core.types import Feedback, Kind, Memory, Session, Turn, TurnRef


class SqlStore(ABC):
    """The plain half of a :class:`~rmm_core.protocols.MemoryStore`, over transactions that a database gives.

    It is :class:`~rmm_core.checkup.SelfChecking`, too.
    """

    _faults: ClassVar[tuple[_checks.Fault, ...]] = _checks.FAULTS
    _own: ClassVar[Mapping[str, str]]  # this database's expressions in the conditions of faults
    _owner: ClassVar[str] = "user_id"  # whose a row of the memories is, read from the row and from no index

    @abstractmethod
    def _read(self, user_id: str | None = None) -> AbstractContextManager[Sql]:
        """A transaction that sees one state of the database: one user's rows, or for None everybody's."""

    @abstractmethod
    def _write(self, user_id: str | None = None) -> AbstractContextManager[Sql]:
        """A transaction that commits at the end, or leaves no trace."""

    @abstractmethod
    def _schema(self, db: Sql) -> tuple[str, int, int]:
        """What the database is called, the version of its schema, and the one that this version knows."""

    @abstractmethod
    def _reindex(self, db: Sql, user_id: str) -> None:
        """Have searches read a user's bank anew."""

    def end_session(self, user_id: str, session_id: str) -> Session:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._write(user_id) as db:
            return _talk.end_session(db, user_id, session_id)

    def release(self, user_id: str, session_id: str, *, holder: str) -> None:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._write(user_id) as db:
            _talk.release(db, user_id, session_id, holder)

    def session(self, user_id: str, session_id: str) -> Session:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._read(user_id) as db:
            return _talk.session(db, user_id, session_id)

    def sessions(self, user_id: str) -> tuple[Session, ...]:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._read(user_id) as db:
            return _talk.sessions(db, user_id)

    def pending(self, *, idle_since: datetime, user_id: str | None = None) -> tuple[Session, ...]:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._read(user_id) as db:
            return _talk.pending(db, idle_since, user_id)

    def turns(self, user_id: str, session_id: str, start: int = 0, stop: int | None = None) -> tuple[Turn, ...]:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._read(user_id) as db:
            return _talk.turns(db, user_id, session_id, start, stop)

    def turns_at(self, user_id: str, refs: Sequence[TurnRef]) -> dict[TurnRef, Turn]:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._read(user_id) as db:
            return _talk.turns_at(db, user_id, refs)

    def bank_version(self, user_id: str) -> int:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._read(user_id) as db:
            return _bank.version(db, user_id)[0]

    def get(self, user_id: str, memory_id: str) -> Memory:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        entry = self.entries(user_id, [memory_id]).get(memory_id)
        if entry is None:
            raise NotFoundError(f"user {user_id!r} has no memory {memory_id!r}")
        return entry.memory

    def memories(self, user_id: str, *, kind: Kind | None = None) -> tuple[Memory, ...]:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._read(user_id) as db:
            return _bank.memories(db, user_id, kind, owner=self._owner)

    def entries(self, user_id: str, memory_ids: Sequence[str]) -> dict[str, Entry]:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._read(user_id) as db:
            return {e.memory.id: e for e in _bank.entries(db, user_id, memory_ids, owner=self._owner)}

    def decline(self, user_id: str, *, wants_nothing: bool) -> None:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._write(user_id) as db:
            _talk.decline(db, user_id, wants_nothing=wants_nothing)

    def declined(self, user_id: str) -> bool:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._read(user_id) as db:
            return _talk.declined(db, user_id)

    def users(self) -> Iterator[str]:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._read() as db:
            return iter(_bank.users(db))

    def width(self) -> int | None:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._read() as db:
            return _bank.width(db)

    def feedback(
        self, *, after: int = 0, limit: int = 100, user_id: str | None = None, newest: bool = False
    ) -> list[tuple[int, Feedback]]:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._read(user_id) as db:
            return _talk.logged(db, after, limit, user_id, newest=newest)

    def learner_version(self, scope: str) -> int:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._read() as db:
            return _talk.learner_version(db, scope)

    def learner_state(self, scope: str) -> LearnerState | None:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._read() as db:
            return _talk.learner(db, scope)

    def save_learner_state(self, scope: str, content: bytes, *, base_version: int) -> int:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        with self._write() as db:
            return _talk.save_learner(db, scope, content, base_version)

    def check(self, *, idle_since: datetime, reads: Callable[[bytes], bool]) -> list[Finding]:
        """See :class:`~rmm_core.checkup.SelfChecking`."""
        with self._read() as db:
            found = list(_checks.outdated(*self._schema(db)))
            for fault in self._faults:
                found += [fault.finding(*whose) for whose in _checks.damaged(db, fault, self._own)]
            found += _checks.waiting(db, idle_since)
        return found + [_checks.unreadable(scope) for scope, _ in self._unreadable(reads)]

    def repair(self, *, reads: Callable[[bytes], bool]) -> list[Finding]:
        """See :class:`~rmm_core.checkup.SelfChecking`."""
        mended = []
        for fault in self._faults:
            with self._read() as db:
                users = [user_id for user_id, _ in _checks.damaged(db, fault, self._own)] if fault.repairable else []
            for user_id in users:
                with self._write(user_id) as db:
                    found = _checks.damaged(db, fault, self._own, user_id)
                    _checks.mend(db, fault, self._own, user_id)
                    if fault.reindex and found:
                        self._reindex(db, user_id)
                mended += [fault.finding(*whose, mended=True) for whose in found]
        for scope, version in self._unreadable(reads):
            with self._write() as db:
                if _checks.remove_learner(db, scope, version):
                    mended.append(_checks.unreadable(scope, mended=True))
        return mended

    def _unreadable(self, reads: Callable[[bytes], bool]) -> Iterator[tuple[str, int]]:
        """What learners saved and cannot be read: its scope and version."""
        with self._read() as db:
            scopes = _checks.learners(db)
        for scope in scopes:
            state = self.learner_state(scope)
            if state is not None and not reads(state.content):
                yield scope, state.version
