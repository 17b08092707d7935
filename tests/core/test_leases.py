"""A session is reflected by one worker at a time, and by another when that one dies."""

import asyncio
import sqlite3
import threading
import time
from contextlib import suppress

import pytest

from rmm_core import Message, RMMConfig
from rmm_core.testing import ScriptedLLM

ALONE = RMMConfig(speakers=("user",))
FACT = '{"extracted_memories": [{"summary": "Ann likes tea", "reference": [0]}]}'


def talk(memory, session="s1"):
    chat = memory.chat("ann", session_id=session)
    chat.add(Message("user", "I like tea"), Message("agent", "Fine"))
    return chat


def test_others_do_not_ask_a_model_for_a_session_that_is_being_reflected(open_memory):
    theirs = []

    def meanwhile(prompt):
        theirs.extend(other.reflect_pending())
        return FACT

    memory, other = open_memory(ScriptedLLM(meanwhile), config=ALONE), open_memory(ScriptedLLM(), config=ALONE)
    assert talk(memory).end().status == "reflected"
    assert [r.status for r in theirs] == ["elsewhere"]
    assert memory.status("ann").sessions[0].attempts == 0


def test_a_worker_that_died_is_waited_for_and_no_longer(open_memory):
    memory = open_memory(ScriptedLLM(FACT), config=ALONE)
    chat = talk(memory)
    memory.store.lease("ann", "s1", holder="dead", seconds=0.2)
    assert chat.end().status == "elsewhere"
    time.sleep(0.25)
    (report,) = memory.reflect_pending()
    assert report.status == "reflected"


def test_a_worker_that_was_taken_for_dead_stops(open_memory):
    def long_silence(prompt):
        time.sleep(0.1)
        assert memory.store.lease("ann", "s1", holder="another", seconds=60)
        return FACT

    memory = open_memory(ScriptedLLM(long_silence, "NO_TRAIT"), config=RMMConfig(lease_minutes=0.05 / 60))
    assert talk(memory).end().status == "elsewhere"
    assert memory.memories("ann") == ()
    assert memory.status("ann").sessions[0].attempts == 0
    assert not memory.store.lease("ann", "s1", holder="third", seconds=60)  # what is another's is not given back


@pytest.mark.parametrize("failure", [ValueError("bad gateway"), KeyboardInterrupt()])
def test_whatever_happens_the_session_is_given_back(open_memory, failure):
    memory = open_memory(ScriptedLLM(failure), config=ALONE)
    with suppress(KeyboardInterrupt):
        talk(memory).end()
    assert memory.store.lease("ann", "s1", holder="another", seconds=60)


async def test_a_cancelled_reflection_gives_the_session_back(open_memory):
    memory = open_memory(ScriptedLLM(FACT, seconds=30), config=ALONE)
    chat = talk(memory)
    task = asyncio.create_task(chat.aend())
    await asyncio.sleep(0.2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert memory.store.lease("ann", "s1", holder="another", seconds=60)


def test_a_reflection_that_nobody_drives_any_more_gives_the_session_back(open_memory):
    memory = open_memory(ScriptedLLM(), config=ALONE)
    talk(memory)
    reflecting = next(memory.sessions.reflecting("ann", "s1")).flow  # what its span is about
    for _ in range(2):  # up to where the session is held
        request = next(reflecting)
        request.function()
    reflecting.close()
    assert memory.store.lease("ann", "s1", holder="another", seconds=60)


def test_closing_leaves_alone_what_others_ended(open_memory, monkeypatch):
    memory, other = open_memory(), open_memory()
    for i in range(3):
        memory.chat("ann", session_id=f"s{i}").record(f"I like tea number {i}.", "Fine.")
        assert other.chat("ann", session_id=f"s{i}").end().status == "reflected"
    taken, lease = [], memory.store.lease
    monkeypatch.setattr(memory.store, "lease", lambda *a, **k: taken.append(a) or lease(*a, **k))
    memory.close()
    assert taken == []


def test_opening_waits_for_another_that_is_making_the_file(open_memory, tmp_path):
    maker = sqlite3.connect(tmp_path / "memory.db", isolation_level=None, check_same_thread=False)
    maker.execute("BEGIN IMMEDIATE")
    soon = threading.Timer(0.2, maker.execute, ["ROLLBACK"])
    soon.start()
    try:
        open_memory()
    finally:
        soon.join()
        maker.close()
