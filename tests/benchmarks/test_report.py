"""Pages are what the committed runs say; tables by hand."""

import numpy as np
import pytest

from benchmarks import report, tables
from benchmarks.metrics import Difference, measures
from benchmarks.plots import learning_curves
from benchmarks.records import Row, Run
from benchmarks.scores import WINDOW, Results, answerable, cited_share, compared, mean, with_evidence
from benchmarks.tables import DataSet

ABOUT = {
    "settings": {},
    "conversations": 1,
    "questions": 3,
    "embedder": "hash",
    "citations": {"simulated": True, "recall": 0.9, "false": 0.1},
}


def row(question, gains, evidence=2, **changes):
    values = {
        "kind": "one",
        "abstains": False,
        "reachable": evidence,
        "sessions": 1,
        "session_gains": (1,),
        "turns": 5,
        "words": 50,
        "shown": 5,
        "useful": 1,
        "cited": 1,
    }
    return Row(question=question, evidence=evidence, gains=gains, **(values | changes))


def saved(folder, method, *rows, seed=0, again=()):
    Run(method, ABOUT | {"seed": seed}, rows, tuple(again), {}).save(folder / f"{method}.seed{seed}.json")


@pytest.fixture
def results(tmp_path):
    none, half, whole = (), (0, 1), (2,)
    saved(tmp_path, "rag-turn", row("q1", none), row("q2", half), row("q3", whole, abstains=True))
    saved(tmp_path, "rr", row("q2", whole), row("q1", half), again=[row("q2", whole), row("q1", whole)])
    saved(tmp_path, "rr", row("q1", half), row("q2", half), seed=1, again=[row("q2", whole), row("q1", half)])
    return DataSet("jsonl", "Ours", "extractive", *Results.load(tmp_path))


@pytest.fixture(scope="module")
def published():
    return report.data_sets(report.PUBLISHED)


@pytest.mark.parametrize("name", report.PAGES)
def test_pages_hold_what_the_committed_runs_say(name, published):
    page, found = report.PAGES[name].read_text(encoding="utf-8"), published
    assert found
    assert report.filled(page, name, report.generated(name, found)) == page, "run python -m benchmarks.report"


def test_a_page_without_a_place_is_refused():
    with pytest.raises(ValueError, match="no place for tables"):
        report.filled("nothing", "tables", "x")


def test_seeds_are_averaged_per_question(results):
    assert results.results.scores("rr") == {"q1": 0.5, "q2": 0.75}
    assert results.results.scores("rr", phase="again") == {"q1": 0.75, "q2": 1.0}
    assert results.results.scores("rag-turn") == {"q1": 0.0, "q2": 0.5}
    assert results.results.scores("rag-turn", asked=with_evidence)["q3"] == 1.0
    assert compared(results.results.scores("rr"), results.results.scores("rag-turn")).mean == pytest.approx(0.375)
    assert mean({"a": 1.0, "b": 0.0}, frozenset("a")) == 1.0


def test_the_ablation_by_hand(results):
    lines = tables.ablation_table(results).splitlines()
    assert lines[2] == "| RAG: turns, dense | 0.250 | - | - | 50 | 54.3 |"
    assert lines[3].startswith("| +RR: turns, dense, learned | 0.625 | 0.875 | +0.375 [+0.250, +0.500] | 50 | 58.8 |")
    assert "| RAG < +RR | +0.375 [+0.250, +0.500] | shown |" in tables.claims_table(results)


@pytest.mark.parametrize(
    ("low", "high", "word"), [(0.01, 0.2, "shown"), (-0.2, -0.01, "refuted"), (-0.1, 0.1, "not told apart")]
)
def test_verdicts(low, high, word):
    assert tables.verdict(Difference((low + high) / 2, low, high)) == word


def test_every_table_copes_with_runs_that_are_missing(results):
    assert "1. Main table" in report.of_data_set(results)
    bare = DataSet("locomo", "LoCoMo", "recorded", Results({"rr": results.results.runs["rr"]}))
    assert "+RR: turns, dense, learned" in report.of_data_set(bare)


def test_shuffled_evidence_gives_chance():
    """Labels that have nothing to do with the ranking: coverage of k out of n is k / n."""
    rng = np.random.default_rng(0)
    places = [np.sort(rng.choice(40, 2, replace=False)) for _ in range(6000)]
    rows = [row("q", tuple(int(i in place) for i in range(10))) for place in places]
    assert np.mean([r.at(5).coverage for r in rows]) == pytest.approx(5 / 40, abs=0.01)
    assert np.mean([r.at(10).coverage for r in rows]) == pytest.approx(10 / 40, abs=0.01)


def test_the_learning_curve_is_a_running_share(tmp_path):
    rows = [row(str(i), (1,), cited=5 if i >= WINDOW else 0) for i in range(2 * WINDOW)]
    rows.insert(0, row("x", (), abstains=True, cited=5))  # which taught nothing
    steps, shares = cited_share([Run("rr", ABOUT, tuple(rows))])
    assert (steps[0], shares[0]) == (WINDOW, 0.0)
    assert (steps[-1], shares[-1]) == (2 * WINDOW, pytest.approx(1.0))
    assert shares[WINDOW // 2] == pytest.approx(0.5)
    for name in ("a", "b"):
        learning_curves({"rr": [Run("rr", ABOUT, tuple(rows))]}, tmp_path / name / "curve.svg")
    assert (tmp_path / "a" / "curve.svg").read_bytes() == (tmp_path / "b" / "curve.svg").read_bytes()


def test_gains_are_all_that_measures_need():
    assert measures((1, 0, 1), 2, 2).coverage == 0.5
    assert answerable(row("q", (1,)))
    assert not answerable(row("q", (), evidence=0))
