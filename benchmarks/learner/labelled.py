"""What the features could give at all: weights fitted to every label of other users' questions, not to citations.

No memory has such labels. Where even they do not reach a figure, neither will citations of what was shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.learner.experiments import Corpus, Say, ask, of
from benchmarks.learner.pools import Pool, Sheet, splits
from rmm_core import FeatureWeights, RMMConfig
from rmm_core.features import SCORED_BY

RIDGE = 1e-3


@dataclass(frozen=True, eq=False)
class Labelled:
    """A question's candidates: what each is scored by, and whether it is wanted."""

    conversation: str
    columns: NDArray[np.float64]
    wanted: dict[str, NDArray[np.bool_]]


def labelled(corpus: Corpus, pool: Pool, say: Say) -> dict[str, Any]:
    """Held-out users, ranked by weights that were fitted to all labels of the others."""
    examples = _examples(corpus, pool)
    found: dict[str, Any] = {}
    for label in ("turns", "sessions"):
        sheet = Sheet(pool)
        for group in splits([c.name for c in corpus.conversations]):
            weights = fitted([(e.columns, e.wanted[label]) for e in examples if e.conversation not in group])
            method, examiner = corpus.opened(pool, RMMConfig(prior=weights), learns=False)
            ask(examiner, of(examiner, group), sheet)
            method.close()
        found[f"labels of {label}"] = sheet.summary()
        say(f"labelled {label}, {pool.label}: {sheet.summary()['sessions all@5']['mean']:.3f} of sessions")
    return found


def fitted(lists: Sequence[tuple[NDArray[np.float64], NDArray[np.bool_]]]) -> FeatureWeights:
    """The weights that make what is wanted likeliest under a softmax over the candidates, per unit of similarity."""
    from scipy.optimize import minimize

    lists = [(x, y) for x, y in lists if y.any()]

    def loss(w: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        value, slope = RIDGE * float(w @ w), 2 * RIDGE * w
        for x, y in lists:
            z = x @ w
            log_p = z - z.max() - np.log(np.exp(z - z.max()).sum())
            value -= float(log_p[y].mean()) / len(lists)
            slope -= (x[y].mean(axis=0) - np.exp(log_p) @ x) / len(lists)
        return value, slope

    w = minimize(loss, FeatureWeights().row().astype(float) * 10, jac=True, method="L-BFGS-B").x
    return FeatureWeights(**{name: float(v / w[0]) for name, v in zip(SCORED_BY, w, strict=True)})


def _examples(corpus: Corpus, pool: Pool) -> list[Labelled]:
    """Every question's candidates; nothing is learned, so they do not change."""
    method, examiner = corpus.opened(pool, RMMConfig(), learns=False)
    found = []
    for c, q in examiner.asked:
        if q.evidence and not q.abstains:
            recall = method.memory.recall(c.name, q.text)
            near = [[float(x.embedding @ recall.embedding), *x.features] for x in recall.candidates]
            covers = [set(x.memory.evidence) for x in recall.candidates]
            sessions = {ref.session_id for ref in q.evidence}
            wanted = {
                "turns": np.array([not held.isdisjoint(q.evidence) for held in covers]),
                "sessions": np.array([any(ref.session_id in sessions for ref in held) for held in covers]),
            }
            found.append(Labelled(c.name, np.array(near), wanted))
    method.close()
    return found
