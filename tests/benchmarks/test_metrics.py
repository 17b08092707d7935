"""Measures of rankings: by hand, and as LongMemEval defines them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.metrics import measured, of_sessions, paired
from rmm_core import TurnRef


def turns(*names):
    return [frozenset(name) for name in names]


@pytest.mark.parametrize(
    ("ranking", "evidence", "k", "expected"),
    [
        (turns("a", "b", "c"), "a", 1, (1, 1, 1, 1)),
        (turns("a", "b", "c"), "ab", 1, (1, 0, 0.5, 1)),
        (turns("a", "b", "c"), "ac", 2, (1, 0, 0.5, 0.5)),
        (turns("x", "y", "a"), "a", 3, (1, 1, 1, 1 / math.log2(3))),
        (turns("x", "y", "a"), "a", 2, (0, 0, 0, 0)),
        (turns("ab", "x"), "ab", 1, (1, 1, 1, 1)),  # a memory that rests on both
        (turns("ax", "a", "b"), "ab", 2, (1, 0, 0.5, 0.5)),  # what repeats earns nothing
        ([], "a", 5, (0, 0, 0, 0)),
    ],
)
def test_by_hand(ranking, evidence, k, expected):
    found = measured(ranking, frozenset(evidence), k)
    assert (found.any, found.all, found.coverage, found.ndcg) == pytest.approx(expected)


@given(st.permutations(range(12)), st.sets(st.integers(0, 11), min_size=1), st.integers(1, 12))
def test_single_turns_are_measured_as_longmemeval_does(order, correct, k):
    hits = np.array([float(i in correct) for i in order])

    def dcg(values):
        return values[0] + sum(value / math.log2(place) for place, value in enumerate(values[1:], start=2))

    found = measured([frozenset([i]) for i in order], frozenset(correct), k)
    assert found.any == float(hits[:k].any())
    assert found.all == float(hits[:k].sum() == len(correct))
    assert found.ndcg == pytest.approx(dcg(hits[:k]) / dcg(sorted(hits, reverse=True)[:k]))


def test_shuffled_evidence_gives_chance():
    rng = np.random.default_rng(0)
    ranking = [frozenset([i]) for i in range(50)]
    found = [measured(ranking, frozenset(rng.choice(50, 2, replace=False).tolist()), 5) for _ in range(4000)]
    assert np.mean([m.coverage for m in found]) == pytest.approx(5 / 50, abs=0.01)
    assert np.mean([m.all for m in found]) == pytest.approx(5 * 4 / (50 * 49), abs=0.005)


def test_turns_are_mapped_to_sessions_once():
    ranking = [frozenset([TurnRef(s, i)]) for s, i in (("s1", 0), ("s2", 4), ("s1", 7))]
    merged = frozenset([TurnRef("s3", 0), TurnRef("s1", 1)])
    assert of_sessions([*ranking, merged]) == [frozenset({"s1"}), frozenset({"s2"}), frozenset({"s1", "s3"})]


@pytest.mark.parametrize(("evidence", "k"), [(frozenset(), 5), (frozenset("a"), 0)])
def test_what_cannot_be_measured_is_refused(evidence, k):
    with pytest.raises(ValueError, match="leave questions without evidence out"):
        measured(turns("a"), evidence, k)


def test_a_difference_and_its_interval():
    rng = np.random.default_rng(1)
    b = rng.random(400)
    a = b + 0.1 + 0.05 * rng.standard_normal(400)
    better = paired(a.tolist(), b.tolist())
    assert 0 < better.low < better.mean < better.high
    assert better.mean == pytest.approx(0.1, abs=0.01)
    assert paired(a.tolist(), b.tolist()) == better
    same = paired(rng.random(400).tolist(), b.tolist())
    assert same.low < 0 < same.high
    with pytest.raises(ValueError, match="the same questions"):
        paired([1.0], [])


def test_intervals_hold_the_truth_as_often_as_they_say():
    rng = np.random.default_rng(2)
    held = 0
    for _ in range(200):
        gaps = rng.normal(0.05, 0.3, 80)
        found = paired(gaps.tolist(), [0.0] * 80, draws=400)
        held += found.low <= 0.05 <= found.high
    assert 0.9 <= held / 200 <= 0.99
