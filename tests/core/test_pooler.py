"""PostgreSQL behind a pooler that gives every transaction another connection."""

import os
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from rmm_core import Message, ReflectiveMemory
from rmm_core.stores._pg_pool import holds_memory
from rmm_core.testing import HashEmbedder
from tests.needed import missing

SETTINGS = """
[databases]
{dbname} = {server}
[pgbouncer]
listen_addr =
unix_socket_dir = {folder}
listen_port = 6543
auth_type = any
pool_mode = transaction
default_pool_size = 3
ignore_startup_parameters = options
"""


@pytest.fixture(scope="module")
def pooler(postgres_server):
    """The URL of a PgBouncer that shares three connections; a test that asks for one skips without it, fails in CI."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        missing("no PgBouncer: apt-get install pgbouncer")
    told = conninfo_to_dict(postgres_server)
    if (socket := Path(told.get("host", "")) / ".s.PGSQL.5432").is_socket():
        socket.parent.chmod(0o755)
    known = {name: told[name] for name in ("host", "port", "user", "password", "dbname") if told.get(name)}
    server = " ".join(f"{name}={value}" for name, value in known.items())
    user = ["-u", "nobody"] if os.getuid() == 0 else []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rmm")))  # near the root: it has a socket
        folder.chmod(0o777)
        settings = folder / "pgbouncer.ini"
        settings.write_text(SETTINGS.format(dbname=told["dbname"], server=server, folder=folder), encoding="utf-8")
        command = [program, "-q", *user, str(settings)]
        running = stack.enter_context(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
        url = f"postgresql:///{told['dbname']}?host={folder}&port=6543&user={told['user']}"
        try:
            until = time.monotonic() + 20
            while not (folder / ".s.PGSQL.6543").exists():
                assert running.poll() is None, running.stderr.read()
                assert time.monotonic() < until
                time.sleep(0.05)
            yield url
        finally:
            running.terminate()
            with psycopg.connect(postgres_server) as connection:
                connection.execute("DROP SCHEMA IF EXISTS rmm CASCADE")


def test_workers_share_what_a_pooler_gives_them(pooler):
    assert not holds_memory(pooler)
    workers = [ReflectiveMemory.open(pooler, embedder=HashEmbedder(64)) for _ in range(3)]
    try:

        def visit(number):
            memory, user = workers[number % 3], f"u{number % 4}"
            with memory.chat(user, session_id=f"s{number}") as chat:
                for k in range(6):  # psycopg prepares what it has sent five times
                    chat.add(Message("user", f"I keep {number + k} bees in street {number}."))
            with memory.chat(user, session_id=f"q{number}") as chat:
                chat.ask(f"Who keeps bees in street {number}?")
            return user, {s.memory.user_id for s in memory.recall(user, "Where are my bees?").shown}

        with ThreadPoolExecutor(6) as executor:
            found = list(executor.map(visit, range(24)))
        assert all(seen == {user} for user, seen in found)
        for user, visits in Counter(user for user, _ in found).items():
            assert workers[0].status(user).turns == visits * (6 + 2)
        assert workers[0].check() == ()
        assert holds_memory(pooler)
    finally:
        for memory in workers:
            memory.close()


def test_a_schema_that_is_named_holds_behind_a_pooler(pooler, postgres_server):
    try:
        with ReflectiveMemory.open(f"{pooler}&options=-csearch_path%3Dpooled", embedder=HashEmbedder(64)) as memory:
            memory.set_consent("ann", False)
        with psycopg.connect(postgres_server) as connection:
            assert connection.execute("SELECT user_id FROM pooled.declined").fetchall() == [("ann",)]
    finally:
        with psycopg.connect(postgres_server) as connection:
            connection.execute("DROP SCHEMA IF EXISTS pooled CASCADE")


def test_nothing_stays_prepared_behind_a_pooler_and_much_does_without(pooler, postgres_url):
    for url, prepared in ((pooler, False), (postgres_url, True)):
        with ReflectiveMemory.open(url, embedder=HashEmbedder(64)) as memory:
            for _ in range(100):  # more often than it takes, on each of the connections
                memory.users()
            with memory.store._pool._pool.connection() as connection:
                names = connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()[0]
        assert bool(names) == prepared
