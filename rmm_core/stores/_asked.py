"""What one user asked before, and which memories the answers cited or passed over.

To be cited says something only where a memory might not have been, and to be passed over where it might have been: a
model that cites whatever comes first, or last, or nothing at all, has not judged what it was shown. So both count by
how often memories at that place of the slate are cited.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rmm_core.places import Places
from rmm_core.types import Feedback, Matrix, Vector


@dataclass(slots=True)
class Asked:
    """The last answered questions with their memories, newest last.

    Attributes:
        last: The number of the last entry of the learning log that is held.
    """

    last: int = 0
    _questions: Matrix = field(default_factory=lambda: np.zeros((0, 0), dtype=np.float32))
    _shown: list[tuple[tuple[str, bool], ...]] = field(default_factory=list)  # in order, and whether each was cited
    _places: Places = field(default_factory=Places.unknown)

    def add(self, entries: Iterable[tuple[int, Feedback]]) -> None:
        """Hold more entries of the learning log; of texts that the bank does not hold, only that they were there."""
        new: list[Vector] = []
        for number, feedback in entries:
            self.last = number
            if feedback.embeddings is not None:
                continue
            if len(feedback.embedding) != (len(new[-1]) if new else self._questions.shape[1]):  # another embedder's
                self._questions, self._shown, new = np.zeros((0, len(feedback.embedding)), np.float32), [], []
            shown = tuple((feedback.memory_ids[i], i in feedback.cited) for i in feedback.shown)
            new.append(feedback.embedding)
            self._shown.append(shown)
            self._places = self._places.add([cited for _, cited in shown])
        if new:
            self._questions = np.vstack([self._questions, *new])[-ASKED:]
            del self._shown[:-ASKED]

    def copied(self) -> Asked:
        """The same, to be added to while others read this one."""
        return replace(self, _shown=list(self._shown))

    def similar(self, vector: Vector) -> list[tuple[float, int]]:
        """Questions like this one, by number, and how alike they are in (0, 1], most alike first."""
        if self._questions.shape[1] != len(vector):
            return []
        likeness = np.clip((self._questions @ vector - _UNLIKE) / (1 - _UNLIKE), 0.0, 1.0) ** 2
        return sorted(((float(likeness[i]), int(i)) for i in np.flatnonzero(likeness)), reverse=True)

    def features(self, similar: Sequence[tuple[float, int]], memory_ids: Sequence[str]) -> Matrix:
        """How alike the most similar question is that cited a memory, and that passed over it; shape ``(K, 2)``."""
        found = np.zeros((len(memory_ids), 2), dtype=np.float32)
        row = {name: i for i, name in enumerate(memory_ids)}
        for likeness, number in similar:
            shown = self._shown[number]
            for (name, cited), usual in zip(shown, self._places.usual(len(shown)), strict=True):
                if (i := row.get(name)) is not None:
                    column = 0 if cited else 1
                    found[i, column] = max(found[i, column], likeness * _said(usual, cited=cited))
        return found

    def cited(self, similar: Sequence[tuple[float, int]]) -> list[str]:
        """The memories that answers to similar questions cited, the most similar question's first."""
        return list(dict.fromkeys(name for _, n in similar for name, was_cited in self._shown[n] if was_cited))

    def size(self) -> int:
        """Bytes held, about."""
        return self._questions.nbytes + 600 * len(self._shown)


def _said(usual: float, *, cited: bool) -> float:
    """How much it says to be cited, or not to be, where that share usually is: all, but where it nearly always is."""
    return min(1.0, (1.0 - usual) / _SELDOM_NOT if cited else usual / _SELDOM)


ASKED = 1000  # questions held of a user
_SELDOM = 0.05  # a place cited less often than this is not judged in full
_SELDOM_NOT = 0.1  # and one passed over less often than this
_UNLIKE = 0.5  # cosine similarity up to which two questions have nothing to do with each other
