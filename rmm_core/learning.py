"""How citations change the reranker (paper section 4, eq. 3), with torch's gradients.

Objectives are maximised by plain stochastic gradient ascent: Adam at the paper's step size ruins d x d
adapters within one pass over a benchmark. Everything here is a function of its arguments.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rmm_core.config import RMMConfig
from rmm_core.reranker import Weights
from rmm_core.scoring import rewards
from rmm_core.types import Matrix, Vector

if TYPE_CHECKING:
    from torch import Tensor

logger = logging.getLogger(__name__)
_LARGEST = 1e3  # of any weight: adapters start at 0, and the identity they are added to has ones


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """One answered query: what was scored, what was shown, what was cited.

    Attributes:
        query: Shape ``(d,)``.
        candidates: Shape ``(K, d)``.
        features: Shape ``(K, V)``.
        noise: The Gumbel noise of the draw, shape ``(K,)``; zeros when greedy.
        shown: Positions of the memories shown.
        cited: Positions of the memories cited; a part of ``shown``.
    """

    query: Vector
    candidates: Matrix
    features: Matrix
    noise: Vector
    shown: tuple[int, ...]
    cited: tuple[int, ...]


def log_selection_probabilities(logits: Tensor, noise: Tensor, temperature: float) -> Tensor:
    """``log p_i`` of the selection probabilities ``softmax((s + g) / tau)``, shape ``(K,)``."""
    return ((logits + noise) / temperature).log_softmax(0)


def reinforce_objective(
    logits: Tensor, noise: Tensor, shown: Sequence[int], rewarded: Tensor, *, baseline: float, temperature: float
) -> Tensor:
    """Eq. 3 as an objective: ``sum over shown of (R_i - b) log p_i``; its gradient is the update's direction."""
    log_p = log_selection_probabilities(logits, noise, temperature)
    return ((rewarded - baseline) * log_p[list(shown)]).sum()


def listwise_objective(logits: Tensor, cited: Sequence[int], among: Sequence[int] | None = None) -> Tensor:
    """Mean log-likelihood of the cited memories under a softmax over ``among`` (all K when None)."""
    if among is None:
        return logits.log_softmax(0)[list(cited)].mean()
    places = [list(among).index(i) for i in cited]
    return logits[list(among)].log_softmax(0)[places].mean()


def contrast_objective(logits: Tensor, shown: Sequence[int], cited: Sequence[int]) -> Tensor:
    """Mean logit of the cited memories minus that of the shown ones that were not cited.

    Listwise to first order, taken at uniform odds: its gradient has mean zero when citations are random, so noise
    moves the weights nowhere in particular, where a softmax would unlearn the ranking it starts from.
    """
    uncited = [i for i in shown if i not in cited]
    return logits[list(cited)].mean() - logits[uncited].mean()


def logits_of(example: Example, w_q: Tensor, w_m: Tensor, features: Tensor, logit_scale: float) -> Tensor:
    """Eq. 1 and the lexical features, times the logit scale: what noise and softmax act on."""
    import torch

    q, m, f = (torch.tensor(a) for a in (example.query, example.candidates, example.features))
    adapted = (m + m @ w_m.T) @ (q + w_q @ q)
    return logit_scale * (adapted + f @ features)


def objective(example: Example, w_q: Tensor, w_m: Tensor, features: Tensor, config: RMMConfig) -> Tensor | None:
    """What one answered query asks to be increased; None when it teaches nothing.

    Both ``"contrast"`` and ``"listwise"`` learn from the difference between what was cited and what was shown and was
    not, so an answer that cites none or all of it teaches nothing. ``"listwise"`` trains the lexical weights
    against all K candidates: among the few shown, all of them strong in some view, the views are
    anti-correlated, and a softmax over these alone shrinks the weights towards zero.
    """
    import torch

    logits = logits_of(example, w_q, w_m, features, config.logit_scale)
    if config.estimator == "reinforce":
        return reinforce_objective(
            logits,
            torch.tensor(example.noise),
            example.shown,
            torch.tensor(rewards(example.shown, example.cited)),
            baseline=config.baseline,
            temperature=config.temperature,
        )
    if not example.cited or len(example.cited) == len(example.shown):
        return None
    if config.estimator == "contrast":
        return contrast_objective(logits, example.shown, example.cited)
    for_adapters = logits_of(example, w_q, w_m, features.detach(), config.logit_scale)
    for_features = logits_of(example, w_q.detach(), w_m.detach(), features, config.logit_scale)
    return listwise_objective(for_adapters, example.cited, example.shown) + listwise_objective(
        for_features, example.cited
    )


def update(weights: Weights, batch: Sequence[Example], start: Weights, config: RMMConfig) -> Weights:
    """One step of gradient ascent on the mean objective of a batch.

    Args:
        weights: The weights to improve; not written into.
        batch: Answered queries.
        start: Where learning started: what the anchor pulls towards, and whose sum of lexical weights is kept.
        config: Step sizes, estimator, anchor.
    """
    import torch

    w_q, w_m, features = (torch.tensor(w, requires_grad=True) for w in (weights.w_q, weights.w_m, weights.features))
    parts = [o for e in batch if (o := objective(e, w_q, w_m, features, config)) is not None]
    if not parts:
        return weights
    total = torch.stack(parts).mean()
    gradients = torch.autograd.grad(total, (w_q, w_m, features), allow_unused=True)
    rates = (config.learning_rate, config.learning_rate, config.feature_learning_rate)
    stepped = [
        w.detach().numpy() + (0.0 if g is None else rate * g.numpy())
        for w, g, rate in zip((w_q, w_m, features), gradients, rates, strict=True)
    ]
    anchored = [
        s + config.anchor * (o - s) for s, o in zip(stepped, (start.w_q, start.w_m, start.features), strict=True)
    ]
    w_q_new, w_m_new, f_new = (np.asarray(a, dtype=np.float32) for a in anchored)
    if not all(np.abs(a).max(initial=0.0) < _LARGEST for a in (w_q_new, w_m_new, f_new)):
        logger.warning("a learning step led out of all bounds and was not taken; lower learning_rate")
        return weights
    return Weights(w_q_new, w_m_new, hold_sum(f_new, start.features))


def hold_sum(features: Vector, start: Vector) -> Vector:
    """Lexical weights without negative ones, scaled to the sum that ``start`` has.

    Only their proportions are learned: how much words count against the embedding as a whole is the scale of
    the prior, and a gradient that can also shrink it does so until nothing lexical is left.
    """
    positive = np.maximum(features, 0.0)
    total = float(positive.sum())
    return np.asarray(positive * (start.sum() / total), dtype=np.float32) if total > 0 else start
