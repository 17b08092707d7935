"""What is searched in the experiments, and the weights that are compared."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from benchmarks.banks import Banks, Topics
from benchmarks.methods.rmm import RMM
from benchmarks.records import Row
from rmm_core import FeatureWeights, RMMConfig


@dataclass(frozen=True)
class Pool:
    """Memories of one kind made of one data set.

    Attributes:
        label: What tables call it.
        dataset: The data set.
        topics: Who extracts.
        unfiled: Whether the turns that no topic refers to are there too.
        covered: Whether only questions count whose evidence some memory rests on.
    """

    label: str
    dataset: str
    topics: Topics
    unfiled: bool
    covered: bool = False

    def method(self, banks: Banks, config: RMMConfig, *, learns: bool = True, hidden: Collection[str] = ()) -> RMM:
        """The memory over this pool."""
        config = replace(config, unfiled=self.unfiled, prompt_tokens=None)  # a budget is no matter of ranking
        return RMM(banks, config, self.topics, learns=learns, hidden=hidden)

    def counts(self, row: Row) -> bool:
        """Whether a question is one of those that the pool is measured by."""
        return row.evidence > 0 and not row.abstains and (not self.covered or row.reachable > 0)


POOLS = {
    "facts": Pool("LoCoMo, facts", "locomo", "recorded", unfiled=False, covered=True),
    "turns": Pool("LoCoMo, turns", "locomo", "none", unfiled=True),
    "mixed": Pool("LoCoMo, facts and unfiled turns", "locomo", "recorded", unfiled=True),
    "longmemeval": Pool("LongMemEval-S dev, turns", "longmemeval", "none", unfiled=True),
}

FIXED = {
    "similarity alone": FeatureWeights.plain(),
    "and own words": replace(FeatureWeights.plain(), own=0.6),
    "and window, session words": replace(FeatureWeights.plain(), own=0.4, window=0.7, session=0.1),
}
"""Rankings that nobody learned, from what was known before there were other features."""

BEFORE = FIXED["and window, session words"]
"""What our prior was then: it knows nothing of the other features, nor does its choice."""


@dataclass(frozen=True)
class Measure:
    """A figure of a question.

    Attributes:
        of: The figure.
        counts: Which questions it is taken over, in place of those that the pool says.
    """

    of: Callable[[Row], float]
    counts: Callable[[Row], bool] | None = None


MEASURES: Mapping[str, Measure] = {
    "coverage@5": Measure(lambda row: row.at(5).coverage),
    "any@5": Measure(lambda row: row.at(5).any),
    "all@5": Measure(lambda row: row.at(5).all),
    "sessions all@5": Measure(lambda row: row.at(5, "session").all),
    "any@5, adversarial too": Measure(lambda row: row.at(5).any, lambda row: row.evidence > 0),
}


@dataclass
class Sheet:
    """Rows of several seeds of one thing, to be summed up.

    Attributes:
        rows: By the name of the conversation.
    """

    pool: Pool
    rows: list[tuple[str, Row]] = field(default_factory=list)

    def add(self, conversation: str, row: Row) -> None:
        """One more."""
        self.rows.append((conversation, row))

    def values(self, measure: str) -> dict[tuple[str, str], float]:
        """The mean over seeds by conversation and question."""
        m = MEASURES[measure]
        found: dict[tuple[str, str], list[float]] = {}
        for name, row in self.rows:
            if (m.counts or self.pool.counts)(row):
                found.setdefault((name, row.question), []).append(m.of(row))
        return {key: float(np.mean(values)) for key, values in found.items()}

    def summary(self) -> dict[str, dict[str, float]]:
        """Every measure with its interval."""
        return {name: interval(values) for name in MEASURES if (values := self.values(name))}

    def ahead_of(self, other: Sheet) -> dict[str, dict[str, float]]:
        """How far every measure is ahead of the other's on the questions of both."""
        found = {}
        for name in MEASURES:
            mine, theirs = self.values(name), other.values(name)
            found[name] = interval({key: mine[key] - theirs[key] for key in mine.keys() & theirs.keys()})
        return found


def interval(values: Mapping[tuple[str, str], float], draws: int = 2000) -> dict[str, float]:
    """The mean with a 95 % interval: whole conversations are drawn, since questions about one are not independent."""
    by: dict[str, list[float]] = {}
    for (conversation, _), value in sorted(values.items()):
        by.setdefault(conversation, []).append(value)
    sums, sizes = (np.array([f(v) for v in by.values()], dtype=float) for f in (sum, len))
    drawn = np.random.default_rng(0).integers(len(by), size=(draws, len(by)))
    low, high = np.quantile(sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1), (0.025, 0.975))
    figures = {"mean": sums.sum() / sizes.sum(), "low": low, "high": high}
    return {name: round(float(v), 4) for name, v in figures.items()} | {"n": int(sizes.sum())}


def splits(names: Sequence[str], count: int = 5) -> list[frozenset[str]]:
    """The conversations in groups, each of which is held out once."""
    order = np.random.default_rng(0).permutation(len(names))
    return [frozenset(names[i] for i in order[start::count]) for start in range(count)]
