"""Each equation against a naive loop and a closed form."""

import math

import numpy as np
import pytest

from rmm_core import scoring

RNG = np.random.default_rng(3)
D, K = 6, 5
Q, M = RNG.normal(size=D).astype(np.float32), RNG.normal(size=(K, D)).astype(np.float32)
W_Q, W_M = (RNG.normal(size=(D, D)).astype(np.float32) * 0.1 for _ in range(2))


def test_adaptation_is_a_residual():
    naive = [Q[i] + sum(W_Q[i, j] * Q[j] for j in range(D)) for i in range(D)]
    np.testing.assert_allclose(scoring.adapt(Q, W_Q), naive, rtol=1e-5)
    np.testing.assert_allclose(scoring.adapt(M, W_M)[2], scoring.adapt(M[2], W_M), rtol=1e-5)
    np.testing.assert_array_equal(scoring.adapt(Q, np.zeros((D, D), np.float32)), Q)


def test_scores_are_inner_products_of_what_is_adapted():
    naive = [float(np.dot(M[i] + W_M @ M[i], Q + W_Q @ Q)) for i in range(K)]
    np.testing.assert_allclose(scoring.score(Q, M, W_Q, W_M), naive, rtol=1e-5)


def test_gumbel_noise_has_its_moments():
    noise = scoring.gumbel_noise(np.random.default_rng(0), 200_000)
    assert noise.dtype == np.float32
    assert float(noise.mean()) == pytest.approx(0.5772, abs=0.01)  # Euler's constant
    assert float(noise.std()) == pytest.approx(math.pi / math.sqrt(6), abs=0.01)


def test_the_largest_noisy_score_is_a_draw_from_the_softmax():
    scores = np.asarray([1.0, 0.0, -1.0])
    rng = np.random.default_rng(1)
    winners = [int(np.argmax(scores + scoring.gumbel_noise(rng, 3))) for _ in range(20_000)]
    observed = np.bincount(winners, minlength=3) / len(winners)
    np.testing.assert_allclose(observed, scoring.selection_probabilities(scores, 1.0), atol=0.015)


@pytest.mark.parametrize("tau", [0.1, 0.5, 2.0])
def test_selection_probabilities(tau):
    scores = np.asarray([3.0, 1.0, 2.0, 900.0])
    naive = [math.exp((s - 900) / tau) for s in scores]
    p = scoring.selection_probabilities(scores, tau)
    np.testing.assert_allclose(p, np.asarray(naive) / sum(naive), rtol=1e-6)
    assert p.sum() == pytest.approx(1.0)


def test_lower_temperature_is_greedier():
    scores = np.asarray([1.0, 0.5])
    assert scoring.selection_probabilities(scores, 0.1)[0] > scoring.selection_probabilities(scores, 1.0)[0]


def test_top_is_stable():
    assert scoring.top(np.asarray([1.0, 3.0, 3.0, 2.0]), 3).tolist() == [1, 2, 3]
    assert scoring.top(np.asarray([1.0]), 5).tolist() == [0]


def test_rewards():
    assert scoring.rewards((4, 0, 2), (0, 2)).tolist() == [-1.0, 1.0, 1.0]
