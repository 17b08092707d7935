"""Why memories stand where they stand: both rankings of one query side by side, and what each thing adds to a score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rmm_core.features import FEATURES, SCORED_BY
from rmm_core.types import Candidate, Matrix, Memory, Vector


@dataclass(frozen=True, slots=True)
class Reason:
    """Why one candidate stands where it stands.

    Attributes:
        similarity: Of its embedding to the query's, through no adapter.
        features: What else it is scored by, by the names of :data:`rmm_core.features.FEATURES`.
        learned: Its score by the learned ranking.
        prior: Its score by the ranking that owes nothing to citations.
        learned_rank: Its rank by the learned ranking, counted from 1.
        prior_rank: Its rank by the other.
        terms: What each thing adds to its score by the ranking that serves, by the names of
            :class:`~rmm_core.features.FeatureWeights`; they sum up to it.
        shown: Its number among what the serving ranking shows; None when it does not.
        prior_shown: Its number among what the prior would show; None when it would not.
    """

    memory: Memory
    similarity: float
    features: Mapping[str, float]
    learned: float
    prior: float
    learned_rank: int
    prior_rank: int
    terms: Mapping[str, float]
    shown: int | None
    prior_shown: int | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a query brings up, and why.

    Attributes:
        query: As it was searched for.
        ranking: Which ranking serves.
        reason: Why that one, in the guard's words.
        candidates: All that a search brings up, in the order of the ranking that serves.
    """

    user_id: str
    query: str
    ranking: Literal["learned", "prior"]
    reason: str
    candidates: tuple[Reason, ...]


@dataclass(frozen=True, eq=False)
class Ranked:
    """The candidates by one ranking.

    Attributes:
        scores: By position among the candidates, shape ``(K,)``.
        ranks: By position, counted from 1.
        shown: The numbers of what is shown, by memory id.
    """

    scores: Vector
    ranks: Mapping[int, int]
    shown: Mapping[str, int]


def reasons(
    found: Sequence[Candidate], learned: Ranked, prior: Ranked, *, serving: Ranked, terms: Matrix
) -> tuple[Reason, ...]:
    """The candidates with their reasons, in the order of the ranking that serves.

    Args:
        found: The candidates.
        learned: They by the learned ranking.
        prior: They by the prior.
        serving: The one of both that serves.
        terms: What each thing adds to their scores by it, shape ``(K, len(SCORED_BY))``.
    """
    return tuple(
        Reason(
            memory=c.memory,
            similarity=c.score,
            features=_named(FEATURES, c.features),
            learned=float(learned.scores[i]),
            prior=float(prior.scores[i]),
            learned_rank=learned.ranks[i],
            prior_rank=prior.ranks[i],
            terms=_named(SCORED_BY, terms[i]),
            shown=serving.shown.get(c.memory.id),
            prior_shown=prior.shown.get(c.memory.id),
        )
        for i, c in sorted(enumerate(found), key=lambda at: serving.ranks[at[0]])
    )


def _named(names: Sequence[str], values: Vector) -> dict[str, float]:
    return dict(zip(names, np.asarray(values, dtype=float).tolist(), strict=True))
