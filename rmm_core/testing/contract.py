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
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from rmm_core.errors import ConflictError, DimensionError, InputError, NotFoundError, StoreClosedError
from rmm_core.protocols import BankChange, Entry, MemoryStore
from rmm_core.types import Attachment, Feedback, Kind, Memory, Message, Revision, Session, TurnRef, Vector

T0 = datetime(2024, 3, 1, 12, 0, tzinfo=UTC)
WIDTH = 8
LOOKALIKES = (
    "foo",
    "foobar",
    "Foo",
    "a_b",
    "axb",
    "%",
    "a%b",
    "a b",
    "é",
    "e\u0301",
    "x' OR '1'='1",
    "用户",
    "1",
    "01",
)


class MemoryStoreContract:
    """The promises of :class:`rmm_core.protocols.MemoryStore`."""

    @pytest.fixture
    def store(self) -> MemoryStore:
        """An empty store; closed by the fixture that overrides this one."""
        raise NotImplementedError("override the fixture `store` in your subclass")

    # -- sessions and turns --------------------------------------------------------------

    def test_a_session_is_created_once(self, store: MemoryStore) -> None:
        """Opening again returns what is stored and reopens what had ended."""
        first = store.open_session(_session("ann", "s"))
        store.append("ann", "s", [Message("user", "hello")], at=T0)
        assert store.end_session("ann", "s").ended
        again = store.open_session(_session("ann", "s", at=T0 + timedelta(days=1)))
        assert (again.started_at, again.turns, again.ended) == (first.started_at, 1, False)

    def test_turns_are_numbered_in_order(self, store: MemoryStore) -> None:
        """Indexes go on where the last call stopped; names and times fall back to the session's."""
        store.open_session(_session("ann", "s"))
        store.append("ann", "s", [Message("user", "one"), Message("agent", "two")], at=T0)
        photo = Attachment("image", "file:///a.png", "a red kite")
        (third,) = store.append(
            "ann",
            "s",
            [Message("user", "three", "Annie", T0 + timedelta(minutes=5), (photo,), from_memory=True)],
            at=T0,
        )
        turns = store.turns("ann", "s")
        assert [(t.index, t.speaker, t.text) for t in turns] == [
            (0, "Ann", "one"),
            (1, "Bot", "two"),
            (2, "Annie", "three"),
        ]
        assert third == turns[2]
        assert third.attachments == (photo,)
        assert [t.from_memory for t in turns] == [False, False, True]
        assert third.at == T0 + timedelta(minutes=5)
        assert store.turns("ann", "s", 1, 2) == turns[1:2]
        assert store.session("ann", "s").last_at == third.at

    def test_unknown_sessions_are_not_found(self, store: MemoryStore) -> None:
        """Nothing is made up for a session that is not there."""
        for attempt in (
            lambda: store.append("ann", "s", [Message("user", "x")], at=T0),
            lambda: store.end_session("ann", "s"),
            lambda: store.fail_session("ann", "s", "x"),
            lambda: store.session("ann", "s"),
        ):
            with pytest.raises(NotFoundError, match="has no session"):
                attempt()
        assert list(store.users()) == []

    def test_turns_at_leaves_out_what_is_not_there(self, store: MemoryStore) -> None:
        """A reference that points nowhere is no error."""
        _talk(store, "ann", "s", "one", "two")
        found = store.turns_at("ann", [TurnRef("s", 1), TurnRef("s", 9), TurnRef("t", 0)])
        assert {ref: t.text for ref, t in found.items()} == {TurnRef("s", 1): "two"}

    def test_pending_sessions(self, store: MemoryStore) -> None:
        """Ended or silent sessions wait, oldest first; running and reflected ones do not."""
        _talk(store, "ann", "running", "x", at=T0 + timedelta(hours=9))
        _talk(store, "ann", "silent", "x", at=T0 + timedelta(hours=1))
        _talk(store, "bob", "ended", "x", at=T0)
        store.end_session("bob", "ended")
        _talk(store, "bob", "done", "x", at=T0)
        store.commit("bob", BankChange(0, session_id="done", reflected_from=0, reflected_to=1))
        store.open_session(_session("ann", "empty"))
        store.end_session("ann", "empty")
        idle = T0 + timedelta(hours=2)
        assert [s.id for s in store.pending(idle_since=idle)] == ["ended", "silent"]
        assert [s.id for s in store.pending(idle_since=idle, user_id="ann")] == ["silent"]

    def test_failures_are_counted_until_it_works(self, store: MemoryStore) -> None:
        """The last error stays readable; a commit clears it."""
        _talk(store, "ann", "s", "x")
        store.fail_session("ann", "s", "first")
        failed = store.fail_session("ann", "s", "second")
        assert (failed.attempts, failed.error) == (2, "second")
        store.commit("ann", BankChange(0, session_id="s", reflected_from=0, reflected_to=1))
        assert (store.session("ann", "s").attempts, store.session("ann", "s").error) == (0, "")

    # -- the bank ------------------------------------------------------------------------

    def test_a_commit_is_read_back_whole(self, store: MemoryStore) -> None:
        """Summary, kind, evidence in order, history, times and embedding survive."""
        _talk(store, "ann", "s", "one", "two")
        memory = _memory("ann", "m", "two things", ("s", 0), ("s", 1), history=(Revision("one thing", T0),))
        store.commit("ann", BankChange(0, (Entry(memory, _axis(3)),)))
        assert store.get("ann", "m") == memory
        assert store.memories("ann") == (memory,)
        np.testing.assert_array_equal(store.entries("ann", ["m", "none"])["m"].embedding, _axis(3))
        assert store.width() == WIDTH

    def test_a_commit_replaces_and_removes(self, store: MemoryStore) -> None:
        """The search follows: nothing stale stays findable."""
        _talk(store, "ann", "s", "I like tea", "I like hiking")
        store.commit("ann", BankChange(0, (_entry("ann", "a", "tea", 0, 0), _entry("ann", "b", "hiking", 1, 1))))
        assert _found(store, "ann", 0, "tea hiking") == ["a", "b"]
        version = store.bank_version("ann")
        store.commit("ann", BankChange(version, (_entry("ann", "a", "coffee", 2, 0),), removed=("b",)))
        assert _found(store, "ann", 2, "coffee") == ["a"]
        assert _found(store, "ann", 1, "hiking") == ["a"]
        assert store.search("ann", _axis(2), limit=1)[0].score == pytest.approx(1.0)
        with pytest.raises(NotFoundError, match="no memory"):
            store.get("ann", "b")

    def test_a_commit_on_an_old_version_changes_nothing(self, store: MemoryStore) -> None:
        """Compare-and-set on the bank."""
        _talk(store, "ann", "s", "x", "y")
        store.commit("ann", BankChange(0, (_entry("ann", "a", "x", 0, 0),)))
        with pytest.raises(ConflictError, match="version"):
            store.commit("ann", BankChange(0, (_entry("ann", "b", "y", 1, 1),)))
        assert [m.id for m in store.memories("ann")] == ["a"]

    def test_a_session_is_reflected_once(self, store: MemoryStore) -> None:
        """Compare-and-set on the session: the second of two reflections changes nothing."""
        _talk(store, "ann", "s", "x")
        store.commit(
            "ann", BankChange(0, (_entry("ann", "a", "x", 0, 0),), session_id="s", reflected_from=0, reflected_to=1)
        )
        late = BankChange(
            store.bank_version("ann"),
            (_entry("ann", "b", "x", 0, 0),),
            session_id="s",
            reflected_from=0,
            reflected_to=1,
        )
        with pytest.raises(ConflictError, match="reflected"):
            store.commit("ann", late)
        assert [m.id for m in store.memories("ann")] == ["a"]

    def test_a_commit_that_fails_leaves_no_trace(self, store: MemoryStore) -> None:
        """All or nothing, the session's mark included."""
        _talk(store, "ann", "s", "x")
        store.commit("ann", BankChange(0, (_entry("ann", "a", "x", 0, 0),)))
        bad = Entry(_memory("ann", "b", "x", ("s", 0)), np.ones(WIDTH + 1, dtype=np.float32))
        change = BankChange(
            store.bank_version("ann"),
            (_entry("ann", "c", "x", 1, 0), bad),
            removed=("a",),
            session_id="s",
            reflected_from=0,
            reflected_to=1,
        )
        version = store.bank_version("ann")
        with pytest.raises(DimensionError, match=rf"width {WIDTH}, .* width {WIDTH + 1}.*reembed"):
            store.commit("ann", change)
        assert [m.id for m in store.memories("ann")] == ["a"]
        assert store.session("ann", "s").reflected == 0
        assert store.bank_version("ann") == version

    # -- search --------------------------------------------------------------------------

    def test_search_unites_embeddings_and_words(self, store: MemoryStore) -> None:
        """A memory is found by either; the order is that of the inner product, ties by id."""
        _talk(store, "ann", "s", "alpha", "beta", "gamma", "delta", "epsilon", "zebra")
        store.commit("ann", BankChange(0, tuple(_entry("ann", f"m{i}", "", i, i, near=0) for i in range(6))))
        found = store.search("ann", _axis(0), text="zebra", limit=1)
        assert [c.memory.id for c in found] == ["m0", "m5"]
        assert found[0].score > found[1].score
        assert found[1].features[0] == 1.0

    def test_features_are_relative_to_the_best(self, store: MemoryStore) -> None:
        """Own text, window and session each have their best at 1 and nothing outside [0, 1]."""
        _talk(store, "ann", "s", "intro", "my zebra escaped", "really", "yes", "what a day", "so long", "bye then")
        _talk(store, "ann", "t", "something else entirely")
        store.commit(
            "ann",
            BankChange(
                0,
                (
                    *(_entry("ann", f"m{i}", "", i, i) for i in range(7)),
                    Entry(_memory("ann", "other", "elsewhere", ("t", 0)), _axis(7)),
                ),
            ),
        )
        features = {c.memory.id: c.features.tolist() for c in store.search("ann", _axis(0), text="zebra", limit=10)}
        assert features["m1"][0] == 1.0
        assert features["m3"][0] == 0.0
        assert features["m3"][1] > 0.0  # the zebra is two turns away
        assert features["m4"][1] == 0.0  # and three from here
        assert features["m6"][2] == 1.0  # in the same session
        assert features["other"] == [0.0, 0.0, 0.0]
        assert all(0.0 <= f <= 1.0 for row in features.values() for f in row)

    def test_search_without_words_or_results(self, store: MemoryStore) -> None:
        """Empty banks, empty queries and queries without words are no errors."""
        assert store.search("nobody", _axis(0), text="x", limit=5) == ()
        _talk(store, "ann", "s", "x")
        store.commit("ann", BankChange(0, (_entry("ann", "a", "x", 0, 0),)))
        for text in ("", "?!", '"', "AND OR NOT", "a* NEAR(b)", "own:x", "\x00"):
            (only,) = store.search("ann", _axis(0), text=text, limit=5)
            assert only.memory.id == "a"

    def test_search_by_kind(self, store: MemoryStore) -> None:
        """A kind's best are found even where other kinds are nearer."""
        _talk(store, "ann", "s", *"abcdefgh")
        entries = [_entry("ann", f"u{i}", "x", 0, i, kind="unfiled") for i in range(6)]
        store.commit("ann", BankChange(0, (*entries, _entry("ann", "t", "x", 5, 7))))
        assert [c.memory.id for c in store.search("ann", _axis(0), limit=2, kind="topic")] == ["t"]
        assert len(store.search("ann", _axis(0), text="a", limit=2, kind="unfiled")) >= 2

    def test_search_in_any_script(self, store: MemoryStore) -> None:
        """Words are found without spaces, without accents, stemmed in English."""
        said = {
            "zh": ("我昨天在北京买了一辆自行车", "自行车"),
            "ja": ("週末は京都で友達と寿司を食べました", "寿司"),
            "th": ("ฉันชอบกินส้มตำที่เชียงใหม่", "ส้มตำ"),
            "fr": ("Mon café préféré est à Orléans", "cafe orleans"),
            "ar": ("أحب القهوة في الصباح", "القهوة"),
            "en": ("She was running every morning", "runs"),
        }
        _talk(store, "ann", "s", *(text for text, _ in said.values()))
        store.commit("ann", BankChange(0, tuple(_entry("ann", n, "", i, i) for i, n in enumerate(said))))
        for name, (_, query) in said.items():
            best = max(store.search("ann", _axis(7), text=query, limit=10), key=lambda c: c.features[0])
            assert (best.memory.id, best.features[0]) == (name, 1.0)

    def test_the_width_is_kept(self, store: MemoryStore) -> None:
        """Another embedder is told both widths and the way out; re-embedding moves the bank."""
        _talk(store, "ann", "s", "x")
        store.commit("ann", BankChange(0, (_entry("ann", "a", "x", 0, 0),)))
        wide = np.ones(WIDTH * 2, dtype=np.float32)
        with pytest.raises(DimensionError, match="reembed"):
            store.search("ann", wide, limit=1)
        store.reembed("ann", {"a": wide})
        assert store.search("ann", wide, limit=1)[0].memory.id == "a"
        assert store.width() == WIDTH * 2

    # -- users ---------------------------------------------------------------------------

    def test_users_are_told_apart_exactly(self, store: MemoryStore) -> None:
        """No prefix, pattern, case or normal form lets one user's content reach another."""
        for user in LOOKALIKES:
            _talk(store, user, "s", f"the secret of {user!r}")
            store.commit(user, BankChange(0, (_entry(user, "m", f"secret {user!r}", 0, 0),)))
            store.add_feedback(_feedback(user))
        assert list(store.users()) == sorted(LOOKALIKES)
        for user in LOOKALIKES:
            assert [c.memory.user_id for c in store.search(user, _axis(0), text="secret", limit=50)] == [user]
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
        _talk(store, "ann", "s", "red kite", "blue kite", "green tea")
        store.commit("ann", BankChange(0, tuple(_entry("ann", f"m{i}", "", i, i) for i in range(3))))
        before = [
            (c.memory.id, c.score, c.features.tolist()) for c in store.search("ann", _axis(0), text="kite", limit=2)
        ]
        _talk(store, "bob", "s", *["kite kite kite"] * 40)
        store.commit("bob", BankChange(0, tuple(_entry("bob", f"m{i}", "kite", 0, i) for i in range(40))))
        after = [
            (c.memory.id, c.score, c.features.tolist()) for c in store.search("ann", _axis(0), text="kite", limit=2)
        ]
        assert before == after

    def test_deleted_is_gone(self, store: MemoryStore) -> None:
        """From reads, search and turns; turns that others rest on stay."""
        _talk(store, "ann", "s", "zebra one", "shared zebra")
        store.commit(
            "ann",
            BankChange(
                0,
                (
                    Entry(_memory("ann", "a", "zebra", ("s", 0), ("s", 1)), _axis(0)),
                    Entry(_memory("ann", "b", "shared", ("s", 1)), _axis(1)),
                ),
            ),
        )
        assert _found(store, "ann", 0, "zebra") == ["a", "b"]
        assert store.delete("ann", "a") is True
        assert store.delete("ann", "a") is False
        assert store.delete("bob", "b") is False
        assert _found(store, "ann", 0, "zebra") == ["b"]
        assert [t.text for t in store.turns("ann", "s")] == ["shared zebra"]

    def test_a_forgotten_user_can_begin_anew(self, store: MemoryStore) -> None:
        """Nothing comes back, the learning log and a learner of one's own included."""
        _talk(store, "ann", "s", "zebra")
        store.commit("ann", BankChange(0, (_entry("ann", "a", "zebra", 0, 0),)))
        store.add_feedback(_feedback("ann"))
        store.save_learner_state("user:ann", b"x", base_version=0)
        assert _found(store, "ann", 0, "zebra") == ["a"]
        store.forget_user("ann")
        store.forget_user("ann")
        assert _found(store, "ann", 0, "zebra") == []
        assert (store.memories("ann"), store.sessions("ann"), store.feedback()) == ((), (), [])
        assert store.learner_state("user:ann") is None
        _talk(store, "ann", "s", "yak")
        store.commit("ann", BankChange(store.bank_version("ann"), (_entry("ann", "b", "yak", 0, 0),)))
        assert _found(store, "ann", 0, "zebra yak") == ["b"]

    def test_restore(self, store: MemoryStore) -> None:
        """A user comes back whole, into nothing but an empty place."""
        _talk(store, "ann", "s", "zebra", "yak")
        store.end_session("ann", "s")
        store.commit("ann", BankChange(0, (_entry("ann", "a", "zebra", 0, 0),), session_id="s", reflected_to=2))
        sessions, turns = store.sessions("ann"), store.turns("ann", "s")
        entries = list(store.entries("ann", ["a"]).values())
        with pytest.raises(InputError, match="something stored"):
            store.restore_user("ann", sessions, turns, entries)
        store.forget_user("ann")
        store.restore_user("ann", sessions, turns, entries)
        assert (store.sessions("ann"), store.turns("ann", "s")) == (sessions, turns)
        assert _found(store, "ann", 0, "zebra") == ["a"]

    # -- learning ------------------------------------------------------------------------

    def test_the_learning_log(self, store: MemoryStore) -> None:
        """In order, whole, and once for each recall."""
        for name in ("one", "two", "two", "three"):
            store.add_feedback(_feedback("ann", name))
        log = store.feedback()
        assert [f.recall_id for _, f in log] == ["one", "two", "three"]
        assert [f.recall_id for _, f in store.feedback(after=log[0][0], limit=1)] == ["two"]
        given, kept = _feedback("ann", "one"), log[0][1]
        assert (kept.memory_ids, kept.shown, kept.cited, kept.at) == (
            given.memory_ids,
            given.shown,
            given.cited,
            given.at,
        )
        for name in ("embedding", "features", "noise"):
            np.testing.assert_array_equal(getattr(kept, name), getattr(given, name))

    def test_feedback_is_stored_with_its_turns(self, store: MemoryStore) -> None:
        """One transaction: what cannot store the turns does not store the feedback."""
        with pytest.raises(NotFoundError):
            store.append("ann", "none", [Message("user", "x")], at=T0, feedback=_feedback("ann"))
        assert store.feedback() == []
        store.open_session(_session("ann", "s"))
        store.append("ann", "s", [Message("user", "x")], at=T0, feedback=_feedback("ann"))
        assert len(store.feedback()) == 1

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
            store.open_session(_session(user, "s"))
        errors: list[BaseException] = []

        def talk(user: str) -> None:
            try:
                for i in range(10):
                    store.append(user, "s", [Message("user", str(i))], at=T0)
                    store.search(user, _axis(0), text="x", limit=3)
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
            store.open_session(_session("ann", "s"))


def _session(user: str, name: str, at: datetime = T0) -> Session:
    return Session(user, name, "Ann", "Bot", started_at=at, last_at=at)


def _talk(store: MemoryStore, user: str, session: str, *texts: str, at: datetime = T0) -> None:
    store.open_session(_session(user, session, at))
    store.append(user, session, [Message("user", text) for text in texts], at=at)


def _axis(i: int) -> Vector:
    axis: Vector = np.eye(WIDTH, dtype=np.float32)[i]
    return axis


def _memory(
    user: str, name: str, summary: str, *refs: tuple[str, int], kind: Kind = "topic", history: tuple[Revision, ...] = ()
) -> Memory:
    return Memory(name, user, kind, summary, tuple(TurnRef(*r) for r in refs), T0, T0, history)


def _entry(
    user: str, name: str, summary: str, axis: int, turn: int, *, kind: Kind = "topic", near: int | None = None
) -> Entry:
    """A memory on one turn of session "s", its embedding an axis, or leaning away from axis ``near``."""
    vector = _axis(axis % WIDTH) if near is None else _axis(near) * (1.0 - 0.1 * axis)
    return Entry(_memory(user, name, summary, ("s", turn), kind=kind), vector)


def _feedback(user: str, name: str = "recall") -> Feedback:
    rng = np.random.default_rng(7)
    return Feedback(
        recall_id=name,
        user_id=user,
        embedding=_axis(1),
        memory_ids=("a", "b", "c"),
        features=rng.random((3, 3)).astype(np.float32),
        noise=rng.random(3).astype(np.float32),
        shown=(0, 2),
        cited=(2,),
        at=T0,
    )


def _found(store: MemoryStore, user: str, axis: int, text: str) -> list[str]:
    return sorted(c.memory.id for c in store.search(user, _axis(axis), text=text, limit=10))
