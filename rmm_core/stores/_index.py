"""The search index of one user's bank: a cache that is rebuilt from the database, never trusted.

FAISS holds the embeddings, SQLite's FTS5 in memory holds the words, one table per lexical view. Each
user has an index of their own, so that what others said changes neither a word's weight nor what
fits into a result, and a bank's statistics are those of its own language and topics.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rmm_core.features import FEATURES
from rmm_core.stores._asked import Asked
from rmm_core.stores._traits import Traits, asked_for
from rmm_core.stores._words import TOKENIZER, match_expression, spaced
from rmm_core.types import Kind, Matrix, TurnRef, Vector

Scores: TypeAlias = NDArray[np.float64]
"""Scores by row number."""

VIEWS = ("own", "window", "session")
_BESIDE = 2000  # bytes that a document takes beside its words and its embedding, as measured
WINDOW = 2  # neighbouring turns on each side ; half of an answer often stands in the turn before or after


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """What is indexed of one memory.

    Attributes:
        own: Its summary and evidence.
        window: Its evidence with the neighbouring turns.
        evidence: Where its turns stand.
        traits: What its evidence shows by itself.
    """

    memory_id: str
    kind: Kind
    embedding: Vector
    own: str
    window: str
    evidence: tuple[TurnRef, ...]
    traits: Traits


@dataclass(frozen=True, slots=True)
class _Held:
    """What is kept of a document beside its words and its embedding; ``places`` are of sessions by number."""

    memory_id: str
    kind: Kind
    places: tuple[tuple[int, int], ...]
    traits: Traits

    @property
    def sessions(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(session for session, _ in self.places))


def _sets() -> defaultdict[Any, set[int]]:
    return defaultdict(set)


@dataclass(slots=True)
class BankIndex:
    """Dense and lexical index of one bank. Callers hold :attr:`lock`."""

    version: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)
    asked: Asked = field(default_factory=Asked)
    _numbers: dict[str, int] = field(default_factory=dict)
    _documents: dict[int, _Held] = field(default_factory=dict)
    _at: defaultdict[tuple[int, int], set[int]] = field(default_factory=_sets)  # by session and turn
    _of: defaultdict[int, set[int]] = field(default_factory=_sets)  # by session
    _sessions: dict[str, int] = field(default_factory=dict)
    _faiss: Any = None
    _db: sqlite3.Connection = field(default_factory=lambda: sqlite3.connect(":memory:", check_same_thread=False))
    _next: int = 1

    def __post_init__(self) -> None:
        """Create the tables."""
        for view in VIEWS:
            self._db.execute(f"CREATE VIRTUAL TABLE {view} USING fts5(words, tokenize='{TOKENIZER}')")

    def __len__(self) -> int:
        return len(self._documents)

    def size(self) -> int:
        """Bytes held, about."""
        (pages,) = self._db.execute("PRAGMA page_count").fetchone()
        (page,) = self._db.execute("PRAGMA page_size").fetchone()
        dense = self._faiss.ntotal * (self._faiss.d * 4 + 8) if self._faiss is not None else 0
        return int(pages * page + dense + _BESIDE * len(self._documents) + self.asked.size())

    def put(self, documents: Iterable[Document], sessions: dict[str, str]) -> None:
        """Index documents, in place of those of the same ids, and the texts of their sessions."""
        for session_id in sessions:
            self._sessions.setdefault(session_id, len(self._sessions) + 1)
        self._write("session", [(self._sessions[session_id], text) for session_id, text in sessions.items()])
        documents = list(documents)
        self.remove(d.memory_id for d in documents)
        numbers = range(self._next, self._next + len(documents))
        self._next += len(documents)
        for number, d in zip(numbers, documents, strict=True):
            places = tuple((self._sessions[ref.session_id], ref.index) for ref in d.evidence)
            self._numbers[d.memory_id] = number
            self._documents[number] = _Held(d.memory_id, d.kind, places, d.traits)
            for place in places:
                self._at[place].add(number)
                self._of[place[0]].add(number)
        self._write("own", [(n, d.own) for n, d in zip(numbers, documents, strict=True)])
        self._write("window", [(n, d.window) for n, d in zip(numbers, documents, strict=True)])
        if documents:
            self._add_dense(np.stack([d.embedding for d in documents]), np.asarray(numbers, dtype=np.int64))
        self._db.commit()  # which packs what FTS5 holds back until then in a bigger form

    def remove(self, memory_ids: Iterable[str]) -> None:
        """Take documents out; unknown ids are fine."""
        numbers = [self._numbers.pop(i) for i in memory_ids if i in self._numbers]
        if not numbers:
            return
        for number in numbers:
            for place in self._documents.pop(number).places:
                self._at[place].discard(number)
                self._of[place[0]].discard(number)
        for view in ("own", "window"):
            self._db.executemany(f"DELETE FROM {view} WHERE rowid = ?", [(n,) for n in numbers])
        self._faiss.remove_ids(np.asarray(numbers, dtype=np.int64))

    def search(
        self, vector: Vector, text: str, limit: int, kind: Kind | None, near: Sequence[str] = ()
    ) -> dict[str, Vector]:
        """Memories found with their features: the union of the best by embedding, by words, and by earlier answers.

        See ``MemoryStore.search``.
        """
        wanted = None if kind is None else [n for n, held in self._documents.items() if held.kind == kind]
        if not self._documents or wanted == []:
            return {}
        found = dict.fromkeys(self._given(near, limit, kind) or self._nearest(vector, limit, wanted))
        if not text:
            return {self._documents[n].memory_id: np.zeros(len(FEATURES), np.float32) for n in found}
        expression = match_expression(text)
        own, window = (self._matches(view, expression, self._next) for view in ("own", "window"))
        session = self._matches("session", expression, len(self._sessions) + 1)
        for scores in (own, window):
            found.update(dict.fromkeys(self._best(scores, limit, wanted)))
        similar = self.asked.similar(vector)
        cited = [self._numbers[i] for i in self.asked.cited(similar)[:limit] if i in self._numbers]
        found.update(dict.fromkeys(n for n in cited if kind in (None, self._documents[n].kind)))
        numbers = list(found)
        names = [self._documents[n].memory_id for n in numbers]
        of_session = [session[list(self._documents[n].sessions)].max(initial=0.0) for n in numbers]
        rows = np.column_stack(
            [
                own[numbers],
                window[numbers],
                of_session,
                self._around(vector, numbers),
                asked_for(text, [self._documents[n].traits for n in numbers]),
                self.asked.features(similar, names),
            ]
        ).astype(np.float32)
        return dict(zip(names, rows, strict=True))

    def clear(self) -> None:
        """Empty the index, so that it is built anew."""
        for view in VIEWS:
            self._db.execute(f"DELETE FROM {view}")
        self._numbers, self._documents, self._sessions, self._faiss = {}, {}, {}, None
        self._at.clear()
        self._of.clear()
        self.version, self.asked = 0, Asked()

    def _around(self, vector: Vector, numbers: list[int]) -> Matrix:
        """The best similarity in each one's sessions, and the mean of those on neighbouring turns; ``(K, 2)``."""
        sessions = {s for n in numbers for s in self._documents[n].sessions}
        mates = sorted({n for s in sessions for n in self._of[s]})
        similarity = np.zeros(self._next)
        similarity[mates] = self._rows(mates) @ vector
        best = {s: similarity[list(self._of[s])].max() for s in sessions}
        found = np.zeros((len(numbers), 2), dtype=np.float32)
        for row, number in enumerate(numbers):
            places = self._documents[number].places
            near = {n for s, t in places for step in _STEPS for n in self._at.get((s, t + step), ())} - {number}
            found[row, 0] = max((best[s] for s, _ in places), default=0.0)
            found[row, 1] = similarity[list(near)].mean() if near else 0.0
        return found

    def _rows(self, numbers: list[int]) -> Matrix:
        """The embeddings of these numbers, ascending, read from where FAISS keeps them."""
        import faiss

        held = faiss.vector_to_array(self._faiss.id_map)  # ascending: numbers grow, and what is removed closes up
        flat: Any = faiss.downcast_index(self._faiss.index)
        rows: Matrix = faiss.rev_swig_ptr(flat.get_xb(), flat.ntotal * flat.d).reshape(flat.ntotal, flat.d)
        return rows[np.searchsorted(held, numbers)]

    def _best(self, scores: Scores, limit: int, wanted: list[int] | None) -> list[int]:
        """The numbers of the ``limit`` highest scores above 0, ties by memory id."""
        if wanted is not None:
            scores = np.where(np.isin(np.arange(len(scores)), wanted), scores, 0.0)
        positive = scores[scores > 0]
        count = min(limit, len(positive))
        if not count:
            return []
        threshold = np.partition(positive, -count)[-count]
        close = sorted(
            (-scores[n], self._documents[n].memory_id, n) for n in np.flatnonzero(scores >= threshold).tolist()
        )
        return [n for _, _, n in close[:count]]

    def _matches(self, view: str, expression: str, size: int) -> Scores:
        """BM25 of a view's rows divided by the best, by row number; 0 where none of the words is."""
        if not expression:
            return np.zeros(size)
        rows = self._db.execute(f"SELECT rowid, -bm25({view}) FROM {view} WHERE {view} MATCH ?", (expression,))
        found = np.fromiter(rows, dtype=[("number", np.int64), ("score", np.float64)])
        scores = np.zeros(size)
        scores[found["number"]] = found["score"]
        best = scores.max(initial=0.0)
        return scores / best if best > 0 else scores

    def _given(self, near: Sequence[str], limit: int, kind: Kind | None) -> list[int]:
        """The numbers of the first ``limit`` memories among those found elsewhere; none when there are fewer."""
        numbers = [self._numbers[i] for i in dict.fromkeys(near) if i in self._numbers]
        given = [n for n in numbers if kind in (None, self._documents[n].kind)][:limit]
        return given if len(given) == limit else []

    def _nearest(self, vector: Vector, limit: int, wanted: list[int] | None) -> list[int]:
        import faiss

        parameters: Any = None
        if wanted is not None:
            selector = faiss.IDSelectorBatch(np.asarray(wanted, dtype=np.int64))
            parameters = faiss.SearchParameters()
            parameters.sel = selector  # which must outlive the search: hence the variable
        count = min(limit, len(self._documents))
        _, numbers = self._faiss.search(vector[None, :], count, params=parameters)
        return [int(n) for n in numbers[0] if n >= 0]

    def _add_dense(self, rows: np.ndarray[Any, Any], numbers: np.ndarray[Any, Any]) -> None:
        import faiss

        if self._faiss is None:
            self._faiss = faiss.IndexIDMap2(faiss.IndexFlatIP(rows.shape[1]))
        self._faiss.add_with_ids(np.ascontiguousarray(rows, dtype=np.float32), numbers)

    def _write(self, view: str, rows: list[tuple[int, str]]) -> None:
        self._db.executemany(
            f"INSERT OR REPLACE INTO {view} (rowid, words) VALUES (?, ?)",
            ((number, spaced(text)) for number, text in rows),
        )


_STEPS = tuple(step for step in range(-WINDOW, WINDOW + 1) if step)


class IndexCache:
    """The indexes of the banks used last, bounded by their bytes."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._lock = threading.Lock()
        self._held: OrderedDict[str, BankIndex] = OrderedDict()
        self._sizes: dict[str, int] = {}

    def get(self, user_id: str) -> BankIndex:
        """The user's index, a new empty one when none is held."""
        with self._lock:
            if user_id not in self._held:
                self._held[user_id] = BankIndex()
            self._held.move_to_end(user_id)
            return self._held[user_id]

    def drop(self, user_id: str) -> None:
        """Forget the user's index."""
        with self._lock:
            self._held.pop(user_id, None)
            self._sizes.pop(user_id, None)

    def clear(self) -> None:
        """Forget all of them."""
        with self._lock:
            self._held.clear()
            self._sizes.clear()

    def settle(self, user_id: str, measure: Callable[[], int]) -> None:
        """Note the size of an index that changed, and let the longest unused go until all fit."""
        size = measure()
        with self._lock:
            if user_id in self._held:
                self._sizes[user_id] = size
            while sum(self._sizes.values()) > self._bound and len(self._held) > 1:
                oldest, _ = self._held.popitem(last=False)
                self._sizes.pop(oldest, None)
