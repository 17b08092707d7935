"""How learning keeps up with its log: what was deleted meanwhile, what is taken back, who else learns."""

import logging
import threading
from dataclasses import replace

import numpy as np
import pytest

from rmm_core import RMMConfig
from rmm_core.features import FEATURES, SCORED_BY
from rmm_core.guard import RunningMean
from rmm_core.learned import Learned
from rmm_core.stores.sqlite import SQLiteStore
from rmm_core.testing import HashEmbedder
from rmm_core.trainer import Trainer
from rmm_core.types import Feedback
from tests.core.small_world import T0, USER, WIDTH, answer, opened, unit, world

SAID = ("I keep bees in Graz.", "My sister plays the cello.", "I am allergic to nuts.")


def filled(open_memory, user="ann", said=SAID, **settings):
    memory = open_memory(config=RMMConfig(**settings))
    for i, text in enumerate(said):
        with memory.chat(user, session_id=f"s{i}") as chat:
            chat.record(text, "Good.")
    return memory


def state(memory, scope="store"):
    return Learned.unpack(memory.store.learner_state(scope).content, memory.config, 0)


def by_relevance(shown, relevant):
    return [name in relevant or i == 0 for i, name in enumerate(shown)]


def test_a_duel_is_learned_from_after_a_memory_of_it_was_deleted(open_memory):
    memory = filled(open_memory, batch_size=2)
    recall = memory.recall("ann", "Who keeps bees?")
    first, second = (s.memory.id for s in recall.shown[:2])
    memory.feedback(replace(recall, sides={first: 1, second: -1}), "Yes [2].")
    memory.delete("ann", first)
    memory.feedback(memory.recall("ann", "Who plays the cello?"), "She does [1].")
    assert memory.status("ann").learner.updates == 1


def test_questions_of_another_width_are_no_hindrance(open_memory):
    """A store that was emptied takes any embedder; what was asked before is still in its log."""
    memory = filled(open_memory)
    memory.feedback(memory.recall("ann", "Who keeps bees?"), "You do [1].")
    for held in memory.memories("ann"):
        memory.delete("ann", held.id)
    memory.close()
    other = open_memory(embedder=HashEmbedder(32))
    with other.chat("ann", session_id="new") as chat:
        chat.record("I keep bees in Linz.", "Good.")
    assert other.recall("ann", "Who keeps bees?").shown


def test_what_is_taken_back_was_never_learned():
    w = world()
    for last in (1, 3, 7, 40):
        with opened(w, batch_size=2) as memory, opened(w, batch_size=2) as without:
            for i in range(40):
                answer(memory, w, i, by_relevance)
                if i < 40 - last:
                    answer(without, w, i, by_relevance)
            assert memory.unlearn(last) == last
            if last < 39:
                assert memory.store.learner_state("store").content == without.store.learner_state("store").content
            assert memory.status(USER).learner == without.status(USER).learner
            for question in w.questions[:20]:
                again, never = (m.recall(USER, question) for m in (memory, without))
                assert [c.memory.id for c in again.candidates] == [c.memory.id for c in never.candidates]
                np.testing.assert_array_equal(
                    [c.features for c in again.candidates], [c.features for c in never.candidates]
                )


def test_what_texts_from_elsewhere_taught_is_taken_back_too(open_memory):
    """Of a user who has nothing else stored."""
    memory = open_memory(config=RMMConfig(batch_size=1, learner_scope="user", guard=False))
    documents = {"tea": "Tea is fine.", "violin": "Violin lessons.", "bees": "Bees in Graz."}
    for _ in range(5):
        memory.feedback(memory.rerank("zoe", "What now?", documents), "That [3].")
    assert state(memory, "user:zoe").updates == 5
    assert memory.unlearn(5, user_id="zoe") == 5
    assert state(memory, "user:zoe").updates == 0
    assert not state(memory, "user:zoe").reranker.weights.w_q.any()


def test_taking_back_one_answer_leaves_what_was_learned_before_reembedding():
    w = world()
    with opened(w, batch_size=1, guard=False) as memory:
        for i in range(30):
            answer(memory, w, i, by_relevance)
        memory.reembed()
        before = memory.status(USER).learner.weights
        answer(memory, w, 31, by_relevance)
        assert memory.unlearn(1) == 1
        assert memory.status(USER).learner.weights == pytest.approx(before, abs=1e-4)


@pytest.mark.parametrize("begins_anew", ["unlearn", "reembed"])
def test_it_begins_anew_also_when_another_process_saves_meanwhile(monkeypatch, begins_anew):
    w = world()
    with opened(w, batch_size=1, guard=False) as memory:
        for i in range(5):
            answer(memory, w, i, by_relevance)
        save, store, first = memory.store.save_learner_state, memory.store, [True]

        def raced(scope, content, *, base_version):
            if first and scope == "store":
                first.clear()
                save(scope, store.learner_state(scope).content, base_version=base_version)
            return save(scope, content, base_version=base_version)

        monkeypatch.setattr(store, "save_learner_state", raced)
        if begins_anew == "unlearn":
            assert memory.unlearn(2) == 2
            assert memory.status(USER).learner.updates == 3
            return
        before = state(memory).reranker.weights
        assert before.w_q.any()
        assert memory.reembed() == len(w.memories)
        assert not first  # it raced
        after = state(memory).reranker.weights
        assert not after.w_q.any()
        assert after.mix.tolist() == before.mix.tolist()


# -- from a log written by hand ----------------------------------------------------------


def logged(number, user="ann", *, cited=None, duel=(), width=WIDTH):
    """Feedback on texts from elsewhere: five were shown out of eight, and those cited that one feature tells."""
    rng = np.random.default_rng(number)
    features = rng.random((8, len(FEATURES))).astype(np.float32)
    shown = tuple(rng.permutation(8)[:5].tolist())
    by_feature = [i for i in shown if features[i, 4] > 0.6]
    return Feedback(
        recall_id=f"r{number}",
        user_id=user,
        embedding=unit(rng.normal(size=width)),
        memory_ids=tuple(f"d{i}" for i in range(8)),
        features=features,
        noise=np.zeros(8, dtype=np.float32),
        shown=shown,
        cited=tuple(by_feature if cited is None else (shown[i] for i in cited)),
        at=T0,
        embeddings=unit(rng.normal(size=(8, width))),
        duel=duel,
    )


def a_log(store, *entries):
    for entry in entries:
        store.add_feedback(entry)


@pytest.fixture
def new_store(tmp_path):
    """Opens stores, those of one name on one file."""
    held = []

    def open_(name=""):
        held.append(SQLiteStore(str(tmp_path / f"{name}.db") if name else ":memory:"))
        return held[-1]

    yield open_
    for store in held:
        store.close()


def saved(store, config, scope="store"):
    content = store.learner_state(scope).content
    return Learned.unpack(content, config, 0), content


def learned_from(store, entries, config, users=("ann",)):
    """What a trainer saves that learns from these answers one by one."""
    trainer = Trainer(store, config)
    for entry in entries:
        a_log(store, entry)
        for user in users:
            trainer.catch_up(user, WIDTH)
    return store.learner_state("store").content


CONFIG = RMMConfig(batch_size=2)


def test_it_learns_what_the_log_says(new_store):
    store = new_store()
    learned_from(store, [logged(i) for i in range(100)], CONFIG)
    state, _ = saved(store, CONFIG)
    start = Learned.start(WIDTH, CONFIG)
    moved = state.reranker.weights.mix - start.reranker.weights.mix
    assert (state.updates, state.cursor) == (50, 100)
    assert int(np.argmax(np.abs(moved))) == 1 + 4
    assert moved[5] > 1.0
    assert state.places.shown[:5].sum() > 5 * 90
    assert state.guard.agreement.count > 60
    assert np.abs(state.reranker.weights.w_q).max() > 1e-3


def test_half_a_batch_waits(new_store):
    store = new_store()
    trainer = Trainer(store, CONFIG)
    a_log(store, logged(0))
    assert (trainer.catch_up("ann", WIDTH), store.learner_state("store")) == (0, None)
    a_log(store, logged(1), logged(2))
    assert [trainer.catch_up("ann", WIDTH) for _ in range(2)] == [1, 0]
    assert saved(store, CONFIG)[0].cursor == 2


def test_hundreds_of_answers_are_caught_up_with_in_one_call(new_store, monkeypatch):
    entries = [logged(i) for i in range(301)]
    store, saves = new_store(), []
    save = store.save_learner_state
    monkeypatch.setattr(store, "save_learner_state", lambda s, *a, **k: (saves.append(s), save(s, *a, **k))[1])
    a_log(store, *entries)
    assert Trainer(store, CONFIG).catch_up("ann", WIDTH) == 150
    assert saves.count("store") == 3  # not one for each step
    assert store.learner_state("store").content == learned_from(new_store(), entries, CONFIG)


def test_it_goes_on_after_reopening(new_store):
    entries = [logged(i) for i in range(41)]
    for some in (entries[:15], entries[15:16], entries[16:]):
        content = learned_from(new_store("file"), some, CONFIG)
    assert content == learned_from(new_store(), entries, CONFIG)


def test_a_crash_between_the_log_and_the_state_loses_nothing(new_store, monkeypatch):
    entries = [logged(i) for i in range(40)]
    store = new_store("file")
    learned_from(store, entries[:20], CONFIG)

    def crash(*args, **kwargs):
        raise KeyboardInterrupt

    before = store.learner_state("store").content
    monkeypatch.setattr(store, "save_learner_state", crash)
    for entry in entries[20:23]:
        a_log(store, entry)
    with pytest.raises(KeyboardInterrupt):
        Trainer(store, CONFIG).catch_up("ann", WIDTH)
    assert store.learner_state("store").content == before
    store.close()
    again = new_store("file")
    assert len(again.feedback()) == 23
    assert learned_from(again, entries[23:], CONFIG) == learned_from(new_store(), entries, CONFIG)


def test_two_trainers_of_one_store_learn_each_answer_once(new_store):
    entries = [logged(i) for i in range(120)]
    stores = [new_store("file"), new_store("file")]
    trainers = [Trainer(s, CONFIG) for s in stores]
    steps = 0
    for i, entry in enumerate(entries[:60]):
        a_log(stores[i % 2], entry)
        steps += trainers[(i // 3) % 2].catch_up("ann", WIDTH)
    a_log(stores[0], *entries[60:])
    counts = []
    threads = [threading.Thread(target=lambda t=t: counts.append(t.catch_up("ann", WIDTH))) for t in trainers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert steps + sum(counts) == 60
    assert stores[1].learner_state("store").content == learned_from(new_store(), entries, CONFIG)
    assert [t.state("ann", WIDTH).updates for t in trainers] == [60, 60]


def test_a_state_that_another_trainer_saved_meanwhile_is_gone_on_from(new_store, monkeypatch):
    """Between a trainer's reading and its saving: the steps are taken once."""
    entries = [logged(i) for i in range(8)]
    mine, theirs = new_store("file"), new_store("file")
    a_log(mine, *entries)
    save, first = mine.save_learner_state, [True]

    def raced(*args, **kwargs):
        if first:
            first.clear()
            assert Trainer(theirs, CONFIG).catch_up("ann", WIDTH) == 4
        return save(*args, **kwargs)

    monkeypatch.setattr(mine, "save_learner_state", raced)
    assert Trainer(mine, CONFIG).catch_up("ann", WIDTH) == 0
    assert mine.learner_state("store").content == learned_from(new_store(), entries, CONFIG)


# -- taken back --------------------------------------------------------------------------


def test_one_users_answers_are_taken_back_and_nobody_elses(new_store):
    entries = [logged(i, ("ann", "bob")[i % 2]) for i in range(40)]
    store = new_store()
    learned_from(store, entries, CONFIG)
    trainer = Trainer(store, CONFIG)
    assert trainer.unlearn(5, "ann") == 5
    left = [e for i, e in enumerate(entries) if i < 30 or i % 2]
    assert [f.recall_id for _, f in store.feedback(limit=100)] == [e.recall_id for e in left]
    state, _ = saved(store, CONFIG)
    twin = new_store()
    learned_from(twin, left, CONFIG)
    never, _ = saved(twin, CONFIG)
    assert state.updates == never.updates == 17
    np.testing.assert_array_equal(state.reranker.weights.mix, never.reranker.weights.mix)
    np.testing.assert_array_equal(state.reranker.weights.w_q, never.reranker.weights.w_q)
    np.testing.assert_array_equal(state.regression.scatter, never.regression.scatter)
    assert state.guard == never.guard
    assert trainer.unlearn(100, "ann") == 15
    assert {f.user_id for _, f in store.feedback(limit=100)} == {"bob"}
    assert trainer.unlearn(3, "nobody") == 0


def test_users_with_a_learner_of_their_own_are_kept_apart(new_store):
    config = RMMConfig(batch_size=2, learner_scope="user")
    store, alone = new_store(), new_store()
    for i in range(40):
        user = ("ann", "bob")[i % 2]
        a_log(store, logged(i, user, cited=None if user == "ann" else (i % 5,)))
        if user == "ann":
            a_log(alone, logged(i, user))
    trainer = Trainer(store, config)
    assert trainer.catch_up("bob", WIDTH) == 10
    assert trainer.state("ann", WIDTH).updates == 0
    assert trainer.catch_up("ann", WIDTH) == 10
    assert store.learner_state("store") is None
    assert Trainer(alone, config).catch_up("ann", WIDTH) == 10
    mine, _ = saved(store, config, "user:ann")
    hers, _ = saved(alone, config, "user:ann")
    np.testing.assert_array_equal(mine.reranker.weights.mix, hers.reranker.weights.mix)
    others, before = saved(store, config, "user:bob")
    assert np.abs(mine.reranker.weights.mix - others.reranker.weights.mix).max() > 0.1
    assert trainer.unlearn(4, "ann") == 4
    assert saved(store, config, "user:ann")[0].updates == 8
    assert saved(store, config, "user:bob")[1] == before


@pytest.mark.parametrize("scope", ["store", "user"])
def test_all_answers_of_a_user_without_anything_else_are_taken_back(new_store, scope):
    config = RMMConfig(batch_size=2, learner_scope=scope)
    store = new_store()
    a_log(store, *(logged(i) for i in range(10)))
    trainer = Trainer(store, config)
    assert trainer.catch_up("ann", WIDTH) == 5
    assert trainer.unlearn(10, None) == 10
    state, _ = saved(store, config, "store" if scope == "store" else "user:ann")
    assert state.updates == 0
    np.testing.assert_array_equal(state.reranker.weights.mix, Learned.start(WIDTH, config).reranker.weights.mix)


# -- other embeddings, damage ------------------------------------------------------------


def test_another_width_keeps_the_mix_and_nothing_else_of_the_weights(new_store, caplog):
    store = new_store()
    learned_from(store, [logged(i) for i in range(60)], CONFIG)
    before, _ = saved(store, CONFIG)
    trainer = Trainer(store, CONFIG)
    with caplog.at_level(logging.WARNING):
        wide = trainer.state("ann", 2 * WIDTH)
    assert f"embeddings are {2 * WIDTH} wide and were {WIDTH}" in caplog.text
    assert wide.reranker.width == 2 * WIDTH
    assert not wide.reranker.weights.w_q.any()
    np.testing.assert_array_equal(wide.reranker.weights.mix, before.reranker.weights.mix)
    np.testing.assert_array_equal(wide.regression.scatter, before.regression.scatter)
    assert (wide.updates, wide.cursor, wide.guard.duels) == (30, 60, RunningMean())
    a_log(store, *(logged(i, width=2 * WIDTH) for i in range(60, 64)))
    assert trainer.catch_up("ann", 2 * WIDTH) == 2
    after, _ = saved(store, CONFIG)
    assert (after.reranker.width, after.updates) == (2 * WIDTH, 32)
    assert 0 < np.abs(after.reranker.weights.mix - before.reranker.weights.mix).max() < 0.5


@pytest.mark.parametrize("damage", [b"", b"garbage", "cut", "of an unknown compression", "of other features"])
def test_a_damaged_state_starts_anew(new_store, caplog, damage):
    entries = [logged(i) for i in range(40)]
    store = new_store()
    content = learned_from(store, entries, CONFIG)
    if damage == "cut":
        damage = content[: len(content) // 2]
    elif damage == "of an unknown compression":
        method = content.index(b"PK\x01\x02") + 10
        damage = content[:method] + b"\x63" + content[method + 1 :]
    elif damage == "of other features":
        state, _ = saved(store, CONFIG)
        damage = replace(state, regression=type(state.regression).empty(len(SCORED_BY) - 1)).pack()
    version = store.learner_version("store")
    store.save_learner_state("store", damage, base_version=version)
    trainer = Trainer(store, CONFIG)
    fresh = trainer.state("ann", WIDTH)
    assert "the saved learner is damaged" in caplog.text
    assert (fresh.updates, fresh.cursor, fresh.version) == (0, 0, version + 1)
    assert trainer.catch_up("ann", WIDTH) == 20  # from all that the log holds
    assert store.learner_state("store").content == content


def test_a_damaged_state_is_no_hindrance_to_taking_back(new_store):
    store = new_store()
    learned_from(store, [logged(i) for i in range(20)], CONFIG)
    store.save_learner_state("store", b"garbage", base_version=store.learner_version("store"))
    trainer = Trainer(store, CONFIG)
    assert trainer.unlearn(4, None) == 4
    trainer.catch_up("ann", WIDTH)
    assert store.learner_state("store").content == learned_from(new_store(), [logged(i) for i in range(16)], CONFIG)


# -- back to what was good ---------------------------------------------------------------


def duels(numbers, won):
    """Answers that cite the first, where the learned ranking wins or loses its duel, and what one feature tells."""
    for e in (logged(n, duel=(1 if won else -1, 0, 0, 0, 0)) for n in numbers):
        yield replace(e, cited=(e.shown[0], max(e.shown[1:], key=lambda i: e.features[i, 4])))


def test_who_loses_goes_back_to_its_last_good_state_and_then_to_the_start(new_store, caplog):
    config = RMMConfig(batch_size=1)
    store = new_store()
    trainer, numbers = Trainer(store, config), iter(range(10_000))

    def until(condition, won):
        """Plays duels until something holds of the state; the states on the way."""
        states = [trainer.state("ann", WIDTH)]
        while not condition(states[-1]):
            assert len(states) < 300
            a_log(store, *duels([next(numbers)], won=won))
            assert trainer.catch_up("ann", WIDTH) == 1
            states.append(trainer.state("ann", WIDTH))
        return states

    with caplog.at_level(logging.INFO):
        until(lambda s: s.good_at, won=True)
        good = trainer.state("ann", WIDTH)
        assert good.guard.wins
        assert good.good_at == good.updates > 30
        kept, _ = saved(store, config, "good:store")
        np.testing.assert_array_equal(kept.reranker.weights.mix, good.reranker.weights.mix)

        falling = until(lambda s: not s.good_at, won=False)
        best = saved(store, config, "good:store")[0]
        last = max(s.good_at for s in falling)
        assert best.updates == last
        fallen = falling[-1]
        assert falling[-2].guard.verdict.ranking == "learned"
        np.testing.assert_array_equal(fallen.reranker.weights.mix, best.reranker.weights.mix)
        np.testing.assert_array_equal(fallen.reranker.weights.w_q, best.reranker.weights.w_q)
        np.testing.assert_array_equal(fallen.regression.scatter, best.regression.scatter)
        assert not np.array_equal(fallen.reranker.weights.mix, falling[-2].reranker.weights.mix)
        assert fallen.guard.duels == RunningMean()  # to prove itself anew
        assert fallen.verdict(config).ranking == "learned"
        assert f"goes back to what it was after {last} updates" in caplog.text
        assert fallen.updates == falling[-2].updates + 1
        assert fallen.cursor == fallen.updates

        caplog.clear()
        ruined = until(lambda s: s.guard.loses, won=False)[-1]
        start = Learned.start(WIDTH, config)
        np.testing.assert_array_equal(ruined.reranker.weights.mix, start.reranker.weights.mix)
        assert not ruined.reranker.weights.w_q.any()
        assert not ruined.regression.scatter.any()
        assert ruined.verdict(config).ranking == "prior"
        assert "goes back to what it was after 0 updates" in caplog.text
        assert "the prior ranking serves from here on: the learned ranking loses" in caplog.text

        caplog.clear()
        back = until(lambda s: s.verdict(config).ranking == "learned", won=True)[-1]
        assert back.updates > ruined.updates + 10
        assert np.abs(back.reranker.weights.mix - start.reranker.weights.mix).max() > 0.01
        assert "the learned ranking serves from here on: it holds its own" in caplog.text
        assert caplog.text.count("goes back") == 0  # it learns on meanwhile, and starts anew once
    assert Trainer(store, config).state("ann", WIDTH).pack() == back.pack()


def test_the_log_of_the_app_names_who_serves(new_store, caplog):
    """Each line that says which ranking serves from here on is true of the state that was saved then."""
    caplog.set_level(logging.INFO)
    store, config = new_store(), RMMConfig(batch_size=1)
    trainer, told = Trainer(store, config), "prior"
    for entry in [*duels(range(60), won=True), *duels(range(60, 200), won=False)]:
        caplog.clear()
        a_log(store, entry)
        trainer.catch_up("ann", WIDTH)
        for ranking in ("learned", "prior"):
            if f"the {ranking} ranking serves from here on" in caplog.text:
                told = ranking
        assert trainer.state("ann", WIDTH).verdict(config).ranking == told, caplog.text


def test_going_back_is_the_same_for_all_who_read_the_log(new_store):
    """Also when hundreds of answers are learned from at once."""
    config = RMMConfig(batch_size=1)
    entries = [*duels(range(60), won=True), *duels(range(60, 200), won=False)]
    store = new_store()
    a_log(store, *entries)
    Trainer(store, config).catch_up("ann", WIDTH)
    assert saved(store, config)[0].guard.loses
    assert store.learner_state("store").content == learned_from(new_store(), entries, config)


def test_without_a_guard_nobody_goes_back(new_store):
    config = RMMConfig(batch_size=1, guard=False)
    store = new_store()
    learned_from(store, [*duels(range(60), won=True), *duels(range(60, 200), won=False)], config)
    state, _ = saved(store, config)
    assert state.guard.loses
    assert state.verdict(config).ranking == "learned"
    assert np.abs(state.reranker.weights.w_q).max() > 1e-3
    assert store.learner_state("good:store") is None


@pytest.mark.parametrize("scope", ["store", "user"])
def test_what_is_kept_beside_a_learner_goes_with_its_user(new_store, scope):
    config = RMMConfig(batch_size=1, learner_scope=scope)
    store = new_store()
    name = "store" if scope == "store" else "user:ann"
    a_log(store, *duels(range(60), won=True))
    trainer = Trainer(store, config)
    trainer.catch_up("ann", WIDTH)
    trainer.reembedded()
    for kept in (name, f"good:{name}", f"base:{name}"):
        assert store.learner_state(kept) is not None
    store.forget_user("ann")
    for kept in (name, f"good:{name}", f"base:{name}"):
        assert (store.learner_state(kept) is None) == (scope == "user")
