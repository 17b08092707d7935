"""The store on PostgreSQL: the contract, and what is the server's alone."""

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from unittest.mock import ANY

import numpy as np
import pytest

from rmm_core import Finding, Message, ReflectiveMemory
from rmm_core.errors import ConfigError, ConflictError, MissingDependencyError, StoreError
from rmm_core.protocols import BankChange, Entry
from rmm_core.stores import shown
from rmm_core.stores._rows import FEEDBACK_COLUMNS, feedback_row
from rmm_core.stores.sqlite import SQLiteStore
from rmm_core.testing import HashEmbedder, MemoryStoreContract
from rmm_core.testing._samples import T0, a_feedback, a_memory, a_reflection, a_session, an_entry, axis, talk
from rmm_core.types import TurnRef

psycopg = import_module("psycopg") if "CI" in os.environ else pytest.importorskip("psycopg")
from rmm_core.stores import _pg_pool, _pg_search  # noqa: E402  # skipped above where the driver is missing
from rmm_core.stores._pg_schema import MIGRATIONS  # noqa: E402  # skipped above where the driver is missing
from rmm_core.stores._pg_words import tsqueries, tsvector  # noqa: E402  # skipped above where the driver is missing
from rmm_core.stores.postgres import PostgresStore  # noqa: E402  # skipped above where the driver is missing


class TestPostgres(MemoryStoreContract):
    @pytest.fixture
    def store(self, postgres_url):
        with closing(PostgresStore(postgres_url)) as store:
            yield store


class TestByIndex(MemoryStoreContract):
    """Every bank counts as too large to be compared in full."""

    @pytest.fixture
    def store(self, postgres_url):
        with closing(PostgresStore(postgres_url, exact_up_to=0)) as store:
            yield store


@pytest.mark.parametrize(
    ("options", "schemas"),
    [
        ("", ["rmm", "public"]),
        ("-c statement_timeout=5s", ["rmm", "public"]),
        ("-c application_name=search_path_x", ["rmm", "public"]),
        ("-csearch_path=mine,public", ["mine", "public"]),
        ("-c geqo=off --search_path=mine", ["mine"]),
        (r'-c search_path="my\ schema",\ Public', ["my schema", "public"]),
        ('-c search_path="a,b","Mixed","x""y"', ["a,b", "Mixed", 'x"y']),
        ("-c search_path=Mixed,my-schema", ["mixed", "my-schema"]),
    ],
)
def test_the_schema_is_the_first_that_a_url_names(options, schemas):
    assert _pg_pool.schemas_of({"options": options}) == schemas


@pytest.mark.parametrize("path", ["", '"$user",public', "$user"])
def test_a_path_that_names_no_schema_first_is_refused(path):
    with pytest.raises(ConfigError, match="name a schema first, as in options="):
        _pg_pool.schemas_of({"options": f"-c search_path={path}"})


@pytest.mark.parametrize(
    ("path", "name"), [("%22my%5C%20schema%22,public", "my schema"), ("my-schema", "my-schema"), ("%22a,b%22", "a,b")]
)
def test_a_memory_lies_in_the_schema_that_is_named(postgres_server, path, name):
    url = f"{postgres_server}{'&' if '?' in postgres_server else '?'}options=-csearch_path%3D{path}"
    try:
        assert not _pg_pool.holds_memory(url)
        with closing(PostgresStore(url)) as store:
            store.open_session(a_session("ann", "s"))
        with psycopg.connect(postgres_server) as connection:
            found = connection.execute("SELECT schemaname FROM pg_tables WHERE tablename = 'turns'").fetchall()
        assert (name,) in found
        assert ("public",) not in found
        assert _pg_pool.holds_memory(url)
    finally:
        with psycopg.connect(postgres_server) as connection:
            connection.execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')


def test_a_role_with_a_path_of_its_own_finds_everything(postgres_url, postgres_server):
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS rmm_elsewhere")
        connection.execute("CREATE ROLE rmm_elsewhere LOGIN SUPERUSER")
        connection.execute("ALTER ROLE rmm_elsewhere SET search_path TO pg_catalog")
    try:
        with ReflectiveMemory.open(f"{postgres_url}&user=rmm_elsewhere", embedder=HashEmbedder(16)) as memory:
            with memory.chat("ann") as chat:
                chat.add(Message("user", "I keep bees in Graz."))
            assert memory.recall("ann", "bees").shown
    finally:
        with psycopg.connect(postgres_server, autocommit=True) as connection:
            connection.execute("REASSIGN OWNED BY rmm_elsewhere TO CURRENT_USER")
            connection.execute("DROP OWNED BY rmm_elsewhere")
            connection.execute("DROP ROLE rmm_elsewhere")


@pytest.mark.parametrize(
    ("password", "parts"),
    [
        ("hunt%zzer2", ("hunt", "er2")),
        ("s3cr%t!", ("s3cr", "t!")),
        ("hunt er2", ("hunt", "er2")),
        ("hunt@127.0.0.1:9/er2", ("hunt", "er2")),
    ],
)
def test_a_password_that_cannot_be_read_is_not_told(password, parts):
    with pytest.raises((ConfigError, StoreError)) as told:
        PostgresStore(f"postgresql://u:{password}@127.0.0.1:9/db")
    assert not any(part in str(told.value) for part in parts)


def test_a_failure_that_is_swallowed_is_not_taken_for_success(postgres_url):
    with closing(PostgresStore(postgres_url)) as store:
        writing = store._pool.write("ann")
        db = writing.__enter__()
        with suppress(psycopg.Error):
            db.execute("SELECT 1 FROM nowhere")
        with pytest.raises(StoreError, match="a statement failed, and nothing was stored"):
            writing.__exit__(None, None, None)


@pytest.fixture
def app_url(postgres_url, postgres_server):
    """The same schema, for a role that may not see past row security."""
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        for extension in ("vector", "btree_gin"):
            connection.execute(f"CREATE EXTENSION IF NOT EXISTS {extension} SCHEMA public")
        if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = 'rmm_app'").fetchone():
            connection.execute("CREATE ROLE rmm_app LOGIN")
            connection.execute(
                "DO $$ BEGIN EXECUTE 'GRANT CREATE ON DATABASE ' || current_database() || ' TO rmm_app'; END $$"
            )
    return f"{postgres_url}&user=rmm_app"


class TestPartitionedByRow(MemoryStoreContract):
    """Four partitions of each table, and a server that shows every transaction one user."""

    @pytest.fixture
    def store(self, app_url):
        with closing(PostgresStore(app_url, partitions=4, row_security=True)) as store:
            yield store


@pytest.fixture
def store(postgres_url):
    with closing(PostgresStore(postgres_url)) as store:
        yield store


# -- search ------------------------------------------------------------------------------


def many(store, user, count, rng, width=16, away=0.0):
    """Memories of random embeddings, ``away`` from the first axis."""
    store.open_session(a_session(user, "s"))
    store.append(user, "s", [Message("user", f"turn {i}") for i in range(count)], at=T0)
    rows = rng.normal(size=(count, width))
    rows[:, 0] -= away
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    entries = [Entry(a_memory(user, f"m{i:05}", f"turn {i}", ("s", i)), row) for i, row in enumerate(rows)]
    store.commit(user, BankChange(0, tuple(entries)))
    return rows


def test_a_large_bank_is_searched_by_the_index(postgres_url):
    rng = np.random.default_rng(0)
    with closing(PostgresStore(postgres_url, exact_up_to=100)) as store:
        rows = many(store, "ann", 3000, rng)
        query = rows[7]
        with store._pool.read("ann") as db:
            for setting in _pg_search._SCAN:
                db.execute(setting)
            values = {"user": "ann", "vector": query, "limit": 10}
            plan = db.named(f"EXPLAIN {_pg_search.by_index(16, None)}", values).fetchall()
        assert "memories_0_embedding_idx" in str(plan)
        found = {c.memory.id for c in store.search("ann", query, limit=20)}
        best = {f"m{i:05}" for i in np.argsort(-(rows @ query))[:20]}
        assert len(found & best) >= 18


def test_a_users_filter_never_cuts_a_result_short(postgres_url):
    """One user's memories lie far from the query, thousands of others' near it."""
    rng = np.random.default_rng(0)
    with closing(PostgresStore(postgres_url, exact_up_to=0)) as store:
        many(store, "bob", 3000, rng, away=-5.0)
        many(store, "ann", 40, rng, away=5.0)
        found = store.search("ann", np.eye(16, dtype=np.float32)[0], limit=25)
        assert len(found) == 25
        assert {c.memory.user_id for c in found} == {"ann"}


def test_features_are_those_of_the_other_store(store, tmp_path):
    texts = [
        "I moved to Graz in May 2023",
        "Why did you move?",
        "My sister plays the cello there",
        "She gives concerts every Monday",
        "Do you visit concerts?",
        "Tofu the cat hates music",
        "Cats rarely love music",
    ]
    with closing(SQLiteStore(str(tmp_path / "m.db"))) as other:
        for each in (store, other):
            talk(each, "ann", "s", *texts[:4])
            talk(each, "ann", "t", *texts[4:])
            places = [("s", i) for i in range(4)] + [("t", i) for i in range(3)]
            entries = [Entry(a_memory("ann", f"m{n}", "", place), axis(n)) for n, place in enumerate(places)]
            each.commit("ann", BankChange(0, tuple(entries)))
            each.add_feedback(replace(a_feedback("ann"), memory_ids=("m0", "m3", "m5")))
        for query in ("When did Ann move to Graz?", "concerts", "cat music", "nothing of the kind"):
            ours, theirs = (
                {c.memory.id: c.features for c in each.search("ann", axis(1), text=query, limit=4)}
                for each in (store, other)
            )
            assert ours.keys() == theirs.keys()
            for name in ours:
                np.testing.assert_allclose(ours[name], theirs[name], atol=0.02)


def test_words_are_counted_and_nothing_is_too_long():
    assert tsvector("Run, runs & RUNNING: running's") == ("'run':1,2,3,4 's':1", 5)
    assert tsqueries("Where did she RUN, café?") == ["'run'", "'cafe'"]
    words, count = tsvector(" ".join(f"{'word' * 40}{i}" for i in range(9_000)))
    assert len(words) < 1_000_000
    assert count == 9_000


def test_a_session_of_any_length_is_stored(store):
    """A tsvector takes a megabyte; what is beyond it is found by its memories."""
    talk(store, "ann", "s", *(" ".join(f"w{t}x{i}{'y' * 60}" for i in range(400)) for t in range(60)))
    entries = tuple(Entry(a_memory("ann", f"m{t}", "", ("s", t)), axis(t % 8)) for t in range(60))
    store.commit("ann", BankChange(0, entries))
    found = store.search("ann", axis(0), text=f"w59x399{'y' * 60}", limit=1)
    assert "m59" in [c.memory.id for c in found]


# -- what only a server has --------------------------------------------------------------


def test_the_character_0_is_shown_and_not_lost(store):
    store.open_session(a_session("ann", "s"))
    (turn,) = store.append("ann", "s", [Message("user", "a\x00b")], at=T0)
    assert turn.text == "a\ufffdb"
    store.commit("ann", BankChange(0, (Entry(a_memory("ann", "m", "a\x00b", ("s", 0)), axis(0)),)))
    assert store.get("ann", "m").summary == "a\ufffdb"
    with pytest.raises(StoreError, match="NUL"):
        store.open_session(a_session("ann\x00", "s"))
    assert list(store.users()) == ["ann"]


def test_numbers_of_the_learning_log_become_visible_in_order(store):
    """A reader that has seen one entry will never find an earlier one: else an answer would not be learned from."""
    talk(store, "ann", "s", "x")
    talk(store, "bob", "s", "x")
    done = threading.Event()

    def second():
        store.add_feedback(a_feedback("bob"))
        done.set()

    with store._pool.write("ann") as db:
        from rmm_core.stores.postgres import _log

        _log(db, a_feedback("ann"))
        thread = threading.Thread(target=second)
        thread.start()
        assert not done.wait(0.3)
        assert store.feedback() == []
    thread.join()
    assert [f.user_id for _, f in store.feedback()] == ["ann", "bob"]


def test_no_state_of_a_learner_is_lost(store):
    """Many workers save at once; whoever was not first is told, and none overwrites another."""

    def learn(_):
        while True:
            saved = store.learner_state("store")
            version, content = (saved.version, saved.content) if saved else (0, b"")
            try:
                return store.save_learner_state("store", content + b"x", base_version=version)
            except ConflictError:
                continue

    with ThreadPoolExecutor(8) as pool:
        versions = list(pool.map(learn, range(40)))
    assert sorted(versions) == list(range(1, 41))
    assert store.learner_state("store").content == b"x" * 40


def test_workers_commit_side_by_side(postgres_url):
    """Two stores, one user: one commit on a version wins, and nobody waits for another user."""
    with closing(PostgresStore(postgres_url)) as one, closing(PostgresStore(postgres_url)) as two:
        talk(one, "ann", "s", "x", "y")
        change = a_reflection(one, "ann", "s", 2, an_entry("ann", "a", "x", 0, 0))
        two.commit("ann", change)
        with pytest.raises(ConflictError, match="version"):
            one.commit("ann", change)
        assert [c.memory.id for c in one.search("ann", axis(0), text="x", limit=3)] == ["a"]
        with one._pool.write("ann"):
            talk(two, "bob", "s", "nobody waits")


def test_a_new_schema_is_made_once(postgres_url):
    """All workers of an installation start at the same moment."""
    with ThreadPoolExecutor(6) as pool:
        stores = list(pool.map(lambda _: PostgresStore(postgres_url), range(6)))
    talk(stores[0], "ann", "s", "x")
    assert [list(s.users()) for s in stores] == [["ann"]] * 6
    for store in stores:
        store.close()


def test_a_newer_schema_is_refused(postgres_url):
    PostgresStore(postgres_url).close()
    with psycopg.connect(postgres_url) as connection:
        connection.execute("UPDATE schema_version SET version = %s", (len(MIGRATIONS) + 1,))
    with pytest.raises(StoreError, match="upgrade reflective-memory"):
        PostgresStore(postgres_url)


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_database_of_schema_1_goes_on(postgres_url, monkeypatch, partitions):
    """Its answers did not say which turn asked."""
    monkeypatch.setattr(_pg_pool, "MIGRATIONS", MIGRATIONS[:1])
    PostgresStore(postgres_url, partitions=partitions).close()
    old, row = FEEDBACK_COLUMNS.replace(", asked_session, asked_position", ""), feedback_row(a_feedback("ann", "old"))
    with psycopg.connect(postgres_url) as connection:
        connection.execute(f"INSERT INTO feedback ({old}) VALUES ({', '.join(['%s'] * len(row[:-2]))})", row[:-2])
    monkeypatch.undo()
    with closing(PostgresStore(postgres_url)) as store:
        talk(store, "ann", "s", "x")
        store.append("ann", "s", [Message("user", "y")], at=T0, feedback=a_feedback("ann", "new"))
        assert [(f.recall_id, f.asked_in) for _, f in store.feedback()] == [("old", None), ("new", TurnRef("s", 1))]
        assert store.check(idle_since=T0, reads=lambda content: True) == []


def test_everybody_is_checked_and_mended_where_the_server_shows_one_user(app_url, postgres_url):
    reads = lambda content: content != b"garbage"  # noqa: E731
    with closing(PostgresStore(app_url, partitions=3, row_security=True)) as store:
        for user in ("ann", "bob", "cid"):
            talk(store, user, "s", "one", "two")
            store.commit(user, a_reflection(store, user, "s", 2, an_entry(user, "a", "one", 0, 0)))
            store.save_learner_state(f"user:{user}", b"garbage" if user == "ann" else b"sound", base_version=0)
        assert store.check(idle_since=T0, reads=reads) == [
            Finding("learner", "ann", ANY, "call repair(): it is removed, and learning starts from the log", True)
        ]
        with psycopg.connect(postgres_url) as connection:  # who sees past row security
            connection.execute("UPDATE sessions SET turns = 1 WHERE user_id = 'ann'")
            connection.execute("INSERT INTO evidence VALUES ('bob', 'a', 's', 9)")
            connection.execute("DELETE FROM documents WHERE user_id = 'bob'")
            connection.execute(
                "UPDATE pg_index SET indisvalid = FALSE WHERE indexrelid = 'documents_1_user_id_own_idx'::regclass"
            )
        kinds = [("evidence", "bob"), ("turns", "ann"), ("index", "bob"), ("learner", "ann"), ("index", None)]
        assert [(f.kind, f.user_id) for f in store.check(idle_since=T0, reads=reads)] == kinds
        mended = [(f.kind, f.user_id) for f in store.repair(reads=reads)]
        assert mended == [kind for kind in kinds if kind != ("index", "bob")]  # it came with the evidence
        assert store.check(idle_since=T0, reads=reads) == store.repair(reads=reads) == []
        for user in ("ann", "bob", "cid"):
            (found,) = store.search(user, axis(0), text="one", limit=3)
            assert (found.memory.evidence, found.features[0]) == ((TurnRef("s", 0),), 1.0)
            assert store.session(user, "s").turns == 2


def test_row_security_is_the_servers_own(app_url):
    with closing(PostgresStore(app_url, row_security=True)) as store:
        for user in ("ann", "*"):
            talk(store, user, "s", f"of {user}")
        with store._pool.read("*") as db:
            assert db.execute("SELECT text FROM turns").fetchall() == [("of *",)]
        with psycopg.connect(app_url) as connection:
            assert connection.execute("SELECT count(*) FROM turns").fetchone() == (0,)
            assert connection.execute("SELECT count(*) FROM turns_0").fetchone() == (0,)


def test_row_security_that_would_bind_nobody_is_refused(postgres_url):
    with pytest.raises(ConfigError, match="SUPERUSER"):
        PostgresStore(postgres_url, row_security=True)


def test_a_server_that_is_not_there(tmp_path):
    with pytest.raises(StoreError, match=r"PostgreSQL at .*app") as caught:
        PostgresStore(f"postgresql://me:secret@/app?host={tmp_path}")
    assert "secret" not in str(caught.value)
    with pytest.raises(ConfigError, match="no URL") as caught:
        PostgresStore("postgresql://me:secret@host/db?nonsense=1")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("option", [{"connections": 0}, {"partitions": 0}, {"partitions": "many"}])
def test_options_are_checked(option):
    with pytest.raises(ConfigError, match="whole number"):
        PostgresStore("postgresql:///x", **option)


def test_a_connection_that_breaks_is_replaced(store, postgres_server):
    talk(store, "ann", "s", "x")
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        )
    assert [s.id for s in store.sessions("ann")] == ["s"]


def test_a_memory_is_opened_by_its_url(postgres_url):
    with ReflectiveMemory.open(postgres_url, embedder=HashEmbedder()) as memory:
        memory.chat("ann").record("My cat is called Tofu", "Noted")
    with ReflectiveMemory.open(postgres_url.replace("postgresql", "postgres", 1), embedder=HashEmbedder()) as memory:
        (session,) = memory.status("ann").sessions
        assert [t.text for t in memory.store.turns("ann", session.id)] == ["My cat is called Tofu", "Noted"]
    with pytest.raises(ConfigError, match="encrypts itself"):
        ReflectiveMemory.open(postgres_url, key="secret", embedder=HashEmbedder())
    with pytest.raises(ConfigError, match=r"no store for 'mysql' URLs.*postgresql://"):
        ReflectiveMemory.open("mysql://host/db", embedder=HashEmbedder())


def test_a_memory_without_the_driver_says_what_to_install(monkeypatch):
    for name in [n for n in sys.modules if n.startswith("rmm_core.stores.") and "p" in n]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingDependencyError, match=r"reflective-memory\[postgres\]"):
        ReflectiveMemory.open("postgresql://host/db", embedder=HashEmbedder())


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("postgresql://me:secret@host:5432/db", "postgresql://me@host:5432/db"),
        ("postgresql://host/db?password=secret&sslmode=require", "postgresql://host/db?sslmode=require"),
        ("postgresql:///db?user=me&sslpassword=secret", "postgresql:///db?user=me"),
    ],
)
def test_a_url_is_shown_without_its_passwords(place, text):
    assert shown(place) == text


def test_what_a_bank_weighs_is_kept_up_by_every_change(store):
    """BM25 needs how many memories and words there are; counted by what changes, it stays what counting anew gives."""

    def held(user="ann"):
        with store._pool.read(user) as db:
            columns = "memories, own_length, around_length, sessions, session_length"
            return db.execute(f"SELECT {columns} FROM banks WHERE user_id = ?", (user,)).fetchone()

    def counted(user="ann"):
        with store._pool.read(user) as db:
            documents = "count(*), sum(own_length)::bigint, sum(around_length)::bigint"
            one = db.execute(f"SELECT {documents} FROM documents WHERE user_id = ?", (user,)).fetchone()
            sessions = (
                "SELECT count(*), sum(words_length)::bigint FROM sessions WHERE user_id = ? AND words IS NOT NULL"
            )
            return (*one, *db.execute(sessions, (user,)).fetchone())

    for name in ("s", "t"):
        talk(store, "ann", name, "one two", "three", "four five six", "seven")
    entries = [Entry(a_memory("ann", f"{s}{i}", "sum", (s, i)), axis(i)) for s in "st" for i in range(4)]
    version = store.commit("ann", BankChange(0, tuple(entries)))
    assert held() == counted()
    merged = Entry(a_memory("ann", "s0", "longer summary", ("s", 0), ("t", 3)), axis(0))
    store.commit("ann", BankChange(version, (merged,), ("t3",)))
    assert held() == counted()
    store.delete("ann", "t1")
    assert held() == counted()
    store.purge("ann", ["s1", "s2"], before=T0 + timedelta(days=1))
    assert held() == counted()
    assert held()[0] == 4
    content = store.sessions("ann"), [t for s in "st" for t in store.turns("ann", s)]
    store.restore_user("bob", [replace(s, user_id="bob") for s in content[0]], content[1], entries[:3])
    assert held("bob") == counted("bob")
