"""Whether citations can be believed, and which ranking wins: the two measures, and what is made of them."""

from dataclasses import replace

import numpy as np
import pytest

from rmm_core.guard import Guard, RunningMean, agreed
from rmm_core.places import PLACES, Places
from rmm_core.prompts import shown_memory
from rmm_core.retrospective import shared
from tests.core.small_world import QUESTIONS, USER, WIDTH, answer, opened, world


def honest(rng):
    return lambda shown, relevant: [rng.random() < (0.9 if name in relevant else 0.05) for name in shown]


# -- means that forget -------------------------------------------------------------------


def test_a_mean_that_forgets():
    rng, mean = np.random.default_rng(0), RunningMean()
    values = rng.normal(0.3, 2.0, size=400)
    for value in values:
        mean = mean.add(float(value))
    by_age = 0.995 ** np.arange(400)[::-1]
    expected = np.average(values, weights=by_age)
    assert mean.count == pytest.approx(by_age.sum())
    assert mean.mean == pytest.approx(expected)
    assert mean.square == pytest.approx(np.average(values**2, weights=by_age))
    assert mean.error == pytest.approx((np.average((values - expected) ** 2, weights=by_age) / by_age.sum()) ** 0.5)
    faded = RunningMean().add(1.0)
    for _ in range(140):
        faded = faded.add(0.0)
    assert faded.mean * faded.count == pytest.approx(0.5, abs=0.01)


def test_a_few_equal_values_are_no_certainty():
    assert RunningMean().add(1.0).error >= 0.001
    assert RunningMean().error >= 0.001


# -- agreement ---------------------------------------------------------------------------

SEEN = Places(np.full(PLACES, 50.0), np.full(PLACES, 15.0), np.zeros(PLACES))


def observe(guard, shown, cited, duel=(), *, scores=None, places=SEEN):
    """One more answer; scores fall from place to place unless they are given."""
    scores = np.arange(len(shown), 0.0, -1.0) if scores is None else np.asarray(scores)
    return guard.observe(shown, cited, duel, scores=scores, places=places)


def test_agreement_by_hand():
    places = Places(np.full(PLACES, 10.0), np.array([7.5, 3.0, *[0.0] * 8]), np.array([2.0, -2.0, *[0.0] * 8]))
    cited, scores = np.array([False, True, False]), np.array([4.0, 3.0, -1.0])
    unusual = np.array([-9 / 15, 1 - 4.5 / 15, -1.5 / 15])
    higher = np.array([2.0, 1.0, -3.0]) - [0.2, -0.2, 0.0]
    assert agreed(cited, scores, places) == pytest.approx((unusual - unusual.mean()) @ higher)


def play(cite, *, answers=500, seed=0):
    """A guard over many answers about slates whose scores fall by chance; what it believed after each."""
    rng, guard, places, course = np.random.default_rng(seed), Guard(), Places.unknown(), []
    for _ in range(answers):
        scores = -np.sort(-rng.normal(size=5))
        cited = [i for i in range(5) if cite(rng, i, scores)]
        guard = observe(guard, range(5), cited, scores=scores, places=places)
        places = places.add([i in cited for i in range(5)], scores)
        course.append(guard.believes)
    return course


SAYS_NOTHING = {
    "random, seldom": lambda rng, i, scores: rng.random() < 0.2,
    "random, often": lambda rng, i, scores: rng.random() < 0.5,
    "by place": lambda rng, i, scores: rng.random() < (0.6, 0.4, 0.25, 0.15, 0.1)[i],
    "the first": lambda rng, i, scores: i == 0,
    "the last": lambda rng, i, scores: i == 4,
    "the first and at random": lambda rng, i, scores: i == 0 or rng.random() < 0.2,
}


@pytest.mark.parametrize("name", SAYS_NOTHING)
def test_citations_that_say_nothing_are_hardly_ever_believed(name):
    """Asked after every answer, which is many chances to be unlucky."""
    assert np.mean([np.mean(play(SAYS_NOTHING[name], seed=seed)) for seed in range(30)]) < 0.03


@pytest.mark.parametrize("bias", [0.0, 0.3], ids=["by relevance alone", "and by place"])
def test_citations_that_follow_the_scores_are_believed_soon_and_stay_so(bias):
    def cite(rng, i, scores):
        return rng.random() < 1 / (1 + np.exp(1.5 - 1.5 * scores[i] - bias * (4 - i)))

    courses = [play(cite, seed=seed) for seed in range(10)]
    assert all(course.index(True) < 150 for course in courses)
    assert np.mean([np.mean(course[150:]) for course in courses]) > 0.98


def test_it_takes_much_to_begin_to_believe_and_little_to_go_on():
    """Two standard errors beyond chance: not enough for the one, and enough for the other."""
    doubtful = RunningMean(100.0, 0.2, 0.2**2 + 1.0)
    for believes in (False, True):
        g = observe(Guard(doubtful, RunningMean(), believes), (0, 1), (0,))
        assert 1.0 < g.agreement.mean / g.agreement.error < 3.0
        assert g.believes == believes


@pytest.mark.parametrize("cited", [(), (3, 1, 0)], ids=["none", "all"])
def test_all_and_none_say_nothing_of_agreement(cited):
    assert observe(Guard(), (3, 1, 0), cited).agreement == RunningMean()


def test_nothing_is_said_before_it_is_known_what_is_usual():
    places = Places.unknown()
    for _ in range(5):
        assert observe(Guard(), (0, 1), (0,), places=places).agreement == RunningMean()
        places = places.add([True, False])
    assert observe(Guard(), (0, 1), (0,), places=places).agreement.count == 1


# -- duels -------------------------------------------------------------------------------


def expected_difference(slate, rival, side, odds):
    """What a duel estimates: by how much the learned ranking's choices are cited more, at the contested places."""
    own, others = [i for i in slate if i not in rival], [i for i in rival if i not in slate]
    places = [slate.index(i) for i in own] + [len(slate)] * max(len(others) - len(own), 0)
    ours = sum(odds(i, place) for i, place in zip(own, places, strict=False))
    theirs = sum(odds(i, place) for i, place in zip(others, places, strict=False))
    return side * (ours - theirs)


def played(slate, rival, side, odds, *, rounds=4000, seed=3):
    """What is made of duels between two slates, as they are played and as answers to them are observed."""
    rng, values = np.random.default_rng(seed), []
    for _ in range(rounds):
        mixed, sides = shared(slate, rival, side, rng)
        cited = tuple(i for place, i in enumerate(mixed) if rng.random() < odds(i, place))
        duel = tuple(sides.get(i, 0) for i in mixed)
        values.append(observe(Guard(), tuple(mixed), cited, duel).duels)
    counted = [v.mean for v in values if v.count]
    return np.mean(counted), np.std(counted) / len(counted) ** 0.5


ITEM = np.asarray([0.9, 0.2, 0.7, 0.1, 0.6, 0.3, 0.5, 0.05, 0.8, 0.4])


def by_item(i, place):
    return ITEM[i]


def by_item_and_place(i, place):
    return ITEM[i] * (0.9, 0.5, 0.8, 0.3, 0.1)[place]


SLATES = {
    "one differs": ([0, 1, 2, 3, 4], [0, 1, 2, 5, 4]),
    "two differ": ([0, 1, 2, 3, 4], [6, 4, 0, 7, 2]),
    "all differ": ([0, 1, 2, 3, 4], [5, 6, 7, 8, 9]),
    "in another order": ([3, 7, 0, 1, 5], [8, 1, 2, 0, 4]),
}


@pytest.mark.parametrize("side", [1, -1], ids=["the learned serves", "the prior serves"])
@pytest.mark.parametrize("odds", [by_item, by_item_and_place])
@pytest.mark.parametrize("name", SLATES)
def test_duels_are_unbiased(name, odds, side):
    slate, rival = SLATES[name]
    expected = expected_difference(slate, rival, side, odds)
    mean, error = played(slate, rival, side, odds)
    assert mean == pytest.approx(expected, abs=4 * error)
    assert error < 0.06


def test_duels_can_tell():
    """The same slates, and another estimand: the tests above can fail."""
    slate, rival = SLATES["all differ"]
    mean, error = played(slate, rival, 1, by_item)
    assert abs(expected_difference(slate, rival, 1, by_item)) > 6 * error
    for wrong in (0.5 * mean, 2.0 * mean, -mean):
        assert wrong != pytest.approx(expected_difference(slate, rival, 1, by_item), abs=4 * error)


@pytest.mark.parametrize("side", [1, -1], ids=["the learned serves", "the prior serves"])
@pytest.mark.parametrize(
    ("slate", "rival"),
    [([0, 1, 2, 3, 4], [0, 5]), ([0, 5], [0, 1, 2, 3, 4]), ([0, 1, 2], [3, 2]), ([7, 1], [8, 7, 3])],
)
def test_duels_of_slates_of_unequal_length_are_unbiased(slate, rival, side):
    """What one side has more toss against nothing; their odds are their own, whatever the place."""
    expected = expected_difference(slate, rival, side, by_item)
    mean, error = played(slate, rival, side, by_item)
    assert mean == pytest.approx(expected, abs=4 * error)


@pytest.mark.parametrize("side", [1, -1], ids=["the learned serves", "the prior serves"])
@pytest.mark.parametrize(("slate", "rival"), [([0, 1, 2], [0, 1]), ([0, 1], [0, 1, 2, 8])])
def test_duels_against_nothing_alone_are_unbiased(slate, rival, side):
    """Where nothing won, the answer counts as well: nobody's choices were cited."""
    expected = expected_difference(slate, rival, side, by_item)
    mean, error = played(slate, rival, side, by_item)
    assert mean == pytest.approx(expected, abs=4 * error)


@pytest.mark.parametrize("name", SLATES)
def test_what_both_would_show_keeps_its_place_and_what_one_would_has_even_odds(name):
    slate, rival = SLATES[name]
    rng, seen = np.random.default_rng(4), []
    for _ in range(2000):
        mixed, sides = shared(slate, rival, 1, rng)
        assert len(mixed) == len(set(mixed)) == len(slate)
        assert all(mixed[place] == i for place, i in enumerate(slate) if i in rival)
        assert all(s == (1 if i in slate else -1) for i, s in sides.items())
        assert set(sides) == {i for i in mixed if (i in slate) != (i in rival)}
        seen += list(sides)
    for i in {*slate} ^ {*rival}:
        assert seen.count(i) / 2000 == pytest.approx(0.5, abs=0.05)


def test_equal_slates_are_no_duel():
    assert shared([3, 1, 2], [2, 3, 1], 1, np.random.default_rng(0)) == ([3, 1, 2], {})
    assert observe(Guard(), (3, 1, 2), (1,), ()).duels == RunningMean()


def test_a_duel_that_shows_nothing_of_either_side_counts():
    assert observe(Guard(), (3, 1, 2), (1,), (0, 0, 0)).duels == RunningMean(1.0, 0.0, 0.0)


def test_a_duel_counts_what_each_side_collects():
    """Also where all or none is cited, which says nothing of agreement."""
    for cited, value in (((5, 2), 0.0), ((5,), 2.0), ((2, 9), -2.0), ((), 0.0), ((5, 9, 2, 4), 2.0)):
        guard = observe(Guard(), (5, 9, 2, 4), cited, (1, 0, -1, 1))
        assert guard.duels == RunningMean(1.0, value, value**2), cited


# -- verdicts ----------------------------------------------------------------------------


def guard(agree=(), duels=()):
    """A guard that saw pairs in order (1), or in reverse (0), and duels that ended as given."""
    g = Guard()
    for in_order in agree:
        g = observe(g, (0, 1), (0,) if in_order else (1,))
    for won in duels:
        g = observe(g, (0, 1), (0, 1) if won else (), (won or 1, 0))
    return g


IN_ORDER, BY_CHANCE = [1] * 40, [1, 0] * 40


@pytest.mark.parametrize(
    ("g", "ranking", "reason"),
    [
        (guard(), "prior", "0 of 30 answers yet that cite a part"),
        (guard([1] * 7), "prior", "7 of 30 answers yet"),
        (guard(BY_CHANCE), "prior", "do not follow relevance: -0.0 standard errors beyond chance, of 3 that it takes"),
        (guard([0] * 40), "prior", "do not follow relevance: -"),
        (guard([0] * 40, [1] * 40), "prior", "do not follow relevance"),
        (guard(IN_ORDER), "learned", "standard errors beyond chance; 0 of 30 duels yet"),
        (guard(IN_ORDER, [-1] * 20), "learned", "19 of 30 duels yet"),
        (guard(IN_ORDER, [-1] * 40), "prior", "the learned ranking loses: -2.00 ± 0.00 citations an answer over 36"),
        (guard(IN_ORDER, [1, -1] * 40), "learned", "it holds its own: -0.01 ± 0.25 citations"),
        (guard(IN_ORDER, [1] * 40), "learned", "it holds its own: +2.00 ± 0.00 citations an answer over 36 duels"),
    ],
)
def test_verdicts_and_their_reasons(g, ranking, reason):
    assert g.verdict.ranking == ranking
    assert reason in g.verdict.reason


@pytest.mark.parametrize(
    ("g", "believes", "loses", "wins"),
    [
        (guard(), False, False, False),
        (guard([1] * 32), False, False, False),
        (guard([1] * 33), True, False, False),
        (guard(IN_ORDER, [1] * 30), True, False, False),
        (guard(IN_ORDER, [1] * 34), True, False, True),
        (guard(BY_CHANCE, [1] * 40), False, False, False),
        (guard(IN_ORDER, [-1] * 30), True, False, False),
        (guard(IN_ORDER, [-1] * 34), True, True, False),
        (guard(BY_CHANCE, [-1] * 34), False, True, False),
        (guard(IN_ORDER, [1, -1] * 30), True, False, False),
        (guard(IN_ORDER, [-1, 1] * 30), True, False, True),
    ],
    ids=str,
)
def test_what_is_enough(g, believes, loses, wins):
    """Thirty answers and thirty duels, each discounted by age; a lead is enough to win, and no lag to lose."""
    assert (g.believes, g.loses, g.wins) == (believes, loses, wins)


def test_it_takes_two_and_a_half_standard_errors_to_lose():
    for g in (guard(IN_ORDER, ([-1] * n + [1] * 20) * 2) for n in range(20, 60)):
        d = g.duels
        assert g.loses == (d.mean < -2.5 * d.error)
    many = [guard(IN_ORDER, ([-1] * n + [1] * 20) * 2) for n in range(20, 60)]
    assert {g.loses for g in many} == {True, False}
    assert any(not g.loses and g.duels.mean < -2.0 * g.duels.error for g in many)


def test_who_lost_comes_back_when_it_wins_again():
    g = guard(IN_ORDER, [-1] * 60)
    assert g.verdict.ranking == "prior"
    course = []
    for _ in range(120):
        g = observe(g, (0, 1), (0,), (1, 0))
        course.append(g.verdict.ranking)
    back = course.index("learned")
    assert 10 < back < 60
    assert set(course[back:]) == {"learned"}
    assert g.wins


# -- through a memory --------------------------------------------------------------------


def choices(memory, w, question):
    """The state that serves, and which five the learned ranking would show, and which the prior."""
    state, text = memory._trainer.state(USER, WIDTH), w.questions[question]
    found = memory.store.search(USER, w.rows[text], text=text, limit=memory.config.top_k)
    columns = w.rows[text], np.stack([c.embedding for c in found]), np.stack([c.features for c in found])
    orders = [ranking.rank(*columns).order for ranking in (state.reranker, state.prior)]
    return state, [{found[i].memory.id for i in order[:5]} for order in orders]


def test_duels_are_played_at_their_share_once_citations_are_believed():
    w, rng = world(), np.random.default_rng(5)
    believed = disagreed = fought = 0
    with opened(w, duels=0.3, batch_size=1, seed=3) as memory:
        for _ in range(300):
            question = int(rng.integers(QUESTIONS))
            state, best = choices(memory, w, question)
            recall = answer(memory, w, question, honest(rng))
            entry = memory.store.feedback(limit=1000)[-1][1]
            assert (len(entry.duel) == len(entry.shown)) == (recall.sides is not None)
            believed += state.guard.believes
            if not state.guard.believes or best[0] == best[1]:
                assert not recall.sides
                assert recall.ranking == state.verdict(memory.config).ranking
                continue
            disagreed += 1
            fought += bool(recall.sides)
            for name, side in (recall.sides or {}).items():
                assert [name in ids for ids in best] == [side == 1, side == -1]
                assert entry.duel[[entry.memory_ids[j] for j in entry.shown].index(name)] == side
            if recall.sides:
                shown = {s.memory.id for s in recall.shown}
                assert best[0] & best[1] <= shown
                assert len(recall.sides) == len(best[0] - best[1])
        status = memory.status(USER).learner
        assert 150 < believed < 285
        assert disagreed > 60
        assert fought / disagreed == pytest.approx(0.3, abs=3.5 * (0.3 * 0.7 / disagreed) ** 0.5)
        assert memory._trainer.state(USER, WIDTH).guard.duels.count == pytest.approx(
            (1 - 0.995**fought) / 0.005, rel=1e-6
        )
        assert (status.agreement is not None, status.duels is not None) == (True, True)


def test_who_lost_plays_on_from_the_other_side():
    """While the prior serves, its choices meet those of the learned ranking, which can come back."""
    w, rng = world(), np.random.default_rng(8)
    with opened(w, duels=1.0, batch_size=1) as memory:
        for _ in range(60):
            answer(memory, w, int(rng.integers(QUESTIONS)), honest(rng))
        state = memory._trainer.state(USER, WIDTH)
        lost = Guard(RunningMean(50.0, 0.9, 0.82), RunningMean(50.0, -1.0, 1.1), believes=True)
        memory._trainer._save("store", replace(state, guard=lost))
        sides = []
        for question in range(QUESTIONS):
            _, best = choices(memory, w, question)
            recall = memory.recall(USER, w.questions[question])
            assert recall.ranking == "prior"
            assert bool(recall.sides) == (best[0] != best[1])
            for name, side in (recall.sides or {}).items():
                assert [name in ids for ids in best] == [side == 1, side == -1]
                sides.append(side)
        assert len(sides) > 40
        assert np.mean(sides) == pytest.approx(0.0, abs=4 / len(sides) ** 0.5)


@pytest.mark.parametrize("settings", [{"duels": 0.0}, {"guard": False, "duels": 1.0}], ids=["no duels", "no guard"])
def test_no_duels_where_none_are_wanted(settings):
    w, rng = world(), np.random.default_rng(6)
    with opened(w, batch_size=1, **settings) as memory:
        recalls = [answer(memory, w, int(rng.integers(QUESTIONS)), honest(rng)) for _ in range(60)]
        assert memory._trainer.state(USER, WIDTH).guard.believes
        assert {r.ranking for r in recalls} == {"prior", "learned"}
        assert not any(r.sides for r in recalls)
        assert not any(f.duel for _, f in memory.store.feedback(limit=100))


def test_what_did_not_fit_into_the_prompt_makes_no_duel():
    w, rng = world(), np.random.default_rng(7)
    with opened(w) as memory:
        slates = [memory.recall(USER, text).shown for text in w.questions]
    tokens = int(np.median([sum(len(shown_memory(s)) for s in slate) for slate in slates])) // 4
    with opened(w, batch_size=1, duels=1.0, prompt_tokens=tokens) as memory:
        recalls = [answer(memory, w, int(rng.integers(QUESTIONS)), honest(rng)) for _ in range(120)]
        assert memory._trainer.state(USER, WIDTH).guard.believes
        short, whole = ([r for r in recalls[60:] if (len(r.shown) < 5) == cut] for cut in (True, False))
        assert len(short) > 10
        assert any(r.sides for r in whole)
        assert not any(r.sides for r in short)
