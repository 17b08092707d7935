"""The equations of the paper, one function each (section 4), on numpy arrays.

Shapes: ``q`` is ``(d,)``, candidates ``m`` are ``(K, d)``, adapters ``w`` are ``(d, d)``, scores are
``(K,)``. What learns from them, and therefore needs gradients, is in :mod:`rmm_core.learning`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rmm_core.types import Matrix, Vector


def adapt(x: NDArray[np.floating], w: Matrix) -> NDArray[np.floating]:
    """Eq. 1: adaptation with residual, ``x' = x + W x``, of one vector or of each row."""
    return x + x @ w.T


def score(q: Vector, m: Matrix, w_q: Matrix, w_m: Matrix) -> NDArray[np.floating]:
    """The relevance score ``s_i = q'^T m'_i``, computed as the paper writes it."""
    return adapt(m, w_m) @ adapt(q, w_q)


def gumbel_noise(rng: np.random.Generator, count: int) -> Vector:
    """Eq. 2: ``g_i = -log(-log u_i)`` with ``u_i`` uniform on (0, 1)."""
    tiny = np.finfo(np.float64).tiny
    u = rng.uniform(tiny, 1.0, size=count)
    return np.asarray(-np.log(-np.log(u)), dtype=np.float32)


def selection_probabilities(noisy: NDArray[np.floating], temperature: float) -> NDArray[np.floating]:
    """``p_i = softmax(s~ / tau)_i`` over the noisy scores; lower ``temperature`` is greedier."""
    z = (noisy - noisy.max()) / temperature
    e = np.exp(z)
    return np.asarray(e / e.sum())


def top(scores: NDArray[np.floating], m: int) -> NDArray[np.intp]:
    """Positions of the ``m`` largest scores, best first; ties keep their order."""
    return np.argsort(-scores, kind="stable")[:m]


def rewards(shown: tuple[int, ...], cited: tuple[int, ...]) -> Vector:
    """R of algorithm 1, step 4: +1 for each shown memory that is cited, -1 for each that is not."""
    return np.asarray([1.0 if i in cited else -1.0 for i in shown], dtype=np.float32)
