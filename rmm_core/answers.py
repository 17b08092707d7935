"""The learning log as people read it: what was asked, what was shown, what was cited."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime

from rmm_core.protocols import MemoryStore
from rmm_core.types import Feedback


@dataclass(frozen=True, slots=True)
class ShownMemory:
    """A memory that was shown for an answer.

    Attributes:
        summary: What it says now; None when it is gone, or was a text that somebody else's retriever found.
        cited: Whether the answer cited it.
    """

    memory_id: str
    summary: str | None
    cited: bool


@dataclass(frozen=True, slots=True)
class AnswerRecord:
    """One entry of the learning log.

    Attributes:
        number: Its number in the log; numbers ascend, over all users.
        at: When it was answered.
        query: What was asked; None when it was asked without a chat, or has been deleted since. It is read from the
            user's turn: the log itself holds no text.
        shown: What was shown, in order.
        duel: Whether the learned ranking and the prior shared the places; see :mod:`rmm_core.guard`.
    """

    number: int
    user_id: str
    at: datetime
    query: str | None
    shown: tuple[ShownMemory, ...]
    duel: bool


def answers(store: MemoryStore, user_id: str | None, last: int) -> tuple[AnswerRecord, ...]:
    """The last entries of the learning log, one user's or everybody's, oldest first."""
    log = store.feedback(limit=last, user_id=user_id, newest=True)
    by_user: defaultdict[str, list[Feedback]] = defaultdict(list)
    for _, f in log:
        by_user[f.user_id].append(f)
    asked, said = {}, {}
    for user, mine in by_user.items():
        ids = {f.memory_ids[i] for f in mine if f.embeddings is None for i in f.shown}
        said[user] = store.entries(user, sorted(ids))
        asked[user] = store.turns_at(user, sorted({f.asked_in for f in mine if f.asked_in is not None}))
    records = []
    for number, f in log:
        turn = None if f.asked_in is None else asked[f.user_id].get(f.asked_in)
        held = said[f.user_id] if f.embeddings is None else {}
        shown = tuple(
            ShownMemory(name, held[name].memory.summary if name in held else None, i in f.cited)
            for i, name in ((i, f.memory_ids[i]) for i in f.shown)
        )
        records.append(AnswerRecord(number, f.user_id, f.at, None if turn is None else turn.text, shown, bool(f.duel)))
    return tuple(records)
