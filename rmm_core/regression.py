"""How much each feature counts, from all answers so far at once.

Rewards (+1 cited, -1 not) are regressed on what the shown memories were scored by, both taken as differences from the
mean of their slate, and the solution is added to where the weights started. This is the paper's REINFORCE (eq. 3) with
the slate's mean reward as its baseline, preconditioned by the scatter of what was shown, and solved instead of
stepped: there is no step size, order does not matter, and everything learned is two sums.

Three things follow from the form. Random citations have no mean effect, so that noise does not unlearn the start.
Answers that cite all or none of what they were shown teach nothing. And with one more column for each place of the
slate, whatever depends on the place alone is explained by it: a model that always cites the first memory, or the last,
teaches nothing either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rmm_core.places import PLACES
from rmm_core.types import Vector

Columns: TypeAlias = NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class RewardRegression:
    """The sums that weights follow from.

    Attributes:
        scatter: Shape ``(n + PLACES, n + PLACES)`` for n features.
        product: Of the columns with the rewards, shape ``(n + PLACES,)``.
    """

    scatter: NDArray[np.float64]
    product: NDArray[np.float64]

    @classmethod
    def empty(cls, count: int) -> RewardRegression:
        """Nothing answered yet, with ``count`` features."""
        size = count + PLACES
        return cls(np.zeros((size, size)), np.zeros(size))

    def add(self, shown: Columns, rewards: Vector, *, forget: float) -> RewardRegression:
        """The sums after one more answer.

        Args:
            shown: What each shown memory is scored by, in the order of the slate, shape ``(M, n)``.
            rewards: +1 or -1 for each.
            forget: Share by which everything before shrinks.
        """
        y = np.asarray(rewards, dtype=np.float64)
        y = y - y.mean()
        if not y.any():
            return self
        places = np.eye(PLACES)[np.minimum(np.arange(len(y)), PLACES - 1)]
        x = np.hstack([np.asarray(shown, dtype=np.float64), places])
        x = x - x.mean(axis=0)
        kept = 1.0 - forget
        return RewardRegression(kept * self.scatter + x.T @ x, kept * self.product + x.T @ y)

    def weights(self, start: Vector, *, ridge: float) -> Vector:
        """The weights of the features.

        Args:
            start: Where they start, shape ``(n,)``.
            ridge: Added to the scatter: how much answers must say before the weights move.
        """
        held = np.full(len(self.product), _HARDLY)  # places explain all they can, or features would for them
        held[: len(start)] = ridge
        moved = np.linalg.solve(self.scatter + np.diag(held), self.product)
        return np.asarray(start + moved[: len(start)], dtype=np.float32)


_HARDLY = 1e-6  # for places that never had a memory, of which the scatter says nothing
