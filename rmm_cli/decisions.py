"""What the guard decided, told by a learning curve."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from rmm_core import LearningStep


def changes(steps: Sequence[LearningStep]) -> list[LearningStep]:
    """The steps from which on another ranking served than before; at first it is the prior."""
    first = [step for step in steps[:1] if step.ranking != "prior"]
    return [*first, *(after for before, after in pairwise(steps) if before.ranking != after.ranking)]


def decision(step: LearningStep) -> dict[str, Any]:
    """Which ranking served from a step on, and why."""
    return {"answers": step.answers, "ranking": step.ranking, "reason": step.reason}
