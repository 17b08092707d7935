"""How learning went: the learning log learned anew from its start, and what was learned at each step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class LearningStep:
    """What stood after one batch of answers.

    Attributes:
        answers: How many of the log were learned from so far.
        cited: The share of the shown memories that this batch's answers cited.
        ranking: Which ranking served from here on.
        reason: Why, in the guard's words.
        weights: How much each thing counts, as :class:`~rmm_core.features.FeatureWeights` names them.
    """

    answers: int
    cited: float
    ranking: Literal["learned", "prior"]
    reason: str
    weights: Mapping[str, float]
