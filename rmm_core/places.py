"""How often memories are cited at each place of a slate, whatever they are.

Models cite the first memory more often than the last, for two reasons: it is the better one, and it is the first. What
is usual at a place is what a citation there, or none, is measured against.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Places:
    """Counts by place, those further down than the last counted with it.

    Attributes:
        shown: How many memories were shown there, shape ``(PLACES,)``.
        cited: How many of them were cited.
    """

    shown: NDArray[np.float64]
    cited: NDArray[np.float64]

    @classmethod
    def unknown(cls) -> Places:
        """Before any answer."""
        return cls(np.zeros(PLACES), np.zeros(PLACES))

    def add(self, was_cited: Iterable[bool], *, forget: float = 0.0) -> Places:
        """The counts after one more answer.

        Args:
            was_cited: Of each memory of the slate, in order.
            forget: Share by which everything before shrinks.
        """
        kept = 1.0 - forget
        shown, cited = kept * self.shown, kept * self.cited
        for place, yes in enumerate(was_cited):
            shown[min(place, PLACES - 1)] += 1.0
            cited[min(place, PLACES - 1)] += yes
        return Places(shown, cited)

    def usual(self, count: int) -> NDArray[np.float64]:
        """The share that is cited at each of the first ``count`` places."""
        share = (self.cited + _SHARE * _ANSWERS) / (self.shown + _ANSWERS)
        return share[np.minimum(np.arange(count), PLACES - 1)]


PLACES = 10
_SHARE, _ANSWERS = 0.3, 5.0  # what is taken to be usual before there are answers, and how many it counts for
