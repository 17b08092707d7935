"""From the experiments' files to the tables of benchmarks/LEARNER.md."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.learner.pools import POOLS, Pool
from benchmarks.tables import markdown

Figures: TypeAlias = Mapping[str, Mapping[str, float]]
Experiments: TypeAlias = Mapping[str, Mapping[str, Any]]
MAIN = ("coverage@5", "any@5", "all@5", "sessions all@5")


def loaded(folder: Path) -> Experiments:
    """The experiments of a folder by name."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}


def page(found: Experiments) -> str:
    """All tables there are files for."""
    parts = [
        ("Aims", aims_table(found)),
        ("Users never seen", unseen_table(found)),
        ("What all labels would give", labelled_table(found)),
        ("What citations taught", weights_table(found)),
        ("The same things asked again", recurring_table(found)),
        ("Another corpus", transfer_table(found)),
        ("What each part adds", variants_table(found)),
        ("Citations of all kinds", harm_table(found)),
    ]
    return "\n\n".join(f"## {title}\n\n{content}" for title, content in parts if content)


@dataclass(frozen=True)
class Aim:
    """What the learner was built to reach.

    Attributes:
        experiment: Where it is measured.
        figures: The path to its figures in that file.
        least: What they are to reach, and where that is how far something is ahead, by how much.
    """

    label: str
    experiment: str
    figures: tuple[str, ...]
    least: float


BEST_FIXED = "and own words"
AIMS = (
    Aim("LoCoMo facts, users never seen, coverage@5", "unseen-facts", ("learned", "coverage@5"), 0.775),
    Aim("LoCoMo turns, users never seen, coverage@5", "unseen-turns", ("learned", "coverage@5"), 0.69),
    Aim(
        "LoCoMo facts and unfiled turns, users never seen, coverage@5", "unseen-mixed", ("learned", "coverage@5"), 0.74
    ),
    Aim("the same, any@5", "unseen-mixed", ("learned", "any@5"), 0.82),
    Aim("LoCoMo turns, any@5, adversarial too", "recurring-turns", ("first", "any@5, adversarial too"), 0.72),
    Aim("LoCoMo facts, the same asked again, coverage@5", "recurring-facts", ("again", "coverage@5"), 0.80),
    Aim("LoCoMo turns, the same asked again, coverage@5", "recurring-turns", ("again", "coverage@5"), 0.74),
    Aim(
        "LongMemEval turns all@5, ahead of the best fixed",
        "unseen-longmemeval",
        ("gain over fixed", BEST_FIXED, "all@5"),
        0.03,
    ),
    Aim("the same, ahead of our prior", "unseen-longmemeval", ("gain", "all@5"), 0.03),
    Aim("LongMemEval sessions all@5, ahead of our prior", "unseen-longmemeval", ("gain", "sessions all@5"), 0.03),
)


def aims_table(found: Experiments) -> str:
    """What was aimed at, and what came out."""
    lines = []
    for aim in AIMS:
        figures: Any = found.get(aim.experiment)
        if figures is not None:
            for key in aim.figures:
                figures = figures[key]
            ahead = aim.figures[0].startswith("gain")
            reached = "yes" if figures["mean"] >= aim.least else "**no**"
            lines.append([aim.label, f"{aim.least:{'+' if ahead else ''}}", _cell(figures, sign=ahead), reached])
    return markdown(["", "aim", "measured", "reached"], lines)


def unseen_table(found: Experiments) -> str:
    """Fixed rankings, our prior and what was learned, on users held out."""
    lines = []
    for name, pool, e in _each(found, "unseen"):
        for fixed, figures in e["fixed"].items():
            lines.append(_row(f"{pool.label}: {fixed}", figures))
        if fresh := found.get(f"fresh-{name}"):
            lines.append(
                _row(f"{pool.label}: learned from others, from the last of these on", fresh["learned"], interval=True)
            )
            lines.append(_row("ahead of where it started", fresh["gain"], interval=True, sign=True))
        lines.append(_row(f"{pool.label}: our prior", e["prior"]))
        lines.append(_row(f"**{pool.label}: learned from others**", e["learned"], interval=True))
        lines.append(_row("ahead of our prior", e["gain"], interval=True, sign=True))
    return markdown(["", *MAIN], lines)


def labelled_table(found: Experiments) -> str:
    """Weights fitted to every label of other users' questions."""
    lines = [
        _row(f"{POOLS[name.removeprefix('labelled-')].label}: {label}", figures, interval=True)
        for name, e in found.items()
        if name.startswith("labelled-")
        for label, figures in e.items()
        if label.startswith("labels of")
    ]
    return markdown(["", *MAIN], lines)


def weights_table(found: Experiments) -> str:
    """The weights of the features, where they start and where citations lead."""
    pools = [(pool.label, e) for _, pool, e in _each(found, "unseen")]
    prior = pools[0][1]["defaults"]["prior"] if pools else {}
    lines = [[name, f"{start:.2f}", *(f"{e['weights'][name]:.2f}" for _, e in pools)] for name, start in prior.items()]
    return markdown(["", "start", *(label for label, _ in pools)], lines)


def recurring_table(found: Experiments) -> str:
    """One pass, and the same again."""
    lines = []
    for name, pool, e in _each(found, "recurring"):
        for phase, label in (
            ("prior", "our prior"),
            ("first", "while learning, each scored first"),
            ("again", "again"),
        ):
            lines.append(_row(f"{pool.label}: {label}", e[phase], interval=phase != "prior"))
        lines.append(_row("again, ahead of our prior", e["gain again"], interval=True, sign=True))
        if name == "turns":
            figures = e["first"]["any@5, adversarial too"]
            lines.append(
                [f"any@5 while learning, adversarial questions too (n = {figures['n']:,})", "", _cell(figures)]
            )
    return markdown(["", *MAIN], [[*line, *[""] * (len(MAIN) + 1 - len(line))] for line in lines])


def transfer_table(found: Experiments) -> str:
    """How many answers until the other corpus's weights fit."""
    parts = []
    for name, e in found.items():
        if name.startswith("transfer-to-"):
            fixed = {label: f["coverage@5"]["mean"] for label, f in e["fixed"].items()}
            best = max(fixed, key=lambda label: fixed[label])
            lines = [[f"fixed: {label}", f"{value:.3f}"] for label, value in fixed.items()]
            lines += [[f"after {n} answers", _cell(f["coverage@5"])] for n, f in e["answers"].items()]
            near = next((n for n, f in e["answers"].items() if f["coverage@5"]["mean"] >= fixed[best] - 0.01), None)
            reached = f"after {near} answers" if near is not None else "not reached"
            to = name.removeprefix("transfer-to-")
            parts.append(
                f"{markdown([f'to {to}', 'coverage@5'], lines)}\n\nWithin 0.01 of the best fixed one: {reached}."
            )
    return "\n\n".join(parts)


def variants_table(found: Experiments) -> str:
    """One part left out at a time."""
    parts = []
    for name, e in found.items():
        if name.startswith("variants-"):
            lines = []
            for variant, phases in ((k, v) for k, v in e.items() if isinstance(v, dict) and "again" in v):
                line = [variant]
                for phase in ("prior", "first", "again"):
                    ahead = phases.get(f"{phase} ahead")
                    line.append(f"{phases[phase]['coverage@5']['mean']:.3f}")
                    line.append(_cell(ahead["coverage@5"], sign=True) if ahead else "")
                lines.append(line)
            head = ["before it learns", "", "while learning", "", "again", ""]
            parts.append(f"{POOLS[name.removeprefix('variants-')].label}\n\n{markdown(['coverage@5', *head], lines)}")
    return "\n\n".join(parts)


def harm_table(found: Experiments) -> str:
    """What is served after citations of all kinds."""
    e = found.get("harm")
    if e is None:
        return ""
    lines = [
        [
            name,
            _cell(c["after"]["coverage@5"]),
            _cell(c["ahead of the prior"]["coverage@5"], sign=True),
            c["ranking"],
            c["reason"],
        ]
        for name, c in e["citations"].items()
    ]
    return markdown(["citations", "coverage@5 served", "ahead of the prior", "serves", "reason"], lines)


def _each(found: Experiments, kind: str) -> Iterator[tuple[str, Pool, Mapping[str, Any]]]:
    """The experiments of a kind that there are files for, with the names and the pools they are of."""
    return ((name, pool, e) for name, pool in POOLS.items() if (e := found.get(f"{kind}-{name}")) is not None)


def _row(label: str, figures: Figures, *, interval: bool = False, sign: bool = False) -> list[str]:
    return [label, *(_cell(figures[m], interval=interval, sign=sign) for m in MAIN)]


def _cell(figures: Mapping[str, float], *, interval: bool = True, sign: bool = False) -> str:
    form = "+.3f" if sign else ".3f"
    mean = f"{figures['mean']:{form}}"
    return f"{mean} [{figures['low']:{form}}, {figures['high']:{form}}]" if interval else mean
