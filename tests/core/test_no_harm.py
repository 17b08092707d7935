"""Whatever a model cites, what is served does not get worse than the prior; and when it cites honestly, better.

Up to two thousand answers each, through a real memory: all of it counts, what is drawn, logged, learned and guarded.
"""

from dataclasses import replace

import numpy as np
import pytest

from tests.core.small_world import QUESTIONS, USER, answer, opened, recall_at_5, world

pytestmark = pytest.mark.no_cover  # tracing would double what they take, and other tests cover it all

ANSWERS = 2000
FEWER = 600
SAYS_NOTHING = {
    "a fifth at random": lambda rng, shown, relevant: rng.random(len(shown)) < 0.2,
    "half at random": lambda rng, shown, relevant: rng.random(len(shown)) < 0.5,
    "the last": lambda rng, shown, relevant: np.arange(len(shown)) == len(shown) - 1,
    "all": lambda rng, shown, relevant: np.ones(len(shown)),
    "none": lambda rng, shown, relevant: np.zeros(len(shown)),
    "the first": lambda rng, shown, relevant: np.arange(len(shown)) == 0,
    "by place": lambda rng, shown, relevant: (
        rng.random(len(shown)) < np.array([0.6, 0.4, 0.25, 0.15, 0.1])[: len(shown)]
    ),
    "at random, else the first": lambda rng, shown, relevant: or_the_first(rng.random(len(shown)) < 0.3),
}


def or_the_first(cited):
    cited[0] |= not cited.any()
    return cited


def honest(rng, shown, relevant):
    return [rng.random() < (0.911 if name in relevant else 0.05) for name in shown]


def course(cites, *, seed=0, answers=ANSWERS, every=ANSWERS, **settings):
    """The prior's R@5, and that of what is served after every so many answers."""
    w, rng = world(seed), np.random.default_rng(seed + 1)
    with opened(w, seed=seed, top_k=10, **settings) as memory:

        def served():
            memory._recaller._config = replace(memory.config, duels=0.0)
            try:
                return recall_at_5(memory, w)
            finally:
                memory._recaller._config = memory.config

        prior, later = served(), []
        for i in range(1, answers + 1):
            answer(memory, w, int(rng.integers(QUESTIONS)), lambda shown, relevant: cites(rng, shown, relevant))
            if i % every == 0:
                later.append(served())
        assert len(memory.store.feedback(limit=answers + 1)) == answers
        assert memory.status(USER).learner.updates == answers // memory.config.batch_size
    assert 0.6 < prior < 0.95  # there is something to lose, and to gain
    return prior, later


@pytest.mark.parametrize(
    ("name", "answers"),
    [
        ("a fifth at random", ANSWERS),
        ("half at random", FEWER),
        ("the last", ANSWERS),
        ("all", ANSWERS),
        ("none", ANSWERS),
        ("the first", FEWER),
        ("by place", FEWER),
        ("at random, else the first", FEWER),
    ],
)
def test_citations_that_say_nothing_do_no_harm(name, answers):
    prior, later = course(SAYS_NOTHING[name], answers=answers, every=answers)
    assert later[-1] >= prior - 0.005, (prior, later)


def test_honest_citations_help():
    prior, later = course(honest, answers=FEWER, every=FEWER)
    assert later[-1] > prior + 0.02, (prior, later)


def test_it_is_the_guard_that_keeps_harm_away():
    """Without it random citations do harm: the tests above can fail."""
    prior, later = course(SAYS_NOTHING["a fifth at random"], answers=500, every=500, guard=False)
    assert later[-1] < prior - 0.02, (prior, later)
