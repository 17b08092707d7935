"""Do no harm: whether citations can be believed, and whether the learned ranking beats the prior.

What was not shown could not be cited, so a count of citations favours whatever ranking served. Two measures do not:

*Agreement.* Where a memory was cited that usually is not at its place, did it score higher than what usually stands
there? Citations that have to do with relevance did, whichever ranking served. Random ones, and all that hang on the
place alone, such as those of a model that likes whatever comes first, average to nothing. Without agreement far beyond
chance nothing learned serves.

*Duels.* Before a share of the answers, the two rankings share the places of the slate that they fill differently: for
each such place a coin tells whose choice is shown there. Each choice of either side then has an even chance, at the
same place as its rival, whichever side serves; twice the difference of the citations that both sides collect is an
unbiased estimate of how many more the learned ranking's choices would get in those places, as long as whether a memory
is cited does not hang on what stands beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rmm_core.places import Places
from rmm_core.types import Vector


@dataclass(frozen=True, slots=True)
class RunningMean:
    """A mean that forgets: what was added counts half after about 140 more.

    Attributes:
        count: How many were added, discounted by age.
        mean: Their mean, discounted likewise.
        square: The mean of their squares, discounted likewise.
    """

    count: float = 0.0
    mean: float = 0.0
    square: float = 0.0

    def add(self, value: float) -> RunningMean:
        """The mean after one more value."""
        count = self.count * _MEMORY + 1.0
        step = 1.0 / count
        return RunningMean(
            count, self.mean + step * (value - self.mean), self.square + step * (value * value - self.square)
        )

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return float((max(self.square - self.mean**2, _LEAST_SPREAD) / max(self.count, 1.0)) ** 0.5)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Which ranking is to serve, and why, in words."""

    ranking: Literal["learned", "prior"]
    reason: str


@dataclass(frozen=True, slots=True)
class Guard:
    """What answers so far say about the citations and the two rankings.

    Attributes:
        agreement: Of citations with the scores, both beyond what is usual at the place; 0 is chance.
        duels: By how many citations an answer the learned ranking is ahead of the prior.
        believes: Whether citations can be believed. It takes much agreement to begin to, and little to go on.
    """

    agreement: RunningMean = field(default_factory=RunningMean)
    duels: RunningMean = field(default_factory=RunningMean)
    believes: bool = False

    def observe(
        self, shown: Sequence[int], cited: Sequence[int], duel: Sequence[int], *, scores: Vector, places: Places
    ) -> Guard:
        """The guard after one more answer.

        Args:
            shown: What was shown, in order.
            cited: Those of them that were cited.
            duel: See :attr:`rmm_core.types.Feedback.duel`.
            scores: Of what was shown, by the ranking that served.
            places: What was usual at each place, before this answer.
        """
        agreement, duels = self.agreement, self.duels
        if cited and len(cited) < len(shown) and places.known:
            agreement = agreement.add(agreed(np.isin(shown, cited), scores, places))
        if duel:
            duels = duels.add(2.0 * sum(side for place, side in zip(shown, duel, strict=True) if place in cited))
        certain = agreement.mean / agreement.error
        believes = agreement.count >= _ENOUGH_ANSWERS and certain > (_LITTLE if self.believes else _MUCH)
        return Guard(agreement, duels, bool(believes))

    @property
    def loses(self) -> bool:
        """Whether the learned ranking loses its duels."""
        d = self.duels
        return d.count >= _ENOUGH_DUELS and d.mean + _SURE * d.error < 0.0

    @property
    def wins(self) -> bool:
        """Whether the learned ranking is ahead in its duels, and may serve."""
        d = self.duels
        return self.believes and d.count >= _ENOUGH_DUELS and d.mean > 0.0

    @property
    def verdict(self) -> Verdict:
        """Which ranking is to serve."""
        a, d = self.agreement, self.duels
        beyond = f"{a.mean / a.error:.1f} standard errors beyond chance"
        duels = f"{d.mean:+.2f} ± {d.error:.2f} citations an answer over {d.count:.0f} duels"
        if a.count < _ENOUGH_ANSWERS:
            few = f"{a.count:.0f} of {_ENOUGH_ANSWERS} answers yet that cite a part of what was shown"
            return Verdict("prior", few)
        if not self.believes:
            return Verdict("prior", f"citations do not follow relevance: {beyond}, of {_MUCH:.0f} that it takes")
        if self.loses:
            return Verdict("prior", f"the learned ranking loses: {duels}")
        if d.count < _ENOUGH_DUELS:
            return Verdict(
                "learned", f"citations follow relevance: {beyond}; {d.count:.0f} of {_ENOUGH_DUELS} duels yet"
            )
        return Verdict("learned", f"it holds its own: {duels}")


def agreed(was_cited: NDArray[np.bool_], scores: Vector, places: Places) -> float:
    """How far one answer's citations go with the scores: the product of what is unusual about both, summed up."""
    unusual = was_cited - places.usual(len(scores))
    higher = scores - scores.mean() - places.usual_height(len(scores))
    return float((unusual - unusual.mean()) @ higher)


_MEMORY = 0.995
_LEAST_SPREAD = 1e-6  # a few equal answers are no certainty
_ENOUGH_ANSWERS = 30
_ENOUGH_DUELS = 30
_MUCH, _LITTLE = 3.0, 1.0  # standard errors of agreement ; of relevant citations it is 5 and more after 200 answers
_SURE = 2.5  # of duels ; a verdict is asked for after every answer, which is many chances to be unlucky
