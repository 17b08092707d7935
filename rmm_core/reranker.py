"""The reranker that serves: K candidates in, the best M out (paper section 4).

Eq. 1 has the query pass one adapter and each of the K candidates the other. With ``q' = q + W_q q`` it is also
``s_i = m_i^T (q' + W_m^T q')``: both adapters pass the query alone, and ranking costs two matrix-vector products and K
dot products, with nothing to prepare when the weights change.
"""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rmm_core.config import RMMConfig
from rmm_core.errors import InputError
from rmm_core.features import SCORED_BY, FeatureWeights
from rmm_core.scoring import adapt, gumbel_noise, top
from rmm_core.types import Matrix, Vector


@dataclass(frozen=True, eq=False)
class Weights:
    """What is learned: two adapters ``(d, d)``, and how much each thing counts that memories are scored by.

    Attributes:
        mix: Shape ``(len(SCORED_BY),)``; the first is the similarity's.
    """

    w_q: Matrix
    w_m: Matrix
    mix: Vector

    @classmethod
    def start(cls, width: int, config: RMMConfig) -> Weights:
        """Where learning starts: adapters at zero, the mix as configured."""
        return cls.unadapted(width, start_mix(config))

    @classmethod
    def unadapted(cls, width: int, mix: Vector) -> Weights:
        """Adapters at zero."""
        return cls(np.zeros((width, width), np.float32), np.zeros((width, width), np.float32), mix)


def start_mix(config: RMMConfig, *, history: bool = True) -> Vector:
    """How much each thing counts before anything is learned.

    Args:
        config: The settings.
        history: Whether earlier citations count; without, it is a ranking that owes them nothing.
    """
    prior = config.prior if config.features else FeatureWeights.plain()
    return (prior if history else prior.without_history()).row()


@dataclass(frozen=True, eq=False)
class Ranking:
    """An order of candidates.

    Attributes:
        order: Positions of all candidates, best first.
        scores: The noise-free score of each candidate, by position, before the logit scale.
        noise: The Gumbel noise that was added to each logit; zeros when greedy.
    """

    order: NDArray[np.intp]
    scores: Vector
    noise: Vector


@dataclass(frozen=True, eq=False)
class Reranker:
    """Scores candidates with one state of the weights; a new state is a new reranker.

    Attributes:
        weights: The learned weights.
        logit_scale: What scores are multiplied by before noise is added.
    """

    weights: Weights
    logit_scale: float = 1.0

    @property
    def width(self) -> int:
        """The width of the embeddings it was made for."""
        return len(self.weights.w_q)

    def columns(self, query: Vector, candidates: Matrix, features: Matrix) -> Matrix:
        """What each candidate is scored by: its similarity through the adapters (eq. 1), and its features.

        Args:
            query: Shape ``(d,)``.
            candidates: Shape ``(K, d)``.
            features: Shape ``(K, len(FEATURES))``.

        Returns:
            Shape ``(K, len(SCORED_BY))``.
        """
        adapted = adapt(query, self.weights.w_q)
        adapted = adapt(adapted, self.weights.w_m.T)
        return np.column_stack([candidates @ adapted, features])

    def score(self, query: Vector, candidates: Matrix, features: Matrix) -> Vector:
        """Relevance of each candidate: its columns, each times its weight, summed up.

        Args:
            query: Shape ``(d,)``.
            candidates: Shape ``(K, d)``.
            features: Shape ``(K, len(FEATURES))``.

        Returns:
            Scores of shape ``(K,)``, in units of the embeddings' inner product.
        """
        scores: Vector = self.columns(query, candidates, features) @ self.weights.mix
        return scores

    def rank(self, query: Vector, candidates: Matrix, features: Matrix) -> Ranking:
        """Order the candidates by their scores: what production serves."""
        scores = self.score(query, candidates, features)
        return Ranking(top(scores, len(scores)), scores, np.zeros(len(scores), dtype=np.float32))

    def sample(self, query: Vector, candidates: Matrix, features: Matrix, rng: np.random.Generator) -> Ranking:
        """Order the candidates by their noisy logits (eq. 2): exploration, and the paper's serving."""
        scores = self.score(query, candidates, features)
        noise = gumbel_noise(rng, len(scores))
        return Ranking(top(self.logit_scale * scores + noise, len(scores)), scores, noise)

    def state(self) -> bytes:
        """The weights, packed; of adapters that learned nothing, the width alone."""
        buffer = io.BytesIO()
        w = self.weights
        learned = slice(None) if w.w_q.any() or w.w_m.any() else slice(0)
        np.savez(buffer, width=np.asarray(self.width), mix=w.mix, w_q=w.w_q[learned], w_m=w.w_m[learned])
        return buffer.getvalue()

    @classmethod
    def load(cls, state: bytes, logit_scale: float = 1.0) -> Reranker:
        """The reranker a :meth:`state` was taken of.

        Raises:
            InputError: When ``state`` is not one.
        """
        try:
            with np.load(io.BytesIO(state), allow_pickle=False) as packed:
                weights = Weights(packed["w_q"], packed["w_m"], packed["mix"])
                if not len(weights.w_q):
                    weights = Weights.unadapted(int(packed["width"]), weights.mix)
        except Exception as error:  # of damaged bytes, zip and numpy raise a dozen kinds
            raise InputError(f"this is no reranker state: {error}") from error
        if weights.mix.shape != (len(SCORED_BY),) or weights.w_q.shape != weights.w_m.shape:
            raise InputError("this reranker state has other shapes than this version's")
        return cls(weights, logit_scale)
