"""What every store must do, as tests: subclass, provide a ``store`` fixture, and run all of it.

::

    class TestMyStore(MemoryStoreContract):
        @pytest.fixture
        def store(self):
            store = MyStore()
            yield store
            store.close()
"""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from rmm_core.errors import ConflictError, InputError, NotFoundError, StoreClosedError
from rmm_core.features import FEATURES, HISTORY
from rmm_core.protocols import BankChange, Entry, MemoryStore
from rmm_core.testing._contract_bank import BankContract
from rmm_core.testing._samples import (
    LOOKALIKES,
    T0,
    a_feedback,
    a_memory,
    a_reflection,
    a_session,
    an_entry,
    axis,
    found,
    talk,
)
from rmm_core.types import Message, TurnRef


class MemoryStoreContract(BankContract):
    """The promises of :class:`rmm_core.protocols.MemoryStore`."""

    @pytest.fixture
    def store(self) -> MemoryStore:
        """An empty store; closed by the fixture that overrides this one."""
        raise NotImplementedError("override the fixture `store` in your subclass")

    # -- users ---------------------------------------------------------------------------

    def test_users_are_told_apart_exactly(self, store: MemoryStore) -> None:
        """No prefix, pattern, case or normal form lets one user's content reach another."""
        for user in LOOKALIKES:
            talk(store, user, "s", f"the secret of {user!r}")
            store.commit(user, BankChange(0, (an_entry(user, "m", f"secret {user!r}", 0, 0),)))
            store.add_feedback(a_feedback(user))
        assert list(store.users()) == sorted(LOOKALIKES)
        for user in LOOKALIKES:
            assert [c.memory.user_id for c in store.search(user, axis(0), text="secret", limit=50)] == [user]
            assert [m.user_id for m in store.memories(user)] == [user]
            assert [s.user_id for s in store.sessions(user)] == [user]
            assert [t.text for t in store.turns(user, "s")] == [f"the secret of {user!r}"]
            assert [f.user_id for _, f in store.feedback(user_id=user)] == [user]
        for user in LOOKALIKES[::2]:
            store.forget_user(user)
        assert list(store.users()) == sorted(LOOKALIKES[1::2])
        for user in LOOKALIKES[1::2]:
            assert store.get(user, "m").summary == f"secret {user!r}"

    def test_others_do_not_change_a_search(self, store: MemoryStore) -> None:
        """What other users said moves neither scores nor what fits into a result."""
        talk(store, "ann", "s", "red kite", "blue kite", "green tea")
        store.commit("ann", BankChange(0, tuple(an_entry("ann", f"m{i}", "", i, i) for i in range(3))))
        before = [
            (c.memory.id, c.score, c.features.tolist()) for c in store.search("ann", axis(0), text="kite", limit=2)
        ]
        talk(store, "bob", "s", *["kite kite kite"] * 40)
        store.commit("bob", BankChange(0, tuple(an_entry("bob", f"m{i}", "kite", 0, i) for i in range(40))))
        after = [
            (c.memory.id, c.score, c.features.tolist()) for c in store.search("ann", axis(0), text="kite", limit=2)
        ]
        assert before == after

    def test_deleted_is_gone(self, store: MemoryStore) -> None:
        """From reads, search and turns; turns that others rest on stay."""
        talk(store, "ann", "s", "zebra one", "shared zebra")
        store.commit(
            "ann",
            BankChange(
                0,
                (
                    Entry(a_memory("ann", "a", "zebra", ("s", 0), ("s", 1)), axis(0)),
                    Entry(a_memory("ann", "b", "shared", ("s", 1)), axis(1)),
                ),
            ),
        )
        assert found(store, "ann", 0, "zebra") == ["a", "b"]
        assert store.delete("ann", "a") is True
        assert store.delete("ann", "a") is False
        assert store.delete("bob", "b") is False
        assert found(store, "ann", 0, "zebra") == ["b"]
        assert [t.text for t in store.turns("ann", "s")] == ["shared zebra"]

    def test_what_was_removed_is_counted(self, store: MemoryStore) -> None:
        """Forgetting says how much there was; of nobody, nothing."""
        talk(store, "ann", "s", "one", "two")
        store.commit("ann", BankChange(0, (an_entry("ann", "a", "x", 0, 0), an_entry("ann", "b", "y", 1, 1))))
        store.add_feedback(a_feedback("ann"))
        store.save_learner_state("user:ann", b"1", base_version=0)
        removed = store.forget_user("ann")
        counts = {name: removed[name] for name in ("sessions", "turns", "memories", "feedback", "learners")}
        assert counts == {"sessions": 1, "turns": 2, "memories": 2, "feedback": 1, "learners": 1}
        assert not any(store.forget_user("ann").values())

    def test_purging_takes_memories_and_what_is_older(self, store: MemoryStore) -> None:
        """A memory goes with its turns; what was said before a time goes where no memory is left that rests on it."""
        for name, days in (("old", 0), ("s", 5)):
            talk(store, "ann", name, "one", "two", "three", at=T0 + timedelta(days=days))
        kept = Entry(a_memory("ann", "kept", "k", ("old", 1)), axis(2))
        store.commit("ann", BankChange(0, (an_entry("ann", "a", "x", 0, 0), kept)))
        store.add_feedback(a_feedback("ann"))
        talk(store, "bob", "old", "mine")
        store.search("ann", axis(0), text="one", limit=5)
        assert store.purge("ann", ["a", "nowhere"])["memories"] == 1
        assert [t.index for t in store.turns("ann", "s")] == [1, 2]
        removed = store.purge("ann", [], before=T0 + timedelta(days=1))
        assert (removed["turns"], removed["sessions"], removed["feedback"]) == (2, 0, 1)
        assert [t.index for t in store.turns("ann", "old")] == [1]
        assert store.purge("ann", ["kept"], before=T0 + timedelta(days=1))["sessions"] == 1
        assert [s.id for s in store.sessions("ann")] == ["s"]
        assert found(store, "ann", 0, "one") == []
        assert len(store.turns("bob", "old")) == 1

    def test_of_a_user_who_declined_nothing_is_stored(self, store: MemoryStore) -> None:
        """No turn, no answer, no reflection; also after being forgotten, until the user thinks otherwise."""
        talk(store, "ann", "s", "before")
        store.end_session("ann", "s")
        store.decline("ann", wants_nothing=True)
        store.decline("ann", wants_nothing=True)
        assert store.declined("ann")
        assert not store.declined("an")
        assert store.append("ann", "s", [Message("user", "secret")], at=T0, feedback=a_feedback("ann")) == ()
        store.add_feedback(a_feedback("ann"))
        assert [t.text for t in store.turns("ann", "s")] == ["before"]
        assert store.feedback() == []
        assert store.pending(idle_since=T0) == ()
        store.forget_user("ann")
        assert store.declined("ann")
        assert list(store.users()) == []
        store.decline("ann", wants_nothing=False)
        talk(store, "ann", "s", "again")
        assert [t.text for t in store.turns("ann", "s")] == ["again"]

    def test_a_memory_knows_when_it_was_last_cited(self, store: MemoryStore) -> None:
        """By an answer about the bank; a merge keeps it, and an older answer that comes late does not move it back."""
        talk(store, "ann", "s", "one", "two")
        entries = an_entry("ann", "a", "x", 0, 0), an_entry("ann", "c", "y", 1, 1)
        version = store.commit("ann", BankChange(0, entries))
        for days in (3, 1):
            store.add_feedback(replace(a_feedback("ann", f"r{days}"), at=T0 + timedelta(days=days)))
        assert [m.cited_at for m in store.memories("ann")] == [None, T0 + timedelta(days=3)]
        merged = store.entries("ann", ["c"])["c"]
        store.commit("ann", BankChange(version, (replace(merged, memory=replace(merged.memory, summary="z")),)))
        assert store.get("ann", "c").cited_at == T0 + timedelta(days=3)

    def test_a_forgotten_user_can_begin_anew(self, store: MemoryStore) -> None:
        """Nothing comes back, the learning log and a learner of one's own included."""
        talk(store, "ann", "s", "zebra")
        store.commit("ann", BankChange(0, (an_entry("ann", "a", "zebra", 0, 0),)))
        store.add_feedback(a_feedback("ann"))
        store.save_learner_state("user:ann", b"x", base_version=0)
        assert found(store, "ann", 0, "zebra") == ["a"]
        store.forget_user("ann")
        store.forget_user("ann")
        assert found(store, "ann", 0, "zebra") == []
        assert (store.memories("ann"), store.sessions("ann"), store.feedback()) == ((), (), [])
        assert store.learner_state("user:ann") is None
        talk(store, "ann", "s", "yak")
        store.commit("ann", BankChange(store.bank_version("ann"), (an_entry("ann", "b", "yak", 0, 0),)))
        assert found(store, "ann", 0, "zebra yak") == ["b"]

    def test_restore(self, store: MemoryStore) -> None:
        """A user comes back whole, into nothing but an empty place."""
        talk(store, "ann", "s", "zebra", "yak")
        store.end_session("ann", "s")
        store.commit("ann", a_reflection(store, "ann", "s", 2, an_entry("ann", "a", "zebra", 0, 0)))
        sessions, turns = store.sessions("ann"), store.turns("ann", "s")
        entries = list(store.entries("ann", ["a"]).values())
        with pytest.raises(InputError, match="something stored"):
            store.restore_user("ann", sessions, turns, entries)
        store.forget_user("ann")
        store.restore_user("ann", sessions, turns, entries)
        (again,) = store.sessions("ann")
        assert (replace(again, born=sessions[0].born), store.turns("ann", "s")) == (sessions[0], turns)
        assert found(store, "ann", 0, "zebra") == ["a"]

    # -- learning ------------------------------------------------------------------------

    def test_the_learning_log(self, store: MemoryStore) -> None:
        """In order, whole, and once for each recall."""
        store.add_feedback(a_feedback("ann", "of nobody"))
        talk(store, "ann", "s", "x")
        for name in ("one", "two", "two", "three"):
            store.add_feedback(a_feedback("ann", name))
        log = store.feedback()
        assert [f.recall_id for _, f in log] == ["one", "two", "three"]
        assert [f.recall_id for _, f in store.feedback(after=log[0][0], limit=1)] == ["two"]
        assert log[0][1].duel == ()
        store.add_feedback(replace(a_feedback("ann", "a duel"), duel=(1, -1)))
        assert store.feedback()[-1][1].duel == (1, -1)
        given, kept = a_feedback("ann", "one"), log[0][1]
        assert (kept.memory_ids, kept.shown, kept.cited, kept.at) == (
            given.memory_ids,
            given.shown,
            given.cited,
            given.at,
        )
        for name in ("embedding", "features", "noise"):
            np.testing.assert_array_equal(getattr(kept, name), getattr(given, name))

    def test_the_newest_of_the_learning_log(self, store: MemoryStore) -> None:
        """One user's or everybody's, in order all the same."""
        for user in ("ann", "bob"):
            talk(store, user, "s", "x")
        for user, name in (("ann", "a1"), ("bob", "b1"), ("ann", "a2"), ("ann", "a3")):
            store.add_feedback(a_feedback(user, name))
        assert [f.recall_id for _, f in store.feedback(limit=3, newest=True)] == ["b1", "a2", "a3"]
        assert [f.recall_id for _, f in store.feedback(limit=2, newest=True, user_id="ann")] == ["a2", "a3"]
        third = store.feedback()[2][0]
        assert [f.recall_id for _, f in store.feedback(after=third, limit=9, newest=True)] == ["a3"]
        assert store.feedback(limit=0, newest=True) == []

    def test_the_last_answers_are_taken_back(self, store: MemoryStore) -> None:
        """The newest, one user's or anybody's, and no more than there are."""
        for user in ("ann", "bob"):
            talk(store, user, "s", "x")
        for user, name in (("ann", "a1"), ("bob", "b1"), ("ann", "a2"), ("bob", "b2"), ("ann", "a3")):
            store.add_feedback(a_feedback(user, name))
        assert store.remove_feedback(0) == 0
        assert store.remove_feedback(1, user_id="nobody") == 0
        assert store.remove_feedback(1, user_id="bob") == 1
        assert [f.recall_id for _, f in store.feedback()] == ["a1", "b1", "a2", "a3"]
        assert store.remove_feedback(2) == 2
        assert [f.recall_id for _, f in store.feedback()] == ["a1", "b1"]
        newest = store.feedback()[-1][0]
        assert store.remove_feedback(9, user_id="ann") == 1
        assert store.remove_feedback(9) == 1
        assert store.remove_feedback(9) == 0
        store.add_feedback(a_feedback("ann", "a1"))
        assert [n > newest for n, _ in store.feedback()] == [True]  # a number is never given again

    def test_what_answers_cited_is_a_feature_until_it_is_taken_back(self, store: MemoryStore) -> None:
        """Of their user alone, and for questions like theirs."""
        history = [FEATURES.index(name) for name in HISTORY]
        for user in ("ann", "bob"):
            talk(store, user, "s", "one", "two", "three")
            store.commit(user, BankChange(0, tuple(an_entry(user, n, n, i, i) for i, n in enumerate("abc"))))

        def seen(user: str, along: int) -> dict[str, list[float]]:
            hits = store.search(user, axis(along), text="one", limit=5)
            return {c.memory.id: c.features[history].tolist() for c in hits}

        nothing = {name: [0.0, 0.0] for name in "abc"}
        assert seen("ann", 1) == seen("bob", 1) == nothing
        store.add_feedback(a_feedback("ann"))
        assert seen("ann", 1) == {"a": [0.0, 1.0], "b": [0.0, 0.0], "c": [1.0, 0.0]}
        assert seen("ann", 2) == seen("bob", 1) == nothing
        store.remove_feedback(1)
        assert seen("ann", 1) == nothing

    def test_feedback_is_stored_with_its_turns(self, store: MemoryStore) -> None:
        """One transaction: what cannot store the turns does not store the feedback."""
        with pytest.raises(NotFoundError):
            store.append("ann", "none", [Message("user", "x")], at=T0, feedback=a_feedback("ann"))
        assert store.feedback() == []
        store.open_session(a_session("ann", "s"))
        store.append("ann", "s", [Message("user", "x")], at=T0, feedback=a_feedback("ann"))
        assert len(store.feedback()) == 1

    def test_feedback_says_which_turn_asked(self, store: MemoryStore) -> None:
        """The first message that is the user's, stored with it or, by its key, before; none where nobody asked."""
        store.open_session(a_session("ann", "s"))
        asked, told = Message("user", "one", key="k1"), Message("agent", "two")
        store.append("ann", "s", [told, Message("user", "x"), Message("user", "y")], at=T0, feedback=a_feedback("ann"))
        store.append("ann", "s", [asked], at=T0)
        store.append("ann", "s", [asked, told], at=T0, feedback=a_feedback("ann", "known"))
        store.append("ann", "s", [told], at=T0, feedback=a_feedback("ann", "nobody"))
        given = replace(a_feedback("ann", "given"), asked_in=TurnRef("s", 3))
        store.add_feedback(given)
        store.add_feedback(a_feedback("ann", "alone"))
        places = [TurnRef("s", 1), TurnRef("s", 3), None, TurnRef("s", 3), None]
        assert [f.asked_in for _, f in store.feedback()] == places
        assert store.turns_at("ann", [TurnRef("s", 3)])[TurnRef("s", 3)].text == "one"

    def test_a_key_is_stored_once(self, store: MemoryStore) -> None:
        """Whatever a host hands over again is left out, its feedback with it; keys are a session's own."""
        for session in ("s", "t"):
            store.open_session(a_session("ann", session))
        one, two, free = Message("user", "one", key="k1"), Message("agent", "two", key="k2"), Message("user", "free")
        assert [t.text for t in store.append("ann", "s", [one, one, free], at=T0)] == ["one", "free"]
        again = store.append("ann", "s", [one, free, two], at=T0, feedback=a_feedback("ann", "first"))
        assert [(t.index, t.text) for t in again] == [(2, "free"), (3, "two")]
        assert store.append("ann", "s", [two, one], at=T0, feedback=a_feedback("ann", "second")) == ()
        assert store.session("ann", "s").turns == 4
        assert [f.recall_id for _, f in store.feedback()] == ["first"]
        assert len(store.append("ann", "t", [one], at=T0)) == 1
        store.append("ann", "t", [], at=T0, feedback=a_feedback("ann", "alone"))
        assert len(store.feedback()) == 2

    def test_a_key_that_comes_again_from_the_memory_is_marked(self, store: MemoryStore) -> None:
        """A question is stored before its answer shows that it came out of the memory."""
        store.open_session(a_session("ann", "s"))
        asked, other = Message("user", "one", key="k1"), Message("user", "two", key="k2")
        store.append("ann", "s", [asked, other], at=T0)
        answered = Message("agent", "three", from_memory=True)
        store.append("ann", "s", [replace(asked, from_memory=True), answered], at=T0)
        assert [t.from_memory for t in store.turns("ann", "s")] == [True, False, True]

    def test_feedback_may_bring_its_embeddings(self, store: MemoryStore) -> None:
        """That on texts from elsewhere is kept also of a user without a bank, and goes with the user."""
        given = replace(a_feedback("ann"), embeddings=np.stack([axis(i) for i in range(3)]))
        store.add_feedback(given)
        ((_, kept),) = store.feedback()
        np.testing.assert_array_equal(kept.embeddings, given.embeddings)
        assert list(store.users()) == ["ann"]
        store.forget_user("ann")
        assert list(store.users()) == []
        assert store.feedback() == []

    def test_learner_states_are_compared_and_set(self, store: MemoryStore) -> None:
        """A state learned from an old one is refused; scopes do not mix."""
        assert (store.learner_state("a"), store.learner_version("a")) == (None, 0)
        first = store.save_learner_state("a", b"one", base_version=0)
        with pytest.raises(ConflictError, match="learner"):
            store.save_learner_state("a", b"late", base_version=0)
        second = store.save_learner_state("a", b"two", base_version=first)
        state = store.learner_state("a")
        assert state is not None
        assert (state.content, state.version, store.learner_version("a")) == (b"two", second, second)
        assert store.learner_state("A") is None

    # -- all together --------------------------------------------------------------------

    def test_many_threads_write(self, store: MemoryStore) -> None:
        """Sixteen threads lose no turn and raise nothing."""
        for user in ("ann", "bob"):
            store.open_session(a_session(user, "s"))
        errors: list[BaseException] = []

        def talk(user: str) -> None:
            try:
                for i in range(10):
                    store.append(user, "s", [Message("user", str(i))], at=T0)
                    store.search(user, axis(0), text="x", limit=3)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=talk, args=(("ann", "bob")[i % 2],)) for i in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        for user in ("ann", "bob"):
            assert [t.index for t in store.turns(user, "s")] == list(range(80))

    def test_closed_is_closed(self, store: MemoryStore) -> None:
        """Closing twice is fine; everything else says so."""
        store.close()
        store.close()
        with pytest.raises(StoreClosedError, match="closed"):
            store.memories("ann")
        with pytest.raises(StoreClosedError, match="closed"):
            store.open_session(a_session("ann", "s"))
