"""The tables of all runs: writes benchmarks/README.md, LEARNER.md and PEERS.md, plots, and the results in the README.

python -m benchmarks.report                     after benchmarks.run
python -m benchmarks.report --results FOLDER    tables of other runs, printed
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import tables
from benchmarks.answer_tables import of_answers
from benchmarks.datasets.sources import SOURCES
from benchmarks.learner import page as learner
from benchmarks.methods.catalogue import CATALOGUE
from benchmarks.options import PUBLISHED
from benchmarks.peers import page as peers
from benchmarks.plots import guarded, learning_curves
from benchmarks.records import Run
from benchmarks.reproduced import reproduction_table
from benchmarks.scores import Results
from benchmarks.tables import DataSet

HERE = Path(__file__).parent
PAGES = {
    "tables": HERE / "README.md",
    "results": HERE.parent / "README.md",
    "learner": HERE / "LEARNER.md",
    "peers": HERE / "PEERS.md",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the pages, or print tables of other runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="print the tables of the runs in this folder")
    options = parser.parse_args(arguments)
    try:
        if options.results is not None:
            print(all_tables(options.results, data_sets(options.results)) or f"no runs in {options.results}")
            return
        found = data_sets(PUBLISHED)
        for name, page in PAGES.items():
            page.write_text(filled(page.read_text(encoding="utf-8"), name, generated(name, found)), encoding="utf-8")
        for d in (d for d in found if d.whole):
            learning_curves(curves(d), HERE / "plots" / f"{d.name}.svg")
        guarded(learner.loaded(PUBLISHED / "learner")["harm"]["citations"], HERE / "plots" / "learner.svg")
    except ValueError as error:
        sys.exit(str(error))


def data_sets(folder: Path) -> list[DataSet]:
    """The results of a folder: a data set, embedder and source of topics each; recorded topics first.

    Raises:
        ValueError: When a file is no run.
    """
    found = []
    for name, source in SOURCES.items():
        for results in Results.load(folder / name):
            runs = [run for same in results.runs.values() for run in same]
            topics = sorted({run.about["topics"] for run in runs if "topics" in run.about}, reverse=True) or ["no"]
            found += [DataSet(name, source.name, t, results, whole=t == topics[0]) for t in topics]
    return found


def generated(name: str, found: Sequence[DataSet]) -> str:
    """What a page holds of the committed results, anew.

    Args:
        name: Which page, as PAGES calls it.
        found: The committed results.
    """
    if name == "learner":
        return learner.page(learner.loaded(PUBLISHED / "learner"))
    if name == "peers":
        return peers.page(peers.loaded(PUBLISHED))
    if name == "results":
        return "\n\n".join(map(tables.summary, found))
    return all_tables(PUBLISHED, found, plots=True)


def all_tables(folder: Path, found: Sequence[DataSet], *, plots: bool = False) -> str:
    """All tables of a folder: what was found, then what was answered.

    Args:
        folder: Where the answers are.
        found: The results in it.
        plots: Whether the learning curves are shown, which are drawn for the page alone.
    """
    parts = [of_data_set(d, plots=plots) for d in found]
    answered = {source.name: of_answers(folder, name) for name, source in SOURCES.items()}
    return "\n\n".join(parts + [f"## {title}, answers\n\n{text}" for title, text in answered.items() if text])


def of_data_set(d: DataSet, *, plots: bool = False) -> str:
    """All tables of one data set."""
    parts = [f"## {d.title}, {d.topics} topics", tables.setting(d)]
    for title, table, of_topics in (
        ("1. Main table", tables.main_table, False),
        ("2. Ablation", tables.ablation_table, True),
        ("The order of the paper's ablation", tables.claims_table, True),
        ("4. Granularity", tables.granularity_table, False),
        ("5. K and M", tables.k_and_m_table, False),
        ("6. Offline pretraining", tables.pretraining_table, False),
        ("7. Learning curve", tables.curve_table, False),
        ("9. By type of question", tables.kinds_table, False),
        ("What was reported elsewhere", reproduction_table, False),
    ):
        content = table(d) if of_topics or d.whole else ""
        if content:
            parts.append(f"### {title}\n\n{content}")
        if content and plots and table is tables.curve_table:
            parts.append(f"![The share of shown memories that were cited, over questions](plots/{d.name}.svg)")
    return "\n\n".join(parts)


def curves(d: DataSet) -> dict[str, Sequence[Run]]:
    """The runs that learned, by what the plot calls them."""
    return {CATALOGUE[name].label: d.results.runs[d.key(name)] for name in tables.CURVES if d.has(name)}


def filled(page: str, name: str, content: str) -> str:
    """A page with what is generated in its place.

    Raises:
        ValueError: When the page has no such place.
    """
    begin, end = f"<!-- {name}: written by python -m benchmarks.report -->", f"<!-- end of {name} -->"
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"the page has no place for {name}: lines {begin!r} and {end!r}")
    return f"{before}{begin}\n\n{content}\n\n{end}{after}"


if __name__ == "__main__":
    main()
