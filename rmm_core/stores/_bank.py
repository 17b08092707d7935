"""Statements on the tables of the bank: memories, their evidence and history, the bank's version.

Functions here run inside the caller's transaction.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from rmm_core.protocols import Entry
from rmm_core.stores._index import WINDOW, Document
from rmm_core.stores._rows import MEMORY_COLUMNS, TURN_COLUMNS, blob, memory_of, time_text, turn_of, vector
from rmm_core.stores._talk import next_number
from rmm_core.stores._traits import traits
from rmm_core.types import Revision, Turn, TurnRef, Vector


def version(db: sqlite3.Connection, user_id: str) -> tuple[int, int]:
    """The bank's version, and the version of the last change that asks for a new index."""
    row = db.execute("SELECT version, reset FROM banks WHERE user_id = ?", (user_id,)).fetchone()
    return (row[0], row[1]) if row else (0, 0)


def raise_version(db: sqlite3.Connection, user_id: str, *, reset: bool) -> int:
    """Give the bank its next version; ``reset`` when memories went away.

    Numbers are drawn from one counter for all banks and never come again, so that an index of a bank
    that was forgotten and began anew, perhaps by another process, cannot pass for a current one.
    """
    number = next_number(db)
    db.execute(
        "INSERT INTO banks VALUES (?1, ?2, ?2)"
        " ON CONFLICT DO UPDATE SET version = ?2, reset = CASE WHEN ?3 THEN ?2 ELSE reset END",
        (user_id, number, int(reset)),
    )
    return number


def put(db: sqlite3.Connection, user_id: str, entry: Entry, number: int) -> None:
    """Write a memory, in place of the one of the same id."""
    memory = entry.memory
    remove(db, user_id, memory.id)
    db.execute(
        "INSERT INTO memories (user_id, id, kind, summary, created_at, updated_at, embedding, version)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            user_id,
            memory.id,
            memory.kind,
            memory.summary,
            time_text(memory.created_at),
            time_text(memory.updated_at),
            blob(entry.embedding),
            number,
        ),
    )
    db.executemany(
        "INSERT INTO evidence VALUES (?, ?, ?, ?)",
        ((user_id, memory.id, ref.session_id, ref.index) for ref in memory.evidence),
    )
    db.executemany(
        "INSERT INTO revisions VALUES (?, ?, ?, ?, ?)",
        ((user_id, memory.id, i, r.summary, time_text(r.replaced_at)) for i, r in enumerate(memory.history)),
    )


def touch(db: sqlite3.Connection, user_id: str, session_id: str, number: int) -> None:
    """Have indexes take up a session's memories anew: there are turns beside theirs now."""
    db.execute(
        "UPDATE memories SET version = ?1 WHERE user_id = ?2 AND id IN"
        " (SELECT memory_id FROM evidence WHERE user_id = ?2 AND session_id = ?3)",
        (number, user_id, session_id),
    )


def set_embedding(db: sqlite3.Connection, user_id: str, memory_id: str, embedding: Vector) -> None:
    """Replace a memory's embedding."""
    db.execute("UPDATE memories SET embedding = ? WHERE user_id = ? AND id = ?", (blob(embedding), user_id, memory_id))


def remove(db: sqlite3.Connection, user_id: str, memory_id: str) -> bool:
    """Remove a memory; whether there was one."""
    found = db.execute("DELETE FROM memories WHERE user_id = ? AND id = ?", (user_id, memory_id)).rowcount
    db.execute("DELETE FROM evidence WHERE user_id = ? AND memory_id = ?", (user_id, memory_id))
    db.execute("DELETE FROM revisions WHERE user_id = ? AND memory_id = ?", (user_id, memory_id))
    return found > 0


def delete(db: sqlite3.Connection, user_id: str, memory_id: str) -> bool:
    """Remove a memory together with those of its turns that no other memory rests on."""
    refs = db.execute(
        "SELECT session_id, position FROM evidence WHERE user_id = ? AND memory_id = ?", (user_id, memory_id)
    ).fetchall()
    found = remove(db, user_id, memory_id)
    db.executemany(
        "DELETE FROM turns WHERE user_id = ?1 AND session_id = ?2 AND position = ?3 AND NOT EXISTS"
        " (SELECT 1 FROM evidence WHERE user_id = ?1 AND session_id = ?2 AND position = ?3)",
        ((user_id, session_id, position) for session_id, position in refs),
    )
    return found


def entries(db: sqlite3.Connection, user_id: str, memory_ids: Sequence[str] | None) -> list[Entry]:
    """The memories of these ids with their embeddings; all of the user's for None."""
    found: list[Entry] = []
    for ids in _portions(memory_ids):
        only, values = _only("id", ids)
        rows = db.execute(
            f"SELECT {MEMORY_COLUMNS}, embedding FROM memories WHERE user_id = ?{only}",
            (user_id, *values),
        ).fetchall()
        evidence = _evidence(db, user_id, ids)
        history = _history(db, user_id, ids)
        found += [
            Entry(memory_of(row[:-1], tuple(evidence[row[0]]), tuple(history[row[0]])), vector(row[-1])) for row in rows
        ]
    return found


def documents(db: sqlite3.Connection, user_id: str, after: int) -> tuple[list[Document], dict[str, str]]:
    """What an index of version ``after`` lacks: the memories and texts of sessions where something changed."""
    changed = [
        i
        for (i,) in db.execute(
            "SELECT DISTINCT memory_id FROM evidence WHERE user_id = ?1 AND session_id IN (SELECT session_id FROM"
            " evidence JOIN memories ON id = memory_id AND memories.user_id = ?1 WHERE evidence.user_id = ?1"
            " AND version > ?2) UNION SELECT id FROM memories WHERE user_id = ?1 AND version > ?2",
            (user_id, after),
        )
    ]
    found = sorted(entries(db, user_id, changed), key=lambda e: e.memory.id)
    sessions = {ref.session_id for e in found for ref in e.memory.evidence}
    turns = {s: _session_turns(db, user_id, s) for s in sorted(sessions)}
    texts = {s: "\n".join(t.line for t in by_index.values()) for s, by_index in turns.items()}
    return [_document(e, turns) for e in found], texts


def _document(entry: Entry, turns: dict[str, dict[int, Turn]]) -> Document:
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


def _session_turns(db: sqlite3.Connection, user_id: str, session_id: str) -> dict[int, Turn]:
    rows = db.execute(
        f"SELECT {TURN_COLUMNS} FROM turns WHERE user_id = ? AND session_id = ? ORDER BY position",
        (user_id, session_id),
    )
    return {turn.index: turn for turn in map(turn_of, rows)}


def _evidence(db: sqlite3.Connection, user_id: str, ids: Sequence[str] | None) -> defaultdict[str, list[TurnRef]]:
    only, values = _only("memory_id", ids)
    found: defaultdict[str, list[TurnRef]] = defaultdict(list)
    for memory_id, session_id, position in db.execute(
        f"SELECT memory_id, session_id, position FROM evidence WHERE user_id = ?{only} ORDER BY 1, 2, 3",
        (user_id, *values),
    ):
        found[memory_id].append(TurnRef(session_id, position))
    return found


def _history(db: sqlite3.Connection, user_id: str, ids: Sequence[str] | None) -> defaultdict[str, list[Revision]]:
    only, values = _only("memory_id", ids)
    found: defaultdict[str, list[Revision]] = defaultdict(list)
    for memory_id, summary, at in db.execute(
        f"SELECT memory_id, summary, replaced_at FROM revisions WHERE user_id = ?{only} ORDER BY memory_id, position",
        (user_id, *values),
    ):
        found[memory_id].append(Revision(summary, datetime.fromisoformat(at)))
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
