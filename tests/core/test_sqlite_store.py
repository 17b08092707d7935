"""The embedded store keeps the contract, and what is special about a file."""

import sqlite3
import subprocess
import sys
from datetime import UTC, datetime

import numpy as np
import pytest

from rmm_core.config import RMMConfig
from rmm_core.errors import ConfigError, StoreError
from rmm_core.protocols import BankChange, Entry
from rmm_core.stores import open_store
from rmm_core.stores._migrations import MIGRATIONS
from rmm_core.stores.sqlite import SQLiteStore
from rmm_core.testing import MemoryStoreContract
from rmm_core.types import Memory, Message, Session, TurnRef

T0 = datetime(2024, 3, 1, tzinfo=UTC)


class TestFile(MemoryStoreContract):
    @pytest.fixture
    def store(self, tmp_path):
        store = SQLiteStore(str(tmp_path / "memory.db"))
        yield store
        store.close()


class TestInMemory(MemoryStoreContract):
    @pytest.fixture
    def store(self):
        store = SQLiteStore(":memory:")
        yield store
        store.close()


class TestTinyCache(MemoryStoreContract):
    """Indexes that never fit are rebuilt all the time, and nothing changes."""

    @pytest.fixture
    def store(self, tmp_path):
        store = SQLiteStore(str(tmp_path / "memory.db"), cache_bytes=0)
        yield store
        store.close()


def filled(path, user="ann", text="the zebra of ann"):
    store = SQLiteStore(str(path))
    store.open_session(Session(user, "s", "Ann", "Bot", T0, T0))
    store.append(user, "s", [Message("user", text)], at=T0)
    memory = Memory(f"m-{user}", user, "topic", text, (TurnRef("s", 0),), T0, T0)
    entry = Entry(memory, np.ones(4, dtype=np.float32) / 2)
    store.commit(user, BankChange(0, (entry,), (), "s", store.session(user, "s").born, 0, 1))
    return store


def content_of(folder):
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))


def test_everything_is_there_after_reopening(tmp_path):
    filled(tmp_path / "m.db").close()
    store = SQLiteStore(str(tmp_path / "m.db"))
    (memory,) = store.memories("ann")
    (found,) = store.search("ann", np.ones(4, dtype=np.float32) / 2, text="zebra", limit=3)
    assert memory == found.memory
    assert store.session("ann", "s").reflected == 1
    store.close()


def test_two_processes_see_each_other(tmp_path):
    ours = filled(tmp_path / "m.db")
    query = np.ones(4, dtype=np.float32) / 2
    assert len(ours.search("ann", query, text="zebra", limit=9)) == 1
    theirs = SQLiteStore(str(tmp_path / "m.db"))
    memory = Memory("second", "ann", "topic", "a yak", (TurnRef("s", 0),), T0, T0)
    theirs.commit("ann", BankChange(theirs.bank_version("ann"), (Entry(memory, query),)))
    assert len(ours.search("ann", query, text="yak", limit=9)) == 2
    theirs.delete("ann", "m-ann")
    assert [c.memory.id for c in ours.search("ann", query, text="zebra", limit=9)] == ["second"]
    theirs.forget_user("ann")
    assert ours.search("ann", query, text="zebra", limit=9) == ()
    theirs.close()
    ours.close()


def test_a_forgotten_user_leaves_nothing_in_the_files(tmp_path):
    store = filled(tmp_path / "m.db", "zoe-unmistakable", "the xylophone of zoe " * 50)
    others = filled(tmp_path / "m.db", "ann")
    assert b"xylophone" in content_of(tmp_path)
    store.forget_user("zoe-unmistakable")
    others.close()
    store.close()
    left = content_of(tmp_path)
    assert b"xylophone" not in left
    assert b"zoe-unmistakable" not in left
    assert b"zebra" in left


def test_a_deleted_memory_leaves_nothing_in_the_files(tmp_path):
    store = filled(tmp_path / "m.db", text="the xylophone")
    store.delete("ann", "m-ann")
    store.close()
    assert b"xylophone" not in content_of(tmp_path)


@pytest.mark.parametrize("content", [b"not a database, but long enough to be taken for one" * 40, b"\x00" * 4096])
def test_a_file_of_something_else_is_refused(tmp_path, content):
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"notes\.txt"):
        SQLiteStore(str(path))
    assert path.read_bytes() == content


def test_another_programs_database_is_refused(tmp_path):
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE bookmarks (url TEXT)")
    db.close()
    with pytest.raises(StoreError, match="not written by reflective-memory"):
        SQLiteStore(str(path))


def test_a_newer_schema_is_refused(tmp_path):
    filled(tmp_path / "m.db").close()
    with sqlite3.connect(tmp_path / "m.db") as db:
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    db.close()
    with pytest.raises(StoreError, match="upgrade"):
        SQLiteStore(str(tmp_path / "m.db"))


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(StoreError, match="is its folder there"):
        SQLiteStore(str(tmp_path / "none" / "m.db"))
    with pytest.raises(StoreError, match="cannot"):
        SQLiteStore(str(tmp_path))


@pytest.mark.parametrize("place", ["", "  ", "a\x00b", b"x.db", None, 5])
def test_a_place_is_a_path(place):
    with pytest.raises(ConfigError, match="opened at"):
        open_store(place, RMMConfig())


def test_traces_that_a_reader_holds_are_admitted(tmp_path):
    store = filled(tmp_path / "m.db", text="the xylophone " * 20)
    reader = sqlite3.connect(tmp_path / "m.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM turns").fetchall()
    store._db.execute("PRAGMA busy_timeout = 100")
    with pytest.raises(StoreError, match="traces remain"):
        store.forget_user("ann")
    assert store.memories("ann") == ()
    reader.close()
    store.forget_user("ann")
    assert b"xylophone" not in content_of(tmp_path)
    store.close()


def test_nothing_is_cached_for_strangers():
    store = SQLiteStore(":memory:")
    for i in range(50):
        store.search(f"new{i}", np.ones(4, dtype=np.float32), text="hello", limit=3)
    assert len(store._cache._held) == 0
    store.close()


def test_unknown_urls_are_refused():
    with pytest.raises(ConfigError, match="no store for 'redis'"):
        open_store("redis://localhost", RMMConfig())


def test_a_kill_between_writes_loses_nothing_written(tmp_path):
    script = f"""
import os, signal
from tests.core.test_sqlite_store import filled
store = filled({str(tmp_path / "m.db")!r})
print("ready", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-9, "ready\n")
    store = SQLiteStore(str(tmp_path / "m.db"))
    assert [m.id for m in store.memories("ann")] == ["m-ann"]
    store.close()
