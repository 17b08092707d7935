"""Statements on sessions, turns and the learning log.

Functions here run inside the caller's transaction. They are written in what SQLite and PostgreSQL have in common.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from rmm_core.errors import ConflictError, NotFoundError, StoreError
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
    whole_number,
)
from rmm_core.stores._sql import Sql
from rmm_core.types import Feedback, Message, Session, Turn, TurnRef


def session(db: Sql, user_id: str, session_id: str) -> Session:
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


def sessions(db: Sql, user_id: str) -> tuple[Session, ...]:
    """A user's sessions, oldest first."""
    rows = db.execute(f"SELECT {SESSION_COLUMNS} FROM sessions WHERE user_id = ? ORDER BY started_at, id", (user_id,))
    return tuple(map(session_of, rows))


def pending(db: Sql, idle_since: datetime, user_id: str | None) -> tuple[Session, ...]:
    """Sessions with unreflected turns that ended, or were silent since ``idle_since``."""
    rows = db.execute(
        f"SELECT {SESSION_COLUMNS} FROM sessions WHERE reflected < turns AND (ended OR last_at < ?)"
        f"{_of(user_id)} AND user_id NOT IN (SELECT user_id FROM declined) ORDER BY started_at, user_id, id",
        (time_text(idle_since), *_values(user_id)),
    )
    return tuple(map(session_of, rows))


def open_session(db: Sql, new: Session, number: int) -> None:
    """Insert a session, or take back the end of the one that is there; ``number`` tells it from all others."""
    marks = ", ".join("?" * len(SESSION_COLUMNS.split(",")))
    db.execute(
        f"INSERT INTO sessions ({SESSION_COLUMNS}) VALUES ({marks})"
        " ON CONFLICT (user_id, id) DO UPDATE SET ended = FALSE",
        session_row(replace(new, born=number)),
    )


def end_session(db: Sql, user_id: str, session_id: str) -> Session:
    """Mark a session as over."""
    db.execute("UPDATE sessions SET ended = TRUE WHERE user_id = ? AND id = ?", (user_id, session_id))
    return session(db, user_id, session_id)


def fail_session(db: Sql, user_id: str, session_id: str, error: str) -> Session:
    """Count a failed reflection and keep what it said."""
    db.execute(
        "UPDATE sessions SET attempts = attempts + 1, error = ? WHERE user_id = ? AND id = ?",
        (error, user_id, session_id),
    )
    return session(db, user_id, session_id)


def declined(db: Sql, user_id: str) -> bool:
    """Whether a user wants nothing stored."""
    return db.execute("SELECT 1 FROM declined WHERE user_id = ?", (user_id,)).fetchone() is not None


def decline(db: Sql, user_id: str, *, wants_nothing: bool) -> None:
    """Note that a user wants nothing stored, or does not mind any more."""
    if wants_nothing:
        db.execute("INSERT INTO declined (user_id) VALUES (?) ON CONFLICT DO NOTHING", (user_id,))
    else:
        db.execute("DELETE FROM declined WHERE user_id = ?", (user_id,))


def lease(db: Sql, user_id: str, session_id: str, holder: str, seconds: float, now: float) -> bool:
    """Take a session, or hold on to it, unless it is somebody else's; whether it is ``holder``'s now."""
    taken = db.execute(
        "UPDATE sessions SET holder = ?, held_until = ? WHERE user_id = ? AND id = ?"
        " AND (holder IN ('', ?) OR held_until < ?)",
        (holder, now + seconds, user_id, session_id, holder, now),
    ).rowcount
    if not taken:
        session(db, user_id, session_id)
    return bool(taken)


def release(db: Sql, user_id: str, session_id: str, holder: str) -> None:
    """Give a session back."""
    db.execute(
        "UPDATE sessions SET holder = '', held_until = 0 WHERE user_id = ? AND id = ? AND holder = ?",
        (user_id, session_id, holder),
    )


def append(db: Sql, user_id: str, session_id: str, messages: Sequence[Message], at: datetime) -> tuple[Turn, ...]:
    """Store messages as the session's next turns, those left out whose key it holds already."""
    if declined(db, user_id):
        return ()
    known = session(db, user_id, session_id)
    new = [m for m in _first_of_key(messages) if not _holds(db, user_id, session_id, m.key)]
    again = [(user_id, session_id, m.key) for m in messages if m.key and m.from_memory and m not in new]
    db.executemany("UPDATE turns SET from_memory = TRUE WHERE user_id = ? AND session_id = ? AND key = ?", again)
    turns_ = tuple(turn_at(m, known, known.turns + i, at) for i, m in enumerate(new))
    insert_turns(db, user_id, turns_, [m.key or None for m in new])
    db.execute(
        "UPDATE sessions SET turns = ?, last_at = ? WHERE user_id = ? AND id = ?",
        (known.turns + len(turns_), max(time_text(known.last_at), time_text(at)), user_id, session_id),
    )
    return turns(db, user_id, session_id, known.turns, None)


def _first_of_key(messages: Sequence[Message]) -> Iterator[Message]:
    """The messages without those whose key came before among them."""
    keys: set[str] = set()
    for message in messages:
        if not message.key or message.key not in keys:
            yield message
        keys.add(message.key)


def _holds(db: Sql, user_id: str, session_id: str, key: str) -> bool:
    """Whether the session has a message of this key."""
    if not key:
        return False
    place = (user_id, session_id, key)
    return bool(db.execute("SELECT 1 FROM turns WHERE user_id = ? AND session_id = ? AND key = ?", place).fetchone())


def insert_turns(db: Sql, user_id: str, new: Sequence[Turn], keys: Sequence[str | None] | None = None) -> None:
    """Insert turns as they are, under the keys of their messages."""
    db.executemany(
        f"INSERT INTO turns (user_id, key, {TURN_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        ((user_id, key, *turn_row(t)) for t, key in zip(new, keys or [None] * len(new), strict=True)),
    )


def turns(db: Sql, user_id: str, session_id: str, start: int, stop: int | None) -> tuple[Turn, ...]:
    """A session's turns from ``start`` up to and not including ``stop``."""
    before, bound = ("", ()) if stop is None else (" AND position < ?", (stop,))
    rows = db.execute(
        f"SELECT {TURN_COLUMNS} FROM turns WHERE user_id = ? AND session_id = ? AND position >= ?{before}"
        " ORDER BY position",
        (user_id, session_id, start, *bound),
    )
    return tuple(map(turn_of, rows))


def turns_at(db: Sql, user_id: str, refs: Sequence[TurnRef], portion: int = 400) -> dict[TurnRef, Turn]:
    """The turns at ``refs`` that exist, asked for in portions that fit one statement."""
    found: dict[TurnRef, Turn] = {}
    for some in (refs[i : i + portion] for i in range(0, len(refs), portion)):
        places = ", ".join(["(CAST(? AS TEXT), CAST(? AS INTEGER))"] * len(some))
        rows = db.execute(  # joined: by IN over pairs, SQLite reads all turns of the user
            f"WITH asked (session_id, position) AS (VALUES {places})"
            f" SELECT {TURN_COLUMNS} FROM asked JOIN turns USING (session_id, position) WHERE user_id = ?",
            (*(value for ref in some for value in (ref.session_id, ref.index)), user_id),
        )
        found |= {turn.ref: turn for turn in map(turn_of, rows)}
    return found


def asked_in(
    db: Sql, user_id: str, session_id: str, messages: Sequence[Message], new: Sequence[Turn]
) -> TurnRef | None:
    """Where the first of ``messages`` that is the user's stands, stored now (``new``) or before under its key."""
    key = next((m.key for m in messages if m.role == "user"), "")
    if not key:
        return next((turn.ref for turn in new if turn.role == "user"), None)
    row = db.execute(
        "SELECT position FROM turns WHERE user_id = ? AND session_id = ? AND key = ?", (user_id, session_id, key)
    ).fetchone()
    return None if row is None else TurnRef(session_id, row[0])


def log(db: Sql, feedback: Feedback) -> None:
    """Feedback on a recall counts once, however often it is given.

    None is kept of a user who declined, nor on the bank of one who was forgotten.
    """
    user, of_bank = (feedback.user_id,), feedback.embeddings is None
    if declined(db, feedback.user_id):
        return
    if of_bank and not db.execute("SELECT 1 FROM sessions WHERE user_id = ?", user).fetchone():
        return
    row = feedback_row(feedback)
    marks = ", ".join("?" * len(row))
    db.execute(f"INSERT INTO feedback ({FEEDBACK_COLUMNS}) VALUES ({marks}) ON CONFLICT DO NOTHING", row)
    at = time_text(feedback.at)
    db.executemany(
        "UPDATE memories SET cited_at = ? WHERE user_id = ? AND id = ? AND (cited_at IS NULL OR cited_at < ?)",
        [(at, *user, feedback.memory_ids[i], at) for i in feedback.cited if of_bank],
    )


def logged(db: Sql, after: int, limit: int, user_id: str | None, *, newest: bool = False) -> list[tuple[int, Feedback]]:
    """Entries of the learning log above ``after``, the first or the newest, in order."""
    rows = db.execute(
        f"SELECT number, {FEEDBACK_COLUMNS} FROM feedback WHERE number > ?{_of(user_id)}"
        f" ORDER BY number {'DESC' if newest else 'ASC'} LIMIT ?",
        (after, *_values(user_id), limit),
    ).fetchall()
    entries = [(whole_number(row[0]), feedback_of(row[1:])) for row in (reversed(rows) if newest else rows)]
    for number, _ in entries:
        if number <= after:  # who reads on from the last number would never come to an end
            raise StoreError("the learning log is not in its order: the database is damaged; restore a copy of it")
        after = number
    return entries


def unlog(db: Sql, last: int, user_id: str | None) -> list[str]:
    """Take the last entries out of the learning log; whose they were, one name per entry."""
    rows = db.execute(
        f"DELETE FROM feedback WHERE number IN (SELECT number FROM feedback WHERE TRUE{_of(user_id)}"
        " ORDER BY number DESC LIMIT ?) RETURNING user_id",
        (*_values(user_id), last),
    )
    return [name for (name,) in rows]


def learner(db: Sql, scope: str) -> LearnerState | None:
    """The state saved under ``scope``."""
    row = db.execute("SELECT version, content FROM learners WHERE scope = ?", (scope,)).fetchone()
    return LearnerState(*row) if row else None


def learner_version(db: Sql, scope: str) -> int:
    """The version of the state saved under ``scope``; 0 when there is none."""
    row = db.execute("SELECT version FROM learners WHERE scope = ?", (scope,)).fetchone()
    return int(row[0]) if row else 0


def save_learner(db: Sql, scope: str, content: bytes, base_version: int) -> int:
    """Save a state that was learned from version ``base_version``.

    Raises:
        ConflictError: When the saved version is another.
    """
    if base_version:
        saved = db.execute(
            "UPDATE learners SET version = version + 1, content = ? WHERE scope = ? AND version = ?",
            (content, scope, base_version),
        )
    else:
        saved = db.execute(
            "INSERT INTO learners (scope, version, content) VALUES (?, 1, ?) ON CONFLICT DO NOTHING", (scope, content)
        )
    if not saved.rowcount:
        version = learner_version(db, scope)
        raise ConflictError(f"the learner is at version {version}, the state was learned from {base_version}")
    return base_version + 1


def _of(user_id: str | None) -> str:
    """An SQL condition that leaves only one user's rows; none for None."""
    return "" if user_id is None else " AND user_id = ?"


def _values(user_id: str | None) -> tuple[str, ...]:
    """What :func:`_of` asks for."""
    return () if user_id is None else (user_id,)
