"""What can be wrong with a database: found, mended where it can be, and nothing else touched; on both databases."""

import sqlite3
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from rmm_core import Finding, LLMError, Message, ReflectiveMemory, RMMConfig
from rmm_core.errors import ConfigError, StoreClosedError
from rmm_core.learned import Learned
from rmm_core.protocols import BankChange, Entry
from rmm_core.stores._migrations import MIGRATIONS
from rmm_core.stores.expiring import ExpiringStore
from rmm_core.stores.external import ExternalStore
from rmm_core.testing import HashEmbedder, ScriptedLLM
from rmm_core.types import Memory
from tests.conftest import T0
from tests.core.test_sqlite_store import content_of

SAID = ("My sister Ida plays the cello in Vienna.", "I keep bees in the garden.", "I am allergic to nuts.")
TABLES = {
    "sessions": "user_id, id, turns, reflected, ended, attempts, error, born, holder, held_until",
    "turns": "user_id, session_id, position, role, speaker, text, from_memory, key",
    "memories": "user_id, id, kind, summary",
    "evidence": "user_id, memory_id, session_id, position",
    "revisions": "user_id, memory_id, position, summary",
    "feedback": "user_id, number, recall_id, asked_session, asked_position",
    "learners": "scope, version",
}


class Bench:
    """A memory of ann and bob on one of the databases, and the hand that damages it."""

    def __init__(self, name, place, clock):
        self.name = name
        self.place = place
        self._clock = clock
        self._opened = []
        self.memory = self.open()
        for user in ("ann", "bob"):
            for i, text in enumerate(SAID):
                with self.memory.chat(user, session_id=f"s{i}") as chat:
                    chat.record(text, "Noted")
            self.memory.feedback(self.memory.recall(user, "Who plays the cello?"), "Ida [1].")

    def open(self, **changes):
        settings = {"embedder": HashEmbedder(), "clock": self._clock, "config": RMMConfig(batch_size=1)} | changes
        self._opened.append(ReflectiveMemory.open(self.place, **settings))
        return self._opened[-1]

    @contextmanager
    def by_hand(self):
        with self.memory.store._write() as db:
            yield db

    def damage(self, *statements):
        with self.by_hand() as db:
            changed = [db.execute(s).rowcount for s in statements]
        assert all(changed), "a statement that damages nothing"

    def rows(self):
        """All rows by table."""
        with self.memory.store._read() as db:
            return {t: sorted(db.execute(f"SELECT {c} FROM {t}").fetchall(), key=repr) for t, c in TABLES.items()}

    def kinds(self):
        return [(f.kind, f.user_id) for f in self.memory.check()]

    def found(self, query, user="ann"):
        return self.memory.recall(user, query).shown[0].memory.summary

    def close(self):
        for memory in self._opened:
            memory.store.close()


@pytest.fixture
def bench(place, clock):
    bench = Bench("postgres" if "://" in str(place) else "sqlite", place, clock)
    yield bench
    bench.close()


def mended(bench, *kinds, user="ann", changed=()):
    """Repair what was found and no more, in the tables named and none of bob's; then all is well."""
    found = bench.memory.check()
    assert [(f.kind, f.user_id) for f in found] == [(kind, user) for kind in kinds]
    assert all(f.repairable and f.remedy.startswith("call repair(): ") for f in found)
    before = bench.rows()
    done = bench.memory.repair()
    assert [(f.kind, f.user_id, f.what) for f in done] == [(f.kind, f.user_id, f.what) for f in found]
    assert [f"call repair(): {f.remedy}" for f in done] == [f.remedy for f in found]
    assert bench.memory.check() == bench.memory.repair() == ()
    after = bench.rows()
    assert {t for t in TABLES if before[t] != after[t]} == set(changed)
    for table in TABLES:
        assert [r for r in before[table] if r[0] == "bob"] == [r for r in after[table] if r[0] == "bob"]
    return done


def test_nothing_is_wrong_with_what_was_never_damaged(bench):
    before = bench.rows()
    assert bench.memory.check() == bench.memory.repair() == ()
    assert bench.rows() == before
    ida = next(m for m in bench.memory.memories("ann") if "Ida" in m.summary)
    bench.memory.delete("ann", ida.id)
    bench.memory.forget_user("bob")
    bench.memory.unlearn(1)
    lines = list(bench.memory.export_user("ann"))
    bench.memory.import_user(lines, user_id="zoe")
    bench.memory.reembed()
    assert bench.memory.check() == ()  # also where turns are gone that a session counts


# -- evidence ----------------------------------------------------------------------------


def test_evidence_that_points_to_no_turn_is_dropped(bench):
    ida = next(m for m in bench.memory.memories("ann") if "Ida" in m.summary)
    assert bench.found("Vienna") == ida.summary
    damage = f"INSERT INTO evidence (user_id, memory_id, session_id, position) VALUES ('ann', '{ida.id}', 's1', 77)"
    bench.damage(damage, damage.replace("77", "78"))
    versions = [bench.memory.store.bank_version(user) for user in ("ann", "bob")]
    (done,) = mended(bench, "evidence", changed=["evidence"])
    assert done.what.endswith(": 2")
    assert bench.memory.get("ann", ida.id) == ida
    assert bench.found("Vienna") == ida.summary
    assert bench.memory.store.bank_version("ann") > versions[0]
    assert bench.memory.store.bank_version("bob") == versions[1]


def test_searches_do_not_read_any_more_what_a_lost_turn_said(bench):
    """In this process and in another one that had indexed it."""
    other = bench.open()
    ida = next(m for m in bench.memory.memories("ann") if "Ida" in m.summary)
    bench.damage("DELETE FROM turns WHERE user_id = 'ann' AND session_id = 's0'")
    for memory in (bench.memory, other):
        features = memory.explain("ann", "Vienna cello").candidates[0].features
        assert features["own"] == 1.0  # nobody was told
    (dropped, nothing_left) = bench.memory.check()
    assert (dropped.kind, dropped.repairable, nothing_left.kind, nothing_left.repairable) == (
        "evidence",
        True,
        "evidence",
        False,
    )
    assert bench.memory.repair() == (replace(dropped, remedy=dropped.remedy.removeprefix("call repair(): ")),)
    for memory in (bench.memory, other):
        (reason,) = (r for r in memory.explain("ann", "Vienna cello").candidates if r.memory.id == ida.id)
        assert reason.features["window"] == 0.0
        assert reason.memory.evidence == ()
    assert bench.memory.check() == (nothing_left,)  # its summary is left: a person decides
    assert bench.memory.delete("ann", ida.id)
    assert bench.memory.check() == ()


def test_evidence_of_no_memory_is_dropped_so_that_its_turn_can_be_deleted(bench):
    bench.damage("INSERT INTO evidence (user_id, memory_id, session_id, position) VALUES ('ann', 'gone', 's0', 0)")
    mended(bench, "evidence", changed=["evidence"])
    ida = next(m for m in bench.memory.memories("ann") if "Ida" in m.summary)
    bench.memory.delete("ann", ida.id)
    assert not [row for row in bench.rows()["turns"] if row[0] == "ann" and "Ida" in row[5]]


# -- width -------------------------------------------------------------------------------


def test_an_embedding_of_another_width_is_embedded_anew_by_a_call(bench):
    wide = np.ones(96, dtype="<f4")
    with bench.by_hand() as db:
        if bench.name == "postgres":
            db.execute("DROP INDEX memories_nearest")  # which takes no other width
        (one,) = db.execute("SELECT min(id) FROM memories WHERE user_id = 'ann'").fetchone()
        value = wide.tobytes() if bench.name == "sqlite" else str(wide.tolist())
        db.execute("UPDATE memories SET embedding = ? WHERE user_id = 'ann' AND id = ?", (value, one))
    (found,) = bench.memory.check()
    assert (found.kind, found.user_id, found.remedy, found.repairable) == ("width", "ann", "call reembed()", False)
    before = bench.rows()
    assert bench.memory.repair() == ()
    assert bench.rows() == before
    assert bench.memory.reembed() == len(bench.memory.memories("ann")) * 2
    assert bench.memory.check() == ()
    assert "Ida" in bench.found("Who plays the cello?")


# -- turns -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "turns", "reflected"),
    [("turns = 1", 2, 2), ("reflected = 9", 2, 2), ("reflected = -1", 2, 0), ("turns = 0, reflected = 0", 2, 0)],
)
def test_a_session_counts_the_turns_that_it_has(bench, changes, turns, reflected):
    bench.damage(f"UPDATE sessions SET {changes} WHERE user_id = 'ann' AND id = 's1'")
    if reflected == 0:  # it waits, besides
        found = [f for f in bench.memory.check() if f.kind != "pending"]
        assert [(f.kind, f.user_id) for f in found] == [("turns", "ann")]
        assert len(bench.memory.repair()) == 1
        assert bench.kinds() == [("pending", "ann")]
        assert [r.status for r in bench.memory.reflect_pending()] == ["reflected"]
        assert bench.memory.check() == ()
    else:
        mended(bench, "turns", changed=["sessions"])
    session = bench.memory.store.session("ann", "s1")
    assert (session.turns, session.reflected) == (turns, 2)
    with bench.memory.chat("ann", session_id="s1") as chat:
        chat.record("I moved to Linz.", "Good luck")
    assert [t.index for t in bench.memory.store.turns("ann", "s1")] == [0, 1, 2, 3]


# -- waiting, held -----------------------------------------------------------------------


def test_sessions_that_wait_are_told_with_what_failed_and_nothing_that_was_said(bench, clock):
    llm = ScriptedLLM(LLMError("the secret of ann"), "my secret is not what you asked for", "nor this")
    memory = bench.open(llm=llm)
    for name in ("ended", "refused"):
        with memory.chat("zoe", session_id=name) as chat:
            chat.add(Message("user", "my secret"))
    running = memory.chat("zoe", session_id="running")
    running.add(Message("user", "another secret"))
    found = {f.what: f for f in memory.check()}
    assert {(f.kind, f.user_id, f.repairable, f.remedy) for f in found.values()} == {
        ("pending", "zoe", False, "call reflect_pending()")
    }
    assert set(found) == {
        "turns of session 'ended' that were not reflected yet: 1; failed attempts: 1, the last time with LLMError",
        "turns of session 'refused' that were not reflected yet: 1; failed attempts: 1, the last time with ReplyError",
    }
    clock.now = T0 + timedelta(days=1)
    silent = "turns of session 'running' that were not reflected yet: 1"
    assert [f.what for f in memory.check()][2:] == [silent]
    before = bench.rows()
    assert memory.repair() == ()
    assert bench.rows() == before
    with bench.by_hand() as db:
        db.execute("UPDATE sessions SET error = 'quota: my secret', ended = FALSE WHERE user_id = 'zoe'")
    assert "failed attempts: 1" in memory.check()[0].what
    assert "secret" not in repr(memory.check())
    memory.set_consent("zoe", False)
    assert memory.check() == ()


def test_a_lease_that_lapsed_is_given_back(bench):
    store = bench.memory.store
    assert store.lease("bob", "s0", holder="alive", seconds=600)
    assert store.lease("ann", "s0", holder="dead", seconds=-1)
    mended(bench, "lease", changed=["sessions"])
    assert not store.lease("bob", "s0", holder="another", seconds=1)


# -- what was learned --------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["store", "user:ann", "good:store", "base:user:ann"])
def test_a_learner_that_cannot_be_read_is_removed_and_learns_from_the_log(bench, scope):
    bench.memory.unlearn(0)
    store = bench.memory.store
    sound = Learned.start(64, bench.memory.config).pack()
    store.save_learner_state("user:bob", sound, base_version=0)
    if scope == "store":
        before = bench.memory.status("ann").learner
    store.save_learner_state(scope, b"garbage", base_version=store.learner_version(scope))
    user = "ann" if "ann" in scope else None
    mended(bench, "learner", user=user, changed=["learners"])
    assert store.learner_state(scope) is None
    assert store.learner_state("user:bob").content == sound
    if scope == "store":
        assert bench.memory.status("ann").learner.updates == 0
        bench.memory.feedback(bench.memory.recall("ann", "Who keeps bees?"), "You do [1].")
        assert bench.memory.status("ann").learner.updates == before.updates + 1 == 3


# -- schema ------------------------------------------------------------------------------


@pytest.mark.parametrize(("step", "remedy"), [(1, "upgrade reflective-memory"), (-1, "open it again")])
def test_a_schema_of_another_version_is_told(bench, step, remedy):
    """Another process migrated the database meanwhile, or somebody put back an older one."""
    if bench.name == "sqlite":
        bench.memory.store._file._db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + step}")
    else:
        bench.damage(f"UPDATE schema_version SET version = version + {step}")
    (found,) = bench.memory.check()
    assert (found.kind, found.user_id, found.repairable) == ("schema", None, False)
    assert found.remedy.startswith(remedy)
    assert bench.memory.repair() == ()


# -- stores in front ---------------------------------------------------------------------


class Nothing:
    """A vector store that holds nothing."""

    def put(self, user_id, entries):
        pass

    def nearest(self, user_id, vector, limit, kind):
        return ()


def test_what_stands_in_front_of_a_store_passes_it_on(bench):
    memory = bench.open(config=RMMConfig(expire_days=30), source=Nothing())
    assert isinstance(memory.store, ExpiringStore)
    assert isinstance(memory.store.inner, ExternalStore)
    bench.damage("UPDATE sessions SET reflected = 9 WHERE user_id = 'ann' AND id = 's1'")
    assert [f.kind for f in memory.check()] == ["turns"]
    assert [f.kind for f in memory.repair()] == ["turns"]
    assert memory.check() == ()


def test_a_store_that_cannot_tell_says_so():
    class Third:
        """A store of somebody else's."""

    memory = ReflectiveMemory(Third(), embedder=HashEmbedder())
    for ask in (memory.check, memory.repair):
        with pytest.raises(ConfigError, match=r"Third cannot be checked.*SelfChecking"):
            ask()


# -- the file ----------------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, "a passphrase"])
def test_a_damaged_file_is_told_and_not_written_to(tmp_path, clock, key):
    path = tmp_path / "memory.db"

    def opened():
        return ReflectiveMemory.open(path, key=key, embedder=HashEmbedder(), clock=clock)

    with opened() as memory:
        for i in range(40):
            with memory.chat("ann", session_id=f"s{i}") as chat:
                chat.add(Message("user", f"My secret number {i} is {i * 77}. " * 20))
        assert memory.check() == ()
    content = bytearray(path.read_bytes())
    middle = len(content) // 4096 * 2 // 3 * 4096
    content[middle : middle + 4096] = b"\xff" * 4096
    path.write_bytes(content)
    with opened() as memory:
        found = memory.check()
        assert {(f.kind, f.user_id, f.repairable) for f in found} == {("file", None, False)}
        assert len(found) <= 10
        assert all("copy of the file" in f.remedy for f in found)
        assert "secret" not in repr(found)
        before = content_of(tmp_path)
        assert memory.repair() == memory.repair() == ()
        assert content_of(tmp_path) == before


def test_an_index_of_the_file_that_lost_a_row_is_told(tmp_path, clock):
    """What is damaged is told; what can be read is checked all the same."""
    path = tmp_path / "memory.db"
    with ReflectiveMemory.open(path, embedder=HashEmbedder(), clock=clock) as memory:
        memory.chat("ann", session_id="s0").add(Message("user", "x"))
        memory.feedback(memory.rerank("ann", "q", {"d": "text"}), "[1]")
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute(
            "UPDATE sqlite_schema SET sql = replace(sql, '(user_id)', '(recall_id)') WHERE name = 'feedback_by_user'"
        )
    db.close()
    with ReflectiveMemory.open(path, embedder=HashEmbedder(), clock=clock) as memory:
        memory.store.lease("ann", "s0", holder="dead", seconds=-1)
        found = memory.check()
        assert [f.kind for f in found] == ["file", "lease"]
        assert "feedback_by_user" in found[0].what


def test_of_a_closed_memory_nothing_is_told(memory):
    memory.close()
    for ask in (memory.check, memory.repair):
        with pytest.raises(StoreClosedError):
            ask()


# -- what searches read on the server ----------------------------------------------------


@pytest.fixture
def server(postgres_url, clock):
    bench = Bench("postgres", postgres_url, clock)
    yield bench
    bench.close()


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM documents WHERE user_id = 'ann' AND memory_id = (SELECT min(memory_id) FROM documents WHERE"
        " user_id = 'ann')",
        "UPDATE banks SET own_length = own_length + 5 WHERE user_id = 'ann'",
        "UPDATE sessions SET words = NULL WHERE user_id = 'ann' AND id = 's1'",
    ],
)
def test_what_searches_read_of_a_bank_is_made_anew(server, damage):
    def read(user):
        found = server.memory.explain(user, "Does my sister keep a garden?").candidates
        return [(r.memory.id, r.features) for r in found]

    before, bobs = read("ann"), read("bob")
    server.damage(damage)
    assert read("ann") != before
    mended(server, "index")
    assert (read("ann"), read("bob")) == (before, bobs)


def test_an_index_that_the_server_does_not_use_is_built_anew(server):
    name = "memories_0_embedding_idx"
    server.damage(f"UPDATE pg_index SET indisvalid = FALSE WHERE indexrelid = '{name}'::regclass")
    (done,) = mended(server, "index", user=None)
    assert done == Finding(
        "index", None, f"the index {name} is marked as invalid, and not used", "it is built anew", True
    )
    with server.memory.store._read() as db:
        assert db.execute(f"SELECT indisvalid FROM pg_index WHERE indexrelid = '{name}'::regclass").fetchone() == (
            True,
        )


def test_a_memory_that_never_had_evidence_lacks_no_index(bench):
    """An import may bring one."""
    row = HashEmbedder().embed(["Ann likes tea"])[0]
    entry = Entry(Memory("m", "zoe", "topic", "Ann likes tea", (), T0, T0), row)
    bench.memory.store.commit("zoe", BankChange(0, (entry,)))
    (found,) = bench.memory.check()
    assert (found.kind, found.user_id, found.repairable) == ("evidence", "zoe", False)
    assert bench.memory.repair() == ()
    assert bench.memory.recall("zoe", "tea").shown[0].memory.id == "m"
