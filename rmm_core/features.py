"""What a memory is scored by: its similarity to the query, and what is known beside that.

The paper scores by the embeddings alone. Which of the others matters, and how much, differs between corpora; so each
has a weight where learning starts, and citations move it from there.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields, replace
from typing import Self

import numpy as np

from rmm_core.types import Vector


@dataclass(frozen=True, kw_only=True, slots=True)
class FeatureWeights:
    """One weight for each thing a memory is scored by, in units of cosine similarity.

    The defaults were chosen on LoCoMo and LongMemEval together (``docs/learning.md``).

    Attributes:
        similarity: Of the memory's embedding to the query's, through the adapters (eq. 1).
        own: Words shared with the memory's own text, summary and evidence; 1 is the most of any memory.
        window: Words shared with its evidence and two neighbouring turns on each side, likewise.
        session: Words shared with its whole session, likewise.
        session_similarity: Similarity of the most similar memory of its session.
        neighbours: Mean similarity of the memories that rest on its neighbouring turns.
        speaker: 1 when the query names who says its evidence.
        length: How many words its evidence has: the logarithm, divided by 5.
        question: 1 when its evidence ends in a question.
        dated: 1 when the query asks when, and its evidence holds a word of time. English alone; 0 elsewhere.
        number: 1 when its evidence holds a figure.
        early: How early in its session it was said: 1 at the first turn, 1/2 at the fifth, 1/3 at the ninth.
        cited: How similar to the query an earlier question is whose answer cited it, 0 for unlike ones; less, where the
            answers nearly always cite what stands at its place.
        passed_over: How similar an earlier question is whose answer was shown it and did not cite it; less, where
            the answers hardly ever cite what stands at its place.
    """

    similarity: float = 1.0
    own: float = 0.45
    window: float = 0.55
    session: float = 0.1
    session_similarity: float = 0.8
    neighbours: float = 0.4
    speaker: float = 0.3
    length: float = 0.6
    question: float = -0.15
    dated: float = 0.3
    number: float = 0.2
    early: float = 0.1
    cited: float = 0.5
    passed_over: float = -0.3

    @classmethod
    def plain(cls) -> Self:
        """Similarity alone, as in the paper."""
        return cls(**dict.fromkeys((f.name for f in fields(cls)), 0.0) | {"similarity": 1.0})

    def without_history(self) -> Self:
        """The same, but for what citations say: the ranking that owes them nothing."""
        return replace(self, cited=0.0, passed_over=0.0)

    def row(self) -> Vector:
        """All of them, in order of their names here."""
        return np.asarray(astuple(self), dtype=np.float32)


SCORED_BY = tuple(f.name for f in fields(FeatureWeights))
"""What the columns are that a ranking sums up; the first is the similarity."""

FEATURES = SCORED_BY[1:]
"""What a store tells of every candidate, in this order."""

HISTORY = ("cited", "passed_over")
"""Those of them that come from earlier answers; the last two."""
