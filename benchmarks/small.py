"""A small version of everything, in minutes and without a language model: what ``make bench`` runs.

    python -m benchmarks.small

Few conversations of each data set, one seed; its tables are printed and say nothing of the full ones. A data set that
is not there is left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks import answers, report, run
from benchmarks.datasets.sources import SOURCES
from benchmarks.options import CACHE, DATA

CONVERSATIONS = {"locomo": 2, "longmemeval": 8, "msc": 20}
"""As many as fit into eight minutes on two cores, most of them the embedder's."""

RETRIEVED = ("locomo", "longmemeval")
"""Where the turns that an answer rests on are told."""

ANSWERED = ("locomo", "msc")
QUESTIONS = 20


def main(arguments: Sequence[str] | None = None) -> None:
    """Run everything for which there are data, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=CACHE / "small", metavar="FOLDER", help="of the runs")
    parser.add_argument("--cache", type=Path, default=CACHE, metavar="FOLDER", help="what is made once and kept")
    options = parser.parse_args(arguments)
    there = [name for name in CONVERSATIONS if present(name)]
    for name in there:
        common = ["--dataset", name, "--data", str(place(name)), "--conversations", str(CONVERSATIONS[name])]
        common += ["--results", str(options.results), "--cache", str(options.cache)]
        if name in RETRIEVED:
            run.main([*common, "--seeds", "0"])
        if name in ANSWERED:
            answers.main([*common, "--questions", str(QUESTIONS)])
    if there:
        report.main(["--results", str(options.results)])


def place(name: str) -> Path:
    """Where a data set is looked for."""
    return DATA / str(SOURCES[name].file)


def present(name: str) -> bool:
    """Whether a data set is there; if not, one sentence says where it is had."""
    there = place(name).exists()
    if not there:
        print(f"{SOURCES[name].name} is left out, since there is no {place(name)}; {SOURCES[name].where}.")
    return there


if __name__ == "__main__":
    main()
