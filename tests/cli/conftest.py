"""A small bank, and ``rmm`` run on it."""

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rmm_cli.main import app
from rmm_core import ReflectiveMemory, RMMConfig
from rmm_core.testing import HashEmbedder, ScriptedLLM
from tests.conftest import Clock

ROOT = Path(__file__).parents[2]
EMBEDDER = "rmm_core.testing:HashEmbedder"
FACT = '{{"extracted_memories": [{{"summary": "{}", "reference": [{}]}}]}}'
HOSTILE = "bold [red]no[/red] \x1b[31mred\x07 \u202egnp.exe\x9b2J\nerror: forged"


def fill(place, key=None):
    """Ann, who moved and so has a memory with a history, and one answer; bob, with a session that waits."""
    clock = Clock()
    llm = ScriptedLLM(
        FACT.format("Ann lives in Graz.", 0),
        "NO_TRAIT",
        FACT.format("Ann moved to Vienna.", 0),
        "NO_TRAIT",
        "Merge(0, Ann lives in Vienna, before in Graz.)",
    )
    config = RMMConfig(batch_size=1)
    memory = ReflectiveMemory.open(place, key=key, llm=llm, embedder=HashEmbedder(), clock=clock, config=config)
    with memory.chat("ann", session_id="first", user_name="Ann") as chat:
        chat.record("I live in Graz with two cats.", "How lovely.")
    clock.now += timedelta(days=30)
    with memory.chat("ann", session_id="second", user_name="Ann") as chat:
        chat.record("I moved to Vienna in March.", "Good to know.")
    memory.feedback(memory.recall("ann", "Where do I live?"), "In Vienna [1].")
    chat = memory.chat("bob", session_id="only", user_name="Bob")
    chat.record("I keep bees on the roof.", "Honey!")
    memory.store.close()
    return str(place)


@pytest.fixture
def db(tmp_path):
    """A bank in a file."""
    return fill(tmp_path / "memory.db")


@pytest.fixture(params=["sqlite", "postgres"])
def bank(request, tmp_path):
    """A bank on either database."""
    return fill(tmp_path / "memory.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url"))


@pytest.fixture
def at(db):
    """The bank's memory, to look behind the command; what it opened is closed at the end."""
    opened = []

    def open_():
        opened.append(ReflectiveMemory.open(db, embedder=HashEmbedder()))
        return opened[-1]

    yield open_
    for memory in opened:
        memory.store.close()


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch):
    for name in ("RMM_STORE", "RMM_KEY", "RMM_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RMM_EMBED", EMBEDDER)
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.fixture
def rmm():
    """Runs ``rmm`` here."""

    def run(*arguments, code=0, **settings):
        done = CliRunner().invoke(app, [str(a) for a in arguments], **settings)
        assert done.exit_code == code, (done.exit_code, done.stdout, done.stderr, done.exception)
        assert done.exception is None or isinstance(done.exception, SystemExit)
        return done

    return run


def process(*arguments, **settings):
    """Start ``rmm`` as a process of its own."""
    environment = {**os.environ, **settings.pop("env", {})}
    return subprocess.Popen(
        [sys.executable, "-m", "rmm_cli", *map(str, arguments)],
        cwd=settings.pop("cwd", ROOT),
        env=environment,
        text=True,
        stdout=settings.pop("stdout", subprocess.PIPE),
        stderr=settings.pop("stderr", subprocess.PIPE),
        **settings,
    )
