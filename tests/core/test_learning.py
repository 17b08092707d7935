"""How the adapters learn: gradients against torch's, the paper's algorithm to the letter, and toy tasks."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch

from rmm_core.config import RMMConfig
from rmm_core.features import FEATURES, SCORED_BY
from rmm_core.learned import Learned
from rmm_core.learning import Example, contrast, listwise, reinforce, slopes, stretch, update
from rmm_core.places import PLACES, Places
from rmm_core.reranker import Reranker, Weights
from rmm_core.scoring import gumbel_noise, rewards, selection_probabilities
from tests.core.small_world import QUESTIONS, USER, answer, opened, world

D, K = 5, 7
PAPER = RMMConfig.paper()
CONTRAST = RMMConfig(anchor=0.0)
LISTWISE = RMMConfig(estimator="listwise", learning_rate=0.03, anchor=0.0)
NOWHERE = Places.unknown()
SEEN = Places(np.full(PLACES, 40.0), np.linspace(30.0, 3.0, PLACES), np.zeros(PLACES))
USUAL = (SEEN.cited[:3] + 0.3 * 5) / 45
CONFIGS = pytest.mark.parametrize("config", [PAPER, LISTWISE, CONTRAST], ids=["reinforce", "listwise", "contrast"])


def example(rng, shown=(0, 3, 2), cited=(2,), d=D, k=K):
    return Example(
        query=rng.normal(size=d).astype(np.float32),
        candidates=rng.normal(size=(k, d)).astype(np.float32),
        features=rng.random((k, len(FEATURES))).astype(np.float32),
        noise=gumbel_noise(rng, k),
        shown=shown,
        cited=cited,
    )


def some_weights(rng, config):
    mix = np.float32([0.7, *rng.normal(size=len(FEATURES))]) if config.features else np.eye(len(SCORED_BY))[0]
    w_q, w_m = (rng.normal(size=(D, D)).astype(np.float32) * 0.2 for _ in range(2))
    return Weights(w_q, w_m, mix.astype(np.float32))


def logits(e, w_q, w_m, mix, config):
    """The K logits before noise, as the paper writes them, with the features added."""
    q, m, f = (torch.tensor(x, dtype=torch.float64) for x in (e.query, e.candidates, e.features))
    similarity = (m + m @ w_m.T) @ (q + w_q @ q)
    return config.logit_scale * (torch.column_stack([similarity, f]) @ torch.tensor(mix, dtype=torch.float64))


def objective(e, z, config):
    """What each estimator maximises, written out; None when it teaches nothing."""
    shown, cited = list(e.shown), list(e.cited)
    if config.estimator == "reinforce":
        noisy = z + torch.tensor(e.noise, dtype=torch.float64)
        log_p = torch.log_softmax(noisy / config.temperature, dim=0)
        return sum(((1.0 if i in cited else -1.0) - config.baseline) * log_p[i] for i in shown)
    if not cited or len(cited) == len(shown):
        return None
    if config.estimator == "listwise":
        return (z[cited] - torch.logsumexp(z[shown], dim=0)).mean()
    unusual = torch.tensor([float(i in cited) for i in shown]) - torch.tensor(USUAL)
    return ((unusual - unusual.mean()) * z[shown]).sum()


@CONFIGS
@pytest.mark.parametrize("cited", [(2,), (0, 2), (3, 0)])
def test_slopes_are_the_gradient_by_the_logits(config, cited):
    rng = np.random.default_rng(len(cited))
    e, weights = example(rng, cited=cited), some_weights(rng, config)
    w_q, w_m = (torch.tensor(w, dtype=torch.float64) for w in (weights.w_q, weights.w_m))
    z = logits(e, w_q, w_m, weights.mix, config).requires_grad_()
    (expected,) = torch.autograd.grad(objective(e, z, config), z)
    np.testing.assert_allclose(slopes(e, weights, SEEN, config), expected.numpy(), rtol=1e-4, atol=1e-5)


@CONFIGS
@pytest.mark.parametrize("anchor", [0.0, 0.3])
def test_an_update_is_one_step_along_the_gradient(config, anchor):
    """Of the mean objective of those of the batch that teach something, by both adapters at once."""
    config = replace(config, anchor=anchor)
    rng = np.random.default_rng(1)
    batch = [example(rng, cited=c) for c in ((2,), (0, 3), (), (0, 2, 3), (3,))]
    weights = some_weights(rng, config)
    where = [torch.tensor(w, dtype=torch.float64, requires_grad=True) for w in (weights.w_q, weights.w_m)]
    values = [objective(e, logits(e, *where, weights.mix, config), config) for e in batch]
    values = [v for v in values if v is not None]
    assert len(values) == (5 if config.estimator == "reinforce" else 3)
    gradients = torch.autograd.grad(sum(values) / len(values), where)
    after = update(weights, batch, SEEN, config)
    for new, old, gradient in zip((after.w_q, after.w_m), where, gradients, strict=True):
        expected = (1 - anchor) * (old.detach() + config.learning_rate * gradient)
        assert float(gradient.abs().max()) > 1e-2
        np.testing.assert_allclose(new, expected.numpy(), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(after.mix, weights.mix)


def test_reinforce_is_equation_3():
    """By finite differences of the sum as it is printed."""
    rng = np.random.default_rng(2)
    noisy, shown, cited = rng.normal(size=K), (4, 1, 0), (1,)

    def printed(noisy):
        p = selection_probabilities(noisy, 0.5)
        return sum((r - 0.5) * np.log(p[i]) for i, r in zip(shown, (-1.0, 1.0, -1.0), strict=True))

    numeric = [(printed(noisy + h) - printed(noisy - h)) / 2e-5 for h in np.eye(K) * 1e-5]
    given = reinforce(noisy, shown, rewards(shown, cited), baseline=0.5, temperature=0.5)
    np.testing.assert_allclose(given, numeric, rtol=1e-4)


def test_contrast_is_what_is_unusual_less_the_mean_of_the_slate():
    given = contrast(5, (3, 0, 1), (3, 1), np.asarray([0.5, 0.25, 0.25]))
    np.testing.assert_allclose(given, [-0.25 - 1 / 3, 0.75 - 1 / 3, 0.0, 0.5 - 1 / 3, 0.0], atol=1e-6)


def test_contrast_is_listwise_to_first_order():
    """Where all odds are even and no place is special, the two gradients point the same way."""
    for cited in ((1,), (1, 3), (0, 1, 3)):
        shown = (0, 1, 3, 4)
        flat = contrast(5, shown, cited, np.full(4, 0.3))
        np.testing.assert_allclose(listwise(np.zeros(5, np.float32), shown, cited), flat / len(cited), atol=1e-6)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_random_citations_have_no_mean_contrast(count):
    shown = (5, 0, 3, 1)
    total = sum(contrast(6, shown, cited, np.full(4, count / 4)) for cited in combinations(shown, count))
    np.testing.assert_allclose(total, 0.0, atol=1e-6)
    steep = np.float32([3, 0, 0, 1, 0, 2])
    curved = sum(listwise(steep, shown, cited) for cited in combinations(shown, count))
    assert np.abs(curved).max() > 0.1  # which is what a softmax cannot say


def test_citations_that_hang_on_the_place_alone_have_no_mean_contrast():
    """Once it is known how often each place is cited; before, they have."""
    rng, places, odds = np.random.default_rng(8), NOWHERE, np.asarray([0.9, 0.5, 0.2, 0.1])
    told, untold = np.zeros(4), np.zeros(4)
    for i in range(4000):
        cited = np.flatnonzero(rng.random(4) < odds).tolist()
        if i >= 1000:
            told += contrast(4, range(4), cited, places.usual(4)) / 3000
            untold += contrast(4, range(4), cited, NOWHERE.usual(4)) / 3000
        places = places.add([i in cited for i in range(4)])
    assert np.abs(told).max() < 0.03
    assert np.abs(untold).max() > 0.3


@pytest.mark.parametrize("config", [LISTWISE, CONTRAST], ids=["listwise", "contrast"])
@pytest.mark.parametrize("cited", [(), (0, 2, 3)], ids=["none", "all"])
def test_no_contrast_teaches_nothing(config, cited):
    start = Weights.start(D, config)
    e = example(np.random.default_rng(2), cited=cited)
    assert slopes(e, start, SEEN, config) is None
    assert update(start, [e], SEEN, config) is start


def test_reinforce_learns_from_answers_that_cite_nothing():
    start = Weights.start(D, PAPER)
    e = example(np.random.default_rng(2), cited=())
    after = update(start, [e], NOWHERE, PAPER)
    scores = [Reranker(w).score(e.query, e.candidates, e.features) for w in (start, after)]
    chosen = [selection_probabilities(s, 0.5) for s in scores]
    assert np.log(chosen[1][list(e.shown)]).sum() < np.log(chosen[0][list(e.shown)]).sum()


def test_the_papers_settings_are_the_papers_algorithm():
    """Section 4 with the settings of section 5, against an implementation that shares nothing with the package.

    Recalls go through a real memory; what it draws is taken from it, what it makes of that is computed here.
    """
    w = world()
    memory = opened(w, **PAPER.to_dict() | {"prior": PAPER.prior})
    assert memory.config == PAPER
    w_q, w_m = (torch.zeros((16, 16), dtype=torch.float64, requires_grad=True) for _ in range(2))
    bank = {name: torch.tensor(row, dtype=torch.float64) for name, row in w.memories.items()}
    rng, batch, noises = np.random.default_rng(0), [], []
    for step in range(1, 41):
        question = int(rng.integers(QUESTIONS))
        recall = answer(memory, w, question, lambda shown, told: [n in told or rng.random() < 0.1 for n in shown])
        q = torch.tensor(w.rows[w.questions[question]], dtype=torch.float64)
        names = [c.memory.id for c in recall.candidates]
        assert set(names) == set(sorted(bank, key=lambda n: -float(bank[n] @ q))[:20])
        m = torch.stack([bank[n] for n in names])
        scores = (m + m @ w_m.T) @ (q + w_q @ q)
        np.testing.assert_allclose([c.score for c in recall.candidates], scores.detach().numpy(), atol=1e-5)
        noisy = scores + torch.tensor(recall.noise, dtype=torch.float64)
        assert (noisy.diff() <= 1e-6).all()  # candidates stand in the order of the draw
        assert [s.memory.id for s in recall.shown] == names[:5]
        assert (recall.ranking, recall.sides) == ("prior" if step <= 4 else "learned", None)
        (_, entry) = memory.store.feedback(limit=100)[-1]
        p = torch.softmax(noisy / 0.5, dim=0)
        batch.append(sum(((1.0 if i in entry.cited else -1.0) - 0.5) * torch.log(p[i]) for i in range(5)))
        noises += recall.noise.tolist()
        if step % 4 == 0:
            gradients = torch.autograd.grad(sum(batch) / 4, (w_q, w_m))
            w_q, w_m = ((x + 1e-3 * g).detach().requires_grad_() for x, g in zip((w_q, w_m), gradients, strict=True))
            batch = []
            state = Learned.unpack(memory.store.learner_state("store").content, PAPER, 0).reranker.weights
            np.testing.assert_allclose(state.w_q, w_q.detach().numpy(), rtol=1e-3, atol=1e-6)
            np.testing.assert_allclose(state.w_m, w_m.detach().numpy(), rtol=1e-3, atol=1e-6)
            assert state.mix.tolist() == [1.0] + [0.0] * len(FEATURES)
    assert memory.status(USER).learner.updates == 10
    assert float(w_q.detach().abs().max()) > 1e-3
    assert np.mean(noises) == pytest.approx(np.euler_gamma, abs=4 * np.pi / 6**0.5 / len(noises) ** 0.5)
    assert np.var(noises) == pytest.approx(np.pi**2 / 6, rel=0.25)
    memory.close()


def toy(rng, n=200, d=16, k=8):
    """A task whose base ranking is wrong: relevance lies along a rotated query."""
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    for _ in range(n):
        q = rng.normal(size=d)
        q /= np.linalg.norm(q)
        m = rng.normal(size=(k, d))
        m /= np.linalg.norm(m, axis=1, keepdims=True)
        best = int(np.argmax(m @ turn @ q))
        features, noise = np.zeros((k, len(FEATURES))), np.zeros(k)
        yield Example(*(np.asarray(x, dtype=np.float32) for x in (q, m, features, noise)), tuple(range(k)), (best,))


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
    config = RMMConfig(features=False, estimator=estimator, learning_rate=rate)
    start = weights = Weights.start(16, config)
    for _ in range(20):
        for i in range(0, len(train), 4):
            weights = update(weights, train[i : i + 4], NOWHERE, config)
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
            weights = update(weights, [drawn(e) for e in train[i : i + 4]], NOWHERE, config)
    assert accuracy(start, held_out) <= 0.15
    assert accuracy(weights, held_out) >= 0.35


@pytest.mark.parametrize("rate", [1e6, 1e30])
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_a_step_that_leads_nowhere_is_not_taken(rate, caplog):
    start = Weights.start(D, CONTRAST)
    assert update(start, [example(np.random.default_rng(6))] * 2, NOWHERE, RMMConfig(learning_rate=rate)) is start
    assert "lower learning_rate" in caplog.text


@pytest.mark.parametrize("anchor", [CONTRAST.anchor, RMMConfig().anchor])
def test_who_asks_the_same_thing_for_ever_does_not_make_the_adapters_run_away(anchor):
    config = RMMConfig(anchor=anchor, learning_rate=0.1)
    asked = replace(example(np.random.default_rng(6)), features=np.zeros((K, len(FEATURES)), np.float32))
    weights, longest = Weights.start(D, config), 0.0
    for _ in range(200):
        weights = update(weights, [asked], NOWHERE, config)
        longest = max(longest, *(float(np.linalg.norm(w, 2)) for w in (weights.w_q, weights.w_m)))
    if not anchor:
        assert longest > 10  # which is what would happen
    else:
        assert 1.9 < longest < 2.1
        assert np.argmax(Reranker(weights).score(asked.query, asked.candidates, asked.features)) in asked.cited


def test_a_stretch_is_the_spectral_norm_nearly():
    rng = np.random.default_rng(3)
    for _ in range(20):
        w = rng.normal(size=(D, D)).astype(np.float32)
        assert 0.8 * np.linalg.norm(w, 2) < stretch(w) <= 1.0001 * np.linalg.norm(w, 2)
        w += 9.0 * np.outer(w[0], w[1])  # what runs away does in one direction
        assert stretch(w) == pytest.approx(np.linalg.norm(w, 2), rel=0.01)
    assert stretch(np.zeros_like(w)) == 0.0


def test_opposite_answers_do_not_hide_that_an_adapter_grows():
    config = RMMConfig(learning_rate=0.1)
    one, other = (example(np.random.default_rng(6), shown=(0, 3), cited=(c,)) for c in (0, 3))
    other = replace(other, query=-other.query)  # what was learned about adds up to nothing
    weights = Weights.start(D, config)
    for _ in range(300):
        weights = update(weights, [one, other], NOWHERE, config)
    assert max(np.linalg.norm(w, 2) for w in (weights.w_q, weights.w_m)) < 2.1


def far(length):
    one = np.random.default_rng(8).normal(size=(2, D)).astype(np.float32)
    w = np.outer(*one)
    return replace(Weights.start(D, RMMConfig()), w_q=np.float32(length / np.linalg.norm(w, 2)) * w)


def test_adapters_that_ran_away_in_an_earlier_version_are_brought_back(caplog):
    e = example(np.random.default_rng(8))
    weights = update(far(5e5), [e], NOWHERE, RMMConfig())
    assert "was not taken" in caplog.text
    assert np.linalg.norm(weights.w_q, 2) == pytest.approx(2.0, rel=0.01)
    after = update(weights, [e], NOWHERE, RMMConfig())
    assert not np.array_equal(after.w_m, weights.w_m)
    paper = update(far(5e5), [replace(e, noise=np.zeros(K, np.float32))], NOWHERE, PAPER)
    assert np.linalg.norm(paper.w_q, 2) > 1e5


def test_pretrained_adapters_may_begin_beyond_their_reach_and_get_no_further():
    rng = np.random.default_rng(8)
    weights = far(6.0)
    for _ in range(50):
        weights = update(weights, [example(rng)], NOWHERE, RMMConfig(learning_rate=1e-4))
    assert 5.5 < np.linalg.norm(weights.w_q, 2) < 6.01


def test_the_same_log_gives_the_same_weights():
    def learn():
        weights = Weights.start(16, CONTRAST)
        for e in toy(np.random.default_rng(4), n=20):
            weights = update(weights, [e], NOWHERE, CONTRAST)
        return Reranker(weights).state()

    assert learn() == learn()


def test_an_update_leaves_its_input_alone():
    start = some_weights(np.random.default_rng(5), CONTRAST)
    before = Reranker(start).state()
    update(start, [example(np.random.default_rng(6))], SEEN, CONTRAST)
    assert Reranker(start).state() == before


def test_without_a_step_size_the_adapters_stay_away():
    config = RMMConfig(learning_rate=0.0)
    start = Weights.start(D, config)
    assert update(start, [example(np.random.default_rng(6))], SEEN, config) is start
    assert len(Reranker(Weights.start(768, config)).state()) < 5000
