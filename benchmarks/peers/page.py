"""From the race's file to the tables of benchmarks/PEERS.md."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.peers.workers.worker import TOP
from benchmarks.tables import markdown

OTHER = "ours-turns"
OWN = ("reflective-memory", "faiss-cpu", "numpy")
SHARES = ("any@5", "any@5, answerable", "coverage@5, answerable")
NAMED = 4  # of those who are better

Found: TypeAlias = Mapping[str, Any]
Stage: TypeAlias = Mapping[str, Any]


def loaded(folder: Path) -> list[Found]:
    """The races of a folder: the first, then those that were run beside it, by name; empty when there is none."""
    paths = [folder / "peers.json", *sorted(folder.glob("peers-*.json"))]
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()]


def page(runs: Sequence[Found]) -> str:
    """All tables, run by run."""
    if not runs:
        return "Not run yet."
    first, *others = runs
    raced = peers_table(first)
    return "\n\n".join([*sections(first, "##", raced), *(part for found in others for part in beside(found, raced))])


def beside(found: Found, raced: str) -> list[str]:
    """A run of its own, a level below the first; who raced, where that is not said yet."""
    sizes, here = ", ".join(told(size) for size in found["made"]["sizes"]), peers_table(found)
    new = not set(here.splitlines()) <= set(raced.splitlines())
    return [f"## In a run of its own: {sizes}", *sections(found, "###", here if new else "")]


def sections(found: Found, level: str, raced: str) -> list[str]:
    """All that is to be said of one run, each part with its heading; the last is ``raced``."""
    parts = [
        ("", setting(found)),
        ("Where this memory loses", losses(found)),
        ("What comes up", quality_table(found)),
        ("Storing", storing_table(found)),
        ("Asking", sized_table(found, ASKING)),
        ("A process that starts", sized_table(found, STARTING)),
        ("Memory and disk", sized_table(found, HELD)),
        ("Many users", sized_table(found, MANY)),
        ("What did not run, or not to its end", notes(found)),
        ("Who raced", raced),
    ]
    return [f"{level} {title}\n\n{content}" if title else content for title, content in parts if content]


@dataclass(frozen=True)
class Figure:
    """A figure of a stage; less is better.

    Attributes:
        label: What tables call it.
        of: The figure of what a peer measured; None where it has none.
    """

    label: str
    of: Callable[[Stage], float | None]
    unit: str


def _sum(*names: str) -> Callable[[Stage], float | None]:
    return lambda stage: sum(stage[name] for name in names) if all(name in stage for name in names) else None


P50 = Figure("p50", _sum("p50_ms"), "ms")
P95 = Figure("p95", _sum("p95_ms"), "ms")
COLD = Figure("open and first answer", _sum("open_s", "first_s"), "s")
START = Figure("with Python and imports", _sum("start_s", "open_s", "first_s"), "s")
GROWTH = Figure("resident growth while asked", _sum("growth_mb"), "MB")
DISK = Figure("on disk", lambda stage: stage.get("disk_mb") or None, "MB")
STORED = Figure("storing", lambda s: s["ingest_s"] / s["turns"] * 1e3 if s.get("turns") else None, "ms a turn")
TOUCH = Figure("a user's first question, p50", _sum("p50_ms"), "ms")
AGAIN = Figure("the same users again, p50", _sum("again_p50_ms"), "ms")
LAST = Figure("again, p95", _sum("again_p95_ms"), "ms")

ASKING, STARTING, HELD, MANY = (P50, P95), (COLD, START), (GROWTH, DISK), (STORED, TOUCH, AGAIN, LAST, GROWTH)


def setting(found: Found) -> str:
    """What the tables rest on."""
    made, material = found["made"], found["material"]
    of = ", ".join(f"{count:,} of {name}" for name, count in material["conversations"].items())
    beside = f" ({made['beside']})" if made["beside"] else ""
    return (
        f"Made on {made['used']} of {made['cores']} cores{beside} with Python "
        f"{made['python']} (OMP_NUM_THREADS: {made['threads']}), at commit "
        f"{made['commit']}{' with changes' if made['changed'] else ''}. {material['turns']:,} turns, "
        f"{material['distinct']:,} of them different, of conversations ({of}); half of them have "
        f"{material['words']:.0f} words or more. Medians over {made['rounds']} rounds of {made['queries']} questions, "
        f"{made['minutes']:g} minutes a peer. *n x* is n times ours, above 1 for "
        f"who is slower or bigger; where ours was not measured, it is n times our other row."
    )


def names(found: Found) -> list[str]:
    """Those who were measured, ours first."""
    return sorted(found["peers"], key=lambda name: name != found["made"]["ours"])


def label(found: Found, name: str) -> str:
    """What a peer is called."""
    return str(found["peers"][name]["label"])


def stage_of(found: Found, name: str, stage: str) -> Stage:
    """What a peer measured at a size; empty where it did not come to its end."""
    here: Stage = found["peers"][name]["stages"].get(stage, {})
    return {} if "note" in here else here


def base_of(found: Found, size: str) -> Stage:
    """What ratios are to: ours, or where it did not come to its end, ours with each turn one."""
    return stage_of(found, found["made"]["ours"], size) or stage_of(found, OTHER, size)


def cell(found: Found, name: str, size: str, figure: Figure) -> str:
    """A figure with its ratio to ours."""
    here, ours = stage_of(found, name, size), base_of(found, size)
    value, base = figure.of(here), figure.of(ours)
    if value is None:
        return "-"
    return number(value) + (f" ({ratio(value / base)})" if base and here is not ours else "")


def number(value: float) -> str:
    """Three digits that count."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def ratio(value: float) -> str:
    """A ratio to ours."""
    return f"{value:.0f}x" if value >= 10 else f"{value:.2g}x"


def sized_table(found: Found, figures: tuple[Figure, ...]) -> str:
    """One row a peer, at every size that its kind of figure is of."""
    sizes = [size for size in found["made"]["sizes"] if ("x" in size) == (figures is MANY)]
    rows = []
    for name in names(found):
        cells = [cell(found, name, size, figure) for size in sizes for figure in figures]
        if set(cells) != {"-"}:
            rows.append([label(found, name), *cells])
    heads = [f"{told(size)}: {figure.label}, {figure.unit}" for size in sizes for figure in figures]
    return markdown(["", *heads], rows) if sizes else ""


def told(size: str) -> str:
    """A size in words."""
    users, by, turns = size.rpartition("x")
    return f"{int(users):,} users with {int(turns):,} turns" if by else f"{int(turns):,} turns"


def storing_table(found: Found) -> str:
    """What storing costs at every size, when it is safe, and how many memories it makes of the largest."""
    sizes = [size for size in found["made"]["sizes"] if "x" not in size]
    rows = []
    for name in names(found):
        cells = [cell(found, name, size, STORED) for size in sizes]
        if set(cells) != {"-"}:
            kept = [f"{kept:,.0f}" for size in sizes if (kept := stage_of(found, name, size).get("memories"))]
            rows.append([label(found, name), found["peers"][name]["durable"], *cells, ", ".join(kept)])
    heads = [f"{told(size)}: ms a turn" for size in sizes]
    return markdown(["", "found by another process", *heads, "memories made"], rows) if sizes else ""


def quality_table(found: Found) -> str:
    """What comes up among the first five, and how far ahead of each we are."""
    rows = []
    for name in names(found):
        figures = found["peers"][name].get("quality", {})
        if "any@5" in figures:
            ahead = figures.get("ours ahead")
            rows.append(
                [
                    label(found, name),
                    _share(figures["any@5"]),
                    _share(ahead["any@5"], sign=True) if ahead else "",
                    _share(figures["any@5, answerable"]),
                    _share(figures["coverage@5, answerable"]),
                    f"{figures['words']['mean']:.0f}",
                ]
            )
    heads = ["", "any@5", "ours ahead", "any@5, answerable", "coverage@5, answerable", "words"]
    return markdown(heads, rows) if rows else ""


def losses(found: Found) -> str:
    """Every figure in which somebody beats us, and who; less is better, but for the share of questions."""
    rows = []
    for size, figure in _measured(found):
        values = {name: figure.of(stage_of(found, name, size)) for name in _others(found)}
        rows += _lost(found, f"{told(size)}: {figure.label}, {figure.unit}", figure.of(base_of(found, size)), values)
    for measure, sign in (("words", 1), *((name, -1) for name in SHARES)):
        of = {name: sign * mean(found, name, measure) for name in found["peers"] if mean(found, name, measure)}
        shown = "words of the five things" if measure == "words" else measure
        rows += _lost(found, shown, of.get(found["made"]["ours"]), {name: of.get(name) for name in _others(found)})
    return markdown(["", "ours", "better"], rows) or "Nowhere, of what is measured here."


def mean(found: Found, name: str, measure: str) -> float:
    """A mean over LoCoMo's questions; 0 where there is none."""
    return float(found["peers"][name].get("quality", {}).get(measure, {}).get("mean", 0.0))


def _others(found: Found) -> list[str]:
    return [name for name in found["peers"] if name not in (found["made"]["ours"], OTHER)]


def _lost(found: Found, what: str, base: float | None, values: Mapping[str, float | None]) -> list[list[str]]:
    """A row, when somebody has less than we."""
    if base is None:
        return []
    better = sorted((value, name) for name, value in values.items() if value is not None and value < base)
    told_of = [f"{label(found, name)} {number(abs(value))} ({ratio(value / base)})" for value, name in better[:NAMED]]
    more = [f"and {len(better) - NAMED} more"] if len(better) > NAMED else []
    return [[what, number(abs(base)), ", ".join([*told_of, *more])]] if better else []


def _measured(found: Found) -> Iterator[tuple[str, Figure]]:
    for size in found["made"]["sizes"]:
        for figure in MANY if "x" in size else (STORED, P50, P95, COLD, START, GROWTH, DISK):
            yield size, figure


def notes(found: Found) -> str:
    """Who could not be installed, failed, or had no time left; with the reason."""
    lines = []
    for peer in found["peers"].values():
        told_of = [peer["failed"]] if "failed" in peer else []
        told_of += [f"quality: {peer['quality']['note']}"] if "note" in peer.get("quality", {}) else []
        told_of += [f"{told(size)}: {here['note']}" for size, here in peer["stages"].items() if "note" in here]
        told_of += [
            f"{told(size)}: {here['things']:.1f} things came up, not five, whatever its speed"
            for size, here in peer["stages"].items()
            if here.get("things", TOP) < TOP - 0.5
        ]
        lines += [f"- {peer['label']}: {'; '.join(told_of)}."] if told_of else []
    return "\n".join(lines)


def peers_table(found: Found) -> str:
    """Versions, and where the code that sets each up is."""
    rows = []
    for name in names(found):
        peer = found["peers"][name]
        versions = peer.get("versions", {})
        shown = {k: v for k, v in versions.items() if name.partition("-")[0] != found["made"]["ours"] or k in OWN}
        listed = ", ".join(f"{k} {v}" for k, v in shown.items())
        rows.append(
            [peer["label"], f"[{peer['worker'].rpartition('/')[2]}]({peer['worker']})", str(peer["lines"]), listed]
        )
    return markdown(["", "worker", "lines of code", "versions"], rows)


def _share(figures: Mapping[str, float], *, sign: bool = False) -> str:
    form = "+.3f" if sign else ".3f"
    return f"{figures['mean']:{form}} [{figures['low']:{form}}, {figures['high']:{form}}]"
