"""Statements on sessions, turns and the learning log.

Functions here run inside the caller's transaction.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from rmm_core.errors import ConflictError, NotFoundError
from rmm_core.protocols import LearnerState
from rmm_core.stores._rows import (
    FEEDBACK_COLUMNS,
    SESSION_COLUMNS,
    TURN_COLUMNS,
    feedback_of,
    feedback_row,
    session_of,
    session_row,
    time_text,
    turn_at,
    turn_of,
    turn_row,
)
from rmm_core.types import Feedback, Message, Session, Turn, TurnRef


def session(db: sqlite3.Connection, user_id: str, session_id: str) -> Session:
    """One session.

    Raises:
        NotFoundError: When there is none.
    """
    row = db.execute(
        f"SELECT {SESSION_COLUMNS} FROM sessions WHERE user_id = ? AND id = ?", (user_id, session_id)
    ).fetchone()
    if row is None:
        raise NotFoundError(f"user {user_id!r} has no session {session_id!r}")
    return session_of(row)


def sessions(db: sqlite3.Connection, user_id: str) -> tuple[Session, ...]:
    """A user's sessions, oldest first."""
    rows = db.execute(f"SELECT {SESSION_COLUMNS} FROM sessions WHERE user_id = ? ORDER BY started_at, id", (user_id,))
    return tuple(map(session_of, rows))


def pending(db: sqlite3.Connection, idle_since: datetime, user_id: str | None) -> tuple[Session, ...]:
    """Sessions with unreflected turns that ended, or were silent since ``idle_since``."""
    rows = db.execute(
        f"SELECT {SESSION_COLUMNS} FROM sessions WHERE reflected < turns AND (ended OR last_at < ?)"
        " AND (? IS NULL OR user_id = ?) ORDER BY started_at, user_id, id",
        (time_text(idle_since), user_id, user_id),
    )
    return tuple(map(session_of, rows))


def open_session(db: sqlite3.Connection, new: Session) -> None:
    """Insert a session, or take back the end of the one that is there."""
    marks = ", ".join("?" * len(SESSION_COLUMNS.split(",")))
    db.execute(
        f"INSERT INTO sessions ({SESSION_COLUMNS}) VALUES ({marks}) ON CONFLICT DO UPDATE SET ended = 0",
        session_row(replace(new, born=next_number(db))),
    )


def lease(db: sqlite3.Connection, user_id: str, session_id: str, holder: str, seconds: float) -> bool:
    """Take a session, or hold on to it, unless it is somebody else's; whether it is ``holder``'s now."""
    now = time.time()
    taken = db.execute(
        "UPDATE sessions SET holder = ?1, held_until = ?2 WHERE user_id = ?3 AND id = ?4"
        " AND (holder IN ('', ?1) OR held_until < ?5)",
        (holder, now + seconds, user_id, session_id, now),
    ).rowcount
    if not taken:
        session(db, user_id, session_id)
    return bool(taken)


def release(db: sqlite3.Connection, user_id: str, session_id: str, holder: str) -> None:
    """Give a session back."""
    db.execute(
        "UPDATE sessions SET holder = '', held_until = 0 WHERE user_id = ? AND id = ? AND holder = ?",
        (user_id, session_id, holder),
    )


def next_number(db: sqlite3.Connection) -> int:
    """A number that never comes again in this file: versions of banks, and what tells sessions apart."""
    (number,) = db.execute(
        "INSERT INTO settings VALUES ('version', 1) ON CONFLICT DO UPDATE SET value = value + 1 RETURNING value"
    ).fetchone()
    return int(number)


def append(
    db: sqlite3.Connection, user_id: str, session_id: str, messages: Sequence[Message], at: datetime
) -> tuple[Turn, ...]:
    """Store messages as the session's next turns, those left out whose key it holds already."""
    known = session(db, user_id, session_id)
    new = [m for m in _first_of_key(messages) if not _holds(db, user_id, session_id, m.key)]
    again = [(user_id, session_id, m.key) for m in messages if m.key and m.from_memory and m not in new]
    db.executemany("UPDATE turns SET from_memory = 1 WHERE user_id = ? AND session_id = ? AND key = ?", again)
    turns_ = tuple(turn_at(m, known, known.turns + i, at) for i, m in enumerate(new))
    insert_turns(db, user_id, turns_, [m.key or None for m in new])
    db.execute(
        "UPDATE sessions SET turns = ?, last_at = max(last_at, ?) WHERE user_id = ? AND id = ?",
        (known.turns + len(turns_), time_text(at), user_id, session_id),
    )
    return turns(db, user_id, session_id, known.turns, None)


def _first_of_key(messages: Sequence[Message]) -> Iterator[Message]:
    """The messages without those whose key came before among them."""
    keys: set[str] = set()
    for message in messages:
        if not message.key or message.key not in keys:
            yield message
        keys.add(message.key)


def _holds(db: sqlite3.Connection, user_id: str, session_id: str, key: str) -> bool:
    """Whether the session has a message of this key."""
    if not key:
        return False
    place = (user_id, session_id, key)
    return bool(db.execute("SELECT 1 FROM turns WHERE user_id = ? AND session_id = ? AND key = ?", place).fetchone())


def insert_turns(
    db: sqlite3.Connection, user_id: str, new: Sequence[Turn], keys: Sequence[str | None] | None = None
) -> None:
    """Insert turns as they are, under the keys of their messages."""
    db.executemany(
        f"INSERT INTO turns (user_id, key, {TURN_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        ((user_id, key, *turn_row(t)) for t, key in zip(new, keys or [None] * len(new), strict=True)),
    )


def turns(db: sqlite3.Connection, user_id: str, session_id: str, start: int, stop: int | None) -> tuple[Turn, ...]:
    """A session's turns from ``start`` up to and not including ``stop``."""
    rows = db.execute(
        f"SELECT {TURN_COLUMNS} FROM turns WHERE user_id = ? AND session_id = ? AND position >= ?"
        " AND (? IS NULL OR position < ?) ORDER BY position",
        (user_id, session_id, start, stop, stop),
    )
    return tuple(map(turn_of, rows))


def turns_at(db: sqlite3.Connection, user_id: str, refs: Sequence[TurnRef], portion: int = 400) -> dict[TurnRef, Turn]:
    """The turns at ``refs`` that exist, asked for in portions that fit one statement."""
    found: dict[TurnRef, Turn] = {}
    for some in (refs[i : i + portion] for i in range(0, len(refs), portion)):
        places = ", ".join(["(?, ?)"] * len(some))
        rows = db.execute(
            f"SELECT {TURN_COLUMNS} FROM turns WHERE user_id = ? AND (session_id, position) IN (VALUES {places})",
            (user_id, *(value for ref in some for value in (ref.session_id, ref.index))),
        )
        found |= {turn.ref: turn for turn in map(turn_of, rows)}
    return found


def log(db: sqlite3.Connection, feedback: Feedback) -> None:
    """Feedback on a recall counts once, however often it is given; that on a forgotten user's bank not at all."""
    db.execute(
        f"INSERT OR IGNORE INTO feedback ({FEEDBACK_COLUMNS}) SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? WHERE ?"
        " OR EXISTS (SELECT 1 FROM sessions WHERE user_id = ?)",
        (*feedback_row(feedback), feedback.embeddings is not None, feedback.user_id),
    )


def logged(db: sqlite3.Connection, after: int, limit: int, user_id: str | None) -> list[tuple[int, Feedback]]:
    """Entries of the learning log, in order."""
    rows = db.execute(
        f"SELECT number, {FEEDBACK_COLUMNS} FROM feedback WHERE number > ? AND (? IS NULL OR user_id = ?)"
        " ORDER BY number LIMIT ?",
        (after, user_id, user_id, limit),
    )
    return [(row[0], feedback_of(row[1:])) for row in rows]


def answered(db: sqlite3.Connection, user_id: str, after: int, limit: int) -> list[tuple[int, Feedback]]:
    """The newest entries of a user's learning log above ``after``, in order."""
    rows = db.execute(
        f"SELECT number, {FEEDBACK_COLUMNS} FROM feedback WHERE user_id = ? AND number > ?"
        " ORDER BY number DESC LIMIT ?",
        (user_id, after, limit),
    ).fetchall()
    return [(row[0], feedback_of(row[1:])) for row in reversed(rows)]


def unlog(db: sqlite3.Connection, last: int, user_id: str | None) -> list[str]:
    """Take the last entries out of the learning log; whose they were, one name per entry."""
    rows = db.execute(
        "DELETE FROM feedback WHERE number IN (SELECT number FROM feedback WHERE ? IS NULL OR user_id = ?"
        " ORDER BY number DESC LIMIT ?) RETURNING user_id",
        (user_id, user_id, last),
    )
    return [name for (name,) in rows]


def learner(db: sqlite3.Connection, scope: str) -> LearnerState | None:
    """The state saved under ``scope``."""
    row = db.execute("SELECT version, content FROM learners WHERE scope = ?", (scope,)).fetchone()
    return LearnerState(*row) if row else None


def learner_version(db: sqlite3.Connection, scope: str) -> int:
    """The version of the state saved under ``scope``; 0 when there is none."""
    row = db.execute("SELECT version FROM learners WHERE scope = ?", (scope,)).fetchone()
    return int(row[0]) if row else 0


def save_learner(db: sqlite3.Connection, scope: str, content: bytes, base_version: int) -> int:
    """Save a state that was learned from version ``base_version``.

    Raises:
        ConflictError: When the saved version is another.
    """
    version = learner_version(db, scope)
    if version != base_version:
        raise ConflictError(f"the learner is at version {version}, the state was learned from {base_version}")
    db.execute("INSERT OR REPLACE INTO learners VALUES (?, ?, ?)", (scope, version + 1, content))
    return version + 1
