"""How much features count: ordinary least squares, and what citations must not be able to say."""

import numpy as np
import pytest

from rmm_core.regression import PLACES, RewardRegression

N, M = 4, 5
ZERO = np.zeros(N, dtype=np.float32)


def slates(rng, count, size=M):
    """Slates as they are shown: the more a ranking makes of a memory, the further up it stands."""
    for _ in range(count):
        shown = rng.normal(size=(size, N))
        yield shown[np.argsort(-(shown @ [1.0, 0.5, 0.0, 0.0]))]


def learned(rng, cites, count, *, forget=0.0, size=M):
    regression = RewardRegression.empty(N)
    for shown in slates(rng, count, size):
        regression = regression.add(shown, np.where(cites(shown), 1.0, -1.0), forget=forget)
    return regression


def moved(rng, cites, count, *, ridge=3.0, **more):
    return learned(rng, cites, count, **more).weights(ZERO, ridge=ridge)


def test_it_is_least_squares_within_slates_with_a_column_for_each_place():
    rng, regression, xs, ys = np.random.default_rng(0), RewardRegression.empty(N), [], []
    for size in (5, 3, 12, 5, 7, 2, 5, 12) * 5:
        shown = rng.normal(size=(size, N))
        y = np.where(rng.random(size) < 0.4, 1.0, -1.0)
        regression = regression.add(shown, y, forget=0.0)
        if (y == y[0]).all():
            continue  # what cites all or none teaches nothing
        places = np.stack([np.eye(PLACES)[min(i, PLACES - 1)] for i in range(size)])
        x = np.hstack([shown, places])
        xs.append(x - x.mean(axis=0))
        ys.append(y - y.mean())
    expected, *_ = np.linalg.lstsq(np.vstack(xs), np.concatenate(ys), rcond=None)
    start = np.float32([0.1, -0.2, 0.3, 0.4])
    np.testing.assert_allclose(regression.weights(start, ridge=1e-7), start + expected[:N], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [True, False], ids=["all", "none"])
def test_all_and_none_say_nothing(kind):
    regression = learned(np.random.default_rng(1), lambda shown: np.full(len(shown), kind), 50, forget=0.01)
    assert not regression.scatter.any()
    assert (regression.weights(ZERO, ridge=3.0) == 0).all()


@pytest.mark.parametrize("place", range(M))
@pytest.mark.parametrize("count", [1, 4, 20, 100, 1000])
def test_a_place_that_is_always_cited_says_nothing(place, count):
    weights = moved(np.random.default_rng(2), lambda shown: np.arange(len(shown)) == place, count)
    np.testing.assert_allclose(weights, 0.0, atol=1e-5)


def test_random_citations_say_nothing_in_the_mean():
    rng = np.random.default_rng(3)
    runs = np.stack([moved(rng, lambda shown: rng.random(len(shown)) < 0.3, 60) for _ in range(300)])
    error = runs.std(axis=0) / len(runs) ** 0.5
    assert (np.abs(runs.mean(axis=0)) < 4 * error).all()
    assert runs.std() < 0.1


def test_what_decides_gets_the_weight_and_nothing_else():
    rng = np.random.default_rng(4)

    def by_the_third(shown):
        return rng.random(len(shown)) < 1 / (1 + np.exp(-2 * shown[:, 2]))

    weights = moved(rng, by_the_third, 800)
    assert weights[2] > 0.4
    assert np.abs(weights[[0, 1, 3]]).max() < 0.05


def test_what_decides_is_told_from_the_place_it_leads_to():
    """Where the first place is cited more for being first, what puts a memory there gets no credit for it."""
    rng = np.random.default_rng(5)

    def by_place_and_the_third(shown):
        return rng.random(len(shown)) < np.clip(0.5 - 0.1 * np.arange(len(shown)) + 0.2 * shown[:, 2], 0, 1)

    weights = moved(rng, by_place_and_the_third, 3000)
    assert weights[2] > 0.3
    assert np.abs(weights[[0, 1, 3]]).max() < 0.05


def test_the_order_of_answers_does_not_matter():
    rng = np.random.default_rng(6)
    answers = [(shown, np.where(rng.random(M) < 0.4, 1.0, -1.0)) for shown in slates(rng, 30)]
    ways = []
    for order in (answers, answers[::-1]):
        regression = RewardRegression.empty(N)
        for shown, y in order:
            regression = regression.add(shown, y, forget=0.0)
        ways.append(regression.weights(ZERO, ridge=3.0))
    np.testing.assert_allclose(*ways, atol=1e-6)


def test_forgetting_follows_a_change_within_twice_its_span():
    rng, forget = np.random.default_rng(7), 1e-2
    regression = learned(rng, lambda shown: shown[:, 2] > 0, 500, forget=forget)
    steadfast = learned(rng, lambda shown: shown[:, 2] > 0, 500)
    assert regression.weights(ZERO, ridge=3.0)[2] > 0.5
    for shown in slates(rng, 200):
        y = np.where(shown[:, 3] > 0, 1.0, -1.0)
        regression, steadfast = regression.add(shown, y, forget=forget), steadfast.add(shown, y, forget=0.0)
    followed, stayed = (r.weights(ZERO, ridge=3.0) for r in (regression, steadfast))
    assert followed[3] > 2 * followed[2]
    assert stayed[3] < stayed[2]


def test_more_ridge_moves_less():
    regression = learned(np.random.default_rng(8), lambda shown: shown[:, 2] > 0, 20)
    sizes = [np.linalg.norm(regression.weights(ZERO, ridge=r)) for r in (0.1, 1.0, 10.0, 1e6)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 1e-3


def test_sums_are_not_written_into():
    regression = learned(np.random.default_rng(9), lambda shown: shown[:, 2] > 0, 3)
    before = regression.scatter.copy(), regression.product.copy()
    regression.add(np.eye(M)[:, :N], np.float32([1, -1, -1, -1, 1]), forget=0.5)
    np.testing.assert_array_equal(regression.scatter, before[0])
    np.testing.assert_array_equal(regression.product, before[1])
