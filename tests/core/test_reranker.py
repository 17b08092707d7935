"""The serving reranker."""

import numpy as np
import pytest

from rmm_core.config import RMMConfig
from rmm_core.errors import InputError
from rmm_core.features import FEATURES, HISTORY, SCORED_BY
from rmm_core.reranker import Reranker, Weights, start_mix

RNG = np.random.default_rng(5)
D, K = 8, 12
Q, M = RNG.normal(size=D).astype(np.float32), RNG.normal(size=(K, D)).astype(np.float32)
F = RNG.random((K, len(FEATURES))).astype(np.float32)


def weights():
    adapters = (RNG.normal(size=(D, D)).astype(np.float32) * 0.1 for _ in range(2))
    return Weights(*adapters, RNG.random(len(SCORED_BY)).astype(np.float32))


def test_it_starts_as_the_prior():
    prior = RMMConfig().prior
    reranker = Reranker(Weights.start(D, RMMConfig()))
    expected = prior.similarity * (M @ Q) + F @ np.asarray([getattr(prior, name) for name in FEATURES])
    np.testing.assert_allclose(reranker.score(Q, M, F), expected, rtol=1e-5)
    ranking = reranker.rank(Q, M, F)
    assert ranking.order.tolist() == np.argsort(-expected).tolist()
    assert not ranking.noise.any()


def test_the_paper_starts_as_the_retriever():
    np.testing.assert_allclose(Reranker(Weights.start(D, RMMConfig.paper())).score(Q, M, F), M @ Q, rtol=1e-5)


def test_what_is_measured_against_owes_nothing_to_citations():
    mix = start_mix(RMMConfig(), history=False)
    assert {n for n, a, b in zip(SCORED_BY, mix, start_mix(RMMConfig()), strict=True) if a != b} == set(HISTORY)
    assert FEATURES[-2:] == HISTORY
    assert not mix[-2:].any()


def test_scores_are_the_adapted_similarity_and_the_features_by_their_weights():
    w = weights()
    q, m = Q + w.w_q @ Q, M + M @ w.w_m.T
    np.testing.assert_allclose(Reranker(w).columns(Q, M, F), np.column_stack([m @ q, F]), rtol=1e-4, atol=1e-5)
    expected = w.mix[0] * (m @ q) + F @ w.mix[1:]
    np.testing.assert_allclose(Reranker(w).score(Q, M, F), expected, rtol=1e-4, atol=1e-5)


def test_sampling_repeats_under_one_seed():
    reranker = Reranker(weights(), logit_scale=2.0)
    a, b = (reranker.sample(Q, M, F, np.random.default_rng(9)) for _ in range(2))
    np.testing.assert_array_equal(a.order, b.order)
    noisy = 2.0 * a.scores + a.noise
    assert a.order.tolist() == np.argsort(-noisy, kind="stable").tolist()
    np.testing.assert_allclose(a.scores, reranker.score(Q, M, F))


def test_a_state_is_loaded_as_it_was():
    reranker = Reranker(weights(), logit_scale=10.0)
    again = Reranker.load(reranker.state(), 10.0)
    np.testing.assert_array_equal(again.score(Q, M, F), reranker.score(Q, M, F))
    assert again.width == D


@pytest.mark.parametrize("state", [b"", b"garbage", b"PK\x03\x04broken"])
def test_a_broken_state_is_refused(state):
    with pytest.raises(InputError, match="no reranker state"):
        Reranker.load(state)


def test_a_state_of_other_shapes_is_refused():
    odd = Reranker(Weights(np.eye(2, dtype=np.float32), np.eye(3, dtype=np.float32), np.zeros(3, np.float32)))
    with pytest.raises(InputError, match="other shapes"):
        Reranker.load(odd.state())
