"""The estimators: gradients, a toy task, determinism, and what they leave alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from rmm_core.config import RMMConfig
from rmm_core.guard import Guard, pair_accuracy
from rmm_core.learning import (
    Example,
    contrast_objective,
    hold_sum,
    listwise_objective,
    logits_of,
    objective,
    reinforce_objective,
    update,
)
from rmm_core.reranker import Reranker, Weights
from rmm_core.scoring import gumbel_noise, rewards, selection_probabilities

D, K = 5, 7
PAPER = RMMConfig.paper()
DEFAULT = RMMConfig()
LISTWISE = RMMConfig(estimator="listwise", learning_rate=0.03, feature_learning_rate=0.01)


def example(rng, shown=(0, 2, 3), cited=(2,), d=D, k=K):
    return Example(
        query=rng.normal(size=d).astype(np.float32),
        candidates=rng.normal(size=(k, d)).astype(np.float32),
        features=rng.random((k, 3)).astype(np.float32),
        noise=gumbel_noise(rng, k),
        shown=shown,
        cited=cited,
    )


def parameters(rng, dtype=torch.float64):
    shapes = ((D, D), (D, D), (3,))
    return [torch.tensor(rng.normal(size=s) * 0.1, dtype=dtype, requires_grad=True) for s in shapes]


def double(e):
    return Example(
        *(np.asarray(x, dtype=np.float64) for x in (e.query, e.candidates, e.features, e.noise)), e.shown, e.cited
    )


@pytest.mark.parametrize("config", [PAPER, LISTWISE, DEFAULT], ids=["reinforce", "listwise", "contrast"])
def test_gradients_agree_with_finite_differences(config, monkeypatch):
    rng = np.random.default_rng(0)
    e, where = double(example(rng)), parameters(rng)
    if config.estimator == "reinforce":
        monkeypatch.setattr("rmm_core.learning.rewards", lambda s, c: rewards(s, c).astype(np.float64))
    gradients = torch.autograd.grad(objective(e, *where, config), where)
    for n, gradient in enumerate(gradients):
        flat = where[n].detach().numpy().reshape(-1)
        for i in range(0, flat.size, 4):
            sides = []
            for step in (1e-5, -1e-5):
                moved = [w.detach().clone() for w in where]
                moved[n].reshape(-1)[i] += step
                if config is LISTWISE:
                    # each of the two parts is differentiated in its own variables, the others held
                    adapters = [*moved[:2], where[2].detach()]
                    views = [where[0].detach(), where[1].detach(), moved[2]]
                    slate = listwise_objective(logits_of(e, *adapters, config.logit_scale), e.cited, e.shown)
                    whole = listwise_objective(logits_of(e, *views, config.logit_scale), e.cited)
                    sides.append(float(slate + whole))
                else:
                    sides.append(float(objective(e, *moved, config)))
            numeric = (sides[0] - sides[1]) / 2e-5
            assert float(gradient.reshape(-1)[i]) == pytest.approx(numeric, rel=1e-4, abs=1e-7)


def test_reinforce_is_equation_3():
    rng = np.random.default_rng(1)
    scores, noise = rng.normal(size=K), rng.normal(size=K)
    shown, cited = (4, 1, 0), (1,)
    p = selection_probabilities(scores + noise, 0.5)
    naive = sum((r - 0.5) * np.log(p[i]) for i, r in zip(shown, (-1.0, 1.0, -1.0), strict=True))
    value = reinforce_objective(
        torch.tensor(scores),
        torch.tensor(noise),
        shown,
        torch.tensor(rewards(shown, cited), dtype=torch.float64),
        baseline=0.5,
        temperature=0.5,
    )
    assert float(value) == pytest.approx(naive)


def test_listwise_is_a_log_likelihood():
    scores = torch.tensor([2.0, 0.0, 1.0, 5.0])
    within = np.exp([2.0, 1.0]) / np.exp([2.0, 1.0]).sum()
    assert float(listwise_objective(scores, (2,), (0, 2))) == pytest.approx(np.log(within[1]))
    whole = np.exp([2.0, 0, 1, 5]) / np.exp([2.0, 0, 1, 5]).sum()
    assert float(listwise_objective(scores, (0, 3))) == pytest.approx(np.log(whole[[0, 3]]).mean())


def test_contrast_is_a_difference_of_means():
    scores = torch.tensor([2.0, 0.0, 1.0, 5.0])
    assert float(contrast_objective(scores, (0, 1, 3), (1, 3))) == pytest.approx(2.5 - 2.0)


def test_contrast_is_listwise_to_first_order():
    """Where all odds are even, the two gradients point the same way."""
    level = torch.zeros(4, requires_grad=True)
    (contrast,) = torch.autograd.grad(contrast_objective(level, (0, 1, 2), (1,)), level)
    (listwise,) = torch.autograd.grad(listwise_objective(level, (1,), (0, 1, 2)), level)
    assert float(torch.cosine_similarity(contrast, listwise, dim=0)) == pytest.approx(1.0)


def test_random_citations_move_contrast_nowhere():
    rng = np.random.default_rng(3)
    e = example(rng, shown=tuple(range(K)))
    where = [torch.tensor(w, requires_grad=True) for w in (np.zeros((D, D), np.float32),) * 2] + [torch.zeros(3)]
    total = sum(torch.autograd.grad(objective(replace(e, cited=(i,)), *where, DEFAULT), where[0])[0] for i in range(K))
    assert float(total.abs().max()) < 1e-4


@pytest.mark.parametrize("config", [LISTWISE, DEFAULT], ids=["listwise", "contrast"])
@pytest.mark.parametrize("cited", [(), (0, 2, 3)], ids=["none", "all"])
def test_no_contrast_teaches_nothing(config, cited):
    start = Weights.start(D, config)
    assert update(start, [example(np.random.default_rng(2), cited=cited)], start, config) is start


def test_reinforce_learns_from_answers_that_cite_nothing():
    start = Weights.start(D, PAPER)
    e = example(np.random.default_rng(2), cited=())
    after = update(start, [e], start, PAPER)
    chosen = [
        float(np.mean(Reranker(w).score(e.query, e.candidates, e.features)[list(e.shown)])) for w in (start, after)
    ]
    assert chosen[1] < chosen[0]


def toy(rng, n=200, d=16, k=8):
    """A task whose base ranking is wrong: relevance lies along a rotated query."""
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    for _ in range(n):
        q = rng.normal(size=d)
        q /= np.linalg.norm(q)
        m = rng.normal(size=(k, d))
        m /= np.linalg.norm(m, axis=1, keepdims=True)
        best = int(np.argmax(m @ turn @ q))
        yield Example(
            *(np.asarray(x, dtype=np.float32) for x in (q, m, np.zeros((k, 3)), np.zeros(k))), tuple(range(k)), (best,)
        )


def accuracy(weights, examples):
    reranker = Reranker(weights)
    hits = [int(np.argmax(reranker.score(e.query, e.candidates, e.features))) in e.cited for e in examples]
    return sum(hits) / len(hits)


@pytest.mark.parametrize(
    ("estimator", "rate", "reached"), [("listwise", 0.03, 0.5), ("contrast", 0.003, 0.3)], ids=["listwise", "contrast"]
)
def test_a_wrong_base_ranking_is_learned(estimator, rate, reached):
    examples = list(toy(np.random.default_rng(4)))
    held_out, train = examples[:60], examples[60:]
    config = RMMConfig(lexical=False, estimator=estimator, learning_rate=rate)
    start = weights = Weights.start(16, config)
    for _ in range(20):
        for i in range(0, len(train), 4):
            weights = update(weights, train[i : i + 4], start, config)
    assert accuracy(start, held_out) <= 0.15  # chance is 0.125
    assert accuracy(weights, held_out) >= reached


def test_reinforce_learns_a_wrong_base_ranking_from_its_own_draws():
    examples = list(toy(np.random.default_rng(4)))
    held_out, train = examples[:60], examples[60:]
    config = RMMConfig.paper(learning_rate=0.03, temperature=1.0)
    start = weights = Weights.start(16, config)
    rng = np.random.default_rng(0)

    def drawn(e):
        ranking = Reranker(weights).sample(e.query, e.candidates, e.features, rng)
        shown = tuple(ranking.order[:3].tolist())
        return replace(e, noise=ranking.noise, shown=shown, cited=tuple(i for i in shown if i in e.cited))

    for _ in range(30):
        for i in range(0, len(train), 4):
            weights = update(weights, [drawn(e) for e in train[i : i + 4]], start, config)
    assert accuracy(start, held_out) <= 0.15
    assert accuracy(weights, held_out) >= 0.35


def test_a_step_that_leads_nowhere_is_not_taken():
    start = Weights.start(D, DEFAULT)
    wild = RMMConfig(learning_rate=1e30)
    assert update(start, [example(np.random.default_rng(6))] * 2, start, wild) is start


def test_the_same_log_gives_the_same_weights():
    def learn():
        start = weights = Weights.start(16, DEFAULT)
        for e in toy(np.random.default_rng(4), n=20):
            weights = update(weights, [e], start, DEFAULT)
        return Reranker(weights).state()

    assert learn() == learn()


def test_an_update_leaves_its_input_alone():
    start = Weights.start(D, DEFAULT)
    before = Reranker(start).state()
    update(start, [example(np.random.default_rng(6))], start, DEFAULT)
    assert Reranker(start).state() == before


@pytest.mark.parametrize("estimator", ["listwise", "contrast"])
def test_the_views_proportions_are_learned_and_their_sum_is_held(estimator):
    config = RMMConfig(
        own_weight=0.3,
        window_weight=0.5,
        session_weight=0.0,
        feature_learning_rate=0.05,
        learning_rate=0.0,
        estimator=estimator,
    )
    rng = np.random.default_rng(8)
    start = weights = Weights.start(D, config)
    for _ in range(200):
        e = example(rng, shown=(0, 1, 2), cited=(1,))
        e.features[:] = 0.0
        e.features[1, 0] = 1.0  # the own view finds what is cited, the window what is not
        e.features[[0, 2], 1] = 1.0
        weights = update(weights, [e], start, config)
    assert weights.features[0] > 0.7
    assert weights.features.sum() == pytest.approx(0.8, abs=1e-5)
    assert (weights.features >= 0).all()


def test_hold_sum_falls_back_to_the_start():
    start = np.float32([0.3, 0.5, 0.0])
    np.testing.assert_allclose(hold_sum(np.float32([-1.0, -2.0, -0.1]), start), start)
    np.testing.assert_array_equal(hold_sum(np.zeros(3, np.float32), np.zeros(3, np.float32)), np.zeros(3))


def test_the_anchor_pulls_home():
    config = RMMConfig(anchor=0.5)
    start = Weights.start(D, config)
    away = Weights(np.ones((D, D), np.float32), np.ones((D, D), np.float32), start.features)
    back = update(away, [example(np.random.default_rng(1))], start, RMMConfig(anchor=0.5, learning_rate=0.0))
    np.testing.assert_allclose(back.w_q, 0.5, atol=1e-6)


def test_pair_accuracy():
    scores = np.float32([3.0, 1.0, 2.0, 2.0])
    assert pair_accuracy(scores, (0, 1, 2), (0,)) == 1.0
    assert pair_accuracy(scores, (0, 1, 2), (1,)) == 0.0
    assert pair_accuracy(scores, (2, 3), (3,)) == 0.5


def test_the_guard_wants_evidence_and_gives_in_to_it():
    good, bad = np.float32([1.0, 0.0]), np.float32([0.0, 1.0])
    guard = Guard()
    for _ in range(10):
        guard = guard.observe(bad, good, (0, 1), (0,))
    assert guard.trusts_learned  # ten answers are chance
    for _ in range(30):
        guard = guard.observe(bad, good, (0, 1), (0,))
    assert not guard.trusts_learned
    for _ in range(600):
        guard = guard.observe(good, bad, (0, 1), (0,))
    assert guard.trusts_learned


def test_the_guard_ignores_answers_without_contrast():
    scores = np.float32([1.0, 0.0])
    assert Guard().observe(scores, scores, (0, 1), ()) == Guard()
    assert Guard().observe(scores, scores, (0, 1), (0, 1)) == Guard()


@pytest.mark.parametrize("guard", [True, False])
def test_a_change_of_the_serving_ranking_is_told_where_there_is_a_guard(open_memory, monkeypatch, caplog, guard):
    monkeypatch.setattr(Guard, "trusts_learned", property(lambda self: self.count < 1))
    memory = open_memory(config=RMMConfig(batch_size=1, guard=guard))
    for said in ("I keep bees.", "My sister plays the cello."):
        with memory.chat("ada") as chat:
            chat.record(said, "Good.")
    recall = memory.recall("ada", "Who keeps bees?")
    assert len(recall.shown) > 1
    memory.feedback(recall, "You do [1].")
    told = "the prior ranking serves from here on" in caplog.text
    assert (told, memory.status("ada").ranking) == ((True, "prior") if guard else (False, "learned"))
