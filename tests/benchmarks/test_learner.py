"""The experiments on what learns: who is held out, what is hidden, what is summed up."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.learner import experiments, page
from benchmarks.learner.experiments import CITERS, Corpus, harm, recurring, transfer, unseen, variants
from benchmarks.learner.labelled import fitted, labelled
from benchmarks.learner.pools import MEASURES, POOLS, Pool, Sheet, interval, splits
from benchmarks.methods.rmm import RMM
from rmm_core import RMMConfig
from tests.benchmarks.test_honesty import misled
from tests.benchmarks.worlds import banks

TURNS = Pool("turns", "some", "none", unfiled=True)


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """Six users, and experiments that are soon over."""
    monkeypatch.setattr(experiments, "SEEDS", (0, 1))
    monkeypatch.setattr(experiments, "ANSWERS", 60)
    monkeypatch.setattr(experiments, "CHECKPOINTS", (0, 4, 16))
    users = [
        replace(talk, name=name, questions=tuple(replace(q, id=f"{name} {q.id}") for q in talk.questions))
        for name, talk in ((f"user{i}", misled(4)) for i in range(6))
    ]
    return Corpus(users, banks(tmp_path / "banks"))


def test_every_user_is_held_out_once():
    groups = splits([f"u{i}" for i in range(12)])
    assert len(groups) == 5
    assert sorted(name for group in groups for name in group) == sorted(f"u{i}" for i in range(12))


def test_nobody_held_out_is_learned_from(corpus, monkeypatch):
    """What was learned from, and what was asked after the last of it, belong to different users."""
    log = []
    learn, find = RMM.learn, RMM.find
    monkeypatch.setattr(RMM, "find", lambda m, c, q, k: log.append((m, "ask", c.name)) or find(m, c, q, k))
    monkeypatch.setattr(RMM, "learn", lambda m, cited: log.append((m, "learn", "")) or learn(m, cited))
    found = unseen(corpus, TURNS, RMMConfig(), lambda text: None)
    runs = {}
    for i, (method, what, name) in enumerate(log):
        taught = what == "ask" and i + 1 < len(log) and log[i + 1][:2] == (method, "learn")
        runs.setdefault(method, {True: set(), False: set()})[taught].add(name)
    learning = [r for r in runs.values() if r[True]]
    assert learning
    assert all(not r[True] & r[False] for r in learning)
    assert found["learned"]["coverage@5"]["n"] == found["prior"]["coverage@5"]["n"] == 24
    assert set(found["weights"]) == set(RMMConfig().to_dict()["prior"])


def test_the_same_things_are_asked_again(corpus):
    found = recurring(corpus, TURNS, RMMConfig(guard=False), lambda text: None)
    assert found["again"]["coverage@5"]["mean"] >= found["first"]["coverage@5"]["mean"]
    assert found["gain again"]["coverage@5"]["n"] == 24


def test_weights_travel(corpus):
    found = transfer(corpus, TURNS, corpus, TURNS, lambda text: None)
    assert found["start"]["similarity"] == 1.0
    assert list(found["answers"]) == ["0", "4", "16"]
    assert {f["coverage@5"]["n"] for f in found["answers"].values()} == {24}
    assert "what the other corpus taught" in found["fixed"]


def test_variants_differ_from_the_default_and_are_compared_with_it(corpus, monkeypatch):
    few = ("our default", "weights of the features do not learn", "without length")
    monkeypatch.setattr(experiments, "VARIANTS", {name: experiments.VARIANTS[name] for name in few})
    found = variants(corpus, TURNS, lambda text: None)
    assert list(found) == list(few)
    assert "first ahead" in found["without length"]
    assert "first ahead" not in found["our default"]


def test_weights_are_fitted_to_labels():
    rng = np.random.default_rng(0)
    truth = np.zeros(len(experiments.SCORED_BY))
    truth[:3] = 1.0, 2.0, -1.0
    lists = []
    for _ in range(400):
        x = rng.normal(size=(20, len(truth)))
        lists.append((x, np.arange(20) == np.argmax(x @ truth + rng.gumbel(size=20) * 0.3)))
    weights = fitted(lists)
    assert weights.similarity == 1.0
    assert weights.own == pytest.approx(2.0, abs=0.2)
    assert weights.window == pytest.approx(-1.0, abs=0.2)
    assert abs(weights.length) < 0.1


def test_labels_fit_users_held_out(corpus):
    found = labelled(corpus, TURNS, lambda text: None)
    assert found["labels of turns"]["coverage@5"]["n"] == 24
    assert "labels of sessions" in found


@pytest.mark.parametrize("name", [n for n, (_, hidden) in experiments.VARIANTS.items() if hidden])
def test_what_a_variant_goes_without_is_hidden_and_counts_nothing(corpus, name):
    config, hidden = experiments.VARIANTS[name]
    method, examiner = corpus.opened(TURNS, config, hidden=hidden)
    conversation, question = examiner.asked[0]
    for _ in range(2):
        examiner.ask(conversation, question, lambda useful: (1,))
    recall = method.memory.recall(conversation.name, question.text)
    columns = [experiments.SCORED_BY.index(h) - 1 for h in hidden]
    assert not np.stack([c.features for c in recall.candidates])[:, columns].any()
    assert not any(getattr(config.prior, h) for h in hidden)
    method.close()


def test_harm_is_measured_for_every_kind_of_citation(corpus, monkeypatch):
    monkeypatch.setattr(experiments, "WINDOW", 20)
    found = harm(corpus, TURNS, lambda text: None)
    assert set(CITERS) < set(found["citations"])
    assert len(found["citations"]["always all"]["served"]) == 3
    assert found["citations"]["always none"]["ranking"] == "prior"
    assert found["citations"]["always all"]["ahead of the prior"]["coverage@5"]["mean"] == 0.0
    assert "always none" in page.harm_table({"harm": found})


@pytest.mark.parametrize(
    ("name", "cited"),
    [("always the last", (5,)), ("always the first", (1,)), ("always all", (1, 2, 3, 4, 5)), ("always none", ())],
)
def test_citations_of_one_kind(name, cited):
    assert CITERS[name](np.random.default_rng(0))([True, False, True, False, False]) == cited


def test_an_interval_draws_whole_conversations():
    """Forty equal questions of one conversation are one observation, and leave the mean as uncertain as one."""
    alike = {("a", str(i)): 1.0 for i in range(40)} | {("b", str(i)): 0.0 for i in range(40)}
    apart = {(str(i), "q"): float(i % 2) for i in range(80)}
    wide, narrow = interval(alike), interval(apart)
    assert wide["mean"] == narrow["mean"] == 0.5
    assert (wide["low"], wide["high"]) == (0.0, 1.0)
    assert narrow["high"] - narrow["low"] < 0.3


def test_a_sheet_means_over_seeds_and_counts_what_the_pool_counts(corpus):
    method, examiner = corpus.opened(TURNS, RMMConfig(), learns=False)
    rows = [(c.name, examiner.ask(c, q)) for c, q in examiner.asked]
    method.close()
    one, twice = Sheet(TURNS), Sheet(TURNS)
    for name, row in rows:
        one.add(name, row)
        twice.add(name, row)
        twice.add(name, replace(row, gains=(0,) * len(row.gains)))
    assert twice.summary()["coverage@5"]["mean"] == pytest.approx(one.summary()["coverage@5"]["mean"] / 2, abs=1e-4)
    assert one.ahead_of(one)["any@5"] == {"mean": 0.0, "low": 0.0, "high": 0.0, "n": 24}
    unreachable = replace(rows[0][1], reachable=0)
    assert not POOLS["facts"].counts(unreachable)
    assert TURNS.counts(unreachable)
    assert not TURNS.counts(replace(unreachable, abstains=True))
    assert set(MEASURES) == set(one.summary())
