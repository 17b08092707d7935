"""The learning curves, as SVG (the paper's figure 6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import paper
from benchmarks.records import Run
from benchmarks.scores import cited_share

_EVERY = 10  # steps between the points that are drawn; neighbours share nearly all of their questions


def learning_curves(curves: Mapping[str, Sequence[Run]], path: Path) -> None:
    """Draw the share of shown memories that were cited over the questions answered; simulated citations."""
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    mpl.rcParams["svg.hashsalt"] = path.stem  # the same figures, the same file
    mpl.rcParams["svg.fonttype"] = "none"
    figure, axes = plt.subplots(figsize=(7, 3.6))
    for label, runs in curves.items():
        steps, shares = cited_share(runs)
        if len(steps):
            axes.plot(steps[::_EVERY], shares[::_EVERY], label=label, linewidth=1.6)
    axes.plot(list(paper.CITED_SHARE), list(paper.CITED_SHARE.values()), "k:", label="the paper, a real model citing")
    axes.set_xlabel("questions answered")
    axes.set_ylabel("share of shown memories cited\n(simulated citations)")
    axes.set_ylim(bottom=0.0)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
