"""Sessions, memories and feedback for the contract's tests."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np

from rmm_core.features import FEATURES
from rmm_core.protocols import BankChange, Entry, MemoryStore
from rmm_core.types import Feedback, Kind, Memory, Message, Revision, Session, TurnRef, Vector

T0 = datetime(2024, 3, 1, 12, 0, tzinfo=UTC)
WIDTH = 8
LOOKALIKES = (
    "foo",
    "foobar",
    "Foo",
    "a_b",
    "axb",
    "%",
    "a%b",
    "a b",
    "é",
    "e\u0301",
    "x' OR '1'='1",
    "用户",
    "1",
    "01",
)


def a_session(user: str, name: str, at: datetime = T0) -> Session:
    """A session that just began."""
    return Session(user, name, "Ann", "Bot", started_at=at, last_at=at)


def talk(store: MemoryStore, user: str, session: str, *texts: str, at: datetime = T0) -> None:
    """Store texts as the user's turns of a session."""
    store.open_session(a_session(user, session, at))
    store.append(user, session, [Message("user", text) for text in texts], at=at)


def a_reflection(store: MemoryStore, user: str, session: str, upto: int, *entries: Entry) -> BankChange:
    """A reflection of a session's turns before ``upto``."""
    born = store.session(user, session).born
    return BankChange(store.bank_version(user), entries, (), session, born, 0, upto)


def axis(i: int) -> Vector:
    """A unit vector along one axis."""
    axis: Vector = np.eye(WIDTH, dtype=np.float32)[i]
    return axis


def a_memory(
    user: str, name: str, summary: str, *refs: tuple[str, int], kind: Kind = "topic", history: tuple[Revision, ...] = ()
) -> Memory:
    """A memory that rests on ``refs``."""
    return Memory(name, user, kind, summary, tuple(TurnRef(*r) for r in refs), T0, T0, history)


def an_entry(
    user: str, name: str, summary: str, along: int, turn: int, *, kind: Kind = "topic", near: int | None = None
) -> Entry:
    """A memory on one turn of session "s", its embedding an axis, or leaning away from axis ``near``."""
    vector = axis(along % WIDTH) if near is None else axis(near) * (1.0 - 0.1 * along)
    return Entry(a_memory(user, name, summary, ("s", turn), kind=kind), vector)


def a_feedback(user: str, name: str = "recall") -> Feedback:
    """Feedback on three candidates, two shown, one cited."""
    rng = np.random.default_rng(7)
    return Feedback(
        recall_id=name,
        user_id=user,
        embedding=axis(1),
        memory_ids=("a", "b", "c"),
        features=rng.random((3, len(FEATURES))).astype(np.float32),
        noise=rng.random(3).astype(np.float32),
        shown=(0, 2),
        cited=(2,),
        at=T0,
    )


def found(store: MemoryStore, user: str, along: int, text: str) -> list[str]:
    """Ids of what a search finds, sorted."""
    return sorted(c.memory.id for c in store.search(user, axis(along), text=text, limit=10))
