"""The runs of a data set as tables read them: a score per question, the mean of the seeds where there are several."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.metrics import Difference, paired
from benchmarks.records import Level, Phase, Row, Run

Measure: TypeAlias = Literal["any", "all", "coverage", "ndcg"]
Scores: TypeAlias = Mapping[str, float]
"""By question id."""

Asked: TypeAlias = Callable[[Row], bool]


def answerable(row: Row) -> bool:
    """Questions that the conversation answers, and whose evidence is told."""
    return row.evidence > 0 and not row.abstains


def with_evidence(row: Row) -> bool:
    """Questions whose evidence is told, adversarial ones included."""
    return row.evidence > 0


@dataclass(frozen=True)
class Results:
    """All runs of one data set."""

    runs: Mapping[str, tuple[Run, ...]]

    @classmethod
    def load(cls, folder: Path) -> list[Results]:
        """The runs of a folder, those that may stand in one table together: of the same data, embedder and citations.

        Within each by method, and by topics where it has some: ``pr.recorded``.

        Raises:
            ValueError: When a file is no run, or seeds of one method were run with different settings.
        """
        found: dict[str, dict[str, list[Run]]] = {}
        for path in sorted(folder.glob("*.json")):
            run = Run.load(path)
            name = ".".join(filter(None, (run.method, run.about.get("topics"))))
            common = json.dumps({k: v for k, v in run.about.items() if k not in _OWN}, sort_keys=True)
            found.setdefault(common, {}).setdefault(name, []).append(run)
        for runs in found.values():
            for name, same in runs.items():
                if len({json.dumps(_but_seed(run.about), sort_keys=True) for run in same}) > 1:
                    raise ValueError(
                        f"the seeds of {name} in {folder} were run with different settings; run them again"
                    )
        return [cls({name: tuple(same) for name, same in runs.items()}) for runs in found.values()]

    def __contains__(self, name: str) -> bool:
        return name in self.runs

    def scores(
        self,
        name: str,
        measure: Measure = "coverage",
        k: int = 5,
        *,
        level: Level = "turn",
        phase: Phase = "first",
        asked: Asked = answerable,
    ) -> Scores:
        """One measure of every question that is counted."""
        return self.means(name, lambda row: getattr(row.at(k, level), measure), phase=phase, asked=asked)

    def means(
        self, name: str, value: Callable[[Row], float], *, phase: Phase = "first", asked: Asked = answerable
    ) -> Scores:
        """Any figure of every question that is counted, the mean over seeds."""
        found: dict[str, list[float]] = {}
        for run in self.runs[name]:
            for row in run.rows(phase):
                if asked(row):
                    found.setdefault(row.question, []).append(value(row))
        return {question: float(np.mean(values)) for question, values in found.items()}

    def questions(self, name: str, asked: Asked) -> frozenset[str]:
        """The ids of the questions of a method's runs that pass."""
        return frozenset(row.question for run in self.runs[name] for row in run.first if asked(row))


def mean(scores: Scores, among: frozenset[str] | None = None) -> float:
    """The mean over questions, or over those among ``among``."""
    values = [v for q, v in scores.items() if among is None or q in among]
    return float(np.mean(values)) if values else float("nan")


def compared(a: Scores, b: Scores) -> Difference:
    """How much better a is than b on the questions of both, with a 95 % interval; not a number where there are none."""
    common = sorted(a.keys() & b.keys())
    if not common:
        return Difference(math.nan, math.nan, math.nan)
    return paired([a[q] for q in common], [b[q] for q in common], draws=2000)


_OWN = ("m", "seed", "settings", "topics", "extracted_by")  # what runs of one table may differ in


def _but_seed(about: Mapping[str, Any]) -> dict[str, Any]:
    """All of it but the seed, which settings within it name too."""
    return {k: _but_seed(v) if isinstance(v, dict) else v for k, v in about.items() if k != "seed"}


WINDOW = 100
"""Questions over which the share of cited memories is averaged."""


def cited_share(runs: Sequence[Run]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Questions learned from, and the share of shown memories cited in the WINDOW before each; the mean over seeds."""
    curves = []
    for run in runs:
        taught = [row for row in run.first if row.shown and answerable(row)]
        sums = np.cumsum([0.0, *(row.cited / row.shown for row in taught)])
        curves.append((sums[WINDOW:] - sums[:-WINDOW]) / WINDOW)
    shortest = min(map(len, curves))
    return np.arange(WINDOW, WINDOW + shortest), np.mean([c[:shortest] for c in curves], axis=0)
