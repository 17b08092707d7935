"""Models that hang, endpoints that never answer, callers that lose patience: nobody else waits, and nothing is left."""

import asyncio
import socket
import threading
import time
from contextlib import contextmanager

import pytest

from rmm_core import LLMError, Message, RMMConfig
from rmm_core.errors import EmbedderError
from rmm_core.models import OpenAIEmbedder, OpenAILLM
from rmm_core.testing import HashEmbedder, ScriptedLLM
from tests.heartbeat import heartbeat

FACT = '{"extracted_memories": [{"summary": "Ann likes tea", "reference": [0]}]}'
ALONE = RMMConfig(speakers=("user",))
SOON = 2.0  # seconds; what does not wait for a hanging model takes a tenth of this


class HangingLLM:
    """Does not reply until it is let go, and tells when it was asked."""

    def __init__(self):
        self.asked, self.let_go = threading.Event(), threading.Event()

    def complete(self, prompt, *, schema=None):
        self.asked.set()
        assert self.let_go.wait(60)
        return FACT

    async def acomplete(self, prompt, *, schema=None):
        self.asked.set()
        await asyncio.sleep(60)


class HangingEmbedder(HashEmbedder):
    """Hangs at a text."""

    def __init__(self):
        super().__init__()
        self.asked, self.let_go = threading.Event(), threading.Event()

    def embed(self, texts):
        if any("hang" in t for t in texts):
            self.asked.set()
            assert self.let_go.wait(60)
        return super().embed(texts)


def talk(memory, user="ann", session="s"):
    chat = memory.chat(user, session_id=session)
    chat.add(Message("user", "I like tea."), Message("agent", "Fine."))
    return chat


@contextmanager
def hanging(step, model):
    """A thread that hangs in a step."""
    thread = threading.Thread(target=step)
    thread.start()
    assert model.asked.wait(10)
    yield
    model.let_go.set()
    thread.join(10)
    assert not thread.is_alive()


def everything_else(memory, user):
    """All that others do; seconds it took."""
    began = time.perf_counter()
    memory.recall(user, "What do I like?")
    chat = memory.chat(user, session_id="mine")
    chat.record("I like coffee.", "Fine.", memory.recall(user, "What do I like?"))
    memory.status(user)
    list(memory.export_user(user))
    memory.set_consent(user, consents=True)
    return time.perf_counter() - began


def test_a_hanging_reflection_holds_nobody_up(open_memory):
    llm = HangingLLM()
    memory = open_memory(llm, config=ALONE)
    with hanging(talk(memory).end, llm):
        assert everything_else(memory, "bob") < SOON
        assert everything_else(memory, "ann") < SOON  # nor the one whose session it is
        began = time.perf_counter()
        memory.forget_user("bob")
        assert time.perf_counter() - began < SOON
    assert [m.summary for m in memory.memories("ann", kind="topic")] == ["Ann likes tea"]


def test_a_hanging_reflection_holds_up_no_other_process(open_memory):
    llm = HangingLLM()
    memory, other = open_memory(llm, config=ALONE), open_memory(ScriptedLLM(), config=ALONE)
    with hanging(talk(memory).end, llm):
        assert everything_else(other, "bob") < SOON
        assert [r.status for r in other.reflect_pending("ann")] == ["elsewhere"]


def test_on_postgres_it_holds_nobody_up_either(open_memory, postgres_url):
    llm = HangingLLM()
    memory = open_memory(llm, config=ALONE, place=postgres_url)
    with hanging(talk(memory).end, llm):
        assert everything_else(memory, "bob") < SOON
        assert everything_else(memory, "ann") < SOON
    assert [m.summary for m in memory.memories("ann", kind="topic")] == ["Ann likes tea"]


def test_a_hanging_embedder_holds_nobody_up(open_memory):
    embedder = HangingEmbedder()
    memory = open_memory(embedder=embedder)
    with hanging(lambda: memory.recall("ann", "hang on"), embedder):
        assert everything_else(memory, "bob") < SOON


def test_a_model_is_asked_without_any_lock_of_the_database(open_memory, tmp_path):
    """Another connection can write, which takes the only lock there is."""
    import sqlite3

    def meanwhile(prompt):
        with sqlite3.connect(tmp_path / "memory.db", timeout=0) as db:
            db.execute("BEGIN IMMEDIATE")
            db.execute("ROLLBACK")
        db.close()
        return FACT

    memory = open_memory(ScriptedLLM(meanwhile), config=ALONE)
    assert talk(memory).end().status == "reflected"


@pytest.mark.parametrize("wait", [0.0, 0.01, 0.05, 0.1, 0.2])
async def test_a_cancelled_reflection_leaves_bank_and_lease_as_they_were(open_memory, wait):
    memory = open_memory(ScriptedLLM(FACT, seconds=0.3), config=ALONE)
    chat = talk(memory)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(wait):
            await chat.aend()
    assert memory.memories("ann") == ()
    (session,) = memory.status("ann").pending
    assert session.attempts == 0  # nothing failed
    assert memory.store.lease("ann", "s", holder="another", seconds=60)
    memory.store.release("ann", "s", holder="another")
    async with heartbeat():
        (report,) = await memory.areflect_pending() or [await chat.aend()]
    assert report.status == "reflected"


async def test_a_lease_that_is_being_taken_when_its_reflection_is_cancelled_is_given_back(open_memory, monkeypatch):
    memory = open_memory(ScriptedLLM(FACT), config=ALONE)
    chat, lease = talk(memory), memory.store.lease

    def slow(*arguments, **options):
        time.sleep(0.3)
        return lease(*arguments, **options)

    monkeypatch.setattr(memory.store, "lease", slow)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await chat.aend()
    await asyncio.sleep(0.5)
    assert lease("ann", "s", holder="another", seconds=60)


async def test_every_step_can_be_cancelled_at_any_moment(open_memory):
    memory = open_memory(ScriptedLLM(*[FACT, "Tea [1]."] * 50, seconds=0.02), config=ALONE)
    for number in range(12):
        chat = memory.chat("ann", session_id=f"s{number}")
        for step in (chat.aadd(Message("user", f"I like tea, {number}.")), chat.aask("What do I like?"), chat.aend()):
            try:
                async with asyncio.timeout(0.004 * number):
                    await step
            except TimeoutError:
                continue
    await asyncio.sleep(0.2)  # what runs in a thread is done to its end
    assert memory.check() == () or {f.kind for f in memory.check()} == {"pending"}
    for session in memory.status("ann").sessions:
        assert memory.store.lease("ann", session.id, holder="another", seconds=60)
        turns = memory.store.turns("ann", session.id)
        assert [t.index for t in turns] == list(range(len(turns)))


@contextmanager
def silent_endpoint():
    """A server that accepts and never answers; when it was asked."""
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(0.1)
    over, asked = threading.Event(), []

    def serve():
        held = []
        while not over.is_set():
            try:
                held.append(server.accept()[0])
                asked.append(time.perf_counter())
            except TimeoutError:
                continue
        for connection in held:
            connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/v1", asked
    finally:
        over.set()
        thread.join()
        server.close()


@pytest.mark.enable_socket
def test_an_endpoint_that_never_answers_is_given_up_after_three_tries():
    with silent_endpoint() as (url, asked):
        llm, embedder = OpenAILLM("m", base_url=url, timeout=0.3), OpenAIEmbedder("m", base_url=url, timeout=0.3)
        began = time.perf_counter()
        with pytest.raises(LLMError, match="timed out"):
            llm.complete("Hello")
        taken = time.perf_counter() - began
        assert len(asked) == 3
        assert 0.9 <= taken < 8  # three times the timeout, and pauses of half a second to a second between
        with pytest.raises(EmbedderError, match="timed out"):
            embedder.embed(["Hello"])
        llm._clients.blocking.close()
        embedder._clients.blocking.close()


@pytest.mark.enable_socket
def test_a_session_whose_endpoint_never_answers_stays_pending(open_memory):
    with silent_endpoint() as (url, _):
        llm = OpenAILLM("m", base_url=url, timeout=0.1)
        memory = open_memory(llm, config=ALONE)
        report = talk(memory).end()
        assert report.status == "pending"
        assert "timed out" in report.error
        assert memory.store.lease("ann", "s", holder="another", seconds=60)
        llm._clients.blocking.close()


@pytest.mark.enable_socket
async def test_on_an_event_loop_an_endpoint_that_never_answers_is_cancelled_at_once(open_memory):
    with silent_endpoint() as (url, _):
        llm = OpenAILLM("m", base_url=url, timeout=60)
        memory = open_memory(llm, config=ALONE)
        chat = talk(memory)
        began = time.perf_counter()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await chat.aend()
        assert time.perf_counter() - began < SOON
        assert memory.store.lease("ann", "s", holder="another", seconds=60)
        await llm._clients.of_loop().close()
