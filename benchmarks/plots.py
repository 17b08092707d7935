"""The curves of the pages, as SVG: learning (the paper's figure 6), and what the guard lets serve."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import paper
from benchmarks.records import Run
from benchmarks.scores import cited_share

_EVERY = 10  # steps between the points that are drawn; neighbours share nearly all of their questions


def learning_curves(curves: Mapping[str, Sequence[Run]], path: Path) -> None:
    """Draw the share of shown memories that were cited over the questions answered; simulated citations."""
    with _drawn(path, figsize=(7, 3.6)) as (figure, axes):
        for label, runs in curves.items():
            steps, shares = cited_share(runs)
            if len(steps):
                axes.plot(steps[::_EVERY], shares[::_EVERY], label=label, linewidth=1.6)
        axes.plot(
            list(paper.CITED_SHARE), list(paper.CITED_SHARE.values()), "k:", label="the paper, a real model citing"
        )
        axes.set_xlabel("questions answered")
        axes.set_ylabel("share of shown memories cited\n(simulated citations)")
        axes.set_ylim(bottom=0.0)
        axes.legend(frameon=False, fontsize=8)
        figure.tight_layout()


def guarded(citations: Mapping[str, Any], path: Path) -> None:
    """Draw how far what is served is ahead of the prior on the same questions, and which ranking serves it.

    Args:
        citations: By kind of citation, what came out: ``benchmarks.learner.experiments.harm``.
        path: The file.
    """
    with _drawn(path, nrows=2, figsize=(7, 5), sharex=True, height_ratios=(3, 2)) as (figure, (above, below)):
        for name, c in citations.items():
            steps = [point["answers"] for point in c["served"]]
            (line,) = above.plot(steps, [point["ahead"] for point in c["served"]], label=name, linewidth=1.4)
            below.plot(steps, [point["learned"] for point in c["served"]], color=line.get_color(), linewidth=1.4)
        above.axhline(0.0, color="black", linestyle=":", linewidth=1.0)
        above.set_ylabel("coverage@5 of what is served,\nahead of the prior")
        below.set_ylabel("share of answers that\nthe learned ranking serves")
        below.set_xlabel("answers (simulated citations)")
        figure.legend(frameon=False, fontsize=7, ncols=3, loc="upper center")
        figure.tight_layout(rect=(0, 0, 1, 0.9))


@contextmanager
def _drawn(path: Path, **layout: Any) -> Iterator[tuple[Any, Any]]:
    """A figure with its axes, saved at the end; the same figures make the same file."""
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    mpl.rcParams["svg.hashsalt"] = path.stem
    mpl.rcParams["svg.fonttype"] = "none"
    figure, axes = plt.subplots(**layout)
    for one in figure.axes:
        one.grid(alpha=0.25)
        one.spines[["top", "right"]].set_visible(False)
    yield figure, axes
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
