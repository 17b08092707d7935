"""How much is kept of a user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rmm_cli.text import plural
from rmm_core import Memory, ReflectiveMemory, Session


@dataclass(frozen=True, slots=True)
class UserCounts:
    """What :meth:`~rmm_core.ReflectiveMemory.status` tells, but for the learner, which takes ten times as long to read.

    Attributes:
        pending: Sessions with turns the bank does not know yet.
        last_seen: When a session was last written to; None without any.
    """

    user_id: str
    topics: int
    unfiled: int
    turns: int
    sessions: int
    pending: int
    consents: bool
    last_seen: datetime | None

    @property
    def held(self) -> str:
        """What is there to be lost."""
        return f"{plural(self.topics + self.unfiled, 'memory', 'memories')} and {plural(self.turns, 'turn')}"


def counted(memory: ReflectiveMemory, user_id: str) -> UserCounts:
    """How much is kept of a user."""
    memories, sessions = memory.memories(user_id), memory.store.sessions(user_id)
    return counts_of(user_id, memories, sessions, consents=not memory.store.declined(user_id))


def counts_of(user_id: str, memories: Sequence[Memory], sessions: Sequence[Session], *, consents: bool) -> UserCounts:
    """How much these are."""
    topics = sum(m.kind == "topic" for m in memories)
    return UserCounts(
        user_id=user_id,
        topics=topics,
        unfiled=len(memories) - topics,
        turns=sum(s.turns for s in sessions),
        sessions=len(sessions),
        pending=sum(s.reflected < s.turns for s in sessions),
        consents=consents,
        last_seen=max((s.last_at for s in sessions), default=None),
    )
