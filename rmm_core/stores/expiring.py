"""Retention: what is too old is not read any more, whatever reads it, until it is purged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, cast

from rmm_core.config import RMMConfig
from rmm_core.errors import NotFoundError
from rmm_core.protocols import Entry, MemoryStore
from rmm_core.types import Candidate, Kind, Memory, Vector


def expiring(store: MemoryStore, config: RMMConfig, clock: Callable[[], datetime]) -> MemoryStore:
    """``store``, without what the configuration lets expire."""
    if config.expire_days is None and config.expire_uncited_days is None:
        return store
    return cast(MemoryStore, ExpiringStore(store, config, clock))


class ExpiringStore:
    """A :class:`~rmm_core.protocols.MemoryStore` that gives no memory which has expired.

    It stands before every read of memories, so that no caller can forget to look.

    Args:
        store: Where everything is kept.
        config: Says when a memory expires.
        clock: Tells the time.
    """

    def __init__(self, store: MemoryStore, config: RMMConfig, clock: Callable[[], datetime]) -> None:
        self.inner = store
        self._config = config
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        """Everything that reads no memories is the store's own."""
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
        """See :class:`~rmm_core.protocols.MemoryStore`; asks for more where what expired takes the place."""
        asked = limit
        while True:
            found = self.inner.search(user_id, vector, text=text, limit=asked, kind=kind, near=near)
            kept = tuple(c for c in found if self.keeps(c.memory))
            if len(kept) >= limit or len(found) < asked or len(kept) == len(found):
                return kept
            asked *= 4

    def get(self, user_id: str, memory_id: str) -> Memory:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        found = self.inner.get(user_id, memory_id)
        if not self.keeps(found):
            raise NotFoundError(f"the memory {memory_id!r} of user {user_id!r} has expired")
        return found

    def memories(self, user_id: str, *, kind: Kind | None = None) -> tuple[Memory, ...]:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        return tuple(m for m in self.inner.memories(user_id, kind=kind) if self.keeps(m))

    def entries(self, user_id: str, memory_ids: Sequence[str]) -> dict[str, Entry]:
        """See :class:`~rmm_core.protocols.MemoryStore`."""
        return {i: e for i, e in self.inner.entries(user_id, memory_ids).items() if self.keeps(e.memory)}

    def keeps(self, memory: Memory) -> bool:
        """Whether a memory has not expired."""
        c, now = self._config, self._clock()
        used = max(memory.updated_at, memory.cited_at or memory.updated_at)
        return not (_older(memory.updated_at, now, c.expire_days) or _older(used, now, c.expire_uncited_days))

    def expired(self, user_id: str) -> list[str]:
        """The memories that are still there and not read any more."""
        return [m.id for m in self.inner.memories(user_id) if not self.keeps(m)]


def _older(at: datetime, now: datetime, days: float | None) -> bool:
    return days is not None and now - at > timedelta(days=days)
