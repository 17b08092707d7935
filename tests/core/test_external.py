"""A vector store of somebody else's in front of ours: kept in step, never believed, and no reason to fail."""

import logging
from contextlib import closing

import numpy as np
import pytest

from rmm_core import ConfigError, ReflectiveMemory, RMMConfig, StoreError
from rmm_core.protocols import BankChange
from rmm_core.stores.external import ExternalStore, external, key_of, label
from rmm_core.stores.sqlite import SQLiteStore
from rmm_core.testing import HashEmbedder, MemoryStoreContract
from rmm_core.testing._samples import LOOKALIKES, an_entry, axis, talk


class Shelf:
    """A source in a dictionary: fails when it is told to, and says what it is told to."""

    def __init__(self):
        self.held, self.says, self.error, self.meanwhile = {}, None, None, lambda: None

    def put(self, user_id, entries):
        self.meanwhile()
        self._fail()
        self.held |= {(user_id, e.memory.id): e for e in entries}

    def remove(self, user_id, memory_ids):
        self._fail()
        for memory_id in memory_ids:
            self.held.pop((user_id, memory_id), None)

    def forget(self, user_id):
        self._fail()
        self.held = {key: entry for key, entry in self.held.items() if key[0] != user_id}

    def nearest(self, user_id, vector, limit, kind):
        self._fail()
        if self.says is not None:
            return self.says
        mine = [e for (user, _), e in self.held.items() if user == user_id and kind in (None, e.memory.kind)]
        return [e.memory.id for e in sorted(mine, key=lambda e: -float(e.embedding @ vector))][:limit]

    def _fail(self):
        if self.error:
            raise self.error


@pytest.fixture
def shelf():
    return Shelf()


@pytest.fixture
def store(tmp_path, shelf):
    with closing(external(SQLiteStore(str(tmp_path / "m.db")), shelf)) as store:
        yield store


class TestExternal(MemoryStoreContract):
    @pytest.fixture
    def store(self, tmp_path):
        with closing(external(SQLiteStore(str(tmp_path / "m.db")), Shelf())) as store:
            yield store


class TestExternalOnPostgres(MemoryStoreContract):
    @pytest.fixture
    def store(self, postgres_url):
        from rmm_core.stores.postgres import PostgresStore

        with closing(external(PostgresStore(postgres_url), Shelf())) as store:
            yield store


class Liar(Shelf):
    def nearest(self, user_id, vector, limit, kind):
        return ["nowhere", 7, None, "'; DROP TABLE memories", "\x00"] * limit


class Mute(Shelf):
    def nearest(self, user_id, vector, limit, kind):
        raise OSError("down")


class TestBroken(MemoryStoreContract):
    """Whatever a source raises when it is asked, and whatever it makes up, ours is as good as ever."""

    @pytest.fixture(params=[Liar, Mute])
    def store(self, tmp_path, request):
        with closing(external(SQLiteStore(str(tmp_path / "m.db")), request.param())) as store:
            yield store


def fill(store, user="ann", count=6):
    talk(store, user, "s", *"abcdef")
    version = store.bank_version(user)
    store.commit(user, BankChange(version, tuple(an_entry(user, f"m{i}", "", i, i, near=0) for i in range(count))))


def ids(store, limit=2, user="ann"):
    return [c.memory.id for c in store.search(user, axis(0), limit=limit)]


def test_the_source_says_what_is_near_and_only_of_the_users_own(store, shelf):
    fill(store)
    fill(store, "bob", 1)
    assert ids(store) == ["m0", "m1"]
    shelf.says = ["m5", "m4"]
    assert ids(store) == ["m4", "m5"]
    assert ids(store, user="bob") == ["m0"]
    shelf.says = ["m5"]  # too little to go by
    assert ids(store) == ["m0", "m1"]
    assert external(store, None) is store


def test_it_follows_what_is_committed_and_removed(store, shelf):
    fill(store)
    fill(store, "bob", 2)
    changed = an_entry("ann", "m1", "changed", 3, 1)
    store.commit("ann", BankChange(store.bank_version("ann"), (changed,), removed=("m0",)))
    assert shelf.held[("ann", "m1")] is changed
    store.delete("ann", "m2")
    store.purge("ann", ["m3"])
    assert sorted(shelf.held) == [("ann", "m1"), ("ann", "m4"), ("ann", "m5"), ("bob", "m0"), ("bob", "m1")]
    shelf.held[("ann", "of no bank")] = changed
    store.forget_user("ann")
    assert sorted(shelf.held) == [("bob", "m0"), ("bob", "m1")]
    moved = np.stack([axis(5), axis(6)])
    store.reembed({"bob": (store.bank_version("bob"), {"m0": moved[0], "m1": moved[1]})})
    np.testing.assert_array_equal(shelf.held[("bob", "m1")].embedding, axis(6))


def test_a_source_that_fails_loses_nothing_and_is_brought_up_to_date(store, shelf, caplog):
    shelf.error = OSError("down\nINSERT 'what the user said'")
    fill(store)
    assert "call sync()" in caplog.text
    assert "what the user said" not in caplog.text
    assert ids(store) == ["m0", "m1"]
    with pytest.raises(StoreError, match=r"call it again \(OSError: down\)"):
        store.sync()
    shelf.error = None
    shelf.held[("ann", "of no bank")] = an_entry("ann", "of no bank", "", 0, 0)
    assert (store.sync(), store.sync("ann"), store.sync("nobody")) == (6, 6, 0)
    assert sorted(shelf.held) == [("ann", f"m{i}") for i in range(6)]


@pytest.mark.parametrize(
    "erase",
    [
        lambda store: store.delete("ann", "m0"),
        lambda store: store.purge("ann", ["m0"]),
        lambda store: store.forget_user("ann"),
    ],
)
def test_erasure_is_done_on_both_sides_or_raises_and_can_be_called_again(store, shelf, erase):
    fill(store)
    shelf.error = OSError("down")
    with pytest.raises(StoreError, match=r"could not erase.*call it again"):
        erase(store)
    assert len(store.memories("ann")) == len(shelf.held) == 6  # what is still there stays known
    shelf.error = None
    assert erase(store)
    assert ("ann", "m0") not in shelf.held
    assert len(store.memories("ann")) == len(shelf.held)


def test_what_is_erased_while_it_is_put_does_not_come_back(store, shelf):
    talk(store, "ann", "s", "a")
    shelf.meanwhile = lambda: store.inner.forget_user("ann")
    store.commit("ann", BankChange(0, (an_entry("ann", "m", "secret", 0, 0),)))
    assert shelf.held == {}


def test_what_a_commit_puts_back_while_it_is_erased_goes_too(store, shelf, monkeypatch):
    fill(store)
    late, delete = shelf.held[("ann", "m0")], store.inner.delete

    def delete_late(user_id, memory_id):
        shelf.put(user_id, [late])
        return delete(user_id, memory_id)

    monkeypatch.setattr(store.inner, "delete", delete_late)
    assert store.delete("ann", "m0")
    assert ("ann", "m0") not in shelf.held


def test_keys_tell_users_apart_and_look_alike_to_every_database():
    keys = {key_of(user, "m") for user in LOOKALIKES} | {key_of(user) for user in LOOKALIKES}
    assert len(keys) == 2 * len(LOOKALIKES)
    assert key_of("a", "bc") != key_of("ab", "c")
    assert label("ann", "topic") != label("ann") != label("Ann")


def test_through_the_whole_memory(tmp_path, shelf, clock, caplog):
    def open_(**changes):
        settings = {"embedder": HashEmbedder(), "clock": clock, "config": RMMConfig(expire_days=30)} | changes
        return ReflectiveMemory.open(tmp_path / "memory.db", **settings)

    with open_() as memory:
        with memory.chat("ann") as chat:
            chat.record("My sister Ida plays the cello in Vienna.", "Noted")
        with pytest.raises(ConfigError, match="no vector store"):
            memory.sync()
    with open_(source=shelf) as memory:
        assert isinstance(memory.store.inner, ExternalStore)
        assert memory.sync() == memory.sync("ann") == len(shelf.held) > 0
        assert "cello" in memory.recall("ann", "Who plays the cello?").shown[0].memory.summary
        assert memory.reembed() == len(shelf.held)
        lines = list(memory.export_user("ann"))
        memory.import_user(lines, user_id="bob")
        assert {user for user, _ in shelf.held} == {"ann", "bob"}
        memory.forget_user("ann")
        assert {user for user, _ in shelf.held} == {"bob"}
        with caplog.at_level(logging.WARNING):
            shelf.error = OSError("down")
            assert memory.recall("bob", "Who plays the cello?").shown
        assert "cannot be searched, ours is" in caplog.text
