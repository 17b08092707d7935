"""Retrospective reflection: what is shown for a query, and what its citations say (paper section 4)."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import zip_longest

import numpy as np

from rmm_core.citations import parse_citations
from rmm_core.config import RMMConfig
from rmm_core.explain import Explanation, Ranked, reasons
from rmm_core.extractive import attribute
from rmm_core.features import FEATURES
from rmm_core.flow import Flow, call, complete, embed
from rmm_core.prompts import shortened, shown_memory, turn_line
from rmm_core.protocols import MemoryStore
from rmm_core.recall import Recall
from rmm_core.reranker import Ranking
from rmm_core.tracing import Attributes, span
from rmm_core.trainer import Trainer
from rmm_core.types import Candidate, Citations, Feedback, Matrix, Memory, Shown, Turn, TurnRef, Vector

_NO_NOISE: Vector = np.zeros(0, dtype=np.float32)


class Recaller:
    """Brings up memories for queries: embed, K candidates, rerank, the M best with their turns."""

    def __init__(self, store: MemoryStore, trainer: Trainer, config: RMMConfig) -> None:
        self._store = store
        self._trainer = trainer
        self._config = config
        self._rng = np.random.default_rng(config.seed)
        self._rng_lock = threading.Lock()

    def recall(self, recall_id: str, user_id: str, query: str, *, top_m: int | None = None) -> Flow[Recall]:
        """Algorithm 1, steps 1 and 2."""
        vectors = yield from embed([query])
        return (yield from call(self._recall, recall_id, user_id, query, vectors[0], top_m))

    def rerank(
        self, recall_id: str, user_id: str, query: str, found: Sequence[Memory], *, top_m: int | None = None
    ) -> Flow[Recall]:
        """Step 2 alone, over texts that the bank does not hold; their features are 0."""
        rows = yield from embed([query, *(m.summary for m in found)])
        none = np.zeros(len(FEATURES), dtype=np.float32)
        candidates = tuple(Candidate(m, row, none) for m, row in zip(found, rows[1:], strict=True))
        recall = Recall(recall_id, user_id, query, rows[0], candidates, _NO_NOISE, (), of_bank=False)
        return (yield from call(self._ranked, recall, top_m)) if found else recall

    def explain(self, user_id: str, query: str, *, top_m: int | None = None) -> Flow[Explanation]:
        """What :meth:`recall` would bring up without any chance in it, and why."""
        vectors = yield from embed([query])
        return (yield from call(self._explain, user_id, query, vectors[0], top_m))

    def _explain(self, user_id: str, query: str, vector: Vector, top_m: int | None) -> Explanation:
        found = self._found(user_id, query, vector, top_m)
        state = self._trainer.state(user_id, len(vector))
        verdict = state.verdict(self._config)
        if not found:
            return Explanation(user_id, query, verdict.ranking, verdict.reason, ())
        columns = _columns(vector, found)
        learned, prior = (
            self._by(user_id, found, reranker.rank(*columns), top_m) for reranker in (state.reranker, state.prior)
        )
        reranker, serving = (state.reranker, learned) if verdict.ranking == "learned" else (state.prior, prior)
        terms = reranker.columns(*columns) * reranker.weights.mix
        candidates = reasons(found, learned, prior, serving=serving, terms=terms)
        return Explanation(user_id, query, verdict.ranking, verdict.reason, candidates)

    def _by(self, user_id: str, found: Sequence[Candidate], ranking: Ranking, top_m: int | None) -> Ranked:
        """A ranking with what it would show."""
        shown = self._show(user_id, [found[i].memory for i in self._slate(found, ranking, self._m(top_m))])
        ranks = {i: rank for rank, i in enumerate(ranking.order.tolist(), start=1)}
        return Ranked(ranking.scores, ranks, {s.memory.id: s.number for s in shown})

    def _found(self, user_id: str, query: str, vector: Vector, top_m: int | None) -> tuple[Candidate, ...]:
        """The candidates."""
        text = query if self._config.features else ""
        return self._store.search(user_id, vector, text=text, limit=max(self._config.top_k, top_m or 0))

    def _m(self, top_m: int | None) -> int:
        return self._config.top_m if top_m is None else top_m

    def _recall(self, recall_id: str, user_id: str, query: str, vector: Vector, top_m: int | None) -> Recall:
        found = self._found(user_id, query, vector, top_m)
        if not found:
            return Recall(recall_id, user_id, query, vector, (), _NO_NOISE, ())
        return self._ranked(Recall(recall_id, user_id, query, vector, found, _NO_NOISE, ()), top_m)

    def _ranked(self, recall: Recall, top_m: int | None) -> Recall:
        """A recall with its candidates ranked, and the best of them shown."""
        with span("rmm.rerank", {"rmm.recall": recall.id}) as note:
            ranked = self._rank(recall, top_m)
            note(told(ranked))
            return ranked

    def _rank(self, recall: Recall, top_m: int | None) -> Recall:
        c, found = self._config, recall.candidates
        state = self._trainer.state(recall.user_id, len(recall.embedding))
        by = state.verdict(c).ranking
        serving, other = (state.reranker, state.prior) if by == "learned" else (state.prior, state.reranker)
        columns, m = _columns(recall.embedding, found), self._m(top_m)
        rng = self._draws()
        ranking = serving.sample(*columns, rng) if c.serving == "sampled" else serving.rank(*columns)
        slate = self._slate(found, ranking, m)
        sides: dict[int, int] | None = None
        if c.guard and state.guard.believes and rng.random() < c.duels:
            rival = self._slate(found, other.rank(*columns), m)
            if set(rival) != set(slate):
                slate, sides = shared(slate, rival, 1 if by == "learned" else -1, rng)
        shown = self._show(recall.user_id, [found[i].memory for i in slate])
        complete = len(shown) == len(slate)  # a memory that did not fit into the prompt had no chance
        return replace(
            recall,
            candidates=tuple(replace(found[i], score=float(ranking.scores[i])) for i in ranking.order),
            noise=ranking.noise[ranking.order],
            shown=shown,
            ranking=by,
            sides={found[i].memory.id: side for i, side in sides.items()} if sides is not None and complete else None,
        )

    def _draws(self) -> np.random.Generator:
        """The randomness of one recall."""
        with self._rng_lock:
            return np.random.default_rng(self._rng.integers(2**63))

    def _slate(self, found: Sequence[Candidate], ranking: Ranking, m: int) -> list[int]:
        """The first ``m`` that are good enough and rest on something that none before them rests on."""
        slate: list[int] = []
        held: set[TurnRef] = set()
        for i in ranking.order.tolist():
            evidence = found[i].memory.evidence
            good = self._config.floor is None or ranking.scores[i] >= self._config.floor
            new = not (self._config.features and evidence and held.issuperset(evidence))
            if len(slate) < m and good and new:
                slate.append(i)
                held.update(evidence)
        return slate

    def _show(self, user_id: str, memories: list[Memory]) -> tuple[Shown, ...]:
        refs = [ref for m in memories for ref in m.evidence]
        turns = self._store.turns_at(user_id, refs)
        shown = [_shown(number, memory, turns) for number, memory in enumerate(memories, start=1)]
        if self._config.prompt_tokens is not None:
            shown = within(shown, self._config.prompt_tokens)
        return tuple(shown)


def shared(
    slate: Sequence[int], rival: Sequence[int], side: int, rng: np.random.Generator
) -> tuple[list[int], dict[int, int]]:
    """A slate whose places go to either ranking by the toss of a coin, where they do not agree on what to show.

    What both would show keeps its place. The first choice that one side has alone meets the first of the other, and so
    on: one of both is shown, each with even odds, where the serving ranking would have shown its own.

    Args:
        slate: What the serving ranking would show.
        rival: What the other would.
        side: 1 when the learned ranking serves, -1 when the prior does.
        rng: Tosses the coins.

    Returns:
        The slate, and for what is shown by choice of one side alone, whose it is.
    """
    mixed, sides = list(slate), {}
    own, others = [i for i in slate if i not in rival], [i for i in rival if i not in slate]
    for mine, theirs in zip_longest(own, others):  # a floor can leave them of unequal length: then the rival is nothing
        won = rng.random() < 0.5
        place = len(mixed) if mine is None else mixed.index(mine)
        shown = mine if won else theirs
        mixed[place : place + 1] = [] if shown is None else [shown]
        if shown is not None:
            sides[shown] = side if won else -side
    return mixed, sides


def within(shown: list[Shown], tokens: int, characters_per_token: float = 4.0) -> list[Shown]:
    """The memories that fit a budget, whole, the lowest ranked left out first.

    One that could never fit alone, because it grew over many sessions or holds a pasted document, is shown with
    as many of its turns as fit, the newest first.
    """
    bound = int(tokens * characters_per_token)
    fitted = [s for s in (fit(s, bound) for s in shown) if s is not None]
    lengths = [len(shown_memory(s)) for s in fitted]
    while sum(lengths) > bound:
        fitted.pop()
        lengths.pop()
    return [replace(s, number=number) for number, s in enumerate(fitted, start=1)]


def fit(shown: Shown, bound: int) -> Shown | None:
    """A memory with no more of its turns than fit into ``bound`` characters; None when not even one does."""
    if len(shown_memory(shown)) <= bound:
        return shown
    if not shown.turns:
        return None
    last = shown.turns[-1]
    room = bound - len(shown_memory(replace(shown, turns=(last,)))) + len(turn_line(last)) + 1
    kept: list[Turn] = []
    for turn in reversed(shown.turns):
        room -= len(turn_line(turn)) + 1
        if room < 0:
            break
        kept.append(turn)
    return replace(shown, turns=tuple(reversed(kept))) if kept else _cut(shown, bound)


def _cut(shown: Shown, bound: int) -> Shown | None:
    """A memory with its last turn alone, cut to what fits."""
    last = shown.turns[-1]

    def cut(characters: int) -> Shown:
        return replace(shown, turns=(replace(last, text=shortened(last.text, characters)),))

    # Lines are indented in a prompt: how much of them fits is not told by their own length.
    most = bisect_right(range(bound), bound, key=lambda characters: len(shown_memory(cut(characters)))) - 1
    return cut(most) if most > 0 else None


class LLMAnswerer:
    """Answers with the language model (algorithm 1, step 3): one call gives the answer and its citations."""

    def answer(self, recall: Recall, query: str, history: str) -> Flow[str]:
        """See :class:`~rmm_core.protocols.Answerer`."""
        return complete(recall.prompt(query, history))


def citations_of(reply: str | Citations, recall: Recall, *, by_overlap: bool) -> Citations:
    """What a reply cites of a recall.

    Args:
        reply: The reply, markers included, or what was read from it without knowing how many memories were shown.
        recall: What was shown.
        by_overlap: Whether a reply without any marker cites the memories whose words it repeats.
    """
    count = len(recall.shown)
    citations = parse_citations(reply, count) if isinstance(reply, str) else _within(reply, count)
    if by_overlap and citations.status == "silent":
        numbers = attribute(citations.text, recall.shown)
        if numbers:
            return Citations(citations.text, numbers, "cited")
    return citations


def _within(citations: Citations, count: int) -> Citations:
    """Citations of ``count`` memories: malformed when one points nowhere."""
    inside = tuple(n for n in citations.numbers if 1 <= n <= count)
    return citations if inside == citations.numbers else Citations(citations.text, inside, "malformed")


def told(recall: Recall) -> Attributes:
    """What a span says of a recall."""
    counts = {"rmm.candidates": len(recall.candidates), "rmm.shown": len(recall.shown)}
    return {"rmm.recall": recall.id, "rmm.ranking": recall.ranking, **counts}


def feedback_of(recall: Recall, citations: Citations, at: datetime) -> Feedback | None:
    """What the citations of an answer say about its recall (algorithm 1, step 4); None when nothing.

    An answer without any marker, or with malformed ones, says nothing: it must not count as "nothing was useful".
    """
    if not recall.shown or citations.status in ("silent", "malformed"):
        return None
    place = {c.memory.id: i for i, c in enumerate(recall.candidates)}
    return Feedback(
        recall_id=recall.id,
        user_id=recall.user_id,
        embedding=recall.embedding,
        memory_ids=tuple(c.memory.id for c in recall.candidates),
        features=np.stack([c.features for c in recall.candidates]),
        noise=recall.noise,
        shown=tuple(place[s.memory.id] for s in recall.shown),
        cited=tuple(place[m.id] for m in recall.memories(citations.numbers)),
        at=at,
        embeddings=None if recall.of_bank else np.stack([c.embedding for c in recall.candidates]),
        duel=() if recall.sides is None else tuple(recall.sides.get(s.memory.id, 0) for s in recall.shown),
    )


def _columns(query: Vector, found: Sequence[Candidate]) -> tuple[Vector, Matrix, Matrix]:
    """What a reranker ranks: the query, the candidates' embeddings, their features."""
    return query, np.stack([c.embedding for c in found]), np.stack([c.features for c in found])


def _shown(number: int, memory: Memory, turns: dict[TurnRef, Turn]) -> Shown:
    return Shown(number, memory, tuple(turns[ref] for ref in memory.evidence if ref in turns))
