"""Statements on the tables of the bank: memories, their evidence and history, the bank's version.

Functions here run inside the caller's transaction. They are written in what SQLite and PostgreSQL have in common.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeAlias

from rmm_core.errors import ConflictError, StoreError
from rmm_core.protocols import BankChange, Entry
from rmm_core.stores import _talk
from rmm_core.stores._index import WINDOW, Document
from rmm_core.stores._rows import (
    MEMORY_COLUMNS,
    TURN_COLUMNS,
    blob,
    memory_of,
    memory_row,
    ref_of,
    revision_of,
    time_text,
    turn_of,
    vector,
    whole_number,
)
from rmm_core.stores._sql import Sql
from rmm_core.stores._traits import traits
from rmm_core.types import Candidate, Kind, Memory, Revision, Turn, TurnRef, Vector

Pack: TypeAlias = Callable[[Vector], Any]


def version(db: Sql, user_id: str) -> tuple[int, int]:
    """The bank's version, and the version of the last change that asks for a new index."""
    row = db.execute("SELECT version, reset FROM banks WHERE user_id = ?", (user_id,)).fetchone()
    return (whole_number(row[0]), whole_number(row[1])) if row else (0, 0)


def width(db: Sql) -> int | None:
    """The width of the embeddings held; None before the first."""
    row = db.execute("SELECT value FROM settings WHERE name = 'width'").fetchone()
    return None if row is None else whole_number(row[0])


def raise_version(db: Sql, user_id: str, number: int, *, reset: bool) -> None:
    """Give the bank its next version; ``reset`` when memories went away.

    Numbers are drawn from one counter for all banks and never come again, so that an index of a bank
    that was forgotten and began anew, perhaps by another process, cannot pass for a current one.
    """
    db.execute(
        "INSERT INTO banks (user_id, version, reset) VALUES (?, ?, ?)"
        " ON CONFLICT (user_id) DO UPDATE SET version = excluded.version"
        f"{', reset = excluded.version' if reset else ''}",
        (user_id, number, number),
    )


def check(db: Sql, user_id: str, change: BankChange) -> None:
    """Hold a change to what it was decided on, and mark its session's turns as known.

    Raises:
        ConflictError: When the bank or the session is not what was read.
    """
    held, _ = version(db, user_id)
    if held != change.base_version:
        raise ConflictError(f"the bank is at version {held}, the change was made on {change.base_version}")
    if not change.session_id:
        return
    session = _talk.session(db, user_id, change.session_id)
    if session.born != change.session_born or session.turns < change.reflected_to:
        raise ConflictError(f"session {change.session_id!r} was forgotten, and began anew")
    if session.reflected != change.reflected_from:
        raise ConflictError(f"session {change.session_id!r} was reflected by somebody else")
    db.execute(
        "UPDATE sessions SET reflected = ?, attempts = 0, error = '' WHERE user_id = ? AND id = ?",
        (change.reflected_to, user_id, change.session_id),
    )


def check_all(db: Sql, banks: Mapping[str, tuple[int, Any]]) -> None:
    """Hold every bank to the version it was read at.

    Raises:
        ConflictError: When one changed, or is not named.
    """
    moved = [u for u in {*banks, *users(db)} if version(db, u)[0] != banks.get(u, (0, {}))[0]]
    if moved:
        raise ConflictError(f"{len(moved)} banks changed while their embeddings were made; do it again")


def users(db: Sql) -> list[str]:
    """All user ids, sorted."""
    names = " UNION ".join(f"SELECT user_id FROM {table}" for table in ("sessions", "banks", "feedback"))
    return [user_id for (user_id,) in db.execute(f"{names} ORDER BY 1")]


def forget(db: Sql, user_id: str) -> dict[str, int]:
    """Delete everything of one user, but that the user declined; how many rows of each table that were."""
    tables = ("sessions", "turns", "memories", "evidence", "revisions", "feedback", "banks")
    removed = {table: db.execute(f"DELETE FROM {table} WHERE user_id = ?", (user_id,)).rowcount for table in tables}
    scope = f"user:{user_id}"
    learners = db.execute("DELETE FROM learners WHERE scope IN (?, ?, ?)", (scope, f"good:{scope}", f"base:{scope}"))
    return removed | {"learners": learners.rowcount}


def purge(db: Sql, user_id: str, memory_ids: Sequence[str], before: datetime | None) -> dict[str, int]:
    """Delete memories with the turns that they alone rest on, and what was said before a time and none rests on."""
    count = "SELECT count(*) FROM turns WHERE user_id = ?"
    (turns,) = db.execute(count, (user_id,)).fetchone()
    removed = {
        "memories": sum(delete(db, user_id, memory_id) for memory_id in memory_ids),
        "sessions": 0,
        "feedback": 0,
    }
    if before is not None:
        old = (user_id, time_text(before))
        db.execute(
            "DELETE FROM turns WHERE user_id = ? AND at < ? AND NOT EXISTS (SELECT 1 FROM evidence e WHERE"
            " e.user_id = turns.user_id AND e.session_id = turns.session_id AND e.position = turns.position)",
            old,
        )
        removed["sessions"] = db.execute(
            "DELETE FROM sessions WHERE user_id = ? AND last_at < ? AND NOT EXISTS (SELECT 1 FROM turns t WHERE"
            " t.user_id = sessions.user_id AND t.session_id = sessions.id)",
            old,
        ).rowcount
        removed["feedback"] = db.execute("DELETE FROM feedback WHERE user_id = ? AND at < ?", old).rowcount
    return removed | {"turns": turns - db.execute(count, (user_id,)).fetchone()[0]}


def put(db: Sql, user_id: str, entries: Sequence[Entry], number: int, *, pack: Pack = blob) -> None:
    """Write memories, in place of those of the same ids; ``pack`` makes an embedding what the database holds."""
    remove(db, user_id, [e.memory.id for e in entries])
    db.executemany(
        f"INSERT INTO memories ({MEMORY_COLUMNS}, embedding, version) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [(*memory_row(replace(e.memory, user_id=user_id)), pack(e.embedding), number) for e in entries],
    )
    db.executemany(
        "INSERT INTO evidence (user_id, memory_id, session_id, position) VALUES (?, ?, ?, ?)",
        [(user_id, e.memory.id, ref.session_id, ref.index) for e in entries for ref in e.memory.evidence],
    )
    db.executemany(
        "INSERT INTO revisions (user_id, memory_id, position, summary, replaced_at) VALUES (?, ?, ?, ?, ?)",
        [
            (user_id, e.memory.id, i, r.summary, time_text(r.replaced_at))
            for e in entries
            for i, r in enumerate(e.memory.history)
        ],
    )


def touch(db: Sql, user_id: str, session_id: str, number: int) -> None:
    """Have indexes take up a session's memories anew: there are turns beside theirs now."""
    db.execute(
        "UPDATE memories SET version = ? WHERE user_id = ? AND id IN"
        " (SELECT memory_id FROM evidence WHERE user_id = ? AND session_id = ?)",
        (number, user_id, user_id, session_id),
    )


def set_embedding(db: Sql, user_id: str, memory_id: str, embedding: Vector, *, pack: Pack = blob) -> None:
    """Replace a memory's embedding."""
    db.execute("UPDATE memories SET embedding = ? WHERE user_id = ? AND id = ?", (pack(embedding), user_id, memory_id))


def remove(db: Sql, user_id: str, memory_ids: Sequence[str]) -> int:
    """Remove memories; how many there were."""
    found = 0
    for ids in _portions(memory_ids):
        for table, name in (("evidence", "memory_id"), ("revisions", "memory_id"), ("memories", "id")):
            only, values = _only(name, ids)
            removed = db.execute(f"DELETE FROM {table} WHERE user_id = ?{only}", (user_id, *values)).rowcount
        found += removed
    return found


def delete(db: Sql, user_id: str, memory_id: str) -> bool:
    """Remove a memory together with those of its turns that no other memory rests on."""
    refs = db.execute(
        "SELECT session_id, position FROM evidence WHERE user_id = ? AND memory_id = ?", (user_id, memory_id)
    ).fetchall()
    found = remove(db, user_id, [memory_id])
    db.executemany(
        "DELETE FROM turns WHERE user_id = ? AND session_id = ? AND position = ? AND NOT EXISTS (SELECT 1 FROM"
        " evidence e WHERE e.user_id = turns.user_id AND e.session_id = turns.session_id"
        " AND e.position = turns.position)",
        ((user_id, *ref) for ref in refs),
    )
    return found > 0


def entries(db: Sql, user_id: str, memory_ids: Sequence[str] | None, *, owner: str = "user_id") -> list[Entry]:
    """The memories of these ids with their embeddings; all of the user's for None.

    Args:
        db: The transaction.
        user_id: Whose.
        memory_ids: Their ids.
        owner: Whose a row is by itself, as this database says it: an index of it that is damaged may lead astray.
    """
    found: list[Entry] = []
    for ids in _portions(memory_ids):
        only, values = _only("id", ids)
        rows = db.execute(
            f"SELECT {MEMORY_COLUMNS}, embedding, {owner} FROM memories WHERE user_id = ?{only}",
            (user_id, *values),
        ).fetchall()
        if any(row[-1] != user_id for row in rows):
            raise StoreError("an index leads to the row of another user: the database is damaged; restore a copy of it")
        evidence = _evidence(db, user_id, ids)
        history = _history(db, user_id, ids)
        found += [
            Entry(memory_of(row[:-2], tuple(evidence[row[0]]), tuple(history[row[0]])), vector(row[-2])) for row in rows
        ]
    return found


def candidates(found: Iterable[Entry], features: Mapping[str, Vector], vector: Vector) -> tuple[Candidate, ...]:
    """What a search brought up, nearest to ``vector`` first; ties by id."""
    scored = (Candidate(e.memory, e.embedding, features[e.memory.id], float(e.embedding @ vector)) for e in found)
    return tuple(sorted(scored, key=lambda c: (-c.score, c.memory.id)))


def memories(db: Sql, user_id: str, kind: Kind | None, *, owner: str) -> tuple[Memory, ...]:
    """The memories of a user, oldest first; ``owner`` is that of :func:`entries`."""
    found = [e.memory for e in entries(db, user_id, None, owner=owner)]
    return tuple(sorted((m for m in found if kind in (None, m.kind)), key=lambda m: (m.created_at, m.evidence, m.id)))


def sessions_of(db: Sql, user_id: str, memory_ids: Sequence[str]) -> set[str]:
    """The sessions that memories rest on."""
    portions = (_evidence(db, user_id, ids) for ids in _portions(memory_ids))
    return {ref.session_id for evidence in portions for refs in evidence.values() for ref in refs}


def sessions_before(db: Sql, user_id: str, before: datetime) -> list[str]:
    """The sessions in which something was said before a time."""
    rows = db.execute(
        "SELECT DISTINCT session_id FROM turns WHERE user_id = ? AND at < ?", (user_id, time_text(before))
    )
    return [session_id for (session_id,) in rows]


def documents(db: Sql, user_id: str, after: int, *, owner: str) -> tuple[list[Document], dict[str, str]]:
    """What an index of version ``after`` lacks: the memories and texts of sessions where something changed."""
    changed = [
        i
        for (i,) in db.execute(
            "SELECT DISTINCT memory_id FROM evidence WHERE user_id = ? AND session_id IN (SELECT session_id FROM"
            " evidence e JOIN memories m ON m.id = e.memory_id AND m.user_id = e.user_id WHERE e.user_id = ?"
            " AND m.version > ?) UNION SELECT id FROM memories WHERE user_id = ? AND version > ?",
            (user_id, user_id, after, user_id, after),
        )
    ]
    found = sorted(entries(db, user_id, changed, owner=owner), key=lambda e: e.memory.id)
    sessions = {ref.session_id for e in found for ref in e.memory.evidence}
    turns = {s: session_turns(db, user_id, s) for s in sorted(sessions)}
    texts = {s: "\n".join(t.line for t in by_index.values()) for s, by_index in turns.items()}
    return [document(e, turns) for e in found], texts


def document(entry: Entry, turns: dict[str, dict[int, Turn]]) -> Document:
    """What is indexed of a memory, given the turns of its sessions."""
    memory = entry.memory
    near = {(ref.session_id, ref.index + step) for ref in memory.evidence for step in range(-WINDOW, WINDOW + 1)}
    own = _join(turns, ((r.session_id, r.index) for r in memory.evidence))
    return Document(
        memory_id=memory.id,
        kind=memory.kind,
        embedding=entry.embedding,
        own=f"{memory.summary}\n{own}" if memory.kind == "topic" else own,
        window=_join(turns, sorted(near)),
        evidence=memory.evidence,
        traits=traits([turns[r.session_id][r.index] for r in memory.evidence if r.index in turns[r.session_id]]),
    )


def _join(turns: dict[str, dict[int, Turn]], places: Iterable[tuple[str, int]]) -> str:
    return "\n".join(turns[s][i].line for s, i in places if i in turns[s])


def session_turns(db: Sql, user_id: str, session_id: str) -> dict[int, Turn]:
    """A session's turns by their number."""
    rows = db.execute(
        f"SELECT {TURN_COLUMNS} FROM turns WHERE user_id = ? AND session_id = ? ORDER BY position",
        (user_id, session_id),
    )
    return {turn.index: turn for turn in map(turn_of, rows)}


def _evidence(db: Sql, user_id: str, ids: Sequence[str] | None) -> defaultdict[str, list[TurnRef]]:
    only, values = _only("memory_id", ids)
    found: defaultdict[str, list[TurnRef]] = defaultdict(list)
    for memory_id, session_id, position in db.execute(
        f"SELECT memory_id, session_id, position FROM evidence WHERE user_id = ?{only} ORDER BY 1, 2, 3",
        (user_id, *values),
    ):
        found[memory_id].append(ref_of(session_id, position))
    return found


def _history(db: Sql, user_id: str, ids: Sequence[str] | None) -> defaultdict[str, list[Revision]]:
    only, values = _only("memory_id", ids)
    found: defaultdict[str, list[Revision]] = defaultdict(list)
    for memory_id, summary, at in db.execute(
        f"SELECT memory_id, summary, replaced_at FROM revisions WHERE user_id = ?{only} ORDER BY memory_id, position",
        (user_id, *values),
    ):
        found[memory_id].append(revision_of(summary, at))
    return found


def _only(column: str, ids: Sequence[str] | None) -> tuple[str, tuple[Any, ...]]:
    """An SQL condition that leaves only these ids, with its values; none for None."""
    if ids is None:
        return "", ()
    return f" AND {column} IN ({', '.join('?' * len(ids))})", tuple(ids)


def _portions(ids: Sequence[str] | None, size: int = 500) -> list[Sequence[str] | None]:
    """``ids`` in portions small enough for one statement's parameters."""
    if ids is None:
        return [None]
    return [ids[i : i + size] for i in range(0, len(ids), size)]
