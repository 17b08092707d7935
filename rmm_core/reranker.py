"""The reranker that serves: K candidates in, the best M out (paper section 4).

Serving needs numpy alone. It uses the folded matrix ``A = (I + W_m)^T (I + W_q)``, recomputed after an
update and not per query, so that ranking costs one matrix-vector product and K dot products.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rmm_core.config import RMMConfig
from rmm_core.errors import InputError
from rmm_core.scoring import fold, gumbel_noise, top
from rmm_core.types import LEXICAL_VIEWS, Matrix, Vector


@dataclass(frozen=True, eq=False)
class Weights:
    """What is learned: two adapters ``(d, d)`` and one weight per lexical view."""

    w_q: Matrix
    w_m: Matrix
    features: Vector

    @classmethod
    def start(cls, width: int, config: RMMConfig) -> Weights:
        """Where learning starts: adapters at zero, lexical weights at the configured prior."""
        zero = np.zeros((width, width), dtype=np.float32)
        prior = (config.own_weight, config.window_weight, config.session_weight) if config.lexical else (0.0, 0.0, 0.0)
        return cls(zero, zero.copy(), np.asarray(prior, dtype=np.float32))


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

    @cached_property
    def folded(self) -> Matrix:
        """The serving matrix A, shape ``(d, d)``."""
        return fold(self.weights.w_q, self.weights.w_m)

    def score(self, query: Vector, candidates: Matrix, features: Matrix) -> Vector:
        """Relevance of each candidate: eq. 1, plus the weighted lexical features.

        Args:
            query: Shape ``(d,)``.
            candidates: Shape ``(K, d)``.
            features: Shape ``(K, len(LEXICAL_VIEWS))``.

        Returns:
            Scores of shape ``(K,)``, in units of the embeddings' inner product.
        """
        scores: Vector = candidates @ (self.folded @ query) + features @ self.weights.features
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
        """The weights, packed."""
        buffer = io.BytesIO()
        w = self.weights
        np.savez(buffer, w_q=w.w_q, w_m=w.w_m, features=w.features)
        return buffer.getvalue()

    @classmethod
    def load(cls, state: bytes, logit_scale: float = 1.0) -> Reranker:
        """The reranker a :meth:`state` was taken of.

        Raises:
            InputError: When ``state`` is not one.
        """
        from zipfile import BadZipFile  # a twentieth of this package's import time

        try:
            with np.load(io.BytesIO(state), allow_pickle=False) as packed:
                weights = Weights(packed["w_q"], packed["w_m"], packed["features"])
        except (ValueError, KeyError, OSError, EOFError, BadZipFile) as error:
            raise InputError(f"this is no reranker state: {error}") from error
        if weights.features.shape != (len(LEXICAL_VIEWS),) or weights.w_q.shape != weights.w_m.shape:
            raise InputError("this reranker state has other shapes than this version's")
        return cls(weights, logit_scale)
