"""Do no harm: the prior ranking serves while the learned one is measurably worse."""

from __future__ import annotations

from dataclasses import dataclass

from rmm_core.types import Vector


@dataclass(frozen=True, slots=True)
class Guard:
    """A running comparison of the learned ranking with the prior, on answers as they come.

    What was not shown could not be cited, so the two are compared on what was shown alone: of all pairs of
    a cited and an uncited memory in one slate, which share does each scorer put in the right order?

    Attributes:
        count: Answers observed, discounted by age.
        mean: Mean advantage of the learned order in [-1, 1], discounted likewise.
        square: Mean squared advantage, discounted likewise.
    """

    count: float = 0.0
    mean: float = 0.0
    square: float = 0.0

    def observe(self, learned: Vector, prior: Vector, shown: tuple[int, ...], cited: tuple[int, ...]) -> Guard:
        """The guard after one more answer, whose scores were taken before it was learned from.

        Args:
            learned: Scores of all K candidates by the learned weights.
            prior: Scores of the same by the starting weights.
            shown: Positions shown.
            cited: Positions cited.
        """
        if not cited or len(cited) == len(shown):
            return self
        gain = pair_accuracy(learned, shown, cited) - pair_accuracy(prior, shown, cited)
        count = self.count * _MEMORY + 1.0
        step = 1.0 / count
        return Guard(count, self.mean + step * (gain - self.mean), self.square + step * (gain * gain - self.square))

    @property
    def trusts_learned(self) -> bool:
        """Whether the learned ranking may serve: not before evidence against it is beyond chance."""
        if self.count < _ENOUGH:
            return True
        spread = max(self.square - self.mean**2, 0.0) / self.count
        return bool(self.mean + 2.0 * spread**0.5 >= 0.0)


def pair_accuracy(scores: Vector, shown: tuple[int, ...], cited: tuple[int, ...]) -> float:
    """Share of (cited, uncited) pairs of a slate that the scores order rightly; ties count half."""
    uncited = [i for i in shown if i not in cited]
    points = [1.0 if scores[c] > scores[u] else 0.5 if scores[c] == scores[u] else 0.0 for c in cited for u in uncited]
    return sum(points) / len(points)


_MEMORY = 0.995  # an answer counts half after about 140 more: slow enough for a verdict, fast enough for change
_ENOUGH = 20.0  # answers before a verdict
