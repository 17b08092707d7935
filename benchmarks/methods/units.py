"""Plain retrieval: cut the conversations into units of one size, and rank those by embedding, by words or by both."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.datasets import Conversation, Question
from benchmarks.methods import Found
from rmm_core import Embedder, TurnRef

Scores: TypeAlias = NDArray[np.float64]
Size: TypeAlias = Literal["turn", "round", "session", "mixed", "fact"]


def turns(conversation: Conversation) -> Iterator[Found]:
    """Every message, with its speaker."""
    for s in conversation.sittings:
        for index, message in enumerate(s.messages):
            yield Found(conversation.line(message), (TurnRef(s.id, index),))


def rounds(conversation: Conversation) -> Iterator[Found]:
    """What one side says with what the other replies; where one side is all there is, single messages."""
    for s in conversation.sittings:
        start = 0
        while start < len(s.messages):
            replied = start + 1 < len(s.messages) and s.messages[start].role != s.messages[start + 1].role
            yield _joined(conversation, s.id, range(start, start + 1 + replied))
            start += 1 + replied


def sessions(conversation: Conversation) -> Iterator[Found]:
    """Every session as a whole."""
    for s in conversation.sittings:
        if s.messages:
            yield _joined(conversation, s.id, range(len(s.messages)))


def facts(conversation: Conversation) -> Iterator[Found]:
    """The facts recorded with the data set."""
    for s in conversation.sittings:
        for fact in s.facts:
            yield Found(fact.summary, tuple(TurnRef(s.id, index) for index in fact.reference))


def mixed(conversation: Conversation) -> Iterator[Found]:
    """Turns and sessions in one pool: the paper's "mixed" granularity."""
    yield from turns(conversation)
    yield from sessions(conversation)


UNITS: dict[Size, Callable[[Conversation], Iterator[Found]]] = {
    "turn": turns,
    "round": rounds,
    "session": sessions,
    "mixed": mixed,
    "fact": facts,
}


def _joined(conversation: Conversation, session_id: str, indexes: range) -> Found:
    refs = tuple(TurnRef(session_id, i) for i in indexes)
    return Found("\n".join(conversation.line(conversation.message(ref)) for ref in refs), refs)


class Scorer:
    """Scores units for a query; made for one pool of units."""

    def __init__(self, units: Sequence[Found]) -> None:
        self.units = units

    def scores(self, query: str) -> Scores:
        """One per unit; higher is better."""
        raise NotImplementedError


class Dense(Scorer):
    """The inner product of normalised embeddings."""

    def __init__(self, units: Sequence[Found], embedder: Embedder) -> None:
        super().__init__(units)
        self.embedder = embedder
        self.rows = embedder.embed([u.text for u in units])

    def scores(self, query: str) -> Scores:
        """See :class:`Scorer`."""
        return np.asarray(self.rows @ self.embedder.embed([query])[0], dtype=np.float64)


class BM25(Scorer):
    """BM25 as bm25s has it (k1 = 1.5, b = 0.75), over stemmed words.

    Args:
        stop_words: Words that do not count. Without any, as others report BM25, "what" and "did" find other questions.
    """

    def __init__(self, units: Sequence[Found], stop_words: Collection[str] = ()) -> None:
        import bm25s
        import Stemmer

        super().__init__(units)
        stemmer = Stemmer.Stemmer("english")
        self._split: Callable[[list[str]], Any] = lambda texts: bm25s.tokenize(
            texts, stopwords=list(stop_words), stemmer=stemmer, show_progress=False, return_ids=False
        )
        self._index = bm25s.BM25(k1=1.5, b=0.75)
        self._index.index(self._split([u.text for u in units]), show_progress=False)

    def scores(self, query: str) -> Scores:
        """See :class:`Scorer`."""
        known = [w for w in self._split([query])[0] if w in self._index.vocab_dict]
        return np.asarray(self._index.get_scores(known)) if known else np.zeros(len(self.units))


class Blend(Scorer):
    """The sum of two scorers, each stretched to [0, 1] over the pool: a hybrid as others build it."""

    def __init__(self, one: Scorer, other: Scorer) -> None:
        super().__init__(one.units)
        self._both = (one, other)

    def scores(self, query: str) -> Scores:
        """See :class:`Scorer`."""
        return sum((_stretched(s.scores(query)) for s in self._both), np.zeros(len(self.units)))


def _stretched(scores: Scores) -> Scores:
    low, high = scores.min(), scores.max()
    return (scores - low) / (high - low) if high > low else np.zeros_like(scores)


class UnitRetrieval:
    """RAG: units of one size ranked by one scorer, in a pool per conversation.

    Args:
        size: What a unit is.
        scorer: Makes the scorer of a pool.
    """

    learns = False
    settings: Mapping[str, Any] = {}
    trained_on: frozenset[str] = frozenset()

    def __init__(self, size: Size, scorer: Callable[[Sequence[Found]], Scorer]) -> None:
        self._cut = UNITS[size]
        self._scorer = scorer
        self.pools: dict[str, Scorer] = {}

    def remember(self, conversations: Sequence[Conversation]) -> None:
        """See :class:`benchmarks.methods.Method`."""
        self.pools = {c.name: self._scorer(units) for c in conversations if (units := list(self._cut(c)))}

    def ranked(self, conversation: Conversation, question: Question) -> list[Found]:
        """The whole pool, best first; ties stay in order of time."""
        pool = self.pools.get(conversation.name)
        if pool is None:
            return []
        return [pool.units[i] for i in np.argsort(-pool.scores(question.text), kind="stable")]

    def find(self, conversation: Conversation, question: Question, k: int) -> Sequence[Found]:
        """See :class:`benchmarks.methods.Method`."""
        return self.ranked(conversation, question)[:k]

    def learn(self, cited: tuple[int, ...]) -> None:
        """Nothing is learned."""

    def reachable(self, conversation: Conversation) -> frozenset[TurnRef]:
        """See :class:`benchmarks.methods.Method`."""
        pool = self.pools.get(conversation.name)
        return frozenset[TurnRef]().union(*(u.turns for u in pool.units)) if pool else frozenset()

    def close(self) -> None:
        """Nothing is open."""


class TurnMax(UnitRetrieval):
    """Sessions, each scored as the best of its turns."""

    def remember(self, conversations: Sequence[Conversation]) -> None:
        """See :class:`benchmarks.methods.Method`."""
        super().remember(conversations)
        self._whole = {c.name: {u.turns[0].session_id: u for u in sessions(c)} for c in conversations}

    def find(self, conversation: Conversation, question: Question, k: int) -> Sequence[Found]:
        """See :class:`benchmarks.methods.Method`."""
        whole = self._whole[conversation.name]
        order = dict.fromkeys(u.turns[0].session_id for u in self.ranked(conversation, question))
        return [whole[s] for s in order][:k]
