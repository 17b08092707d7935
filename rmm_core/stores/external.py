"""Somebody else's vector store in front of ours: it says which memories are near, everything else stays here.

What it says is advice. Only ids of the user's own bank count, every score and feature is ours, and where it says too
little, or nothing, our own search is as good as before.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar, cast
from uuid import UUID, uuid5

from rmm_core.errors import StoreError
from rmm_core.protocols import BankChange, Entry, MemoryStore
from rmm_core.types import Candidate, Kind, Session, Turn, Vector

logger = logging.getLogger(__name__)
T = TypeVar("T")
_NAMESPACE = UUID("6f0d3a0e-52b4-4c1f-9a57-1d5c1b7e2f90")
_BATCH = 500


class CandidateSource(Protocol):
    """A vector store of somebody else's. It may raise what it likes; all methods block, and any thread calls them."""

    def put(self, user_id: str, entries: Sequence[Entry]) -> None:
        """Hold entries, in place of those of the same user and id."""
        ...

    def remove(self, user_id: str, memory_ids: Sequence[str]) -> None:
        """Let go of memories; those that are not there are no error."""
        ...

    def forget(self, user_id: str) -> None:
        """Let go of everything of a user, also of what our database does not know any more."""
        ...

    def nearest(self, user_id: str, vector: Vector, limit: int, kind: Kind | None) -> Sequence[str]:
        """The ids of the user's memories nearest to ``vector``, of one kind or of all, best first."""
        ...


def key_of(*parts: str) -> str:
    """A UUID for what is named by ``parts``.

    Ids of memories are unique within a user only; and a UUID is the same text to every database, whatever it makes of
    case, accents, quotes and digits in what apps call their users.
    """
    return str(uuid5(_NAMESPACE, json.dumps(parts)))


def labels(user_id: str, memory_id: str, kind: Kind) -> dict[str, str]:
    """What a foreign store keeps with a memory, beside its text."""
    return {"rmm_id": memory_id, "rmm_user": key_of(user_id), "rmm_kind": key_of(user_id, "kind", kind)}


def label(user_id: str, kind: Kind | None = None) -> tuple[str, str]:
    """The one label, by name and value, of a user's memories of a kind, or of all."""
    return ("rmm_user", key_of(user_id)) if kind is None else ("rmm_kind", key_of(user_id, "kind", kind))


def external(store: MemoryStore, source: CandidateSource | None) -> MemoryStore:
    """``store``, asking ``source`` which memories are near."""
    return store if source is None else cast(MemoryStore, ExternalStore(store, source))


class ExternalStore:
    """A :class:`~rmm_core.protocols.MemoryStore` whose nearest memories are found by somebody else's vector store.

    Ours is the truth, and written first. When the source then fails, that is logged: until :meth:`sync` puts everything
    anew, what it did not get is found by its words, by what answers cited, and by our own search where the source finds
    fewer than were asked for. When it cannot be asked, our own search serves. Erasure is the exception: the source goes
    first, since ours alone knows what there is to erase; it raises when the source fails, and can be called again.

    Args:
        store: Where everything is kept.
        source: What says which memories are near.
    """

    def __init__(self, store: MemoryStore, source: CandidateSource) -> None:
        self.inner = store
        self.source = source

    def __getattr__(self, name: str) -> Any:
        """Everything that neither searches nor changes memories is the store's own."""
        return getattr(self.inner, name)

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
        near = near or self._nearest(user_id, vector, limit, kind)
        return self.inner.search(user_id, vector, text=text, limit=limit, kind=kind, near=near)

    def commit(self, user_id: str, change: BankChange) -> int:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        version = self.inner.commit(user_id, change)
        self._follow(user_id, change.entries, change.removed)
        return version

    def restore_user(
        self, user_id: str, sessions: Sequence[Session], turns: Sequence[Turn], entries: Sequence[Entry]
    ) -> None:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        self.inner.restore_user(user_id, sessions, turns, entries)
        self._follow(user_id, entries, ())

    def reembed(self, banks: dict[str, tuple[int, dict[str, Vector]]]) -> None:
        """See :class:`~rmm_core.protocols.MemoryStore`; raises when the source keeps the earlier embeddings."""
        self.inner.reembed(banks)
        self.sync()

    def delete(self, user_id: str, memory_id: str) -> bool:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        return self._erased(
            lambda: self.source.remove(user_id, [memory_id]), lambda: self.inner.delete(user_id, memory_id)
        )

    def purge(self, user_id: str, memory_ids: Sequence[str], *, before: datetime | None = None) -> Mapping[str, int]:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        return self._erased(
            lambda: self._remove(user_id, memory_ids), lambda: self.inner.purge(user_id, memory_ids, before=before)
        )

    def forget_user(self, user_id: str) -> Mapping[str, int]:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        known = [m.id for m in self.inner.memories(user_id)]

        def forget() -> None:
            self._remove(user_id, known)
            self.source.forget(user_id)

        return self._erased(forget, lambda: self.inner.forget_user(user_id))

    def sync(self, user_id: str | None = None) -> int:
        """Put every memory into the source anew, one user's or everybody's; how many.

        For a bank that was there before the source, and after the source failed.

        Raises:
            StoreError: When the source fails; call it again.
        """
        count = 0
        for name in list(self.inner.users()) if user_id is None else [user_id]:
            ids = [m.id for m in self.inner.memories(name)]
            with_source("could not forget what it held", self.source.forget, name)
            for start in range(0, len(ids), _BATCH):
                entries = list(self.inner.entries(name, ids[start : start + _BATCH]).values())
                with_source("could not take memories", self._put, name, entries)
                count += len(entries)
        return count

    def _nearest(self, user_id: str, vector: Vector, limit: int, kind: Kind | None) -> Sequence[str]:
        try:
            return [str(i) for i in self.source.nearest(user_id, vector, limit, kind)]
        except Exception as error:  # whatever it is, we can search ourselves
            logger.warning("the vector store cannot be searched, ours is: %s", _brief(error))
            return ()

    def _follow(self, user_id: str, entries: Sequence[Entry], removed: Sequence[str]) -> None:
        """Bring the source up to what was committed here."""
        try:
            self._remove(user_id, removed)
            self._put(user_id, entries)
        except Exception as error:  # it is committed; what can be searched less well is not lost
            logger.error("the vector store is behind, call sync(): %s", _brief(error))  # noqa: TRY400  # texts of users

    def _put(self, user_id: str, entries: Sequence[Entry]) -> None:
        """Put entries, and take out again what was erased here meanwhile."""
        if entries:
            self.source.put(user_id, entries)
            ids = [e.memory.id for e in entries]
            held = self.inner.entries(user_id, ids)
            self._remove(user_id, [i for i in ids if i not in held])

    def _remove(self, user_id: str, memory_ids: Sequence[str]) -> None:
        for start in range(0, len(memory_ids), _BATCH):
            self.source.remove(user_id, memory_ids[start : start + _BATCH])

    @staticmethod
    def _erased(there: Callable[[], None], here: Callable[[], T]) -> T:
        """Erase there, then here, and there once more: a commit may have put back what it took before we took it."""
        with_source("could not erase, and what is left there stays until it can", there)
        done = here()
        with_source("could not erase, and what is left there stays until it can", there)
        return done


def with_source(what: str, step: Callable[..., Any], *arguments: Any) -> None:
    """Take a step that must not fail silently.

    Raises:
        StoreError: Saying what the source could not do, and to call again.
    """
    try:
        step(*arguments)
    except Exception as error:  # whatever a foreign store raises, the caller is told one thing
        raise StoreError(f"the vector store {what}; call it again ({_brief(error)})") from error


def _brief(error: Exception) -> str:
    """What an error says first: drivers add statements to it, with what users said."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"
