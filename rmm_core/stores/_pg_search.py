"""Search on PostgreSQL: candidates and their features in one statement.

By embedding exactly, or by pgvector's HNSW in banks too large for that; by words with BM25 over ``tsvector``, each
user's bank a collection of its own; and by what earlier answers cited. The features are those of
:class:`rmm_core.features.FeatureWeights`, as :mod:`rmm_core.stores._index` computes them for SQLite, but for words that
repeat within a memory, which count by ``ts_rank``'s saturation in place of BM25's own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from rmm_core.features import FEATURES
from rmm_core.stores import _bank
from rmm_core.stores._asked import Asked
from rmm_core.stores._checks import Fault
from rmm_core.stores._index import WINDOW
from rmm_core.stores._pg_pool import Transaction
from rmm_core.stores._pg_words import tsqueries, tsvector
from rmm_core.stores._traits import Traits, asked_for
from rmm_core.types import Kind, Turn, Vector


def search(
    db: Transaction,
    user_id: str,
    vector: Vector,
    text: str,
    limit: int,
    kind: Kind | None,
    asked: Asked,
    *,
    near: Sequence[str] = (),
    exact: bool,
) -> dict[str, Vector]:
    """Memories found with their features; see ``MemoryStore.search``.

    Args:
        db: A transaction.
        user_id: Whose bank.
        vector: Shape ``(d,)``.
        text: The query's words; empty leaves the features at 0.
        limit: How many of each way of finding.
        kind: Only memories of this kind.
        asked: The user's earlier questions.
        near: Ids found elsewhere.
        exact: Whether to compare every embedding rather than use the index.
    """
    values: dict[str, Any] = {"user": user_id, "vector": vector, "limit": limit, "kind": kind}
    values["near"] = _given(db, values | {"given": list(near)}) if near else []
    if len(values["near"]) < limit and not exact:
        values["near"] = _by_index(db, values)
    whole = len(values["near"]) < limit  # else the index gave up among other users' memories
    nearest = f"SELECT id AS key FROM memories WHERE user_id = %(user)s{_of(kind)} " + (
        "ORDER BY embedding <#> %(vector)s, id LIMIT %(limit)s" if whole else "AND id = ANY(%(near)s)"
    )
    if not text:
        return {row[0]: np.zeros(len(FEATURES), np.float32) for row in db.named(nearest, values)}
    similar, terms = asked.similar(vector), tsqueries(text)
    values |= {"terms": terms, "any": " | ".join(terms), "cited": asked.cited(similar)[:limit], "window": WINDOW}
    rows = db.named(_statement(nearest, kind), values).fetchall()
    names = [row[0] for row in rows]
    traits = [Traits(*(*row[6:11], frozenset(row[11]))) for row in rows]
    scores = np.asarray([row[1:6] for row in rows], dtype=np.float32).reshape(len(rows), 5)
    features = np.hstack([scores, asked_for(text, traits), asked.features(similar, names)])
    return dict(zip(names, features.astype(np.float32), strict=True))


def _given(db: Transaction, values: dict[str, Any]) -> list[str]:
    """The first memories among those found elsewhere."""
    rows = db.named(
        f"SELECT id FROM memories WHERE user_id = %(user)s{_of(values['kind'])} AND id = ANY(%(given)s)", values
    )
    held = {name for (name,) in rows}
    return [i for i in dict.fromkeys(values["given"]) if i in held][: values["limit"]]


def by_index(width: int, kind: Kind | None) -> str:
    """The statement that the index of embeddings answers."""
    distance = f"embedding::vector({width:d}) <#> %(vector)s::vector({width:d})"
    return f"SELECT id FROM memories WHERE user_id = %(user)s{_of(kind)} ORDER BY {distance} LIMIT %(limit)s"


def _by_index(db: Transaction, values: dict[str, Any]) -> list[str]:
    """The nearest memories by HNSW, which goes on among other users' until it has enough."""
    for setting in (*_SCAN, f"SET LOCAL hnsw.ef_search = {min(max(values['limit'] * 2, 40), 1000):d}"):
        db.execute(setting)
    found = db.named(by_index(len(values["vector"]), values["kind"]), values).fetchall()
    db.execute("SET LOCAL enable_sort = on")
    return [name for (name,) in found]


@contextmanager
def followed(db: Transaction, user_id: str, session_ids: Collection[str]) -> Iterator[None]:
    """Bring what searches read up to what the block changes in these sessions, at a cost that they alone make.

    Their memories' documents are made anew, their words too, and the bank's means move by what these weighed before.
    """
    sessions = sorted(session_ids)
    before = _weight(db, user_id, sessions)
    yield
    _refresh(db, user_id, sessions)
    moved = [new - old for new, old in zip(_weight(db, user_id, sessions), before, strict=True)]
    db.execute(
        "UPDATE banks SET memories = memories + ?, own_length = own_length + ?, around_length = around_length + ?,"
        " sessions = sessions + ?, session_length = session_length + ? WHERE user_id = ?",
        (*moved, user_id),
    )


UNLIKE_ITS_BANK = Fault(
    "index",
    "banks",
    "NOT (memories, own_length, around_length) = (SELECT count(*), coalesce(sum(d.own_length), 0),"
    " coalesce(sum(d.around_length), 0) FROM documents d WHERE d.user_id = banks.user_id)"
    " OR NOT (sessions, session_length) = (SELECT count(*), coalesce(sum(s.words_length), 0) FROM sessions s"
    " WHERE s.user_id = banks.user_id AND s.words IS NOT NULL)"
    " OR EXISTS (SELECT 1 FROM evidence e LEFT JOIN documents d ON d.user_id = e.user_id AND d.memory_id = e.memory_id"
    " JOIN memories m ON m.user_id = e.user_id AND m.id = e.memory_id"
    " WHERE e.user_id = banks.user_id AND d.memory_id IS NULL)",
    "banks that differ from what searches read of them",
    "that is made anew",
    reindex=True,
)
"""A bank of which searches read something else than what it holds."""


def invalid_indexes(db: Transaction) -> list[str]:
    """The indexes that the server does not use, because building them was cut short."""
    rows = db.execute(
        "SELECT indexrelid::regclass::text FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid"
        " JOIN pg_namespace n ON n.oid = relnamespace WHERE n.nspname = current_schema() AND relkind = 'i'"
        " AND NOT (indisvalid AND indisready) ORDER BY 1"
    )
    return [name for (name,) in rows]


def rebuild(db: Transaction, user_id: str) -> None:
    """Make all that searches read of a user's bank anew."""
    sessions = [name for (name,) in db.execute("SELECT id FROM sessions WHERE user_id = ?", (user_id,))]
    db.execute("DELETE FROM documents WHERE user_id = ?", (user_id,))
    _refresh(db, user_id, sessions)
    db.execute(
        "UPDATE banks SET memories = ?, own_length = ?, around_length = ?, sessions = ?, session_length = ?"
        " WHERE user_id = ?",
        (*_weight(db, user_id, sessions), user_id),
    )


def _weight(db: Transaction, user_id: str, sessions: list[str]) -> list[int]:
    """How many documents and words there are of these sessions, in the order of the columns of ``banks``."""
    documents = db.execute(
        "SELECT count(*), coalesce(sum(own_length), 0)::bigint, coalesce(sum(around_length), 0)::bigint FROM documents"
        " WHERE user_id = ? AND memory_id IN"
        " (SELECT memory_id FROM evidence WHERE user_id = ? AND session_id = ANY(?))",
        (user_id, user_id, sessions),
    ).fetchone()
    words = db.execute(
        "SELECT count(*), coalesce(sum(words_length), 0)::bigint FROM sessions"
        " WHERE user_id = ? AND id = ANY(?) AND words IS NOT NULL",
        (user_id, sessions),
    ).fetchone()
    return [*documents, *words]


def _refresh(db: Transaction, user_id: str, session_ids: list[str]) -> None:
    """Make the documents of these sessions' memories anew, and the words of the sessions."""
    ids = [
        name
        for (name,) in db.execute(
            "SELECT DISTINCT memory_id FROM evidence WHERE user_id = ? AND session_id = ANY(?)", (user_id, session_ids)
        )
    ]
    entries = _bank.entries(db, user_id, ids)
    sessions = {ref.session_id for e in entries for ref in e.memory.evidence}
    turns = {s: _bank.session_turns(db, user_id, s) for s in sessions.union(session_ids)}
    db.execute("DELETE FROM documents WHERE user_id = ? AND memory_id = ANY(?)", (user_id, ids))
    db.executemany(_INSERT, [_row(user_id, _bank.document(e, turns)) for e in entries])
    db.executemany(
        "UPDATE sessions SET words = ?, words_length = ? WHERE user_id = ? AND id = ?",
        [(*(_text(turns[s]) if s in sessions else (None, 0)), user_id, s) for s in session_ids],
    )


def _text(turns: dict[int, Turn]) -> tuple[str, int]:
    """The words of a session."""
    return tsvector("\n".join(turn.line for turn in turns.values()))


def _row(user_id: str, document: Any) -> tuple[Any, ...]:
    """A document as a row of its table."""
    d, t = document, document.traits
    traits = (t.length, t.question, t.timed, t.number, t.early, sorted(t.speakers))
    return (user_id, d.memory_id, d.kind, *tsvector(d.own), *tsvector(d.window), *traits)


def _of(kind: Kind | None) -> str:
    return "" if kind is None else " AND kind = %(kind)s"


def _view(name: str, key: str, words: str, length: str, source: str, count: str, mean: str) -> str:
    """BM25 of one view, by key: the parts of a statement."""
    return f"""
    {name}_hit AS MATERIALIZED (
        SELECT {key} AS key, n, ts_rank('{{1,1,1,1}}', {words}, q) / (1.3 + 0.9 * {length} / {mean}) AS weight
        FROM {source} CROSS JOIN bank JOIN term ON {words} @@ q
        WHERE user_id = %(user)s AND {words} @@ %(any)s::tsquery
    ),
    {name}_word AS MATERIALIZED (
        SELECT n, greatest(ln((greatest(max({count}) - count(*), 0) + 0.5) / (count(*) + 0.5)), 0.000001) AS rare
        FROM {name}_hit CROSS JOIN bank GROUP BY n
    ),
    {name} AS MATERIALIZED (
        SELECT key, sum(weight * rare) AS score FROM {name}_hit JOIN {name}_word USING (n) GROUP BY key
    )"""


def _best(view: str, kind: Kind | None) -> str:
    documents = "" if kind is None else "JOIN documents ON user_id = %(user)s AND memory_id = key AND kind = %(kind)s"
    return f"(SELECT key FROM {view} {documents} ORDER BY score DESC, key LIMIT %(limit)s)"


def _statement(nearest: str, kind: Kind | None) -> str:
    """Candidates with their features, those of the traits last."""
    own, around = _best("own", kind), _best("around", kind)
    return f"""
    WITH bank AS (
        SELECT memories, sessions, own_length / greatest(memories, 1)::float + 1e-9 AS own_mean,
            around_length / greatest(memories, 1)::float + 1e-9 AS around_mean,
            session_length / greatest(sessions, 1)::float + 1e-9 AS session_mean
        FROM banks WHERE user_id = %(user)s
    ),
    term AS (SELECT n, q FROM unnest(%(terms)s::tsquery[]) WITH ORDINALITY AS term (q, n)),
    {_view("own", "memory_id", "own", "own_length", "documents", "memories", "own_mean")},
    {_view("around", "memory_id", "around", "around_length", "documents", "memories", "around_mean")},
    {_view("session", "id", "words", "words_length", "sessions", "bank.sessions", "session_mean")},
    candidate AS MATERIALIZED (
        ({nearest}) UNION {own} UNION {around}
        UNION (SELECT id FROM memories WHERE user_id = %(user)s AND id = ANY(%(cited)s){_of(kind)})
    ),
    place AS MATERIALIZED (
        SELECT key, session_id, position FROM candidate JOIN evidence ON user_id = %(user)s AND memory_id = key
    ),
    mate AS MATERIALIZED (
        SELECT e.session_id, e.position, e.memory_id, -(m.embedding <#> %(vector)s) AS similarity
        FROM evidence e JOIN memories m ON m.user_id = e.user_id AND m.id = e.memory_id
        WHERE e.user_id = %(user)s AND e.session_id IN (SELECT session_id FROM place)
    ),
    session_best AS MATERIALIZED (SELECT session_id, max(similarity) AS best FROM mate GROUP BY session_id),
    beside AS MATERIALIZED (
        SELECT key, avg(similarity) AS mean FROM (
            SELECT DISTINCT key, memory_id, similarity FROM place JOIN mate ON mate.session_id = place.session_id
            AND abs(mate.position - place.position) BETWEEN 1 AND %(window)s AND memory_id <> key
        ) AS pair GROUP BY key
    ),
    whole AS MATERIALIZED (
        SELECT key, max(session.score) AS score, max(best) AS best FROM place JOIN session_best USING (session_id)
        LEFT JOIN (SELECT key AS session_id, score FROM session) AS session USING (session_id) GROUP BY key
    )
    SELECT key, coalesce(own.score / (SELECT max(score) FROM own), 0),
        coalesce(around.score / (SELECT max(score) FROM around), 0),
        coalesce(whole.score / (SELECT max(score) FROM session), 0),
        coalesce(whole.best, 0), coalesce(beside.mean, 0),
        coalesce(d.length, 0), coalesce(d.question, 0), coalesce(d.timed, 0), coalesce(d.number, 0),
        coalesce(d.early, 0), coalesce(d.speakers, '{{}}')
    FROM candidate LEFT JOIN documents d ON d.user_id = %(user)s AND d.memory_id = key
    LEFT JOIN own USING (key) LEFT JOIN around USING (key) LEFT JOIN whole USING (key) LEFT JOIN beside USING (key)
    """


_SCAN = (
    "SET LOCAL enable_sort = off",  # the planner knows little of a bank that grew a moment ago
    "SET LOCAL hnsw.iterative_scan = strict_order",
    "SET LOCAL hnsw.max_scan_tuples = 100000",
)

_INSERT = (
    "INSERT INTO documents (user_id, memory_id, kind, own, own_length, around, around_length, length, question, timed,"
    " number, early, speakers) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
