"""How citations change the two adapters (paper section 4, eq. 3).

Objectives are maximised by plain stochastic gradient ascent: Adam at the paper's step size ruins d x d
adapters within one pass over a benchmark. Gradients are written out, not derived by a machine: what an objective asks
of the K scores is K numbers, and what these ask of an adapter is one outer product. Everything here is a function of
its arguments.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rmm_core.config import RMMConfig
from rmm_core.places import Places
from rmm_core.reranker import Reranker, Weights
from rmm_core.scoring import adapt, rewards, selection_probabilities
from rmm_core.types import Matrix, Vector

logger = logging.getLogger(__name__)
_LARGEST = 1e3  # of any weight: adapters start at 0, and the identity they are added to has ones
_ITERATIONS = 4
_REACH = 2.0  # what an adapter adds to a vector, in lengths of it, at most: enough for any rotation


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """One answered query: what was scored, what was shown, what was cited.

    Attributes:
        query: Shape ``(d,)``.
        candidates: Shape ``(K, d)``.
        features: Shape ``(K, F)``.
        noise: The Gumbel noise of the draw, shape ``(K,)``; zeros when greedy.
        shown: Positions of the memories shown, in the order they were shown in.
        cited: Positions of the memories cited; a part of ``shown``.
        duel: Whose choice each of ``shown`` was; see :attr:`rmm_core.types.Feedback.duel`.
    """

    query: Vector
    candidates: Matrix
    features: Matrix
    noise: Vector
    shown: tuple[int, ...]
    cited: tuple[int, ...]
    duel: tuple[int, ...] = ()


def reinforce(noisy: Vector, shown: Sequence[int], rewarded: Vector, *, baseline: float, temperature: float) -> Vector:
    """Eq. 3: the gradient of ``sum over shown of (R_i - b) log p_i`` by the K logits, whose noise is in ``noisy``."""
    advantage = np.zeros(len(noisy), dtype=np.float32)
    advantage[list(shown)] = rewarded - baseline
    p = selection_probabilities(noisy, temperature)
    return np.asarray((advantage - advantage.sum() * p) / temperature, dtype=np.float32)


def listwise(logits: Vector, shown: Sequence[int], cited: Sequence[int]) -> Vector:
    """The gradient of the mean log-likelihood of the cited memories under a softmax over the shown."""
    slopes = np.zeros(len(logits), dtype=np.float32)
    slopes[list(cited)] = 1.0 / len(cited)
    slopes[list(shown)] -= selection_probabilities(logits[list(shown)], 1.0)
    return slopes


def contrast(count: int, shown: Sequence[int], cited: Sequence[int], usual: NDArray[np.floating]) -> Vector:
    """Whether each shown memory was cited, less what is usual at its place, less the mean of that over the slate.

    Eq. 3 at even odds, with a baseline for each place: its mean is zero when citations are random, or hang on the
    place alone, so that these move the adapters nowhere in particular, where a softmax would unlearn the ranking it
    starts from.

    Args:
        count: K.
        shown: Positions, in order.
        cited: Those of them that were cited.
        usual: The share that is cited at each place of the slate.
    """
    unusual = np.isin(shown, cited) - usual
    slopes = np.zeros(count, dtype=np.float32)
    slopes[list(shown)] = unusual - unusual.mean()
    return slopes


def slopes(example: Example, weights: Weights, places: Places, config: RMMConfig) -> Vector | None:
    """How each logit of one answered query should change, shape ``(K,)``; None when it teaches nothing.

    Both ``"contrast"`` and ``"listwise"`` learn from the difference between what was cited and what was shown and was
    not, so an answer that cites none or all of it teaches nothing.
    """
    e = example
    if config.estimator == "reinforce":
        logits = config.logit_scale * Reranker(weights).score(e.query, e.candidates, e.features)
        rewarded = rewards(e.shown, e.cited)
        return reinforce(logits + e.noise, e.shown, rewarded, baseline=config.baseline, temperature=config.temperature)
    if not e.cited or len(e.cited) == len(e.shown):
        return None
    if config.estimator == "contrast":
        return contrast(len(e.candidates), e.shown, e.cited, places.usual(len(e.shown)))
    logits = config.logit_scale * Reranker(weights).score(e.query, e.candidates, e.features)
    return listwise(logits, e.shown, e.cited)


def update(weights: Weights, batch: Sequence[Example], places: Places, config: RMMConfig) -> Weights:
    """One step of gradient ascent on the mean objective of a batch, by the adapters.

    With ``s_i = q'^T m'_i``, a slope ``c_i`` on each ``s_i`` is ``(sum c_i m'_i) q^T`` on ``W_q`` and
    ``q' (sum c_i m_i)^T`` on ``W_m``; those of the whole batch are two products of thin matrices.

    Args:
        weights: The weights to improve; not written into.
        batch: Answered queries.
        places: How often memories were cited at each place, before these.
        config: Step size, estimator, anchor.
    """
    taught = [(e, s) for e in batch if (s := slopes(e, weights, places, config)) is not None]
    if not taught or not config.learning_rate:
        return weights
    scale = config.learning_rate * config.logit_scale * float(weights.mix[0]) / len(taught)
    queries = np.stack([e.query for e, _ in taught])
    towards = np.stack([s @ e.candidates for e, s in taught])
    w_q = weights.w_q + scale * adapt(towards, weights.w_m).T @ queries
    w_m = weights.w_m + scale * adapt(queries, weights.w_q).T @ towards
    if not all(np.abs(w).max(initial=0.0) < _LARGEST for w in (w_q, w_m)):
        logger.warning("a learning step led out of all bounds and was not taken; lower learning_rate")
        return brought_back(weights) if config.anchor else weights
    return replace(
        weights, w_q=anchored(w_q, weights.w_q, config.anchor), w_m=anchored(w_m, weights.w_m, config.anchor)
    )


def anchored(w: NDArray[np.floating], before: Matrix, anchor: float) -> Matrix:
    """An adapter pulled back to zero by a share; as it is when the share is 0.

    It gets no further from zero than its reach, or than it was: pretrained ones may begin beyond. The step of each
    adapter is as long as the other one is; where users ask for the same things again and again, both would run away in
    one direction, and nothing else would count.

    Args:
        w: The adapter after a step, shape ``(d, d)``.
        before: The same before it.
        anchor: The share.
    """
    kept = 1.0 - anchor
    if anchor and np.linalg.norm(w) > _REACH and (length := stretch(w)) > _REACH:
        kept = min(kept, max(_REACH, stretch(before)) / length)
    return np.asarray(kept * w, dtype=np.float32)


def brought_back(weights: Weights) -> Weights:
    """The weights with adapters that are within their reach: earlier versions let them run away."""
    shares = [_REACH / max(stretch(w), _REACH) for w in (weights.w_q, weights.w_m)]
    if min(shares) == 1.0:
        return weights
    w_q, w_m = (np.asarray(share * w, np.float32) for share, w in zip(shares, (weights.w_q, weights.w_m), strict=True))
    return replace(weights, w_q=w_q, w_m=w_m)


def stretch(w: NDArray[np.floating]) -> float:
    """The largest factor by which a matrix lengthens a vector, nearly: by power iteration from its longest row."""
    v, length = w[np.einsum("ij,ij->i", w, w).argmax()], 0.0
    for _ in range(_ITERATIONS):
        size = float(np.linalg.norm(v))
        if not size:
            break
        v = v / size
        lengthened = w @ v
        length = float(np.linalg.norm(lengthened))
        v = lengthened @ w
    return length
