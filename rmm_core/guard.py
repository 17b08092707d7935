"""Do no harm: whether citations can be believed, and whether the learned ranking beats the prior.

What was not shown could not be cited, so a count of citations favours whatever ranking served. Two measures do not:

*Agreement.* Of the pairs of a cited and an uncited memory in a slate, how often was the cited one shown further up?
Citations that have to do with relevance agree with the ranking that served, whichever did; random ones agree half the
time, and those of a model that cites whatever comes last, never. Without agreement nothing learned serves.

*Duels.* Before a share of the answers, the two rankings share the places of the slate that they fill differently: for
each such place a coin tells whose choice is shown there. Each choice of either side then has an even chance, at the
same place as its rival, whichever side serves; twice the difference of the citations that both sides collect is an
unbiased estimate of how many more the learned ranking's choices would get in those places, as long as whether a memory
is cited does not hang on what stands beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np


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
        agreement: Of citations with the order of what was shown; 0.5 is chance.
        duels: By how many citations an answer the learned ranking is ahead of the prior.
    """

    agreement: RunningMean = field(default_factory=RunningMean)
    duels: RunningMean = field(default_factory=RunningMean)

    def observe(self, shown: tuple[int, ...], cited: tuple[int, ...], duel: tuple[int, ...]) -> Guard:
        """The guard after one more answer.

        Args:
            shown: What was shown, in order.
            cited: Those of them that were cited.
            duel: See :attr:`rmm_core.types.Feedback.duel`.
        """
        agreement, duels = self.agreement, self.duels
        if cited and len(cited) < len(shown):
            agreement = agreement.add(pairs_in_order(shown, cited))
        if any(duel):
            duels = duels.add(2.0 * sum(side for place, side in zip(shown, duel, strict=True) if place in cited))
        return Guard(agreement, duels)

    @property
    def believes(self) -> bool:
        """Whether citations agree with what was shown beyond chance."""
        a = self.agreement
        return a.count >= _ENOUGH_ANSWERS and a.mean - _SURE * a.error > 0.5

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
        pairs = f"{a.mean:.0%} ± {a.error:.0%} of the pairs"
        duels = f"{d.mean:+.2f} ± {d.error:.2f} citations an answer over {d.count:.0f} duels"
        if a.count < _ENOUGH_ANSWERS:
            return Verdict(
                "prior", f"{a.count:.0f} of {_ENOUGH_ANSWERS} answers yet that cite a part of what was shown"
            )
        if not self.believes:
            return Verdict("prior", f"citations agree with the order shown no more than chance does: {pairs}")
        if self.loses:
            return Verdict("prior", f"the learned ranking loses: {duels}")
        if d.count < _ENOUGH_DUELS:
            return Verdict("learned", f"citations can be believed: {pairs}; {d.count:.0f} of {_ENOUGH_DUELS} duels yet")
        return Verdict("learned", f"it holds its own: {duels}")


def pairs_in_order(shown: tuple[int, ...], cited: tuple[int, ...]) -> float:
    """Share of (cited, uncited) pairs of a slate in which the cited one was shown further up."""
    is_cited = np.isin(shown, cited)
    above = np.cumsum(is_cited)[~is_cited].sum()  # for each uncited one, the cited ones above it
    return float(above / (is_cited.sum() * (~is_cited).sum()))


_MEMORY = 0.995
_LEAST_SPREAD = 1e-4  # a few equal answers are no certainty
_ENOUGH_ANSWERS = 20
_ENOUGH_DUELS = 30
_SURE = 2.5  # standard errors ; a verdict is asked for after every answer, which is many chances to be unlucky
