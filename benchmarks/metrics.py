"""How good a ranking is: one question's measures, and whether two methods differ.

What is ranked covers evidence: a turn covers itself, a memory every turn it rests on, a session all of its turns. The
same is asked of sessions by mapping evidence and rankings to them first (:func:`of_sessions`).

============  ====================================================================================================
any@k         1 when the first k cover some evidence, else 0: LongMemEval's ``recall_any``
all@k         1 when they cover all of it: LongMemEval's ``recall_all``
coverage@k    the share of it that they cover: the R@k of the README
ndcg@k        gains discounted by place, over those of the evidence ranked first, one piece a place: LongMemEval's
              ``ndcg_any``; a thing gains what it covers that none before it does, a memory several pieces at once,
              and 1 is the most
============  ====================================================================================================
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np

from rmm_core import TurnRef

Covers = AbstractSet[Hashable]


@dataclass(frozen=True, slots=True)
class Measures:
    """One question's measures at one k."""

    any: float
    all: float
    coverage: float
    ndcg: float


def gains(ranking: Sequence[Covers], evidence: Covers, k: int) -> tuple[int, ...]:
    """How many pieces of evidence each of the first k covers that none before it does: all that measures ask for."""
    seen: set[Hashable] = set()
    found = []
    for covers in ranking[:k]:
        new = (covers & evidence) - seen
        found.append(len(new))
        seen |= new
    return tuple(found)


def measures(gained: Sequence[int], total: int, k: int) -> Measures:
    """The measures at k of a ranking known by its gains.

    Args:
        gained: New pieces of evidence by place, as :func:`gains` counts them.
        total: How many pieces there are, 1 at least.
        k: How many places count, 1 at least.

    Raises:
        ValueError: When there is no evidence: such a question cannot be retrieved for.
    """
    if total < 1 or k < 1:
        raise ValueError("measures need evidence and a k from 1; leave questions without evidence out, and say so")
    first = gained[:k]
    seen = sum(first)
    return Measures(
        any=float(seen > 0),
        all=float(seen == total),
        coverage=seen / total,
        ndcg=min(1.0, _discounted(first) / _discounted([1] * min(total, k))),
    )


def measured(ranking: Sequence[Covers], evidence: Covers, k: int) -> Measures:
    """The measures of one ranking: what each ranked thing covers, best first, against what the answer rests on."""
    return measures(gains(ranking, evidence, k), len(evidence), k)


def of_sessions(ranking: Iterable[AbstractSet[TurnRef]]) -> list[frozenset[str]]:
    """The same ranking with sessions in the place of turns; a session that came before does not come again."""
    found: dict[frozenset[str], None] = {}
    for covers in ranking:
        found.setdefault(frozenset(ref.session_id for ref in covers))
    return list(found)


def _discounted(gains: Sequence[int]) -> float:
    """Gains by place: the first two count in full, the i-th by 1 / log2(i), as LongMemEval has it."""
    places = np.maximum(np.log2(np.arange(1, len(gains) + 1)), 1.0)
    return float(np.sum(np.asarray(gains) / places)) if gains else 0.0


@dataclass(frozen=True, slots=True)
class Difference:
    """How much better a is than b, and what the questions allow to say: a 95 % interval."""

    mean: float
    low: float
    high: float


def paired(a: Sequence[float], b: Sequence[float], *, draws: int = 10_000, seed: int = 0) -> Difference:
    """The mean difference of two methods on the same questions, by a paired bootstrap.

    Args:
        a: One measure of each question.
        b: The same of the other method, in the same order.
        draws: How many resamplings.
        seed: Of the resamplings.
    """
    if len(a) != len(b) or not a:
        raise ValueError(f"the same questions are needed for both; got {len(a)} and {len(b)}")
    gap = np.asarray(a, dtype=float) - np.asarray(b, dtype=float)
    rng = np.random.default_rng(seed)
    means = np.array([gap[rng.integers(0, len(gap), len(gap))].mean() for _ in range(draws)])
    low, high = np.quantile(means, [0.025, 0.975])
    return Difference(float(gap.mean()), float(low), float(high))
