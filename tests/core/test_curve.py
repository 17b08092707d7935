"""How learning went, told from the log: the same steps as those that were taken, and nothing saved."""

import logging

import numpy as np
import pytest

from rmm_core import InputError, RMMConfig
from rmm_core.curve import learning_curve
from rmm_core.features import SCORED_BY
from rmm_core.learned import Learned
from rmm_core.stores.sqlite import SQLiteStore
from rmm_core.trainer import Trainer
from tests.core.small_world import USER, answer, opened, world
from tests.core.test_trainer import SAID, WIDTH, duels, logged
from tests.core.test_trainer import a_log as put_log


def by_relevance(shown, relevant):
    return [name in relevant for name in shown]


def everything(store):
    """All that the database file holds."""
    return list(store._file._db.iterdump())


def test_every_step_is_the_one_that_was_taken():
    w = world()
    with opened(w, batch_size=2) as memory:
        taken = []
        for i in range(90):
            answer(memory, w, i, by_relevance)
            if i % 2:
                taken.append((i + 1, memory.status(USER).learner))
        before = everything(memory.store)
        curve = memory.learning_curve(USER)
        assert everything(memory.store) == before
        assert [step.answers for step in curve] == [n for n, _ in taken]
        for step, (_, learner) in zip(curve, taken, strict=True):
            assert (step.ranking, step.reason, step.weights) == (learner.ranking, learner.reason, learner.weights)
            assert tuple(step.weights) == SCORED_BY
        assert {step.ranking for step in curve} == {"prior", "learned"}
        log = [f for _, f in memory.store.feedback(limit=100)]
        for step in curve:
            batch = log[step.answers - 2 : step.answers]
            assert step.cited == sum(len(f.cited) for f in batch) / sum(len(f.shown) for f in batch)


def test_answers_that_make_no_full_batch_are_not_learned_from_yet():
    w = world()
    with opened(w, batch_size=4) as memory:
        for i in range(7):
            answer(memory, w, i, by_relevance)
        assert [step.answers for step in memory.learning_curve(USER)] == [4]
        with pytest.raises(InputError, match="user_id"):
            memory.learning_curve(" ")


def test_nobody_asked_is_no_curve(memory):
    assert memory.learning_curve("nobody") == ()


def test_who_went_back_goes_back_in_the_same_place_and_says_nothing_of_it(tmp_path, caplog):
    """What was kept as good is kept again on the way, and the app's log holds no warning of long ago."""
    config, store = RMMConfig(batch_size=1), SQLiteStore(str(tmp_path / "m.db"))
    trainer, states = Trainer(store, config), []
    for entry in [*duels(range(60), won=True), *duels(range(60, 200), won=False), *duels(range(200, 320), won=True)]:
        put_log(store, entry)
        trainer.catch_up("ann", WIDTH)
        states.append(trainer.state("ann", WIDTH))
    assert "goes back" in caplog.text
    caplog.clear()
    before = everything(store)
    with caplog.at_level(logging.DEBUG):
        curve = learning_curve(store, config, "ann")
    assert caplog.text == ""
    assert everything(store) == before
    assert [step.ranking for step in curve] == [s.verdict(config).ranking for s in states]
    np.testing.assert_array_equal(
        [list(step.weights.values()) for step in curve], [s.reranker.weights.mix for s in states]
    )
    store.close()


@pytest.mark.parametrize("scope", ["store", "user"])
def test_whose_answers_count_is_as_configured(tmp_path, scope):
    config, store = RMMConfig(batch_size=2, learner_scope=scope), SQLiteStore(str(tmp_path / "m.db"))
    put_log(store, *(logged(i, ("ann", "bob")[i % 2]) for i in range(20)))
    for user in ("ann", "bob"):
        Trainer(store, config).catch_up(user, WIDTH)
    assert learning_curve(store, config, "ann")[-1].answers == (20 if scope == "store" else 10)
    assert len(learning_curve(store, config, "zoe")) == (10 if scope == "store" else 0)
    store.close()


def test_after_another_embedder_it_begins_with_what_was_kept(open_memory):
    memory = open_memory(config=RMMConfig(batch_size=1))
    for i, text in enumerate(SAID):
        with memory.chat("ann", session_id=f"s{i}") as chat:
            chat.record(text, "Good.")
    for query in ("Who keeps bees?", "Who plays the cello?", "What am I allergic to?") * 4:
        memory.feedback(memory.recall("ann", query), "It is [1].")
    memory.reembed()
    assert memory.learning_curve("ann") == ()
    memory.feedback(memory.recall("ann", "Who keeps bees?"), "You do [2].")
    (step,) = memory.learning_curve("ann")
    assert step.answers == 1
    assert step.weights == memory.status("ann").learner.weights


@pytest.mark.parametrize("content", [None, b"garbage"])
def test_without_a_state_that_can_be_read_the_log_alone_tells(tmp_path, content):
    config, store = RMMConfig(batch_size=2), SQLiteStore(str(tmp_path / "m.db"))
    put_log(store, *(logged(i) for i in range(6)))
    if content is not None:
        store.save_learner_state("store", content, base_version=0)
    curve = learning_curve(store, config, "ann")
    Trainer(store, config).catch_up("ann", WIDTH)
    learned = Learned.unpack(store.learner_state("store").content, config, 0)
    assert curve[-1].weights == learned.status(config).weights
    assert curve[-1].answers == 6
    store.close()
