"""The paper's "+RR without reranker": the same rewards, spent on the retriever's query side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchmarks.datasets import Conversation, Question
from benchmarks.methods import Found
from benchmarks.methods.units import Dense, Size, UnitRetrieval
from rmm_core import Embedder, RMMConfig
from rmm_core.features import FEATURES
from rmm_core.learning import Example, update
from rmm_core.places import Places
from rmm_core.reranker import Weights
from rmm_core.types import Vector


class TunedRetriever(UnitRetrieval):
    """Dense retrieval whose queries pass an adapter, q' = q + W_q q; no candidates, no second stage.

    Args:
        size: What a unit is.
        embedder: Of queries and units.
        config: How it learns: estimator, rates, batch size.
    """

    learns = True

    def __init__(self, size: Size, embedder: Embedder, config: RMMConfig) -> None:
        super().__init__(size, lambda units: Dense(units, embedder))
        self._embedder = embedder
        self._config = replace(config, features=False)
        self.settings = self._config.to_dict()
        self._weights: Weights | None = None
        self._batch: list[Example] = []
        self._last: tuple[Dense, Vector, list[int]] | None = None

    def find(self, conversation: Conversation, question: Question, k: int) -> Sequence[Found]:
        """See :class:`benchmarks.methods.Method`."""
        pool = self.pools[conversation.name]
        assert isinstance(pool, Dense)
        query = self._embedder.embed([question.text])[0]
        if self._weights is None:
            self._weights = Weights.start(len(query), self._config)
        scores = pool.rows @ (query + self._weights.w_q @ query)
        order = np.argsort(-scores, kind="stable")[:k].tolist()
        self._last = (pool, query, order[: self._config.top_m])
        return [pool.units[i] for i in order]

    def learn(self, cited: tuple[int, ...]) -> None:
        """A step per full batch; of its gradient, the query side alone is taken."""
        assert self._last is not None
        assert self._weights is not None
        pool, query, shown = self._last
        none = np.zeros((len(pool.units), len(FEATURES)), dtype=np.float32)
        self._batch.append(
            Example(query, pool.rows, none, none[:, 0], tuple(shown), tuple(shown[n - 1] for n in cited))
        )
        if len(self._batch) == self._config.batch_size:
            stepped = update(self._weights, self._batch, Places.unknown(), self._config)
            self._weights = replace(stepped, w_m=self._weights.w_m)
            self._batch = []
