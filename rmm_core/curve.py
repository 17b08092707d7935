"""How learning went: the learning log learned anew from its start, and what was learned at each step."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from rmm_core.config import RMMConfig
from rmm_core.protocols import LearnerState, MemoryStore
from rmm_core.trainer import Trainer

_SILENT = logging.Logger("replay", logging.CRITICAL + 1)  # what there was to say was said when it happened


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


def learning_curve(store: MemoryStore, config: RMMConfig, user_id: str) -> tuple[LearningStep, ...]:
    """What the learner of a user was after each batch of answers; nothing is saved.

    Memories that were deleted or changed since teach what they would teach now, as when answers are taken back.
    """
    trainer = Trainer(cast(MemoryStore, _Forgetting(store)), config, told=_SILENT)
    answers, steps = 0, []
    for state, batch in trainer.replayed(user_id):
        answers += len(batch)
        cited = sum(len(f.cited) for f in batch) / sum(len(f.shown) for f in batch)
        learner = state.status(config)
        steps.append(LearningStep(answers, cited, learner.ranking, learner.reason, learner.weights))
    return tuple(steps)


class _Forgetting:
    """A store that keeps what a learner saves for as long as it is held, and in it alone."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._saved: dict[str, LearnerState] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def learner_state(self, scope: str) -> LearnerState | None:
        return self._saved.get(scope) or self._store.learner_state(scope)

    def learner_version(self, scope: str) -> int:
        return self._saved[scope].version if scope in self._saved else self._store.learner_version(scope)

    def save_learner_state(self, scope: str, content: bytes, *, base_version: int) -> int:
        self._saved[scope] = LearnerState(base_version + 1, content)
        return base_version + 1
