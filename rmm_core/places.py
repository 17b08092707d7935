"""What is usual at each place of a slate: how often memories are cited there, and how high they score.

Models cite the first memory more often than the last, for two reasons: it is the better one, and it is the first. What
is usual at a place is what a citation there, or none, is measured against.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rmm_core.types import Vector


@dataclass(frozen=True, eq=False)
class Places:
    """Counts by place, those further down than the last counted with it.

    Attributes:
        shown: How many memories were shown there, shape ``(PLACES,)``.
        cited: How many of them were cited.
        height: By how much they scored above the mean of their slates, summed up.
    """

    shown: NDArray[np.float64]
    cited: NDArray[np.float64]
    height: NDArray[np.float64]

    @classmethod
    def unknown(cls) -> Places:
        """Before any answer."""
        return cls(np.zeros(PLACES), np.zeros(PLACES), np.zeros(PLACES))

    def add(self, was_cited: Sequence[bool], scores: Vector | None = None, *, forget: float = 0.0) -> Places:
        """The counts after one more answer.

        Args:
            was_cited: Of each memory of the slate, in order.
            scores: Of each, where heights are of interest.
            forget: Share by which everything before shrinks.
        """
        kept = 1.0 - forget
        at = np.minimum(np.arange(len(was_cited)), PLACES - 1)
        above = np.zeros(len(at)) if scores is None else scores - scores.mean()
        sums = (self.shown, np.ones(len(at))), (self.cited, np.asarray(was_cited, dtype=float)), (self.height, above)
        return Places(*(kept * old + np.bincount(at, new, PLACES) for old, new in sums))

    @property
    def known(self) -> bool:
        """Whether there were enough answers to tell what is usual."""
        return bool(self.shown[0] >= _ANSWERS)

    def usual(self, count: int) -> NDArray[np.float64]:
        """The share that is cited at each of the first ``count`` places."""
        return self._at((self.cited + _SHARE * _ANSWERS) / (self.shown + _ANSWERS), count)

    def usual_height(self, count: int) -> NDArray[np.float64]:
        """By how much memories score above the mean of their slates at each of the first ``count`` places."""
        return self._at(self.height / np.maximum(self.shown, 1.0), count)

    @staticmethod
    def _at(values: NDArray[np.float64], count: int) -> NDArray[np.float64]:
        return values[np.minimum(np.arange(count), PLACES - 1)]


PLACES = 10
_SHARE, _ANSWERS = 0.3, 5.0  # what is taken to be usual before there are answers, and how many it counts for
