"""The embedded store keeps the contract, and what is special about a file."""

import io
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime

import numpy as np
import pytest

from rmm_core import ReflectiveMemory
from rmm_core.config import RMMConfig
from rmm_core.errors import ConfigError, StoreError
from rmm_core.features import FEATURES
from rmm_core.protocols import BankChange, Entry
from rmm_core.stores import open_store
from rmm_core.stores._migrations import MIGRATIONS
from rmm_core.stores.sqlite import SQLiteStore
from rmm_core.testing import HashEmbedder, MemoryStoreContract
from rmm_core.types import Feedback, Memory, Message, Session, TurnRef

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


def test_another_programs_database_is_refused_and_left_as_it_is(tmp_path):
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE bookmarks (url TEXT)")
    db.close()
    content = path.read_bytes()
    with pytest.raises(StoreError, match="not written by reflective-memory"):
        SQLiteStore(str(path))
    assert path.read_bytes() == content  # its journal mode, too, is its own


def test_a_newer_schema_is_refused(tmp_path):
    filled(tmp_path / "m.db").close()
    with sqlite3.connect(tmp_path / "m.db") as db:
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    db.close()
    with pytest.raises(StoreError, match="upgrade"):
        SQLiteStore(str(tmp_path / "m.db"))


OLD_FEATURES = np.float32([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [0.7, 0.8, 0.9]])
QUESTIONS = ("zebra?", "yak?", "gnu?")


def of_schema_2(path):
    """A file as the version before this one left it: three features, a learner of other shapes, answers in its log."""
    db = sqlite3.connect(path, isolation_level=None)
    for step in MIGRATIONS[:2]:
        for statement in step.split(";"):
            db.execute(statement)
    db.execute("PRAGMA user_version = 2")
    db.execute(f"PRAGMA application_id = {0x524D4D31:d}")
    at = T0.isoformat(timespec="microseconds")
    db.execute("INSERT INTO settings VALUES ('version', 9), ('width', 16)")
    db.execute("INSERT INTO sessions VALUES ('ann', 's', 'Ann', 'Bot', ?, ?, 3, 3, 1, 0, '', 1)", (at, at))
    db.execute("INSERT INTO banks VALUES ('ann', 9, 0)")
    for i, text in enumerate(("a zebra", "a yak", "a gnu")):
        row = HashEmbedder(16).embed([text])[0].astype("<f4").tobytes()
        db.execute("INSERT INTO turns VALUES ('ann', 's', ?, 'user', 'Ann', ?, ?, '[]', 0, NULL)", (i, text, at))
        db.execute("INSERT INTO memories VALUES ('ann', ?, 'topic', ?, ?, ?, ?, 9)", (f"m{i}", text, at, at, row))
        db.execute("INSERT INTO evidence VALUES ('ann', ?, 's', ?)", (f"m{i}", i))
    for i, question in enumerate(QUESTIONS):
        db.execute(
            "INSERT INTO feedback (user_id, recall_id, at, embedding, memory_ids, features, noise, shown, cited)"
            " VALUES ('ann', ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                f"r{i}",
                at,
                HashEmbedder(16).embed([question])[0].astype("<f4").tobytes(),
                json.dumps(["m0", "m1", "m2"]),
                OLD_FEATURES.astype("<f4").tobytes(),
                np.zeros(3, "<f4").tobytes(),
                json.dumps([2, 0, 1]),
                json.dumps([i]),
            ),
        )
    learner = io.BytesIO()
    np.savez(learner, w_q=np.zeros((16, 16), np.float32), w_m=np.zeros((16, 16), np.float32), mix=np.ones(4))
    db.execute("INSERT INTO learners VALUES ('store', 5, ?)", (learner.getvalue(),))
    db.close()


def test_a_file_of_schema_2_goes_on(tmp_path):
    path = tmp_path / "old.db"
    of_schema_2(path)
    config = RMMConfig(batch_size=2)
    with ReflectiveMemory.open(path, embedder=HashEmbedder(16), config=config, clock=lambda: T0) as memory:
        log = memory.store.feedback()
        assert [f.recall_id for _, f in log] == ["r0", "r1", "r2"]
        for i, (_, feedback) in enumerate(log):
            assert feedback.features.shape == (3, len(FEATURES))
            np.testing.assert_array_equal(feedback.features[:, :3], OLD_FEATURES)
            assert not feedback.features[:, 3:].any()
            assert (feedback.shown, feedback.cited, feedback.duel) == ((2, 0, 1), (i,), ())
            assert feedback.asked_in is None
        assert (memory.status("ann").learner.updates, memory.status("ann").learner.ranking) == (0, "prior")
        recall = memory.recall("ann", "zebra?")
        assert recall.shown[0].memory.id == "m0"
        cited = recall.candidates[0].features[FEATURES.index("cited")]
        assert cited > 0.9  # what it was told before counts as what was asked before
        memory.feedback(recall, "[1]")
        assert memory.status("ann").learner.updates == 2  # from the whole log, the narrow rows included
        chat = memory.chat("ann", session_id="new")
        chat.record("yak?", "[1]", chat.recall("yak?"))
        assert [a.query for a in memory.answers("ann")] == [None, None, None, None, "yak?"]
        assert [s.summary for s in memory.answers("ann")[0].shown] == ["a gnu", "a zebra", "a yak"]
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),) == (5,)
    db.close()


def test_an_answer_of_a_duel_is_kept_as_it_was(tmp_path):
    given = Feedback(
        recall_id="r",
        user_id="ann",
        embedding=np.float32([1, 0]),
        memory_ids=("a", "b", "c"),
        features=np.arange(3 * len(FEATURES), dtype=np.float32).reshape(3, -1),
        noise=np.zeros(3, np.float32),
        shown=(2, 0),
        cited=(0,),
        at=T0,
        embeddings=np.float32([[1, 0], [0, 1], [0.6, 0.8]]),
        duel=(-1, 1),
    )
    path = str(tmp_path / "m.db")
    store = SQLiteStore(path)
    store.add_feedback(given)
    store.close()
    store = SQLiteStore(path)
    ((number, kept),) = store.feedback()
    assert (kept.duel, kept.shown, kept.cited) == ((-1, 1), (2, 0), (0,))
    np.testing.assert_array_equal(kept.features, given.features)
    assert list(store.users()) == ["ann"]  # who has nothing but this
    assert store.remove_feedback(1) == 1
    assert list(store.users()) == []
    store.add_feedback(given)
    assert store.feedback()[0][0] > number
    store.close()


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
    store._file._db.execute("PRAGMA busy_timeout = 100")
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


def test_a_new_file_is_its_owners_alone(tmp_path):
    earlier = os.umask(0o022)
    try:
        with closing(SQLiteStore(str(tmp_path / "m.db"))) as store:
            store.open_session(Session("ann", "s", "Ann", "Bot", T0, T0))
            modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    finally:
        os.umask(earlier)
    assert modes.pop("m.db") == 0o600
    assert set(modes.values()) == {0o600}
