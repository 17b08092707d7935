"""What is usual at each place: how often memories are cited there, and how high they score."""

import numpy as np

from rmm_core.places import PLACES, Places


def test_nothing_is_known_at_first():
    np.testing.assert_allclose(Places.unknown().usual(3), 0.3)
    assert Places.unknown().usual(0).shape == (0,)


def test_counts_by_place():
    places = Places.unknown()
    for cited in ([True, False, True], [True, True], [True, False]):
        places = places.add(cited)
    assert places.shown[:4].tolist() == [3.0, 3.0, 1.0, 0.0]
    assert places.cited[:4].tolist() == [3.0, 1.0, 1.0, 0.0]
    np.testing.assert_allclose(places.usual(4), [4.5 / 8, 2.5 / 8, 2.5 / 6, 1.5 / 5])


def test_heights_are_above_the_mean_of_their_slate():
    places = (
        Places.unknown().add([True, False], np.array([3.0, 1.0])).add([False, False, False], np.array([4.0, 1.0, 1.0]))
    )
    np.testing.assert_allclose(places.usual_height(4), [1.5, -1.0, -1.0, 0.0])
    np.testing.assert_allclose(Places.unknown().add([True]).usual_height(1), [0.0])


def test_what_is_usual_is_known_after_a_few_answers():
    places, known = Places.unknown(), []
    for _ in range(6):
        known.append(places.known)
        places = places.add([True])
    assert known == [False] * 5 + [True]


def test_places_far_down_count_as_one():
    places = Places.unknown().add([i == PLACES + 1 for i in range(PLACES + 3)])
    assert places.shown.tolist() == [1.0] * (PLACES - 1) + [4.0]
    assert places.cited.tolist() == [0.0] * (PLACES - 1) + [1.0]
    usual = places.usual(PLACES + 3)
    assert len(usual) == PLACES + 3
    assert set(usual[PLACES - 1 :].tolist()) == {2.5 / 9}


def test_what_was_usual_once_is_forgotten():
    places = Places.unknown()
    for _ in range(500):
        places = places.add([True], forget=0.02)
    assert 49 < places.shown[0] < 50.01
    for _ in range(200):
        places = places.add([False], forget=0.02)
    assert places.usual(1)[0] < 0.05
    steadfast = Places.unknown()
    for cited in [True] * 500 + [False] * 200:
        steadfast = steadfast.add([cited])
    assert steadfast.usual(1)[0] > 0.7


def test_counts_are_not_written_into():
    places = Places.unknown().add([True, False])
    before = places.shown.copy(), places.cited.copy()
    places.add([True, True, True], forget=0.5)
    np.testing.assert_array_equal(places.shown, before[0])
    np.testing.assert_array_equal(places.cited, before[1])
