"""What stands in for a citing model: simulated, and labelled so wherever it appears."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class SimulatedCitations:
    """Citations of a model that errs as often as the paper measured (its table 3).

    Attributes:
        recall: How often a memory that covers evidence is cited.
        false: How often one that covers none is.
    """

    rng: np.random.Generator
    recall: float = 0.911
    false: float = 0.05

    def cited(self, useful: Sequence[bool]) -> tuple[int, ...]:
        """The numbers cited, from 1, of memories that cover evidence or not."""
        return tuple(i for i, u in enumerate(useful, 1) if self.rng.random() < (self.recall if u else self.false))
