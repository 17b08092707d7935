"""The contract, first part: sessions, turns, the bank and its search."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from rmm_core.errors import ConflictError, DimensionError, NotFoundError
from rmm_core.features import FEATURES
from rmm_core.protocols import BankChange, Entry, MemoryStore
from rmm_core.testing._samples import (
    T0,
    WIDTH,
    a_memory,
    a_reflection,
    a_session,
    an_entry,
    axis,
    found,
    talk,
)
from rmm_core.types import Attachment, Kind, Message, Revision, TurnRef


class BankContract:
    """Sessions, turns, commits and searches."""

    # -- sessions and turns --------------------------------------------------------------

    def test_a_session_is_created_once(self, store: MemoryStore) -> None:
        """Opening again returns what is stored and reopens what had ended."""
        first = store.open_session(a_session("ann", "s"))
        store.append("ann", "s", [Message("user", "hello")], at=T0)
        assert store.end_session("ann", "s").ended
        again = store.open_session(a_session("ann", "s", at=T0 + timedelta(days=1)))
        assert (again.started_at, again.turns, again.ended) == (first.started_at, 1, False)

    def test_turns_are_numbered_in_order(self, store: MemoryStore) -> None:
        """Indexes go on where the last call stopped; names and times fall back to the session's."""
        store.open_session(a_session("ann", "s"))
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
        assert store.session("ann", "s").last_at == T0  # when it was written, not when it was said

    def test_a_session_is_leased_to_one(self, store: MemoryStore) -> None:
        """Held on to, given back, and lapsed when whoever holds it says nothing more."""
        talk(store, "ann", "s", "x")
        talk(store, "bob", "s", "x")
        assert store.lease("ann", "s", holder="one", seconds=60)
        assert store.lease("ann", "s", holder="one", seconds=60)
        assert not store.lease("ann", "s", holder="two", seconds=60)
        assert store.lease("bob", "s", holder="two", seconds=60)
        store.release("ann", "s", holder="two")
        assert not store.lease("ann", "s", holder="two", seconds=60)
        store.release("ann", "s", holder="one")
        assert store.lease("ann", "s", holder="two", seconds=0.05)
        time.sleep(0.1)
        assert store.lease("ann", "s", holder="one", seconds=60)
        store.open_session(a_session("ann", "s"))
        assert not store.lease("ann", "s", holder="two", seconds=60)
        with pytest.raises(NotFoundError, match="s9"):
            store.lease("ann", "s9", holder="one", seconds=60)
        store.release("ann", "s9", holder="one")

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
        talk(store, "ann", "s", "one", "two")
        found = store.turns_at("ann", [TurnRef("s", 1), TurnRef("s", 9), TurnRef("t", 0)])
        assert {ref: t.text for ref, t in found.items()} == {TurnRef("s", 1): "two"}

    def test_pending_sessions(self, store: MemoryStore) -> None:
        """Ended or silent sessions wait, oldest first; running and reflected ones do not."""
        talk(store, "ann", "running", "x", at=T0 + timedelta(hours=9))
        talk(store, "ann", "silent", "x", at=T0 + timedelta(hours=1))
        talk(store, "bob", "ended", "x", at=T0)
        store.end_session("bob", "ended")
        talk(store, "bob", "done", "x", at=T0)
        store.commit("bob", a_reflection(store, "bob", "done", 1))
        store.open_session(a_session("ann", "empty"))
        store.end_session("ann", "empty")
        idle = T0 + timedelta(hours=2)
        assert [s.id for s in store.pending(idle_since=idle)] == ["ended", "silent"]
        assert [s.id for s in store.pending(idle_since=idle, user_id="ann")] == ["silent"]

    def test_failures_are_counted_until_it_works(self, store: MemoryStore) -> None:
        """The last error stays readable; a commit clears it."""
        talk(store, "ann", "s", "x")
        store.fail_session("ann", "s", "first")
        failed = store.fail_session("ann", "s", "second")
        assert (failed.attempts, failed.error) == (2, "second")
        store.commit("ann", a_reflection(store, "ann", "s", 1))
        assert (store.session("ann", "s").attempts, store.session("ann", "s").error) == (0, "")

    # -- the bank ------------------------------------------------------------------------

    def test_a_commit_is_read_back_whole(self, store: MemoryStore) -> None:
        """Summary, kind, evidence in order, history, times and embedding survive."""
        talk(store, "ann", "s", "one", "two")
        memory = a_memory("ann", "m", "two things", ("s", 0), ("s", 1), history=(Revision("one thing", T0),))
        store.commit("ann", BankChange(0, (Entry(memory, axis(3)),)))
        assert store.get("ann", "m") == memory
        assert store.memories("ann") == (memory,)
        np.testing.assert_array_equal(store.entries("ann", ["m", "none"])["m"].embedding, axis(3))
        assert store.width() == WIDTH

    def test_a_commit_replaces_and_removes(self, store: MemoryStore) -> None:
        """The search follows: nothing stale stays findable."""
        talk(store, "ann", "s", "I like tea", "I like hiking")
        store.commit("ann", BankChange(0, (an_entry("ann", "a", "tea", 0, 0), an_entry("ann", "b", "hiking", 1, 1))))
        assert found(store, "ann", 0, "tea hiking") == ["a", "b"]
        version = store.bank_version("ann")
        store.commit("ann", BankChange(version, (an_entry("ann", "a", "coffee", 2, 0),), removed=("b",)))
        assert found(store, "ann", 2, "coffee") == ["a"]
        assert found(store, "ann", 1, "hiking") == ["a"]
        assert store.search("ann", axis(2), limit=1)[0].score == pytest.approx(1.0)
        with pytest.raises(NotFoundError, match="no memory"):
            store.get("ann", "b")

    def test_a_commit_on_an_old_version_changes_nothing(self, store: MemoryStore) -> None:
        """Compare-and-set on the bank."""
        talk(store, "ann", "s", "x", "y")
        store.commit("ann", BankChange(0, (an_entry("ann", "a", "x", 0, 0),)))
        with pytest.raises(ConflictError, match="version"):
            store.commit("ann", BankChange(0, (an_entry("ann", "b", "y", 1, 1),)))
        assert [m.id for m in store.memories("ann")] == ["a"]

    def test_a_session_is_reflected_once(self, store: MemoryStore) -> None:
        """Compare-and-set on the session: the second of two reflections changes nothing."""
        talk(store, "ann", "s", "x")
        store.commit("ann", a_reflection(store, "ann", "s", 1, an_entry("ann", "a", "x", 0, 0)))
        late = a_reflection(store, "ann", "s", 1, an_entry("ann", "b", "x", 0, 0))
        with pytest.raises(ConflictError, match="reflected"):
            store.commit("ann", late)
        assert [m.id for m in store.memories("ann")] == ["a"]

    def test_a_session_that_began_anew_is_another(self, store: MemoryStore) -> None:
        """What was read of a session before it was forgotten does not come back into the next of its id."""
        talk(store, "ann", "s", "secret", "more")
        late = a_reflection(store, "ann", "s", 2, an_entry("ann", "a", "secret", 0, 0))
        store.forget_user("ann")
        talk(store, "ann", "s", "hello", "there")
        with pytest.raises(ConflictError, match="began anew"):
            store.commit("ann", replace(late, base_version=store.bank_version("ann")))
        assert (store.memories("ann"), store.session("ann", "s").reflected) == ((), 0)

    def test_an_emptied_store_takes_any_embedder(self, store: MemoryStore) -> None:
        """The width goes with the last memory."""
        talk(store, "ann", "s", "x")
        store.commit("ann", BankChange(0, (an_entry("ann", "a", "x", 0, 0),)))
        store.delete("ann", "a")
        assert store.width() is None

    def test_a_commit_that_fails_leaves_no_trace(self, store: MemoryStore) -> None:
        """All or nothing, the session's mark included."""
        talk(store, "ann", "s", "x")
        store.commit("ann", BankChange(0, (an_entry("ann", "a", "x", 0, 0),)))
        bad = Entry(a_memory("ann", "b", "x", ("s", 0)), np.ones(WIDTH + 1, dtype=np.float32))
        change = replace(a_reflection(store, "ann", "s", 1, an_entry("ann", "c", "x", 1, 0), bad), removed=("a",))
        version = store.bank_version("ann")
        with pytest.raises(DimensionError, match=rf"width {WIDTH}, .* width {WIDTH + 1}.*reembed"):
            store.commit("ann", change)
        assert [m.id for m in store.memories("ann")] == ["a"]
        assert store.session("ann", "s").reflected == 0
        assert store.bank_version("ann") == version

    # -- search --------------------------------------------------------------------------

    def test_search_unites_embeddings_and_words(self, store: MemoryStore) -> None:
        """A memory is found by either; the order is that of the inner product, ties by id."""
        talk(store, "ann", "s", "alpha", "beta", "gamma", "delta", "epsilon", "zebra")
        store.commit("ann", BankChange(0, tuple(an_entry("ann", f"m{i}", "", i, i, near=0) for i in range(6))))
        found = store.search("ann", axis(0), text="zebra", limit=1)
        assert [c.memory.id for c in found] == ["m0", "m5"]
        assert found[0].score > found[1].score
        assert found[1].features[0] == 1.0

    def test_features_are_relative_to_the_best(self, store: MemoryStore) -> None:
        """Own text, window and session each have their best at 1 and nothing outside [0, 1]."""
        talk(store, "ann", "s", "intro", "my zebra escaped", "really", "yes", "what a day", "so long", "bye then")
        talk(store, "ann", "t", "something else entirely")
        store.commit(
            "ann",
            BankChange(
                0,
                (
                    *(an_entry("ann", f"m{i}", "", i, i) for i in range(7)),
                    Entry(a_memory("ann", "other", "elsewhere", ("t", 0)), axis(7)),
                ),
            ),
        )
        features = {c.memory.id: c.features.tolist() for c in store.search("ann", axis(0), text="zebra", limit=10)}
        assert {len(row) for row in features.values()} == {len(FEATURES)}
        assert features["m1"][0] == 1.0
        assert features["m3"][0] == 0.0
        assert features["m3"][1] > 0.0  # the zebra is two turns away
        assert features["m4"][1] == 0.0  # and three from here
        assert features["m6"][2] == 1.0  # in the same session
        assert features["other"][:3] == [0.0, 0.0, 0.0]
        assert all(0.0 <= f <= 1.0 for row in features.values() for f in row[:3])

    def test_search_without_words_or_results(self, store: MemoryStore) -> None:
        """Empty banks, empty queries and queries without words are no errors."""
        assert store.search("nobody", axis(0), text="x", limit=5) == ()
        talk(store, "ann", "s", "x")
        store.commit("ann", BankChange(0, (an_entry("ann", "a", "x", 0, 0),)))
        for text in ("", "?!", '"', "AND OR NOT", "a* NEAR(b)", "own:x", "\x00"):
            (only,) = store.search("ann", axis(0), text=text, limit=5)
            assert only.memory.id == "a"

    def test_search_by_kind(self, store: MemoryStore) -> None:
        """A kind's best are found even where other kinds are nearer."""
        talk(store, "ann", "s", *"abcdefgh")
        entries = [an_entry("ann", f"u{i}", "x", 0, i, kind="unfiled") for i in range(6)]
        store.commit("ann", BankChange(0, (*entries, an_entry("ann", "t", "x", 5, 7))))
        assert [c.memory.id for c in store.search("ann", axis(0), limit=2, kind="topic")] == ["t"]
        assert len(store.search("ann", axis(0), text="a", limit=2, kind="unfiled")) >= 2

    def test_what_was_found_elsewhere_takes_the_place_of_the_nearest(self, store: MemoryStore) -> None:
        """When there is enough of it that is the user's and of the kind; words, scores and order are as ever."""
        talk(store, "ann", "s", *"abcdef", "zebra")
        entries = [an_entry("ann", f"m{i}", "", i, i, near=0) for i in range(6)]
        store.commit("ann", BankChange(0, (*entries, an_entry("ann", "z", "", 7, 6, kind="unfiled"))))
        talk(store, "bob", "s", "mine")
        store.commit("bob", BankChange(0, (an_entry("bob", "b", "mine", 0, 0),)))

        def ids(*near: str, text: str = "", kind: Kind | None = None) -> list[str]:
            found = store.search("ann", axis(0), text=text, limit=2, kind=kind, near=near)
            assert [c.score for c in found] == sorted((c.score for c in found), reverse=True)
            return [c.memory.id for c in found]

        assert ids("m5", "m3", "m1") == ["m3", "m5"]
        assert ids("m5", "m3", text="zebra") == ["m3", "m5", "z"]
        assert ids("nowhere", "b", "m5", "m5", "m4\x00", "z") == ["m5", "z"]
        assert ids("z", "m5", kind="topic") == ids("b", "m5") == ids("m5", "m5") == ids() == ["m0", "m1"]
        assert ids("z", "m5", "m4", kind="topic") == ["m4", "m5"]
        assert ids("m5", "m3", text="a")[-2:] == ["m3", "m5"]

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
        talk(store, "ann", "s", *(text for text, _ in said.values()))
        store.commit("ann", BankChange(0, tuple(an_entry("ann", n, "", i, i) for i, n in enumerate(said))))
        for name, (_, query) in said.items():
            best = max(store.search("ann", axis(7), text=query, limit=10), key=lambda c: c.features[0])
            assert (best.memory.id, best.features[0]) == (name, 1.0)

    def test_the_width_is_kept(self, store: MemoryStore) -> None:
        """Another embedder is told both widths and the way out; re-embedding moves the bank."""
        talk(store, "ann", "s", "x")
        store.commit("ann", BankChange(0, (an_entry("ann", "a", "x", 0, 0),)))
        wide = np.ones(WIDTH * 2, dtype=np.float32)
        with pytest.raises(DimensionError, match="reembed"):
            store.search("ann", wide, limit=1)
        with pytest.raises(ConflictError, match="do it again"):
            store.reembed({"ann": (0, {"a": wide})})
        store.reembed({"ann": (store.bank_version("ann"), {"a": wide})})
        assert store.search("ann", wide, limit=1)[0].memory.id == "a"
        assert store.width() == WIDTH * 2
