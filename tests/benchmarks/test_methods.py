"""Every method of the catalogue on a data set whose right rankings are known."""

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from benchmarks.datasets import users_side
from benchmarks.evaluation import evaluate
from benchmarks.feedback import SimulatedCitations
from benchmarks.methods.catalogue import CATALOGUE, Setting
from benchmarks.methods.published import MemoryBank
from benchmarks.methods.reference import LongContext
from benchmarks.methods.units import BM25, rounds, turns
from benchmarks.records import Row, Run
from rmm_core import TurnRef
from rmm_core.testing import HashEmbedder
from tests.benchmarks.worlds import banks, conversation

TALK = conversation()
CELLO, BEES, _ = TALK.questions


@pytest.fixture
def method(tmp_path):
    """Makes methods that remember the talk."""
    made = []

    def make(name, topics="recorded", conversations=(TALK,)):
        found = CATALOGUE[name].make(Setting(banks(tmp_path / "banks"), topics, seed=0))
        made.append(found)
        found.remember(conversations)
        return found

    yield make
    for found in made:
        found.close()


def run(method, conversations=(TALK,), m=5, seed=0):
    return evaluate(
        method, conversations, m=m, seed=seed, citations=SimulatedCitations, track=lambda items, what: items
    )


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_method_runs_and_covers_only_what_it_can_reach(tmp_path, name):
    entry = CATALOGUE[name]
    made = entry.make(Setting(banks(tmp_path / "banks"), "recorded", seed=0))
    first, again = run(made, m=entry.m)
    made.close()
    assert bool(again) == made.learns
    asked = {row.question for row in first}
    assert asked | made.trained_on >= {"q1", "q2"}
    assert asked.isdisjoint(made.trained_on)
    for row in [*first, *again]:
        assert sum(row.gains) <= row.reachable <= row.evidence
        assert row.useful <= row.shown <= entry.m
        assert row.cited <= row.shown


@pytest.mark.parametrize("name", ["rag-turn", "bm25-turn", "blend-turn", "prior-turn", "rmm-prior", "rag-fact"])
def test_what_shares_the_questions_words_comes_first(method, name):
    (first, *_) = method(name).find(TALK, CELLO, 5)
    assert "cello" in first.text


def test_units_of_every_size(method):
    assert [len(list(cut(TALK))) for cut in (turns, rounds)] == [8, 4]
    assert list(rounds(users_side(TALK))) == list(turns(users_side(TALK)))
    (best, *_) = method("rag-session").find(TALK, BEES, 5)
    assert len(best.turns) == 4
    mixed = method("rag-mixed").find(TALK, BEES, 50)
    assert sorted({len(f.turns) for f in mixed}) == [1, 4]
    assert len(mixed) == 10
    by_turn = method("turn-max").find(TALK, CELLO, 5)
    assert [f.turns[0].session_id for f in by_turn] == ["s1", "s2"]


def test_the_oracle_covers_everything_and_nobody_covers_more_than_the_best_of_two(method):
    rows = {
        name: {r.question: r for r in run(method(name))[0]} for name in ("oracle", "rag-turn", "rag-session", "best-of")
    }
    for q in ("q1", "q2"):
        assert rows["oracle"][q].at(5).all == 1.0
        better = max(rows["rag-turn"][q].at(5).coverage, rows["rag-session"][q].at(5).coverage)
        assert rows["best-of"][q].at(5).coverage == better
    assert run(method("no-history"))[0][0].gains == ()


def test_a_window_keeps_the_newest_turns():
    (found,) = LongContext(12).find(TALK, BEES, 5)
    assert found.turns == (TurnRef("s2", 2), TurnRef("s2", 3))
    assert len(found.text.split()) <= 12 < len(found.text.split()) + 4
    assert LongContext(1).find(TALK, BEES, 5) == []


def test_what_no_topic_covers_is_out_of_reach_of_topics_alone(method):
    assert method("pr").reachable(TALK) == {TurnRef("s1", 0), TurnRef("s1", 2), TurnRef("s1", 3), TurnRef("s2", 0)}
    assert TurnRef("s2", 2) in method("pr-unfiled").reachable(TALK)
    rows = {r.question: r for r in run(method("pr"))[0]}
    assert (rows["q2"].evidence, rows["q2"].reachable) == (2, 1)


def test_nothing_of_one_conversation_is_found_for_another(method):
    other = conversation("bea", sittings=(TALK.sittings[1],), questions=())
    for name in ("rag-turn", "rmm", "ld-agent", "memorybank"):
        found = method(name, conversations=(TALK, other)).find(other, CELLO, 50)
        assert {ref.session_id for f in found for ref in f.turns} == {"s2"}


def test_words_nobody_said_find_nothing_by_words():
    pool = BM25(list(turns(TALK)))
    assert not pool.scores("quokka").any()
    assert pool.scores("bees").argmax() in (0, 6)
    assert pool.scores("is the was").any()
    assert not BM25(list(turns(TALK)), {"is", "the", "was"}).scores("is the was").any()


def test_memorybank_forgets_with_time_and_remembers_what_it_recalled():
    later = replace(BEES, asked_at=datetime(2024, 12, 1, tzinfo=UTC))
    bank = MemoryBank(HashEmbedder(256), m=1)
    bank.remember([TALK])
    assert bank.find(TALK, BEES, 9)[0].turns[0].session_id == "s2"  # the newer of two that fit
    assert sorted(bank._strength[TALK.name])[-2:] == [1.0, 2.0]
    bank.find(TALK, replace(CELLO, asked_at=later.asked_at), 9)
    assert bank._since[TALK.name].count(later.asked_at) == 1  # what was recalled is young again
    assert bank._strength[TALK.name].sum() == len(bank.pools[TALK.name].units) + 2


def test_a_learner_sees_questions_in_the_seeds_order_and_the_same_seed_gives_the_same(method):
    runs = [[r.question for r in run(method("rmm"), seed=seed)[0]] for seed in range(6)]
    assert len({tuple(r) for r in runs}) > 1
    assert run(method("rr"), seed=3) == run(method("rr"), seed=3)


def test_questions_without_an_answer_are_asked_and_not_learned_from(method):
    rows = {r.question: r for r in run(method("rmm"))[0]}
    assert rows["q3"].abstains
    assert rows["q3"].cited == 0


def test_citations_err_as_often_as_they_are_told_to():
    simulated = SimulatedCitations(np.random.default_rng(0), recall=0.9, false=0.1)
    cited = np.zeros(2)
    for _ in range(2000):
        for number in simulated.cited([True, False]):
            cited[number - 1] += 1
    assert cited / 2000 == pytest.approx([0.9, 0.1], abs=0.03)


def test_banks_are_built_once_and_gone_on_with(tmp_path):
    class Counting(HashEmbedder):
        texts = 0

        def embed(self, texts):
            Counting.texts += len(texts)
            return super().embed(texts)

    def embedded(folder, talk):
        """How many texts a bank takes."""
        before = Counting.texts
        banks(tmp_path / folder, Counting(256)).copied([talk], "recorded", True, tmp_path / "copy.db")
        return Counting.texts - before

    whole = embedded("one", TALK)
    first = embedded("two", conversation(sittings=TALK.sittings[:1]))
    assert 0 < first < whole
    assert embedded("two", TALK) == whole - first
    assert embedded("two", TALK) == 0


@pytest.mark.parametrize(("topics", "complaint"), [("recorded", "no recorded facts"), ("llm", "need one: --llm")])
def test_topics_that_are_not_to_be_had(tmp_path, topics, complaint):
    bare = conversation(sittings=())
    with pytest.raises(ValueError, match=complaint):
        banks(tmp_path).copied([bare], topics, True, tmp_path / "x.db")


def test_a_run_is_read_as_it_was_written(tmp_path):
    row = Row("q", "k", False, 3, 3, (0, 12, 0, 1), 1, (1,), 7, 120, 5, 2, 1)
    run = Run("rmm", {"seed": 1}, (row,), (), {"commit": "x"})
    run.save(tmp_path / "r.json")
    read = Run.load(tmp_path / "r.json")
    assert read == run
    assert read.first[0].at(2).coverage == 12 / 3
    (tmp_path / "r.json").write_text("{}")
    with pytest.raises(ValueError, match="is no run of this benchmark"):
        Run.load(tmp_path / "r.json")
