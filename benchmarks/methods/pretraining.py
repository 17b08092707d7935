"""Offline supervised pretraining of the adapters (paper section 8.6), and retrieval by what it gives.

Contrastive: among the things nearest to a question and the evidence of the others in its batch, what covers evidence
is to score highest. Questions are split by the seed; those it was trained on are not asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from benchmarks.datasets import Conversation, Question
from benchmarks.methods import Found
from benchmarks.methods.units import Dense, Scores, Size, UnitRetrieval
from rmm_core import Embedder, RMMConfig
from rmm_core.reranker import Weights, start_mix
from rmm_core.scoring import score
from rmm_core.types import Matrix, Vector


@dataclass(frozen=True, eq=False)
class Labelled:
    """A question with its evidence and what else is near it.

    Attributes:
        near: Embeddings of both, shape ``(n, d)``.
        names: What they are known by, over all conversations.
        useful: The names of those that cover evidence.
    """

    query: Vector
    near: Matrix
    names: tuple[tuple[str, int], ...]
    useful: frozenset[tuple[str, int]]


@dataclass(frozen=True)
class Pretraining:
    """Makes pretrained weights. Rates are the paper's; Adam, since it names no other.

    Attributes:
        embedder: Of questions and things.
        held_out: How many questions are left for testing; half of them where there are fewer than twice as many.
        seed: Of the split and the batches.
        near: How many of the nearest things are contrasted with the evidence.
    """

    embedder: Embedder
    held_out: int = 100
    seed: int = 0
    epochs: int = 10
    batch: int = 32
    near: int = 5
    learning_rate: float = 1e-4
    logit_scale: float = 10.0

    def rates(self) -> dict[str, Any]:
        """All settings but the embedder, by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "embedder"}

    def __call__(
        self, conversations: Sequence[Conversation], pools: Mapping[str, Sequence[Found]]
    ) -> tuple[Weights, frozenset[str]]:
        """The weights, and the ids of the questions they were trained on."""
        asked = [(c, q) for c in conversations for q in c.questions if q.evidence and not q.abstains]
        order = np.random.default_rng(self.seed).permutation(len(asked))
        train = [asked[i] for i in order[min(self.held_out, -(-len(asked) // 2)) :]]
        scorers = {name: Dense(pool, self.embedder) for name, pool in pools.items() if pool}
        examples = [e for c, q in train if c.name in scorers and (e := self._example(c.name, scorers[c.name], q))]
        width = self.embedder.embed([""]).shape[1]
        return self._trained(examples, width), frozenset(q.id for _, q in train)

    def _example(self, name: str, scorer: Dense, question: Question) -> Labelled | None:
        useful = [i for i, u in enumerate(scorer.units) if not question.evidence.isdisjoint(u.turns)]
        if not useful:
            return None
        nearest = np.argsort(-scorer.scores(question.text), kind="stable")[: self.near + len(useful)]
        both = [*useful, *[i for i in nearest.tolist() if i not in useful][: self.near]]
        return Labelled(
            query=self.embedder.embed([question.text])[0],
            near=scorer.rows[both],
            names=tuple((name, i) for i in both),
            useful=frozenset((name, i) for i in useful),
        )

    def _trained(self, examples: Sequence[Labelled], width: int) -> Weights:
        import torch

        w_q, w_m = (torch.zeros((width, width), requires_grad=True) for _ in range(2))
        optimizer = torch.optim.Adam([w_q, w_m], lr=self.learning_rate)
        rng = np.random.default_rng(self.seed)
        for _ in range(self.epochs):
            order = rng.permutation(len(examples))
            for start in range(0, len(order), self.batch):
                batch = [examples[i] for i in order[start : start + self.batch]]
                queries = torch.tensor(np.stack([e.query for e in batch]))
                things = torch.tensor(np.concatenate([e.near for e in batch]))
                logits = self.logit_scale * (queries + queries @ w_q.T) @ (things + things @ w_m.T).T
                own = torch.tensor(_own(batch))
                loss = (logits.logsumexp(1) - logits.masked_fill(~own, -torch.inf).logsumexp(1)).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        return Weights(w_q.detach().numpy(), w_m.detach().numpy(), start_mix(RMMConfig()))


def _own(batch: Sequence[Labelled]) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """Which of the things of a batch, side by side, cover which question's evidence; whoever brought them."""
    return np.array([[name in e.useful for other in batch for name in other.names] for e in batch])


class Adapted(Dense):
    """Dense retrieval through adapters, over the whole pool."""

    def __init__(self, units: Sequence[Found], embedder: Embedder, weights: Weights) -> None:
        super().__init__(units, embedder)
        self._weights = weights

    def scores(self, query: str) -> Scores:
        """See :class:`benchmarks.methods.units.Scorer`."""
        (vector,) = self.embedder.embed([query])
        return np.asarray(score(vector, self.rows, self._weights.w_q, self._weights.w_m), dtype=np.float64)


class PretrainedRetrieval(UnitRetrieval):
    """Units of one size, ranked by embeddings through pretrained adapters."""

    def __init__(self, size: Size, pretraining: Pretraining) -> None:
        super().__init__(size, lambda units: Dense(units, pretraining.embedder))
        self._pretraining = pretraining
        self.settings = pretraining.rates()

    def remember(self, conversations: Sequence[Conversation]) -> None:
        """See :class:`benchmarks.methods.Method`."""
        super().remember(conversations)
        pools = {name: pool.units for name, pool in self.pools.items()}
        weights, self.trained_on = self._pretraining(conversations, pools)
        self.pools = {name: Adapted(units, self._pretraining.embedder, weights) for name, units in pools.items()}
