"""The serving reranker."""

import numpy as np
import pytest

from rmm_core.config import RMMConfig
from rmm_core.errors import InputError
from rmm_core.reranker import Reranker, Weights

RNG = np.random.default_rng(5)
D, K = 8, 12
Q, M = RNG.normal(size=D).astype(np.float32), RNG.normal(size=(K, D)).astype(np.float32)
F = RNG.random((K, 3)).astype(np.float32)


def weights():
    return Weights(*(RNG.normal(size=(D, D)).astype(np.float32) * 0.1 for _ in range(2)), np.float32([0.2, 0.5, 0.1]))


def test_it_starts_as_the_prior():
    reranker = Reranker(Weights.start(D, RMMConfig()))
    c = RMMConfig()
    expected = M @ Q + F @ np.asarray([c.own_weight, c.window_weight, c.session_weight])
    np.testing.assert_allclose(reranker.score(Q, M, F), expected, rtol=1e-5)
    ranking = reranker.rank(Q, M, F)
    assert ranking.order.tolist() == np.argsort(-expected).tolist()
    assert not ranking.noise.any()


def test_the_paper_starts_as_the_retriever():
    np.testing.assert_allclose(Reranker(Weights.start(D, RMMConfig.paper())).score(Q, M, F), M @ Q, rtol=1e-5)


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
