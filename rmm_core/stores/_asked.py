"""What one user asked before, and which memories the answers cited or passed over.

To be passed over says something only where a memory would have been cited: a model that cites whatever comes first, or
nothing at all, has not judged the rest. So it counts by how often memories at that place of the slate are cited.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from rmm_core.types import Feedback, Matrix, Vector


@dataclass(slots=True)
class Asked:
    """The last answered questions with their memories, newest last.

    Attributes:
        last: The number of the last entry of the learning log that is held.
    """

    last: int = 0
    _questions: list[Vector] = field(default_factory=list)
    _cited: list[tuple[str, ...]] = field(default_factory=list)
    _passed: list[tuple[tuple[str, int], ...]] = field(default_factory=list)  # each with its place in the slate
    _at_place: Counter[int] = field(default_factory=Counter)
    _cited_at: Counter[int] = field(default_factory=Counter)

    def add(self, entries: Iterable[tuple[int, Feedback]]) -> None:
        """Hold more entries of the learning log; of texts that the bank does not hold, only that they were there."""
        for number, feedback in entries:
            self.last = number
            if feedback.embeddings is not None:
                continue
            ids, cited = feedback.memory_ids, set(feedback.cited)
            self._questions.append(feedback.embedding)
            self._cited.append(tuple(ids[i] for i in feedback.cited))
            self._passed.append(tuple((ids[i], p) for p, i in enumerate(feedback.shown) if i not in cited))
            self._at_place.update(range(len(feedback.shown)))
            self._cited_at.update(p for p, i in enumerate(feedback.shown) if i in cited)
        for held in (self._questions, self._cited, self._passed):
            del held[:-ASKED]

    def features(self, vector: Vector, memory_ids: Sequence[str]) -> Matrix:
        """How alike the most similar question is that cited a memory, and that passed over it; shape ``(K, 2)``."""
        found = np.zeros((len(memory_ids), 2), dtype=np.float32)
        row = {name: i for i, name in enumerate(memory_ids)}
        for likeness, number in self._similar(vector):
            for name in self._cited[number]:
                if (i := row.get(name)) is not None:
                    found[i, 0] = max(found[i, 0], likeness)
            for name, place in self._passed[number]:
                if (i := row.get(name)) is not None:
                    found[i, 1] = max(found[i, 1], likeness * self._judged(place))
        return found

    def cited(self, vector: Vector) -> list[str]:
        """The memories that answers to similar questions cited, the most similar question's first."""
        return list(dict.fromkeys(name for _, number in self._similar(vector) for name in self._cited[number]))

    def size(self) -> int:
        """Bytes held, about."""
        return sum(q.nbytes + 600 for q in self._questions)

    def _judged(self, place: int) -> float:
        """How much it says not to be cited at a place: all, where one in twenty is cited or more."""
        share = (self._cited_at[place] + _USUAL * _FIRST) / (self._at_place[place] + _FIRST)
        return min(1.0, share / _SELDOM)

    def _similar(self, vector: Vector) -> list[tuple[float, int]]:
        """Questions like this one and how alike they are in (0, 1], most alike first."""
        if not self._questions:
            return []
        likeness = np.clip((np.stack(self._questions) @ vector - _UNLIKE) / (1 - _UNLIKE), 0.0, 1.0) ** 2
        return sorted(((float(likeness[i]), int(i)) for i in np.flatnonzero(likeness)), reverse=True)


ASKED = 1000  # questions held of a user
_FIRST = 5  # answers that the usual share counts for before there are any
_USUAL = 0.3  # share of shown memories cited
_SELDOM = 0.05  # a place cited less often is not judged in full
_UNLIKE = 0.5  # cosine similarity up to which two questions have nothing to do with each other
