"""Nothing blocks the event loop: with models that sleep, a heartbeat keeps its rhythm in every async path."""

import asyncio
from operator import itemgetter

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.messages import HumanMessage

from langchain_rmm import (
    CitationOutputParser,
    EmbeddingsEmbedder,
    RMMChatMessageHistory,
    RMMReranker,
    RMMRetriever,
    memory_tools,
    open_memory,
)
from rmm_core import RMMConfig
from rmm_core.testing import HashEmbedder, ScriptedLLM
from tests.heartbeat import NAP, heartbeat
from tests.langchain import hosts
from tests.story import USER

CONFIG = RMMConfig(speakers=("user",))  # one extraction a session is slow enough


class SleepyEmbeddings(Embeddings):
    """Sleeps like a model does; blocking callers and event loops alike."""

    def embed_documents(self, texts):
        raise AssertionError("the blocking method was called on an event loop")

    def embed_query(self, text):
        raise AssertionError("the blocking method was called on an event loop")

    async def aembed_documents(self, texts):
        await asyncio.sleep(NAP)
        return HashEmbedder().embed(texts).tolist()


@pytest.fixture
async def memory():
    def reply(prompt):
        return '{"extracted_memories": [{"summary": "Ann keeps bees.", "reference": [0]}]}'

    llm = ScriptedLLM(*[reply] * 40, seconds=NAP)
    memory = open_memory(":memory:", model=llm, embeddings=SleepyEmbeddings(), config=CONFIG)
    assert isinstance(memory._services.embedder, EmbeddingsEmbedder)
    chat = memory.chat(USER, session_id="before")
    await chat.arecord("I keep bees in Graz.", "Understood.")
    await chat.aend()
    assert memory.memories(USER)
    yield memory
    memory.store.close()


@pytest.mark.parametrize("host", ["chain", "pipeline", "agent", "graph"])
@pytest.mark.parametrize("way", ["ainvoke", "astream"])
async def test_hosts(memory, model, host, way):
    slow = type(model)(seconds=NAP).enqueue("Bees [1].")
    runnable = hosts.HOSTS[host](memory, slow, way).runnable("s1")
    asked = {
        "chain": {"input": "What do I keep?"},
        "pipeline": {"question": "What do I keep?"},
    }.get(host, {"messages": [("user", "What do I keep?")]})
    async with heartbeat():
        if way == "ainvoke":
            await runnable.ainvoke(asked, hosts.config("s1"))
        else:
            assert [c async for c in runnable.astream(asked, hosts.config("s1"))]
        await memory.chat(USER, session_id="s1").aend()
    assert len(memory.store.feedback()) == 1


async def test_parts(memory):
    documents = [Document("Bees make honey."), Document("Trains leave at nine.")]
    search, remember, forget = memory_tools(memory, USER)
    history = RMMChatMessageHistory(memory, user_id=USER, session_id="h")
    chain = itemgetter("answer") | CitationOutputParser()
    async with heartbeat():
        await RMMRetriever(memory=memory, user_id=USER).ainvoke("bees")
        await RMMReranker(memory=memory, user_id=USER).acompress_documents(documents, "bees")
        await search.ainvoke({"query": "bees"})
        await remember.ainvoke({"fact": "I moved to Linz."})
        await forget.ainvoke({"memory_id": "none"})
        await history.aadd_messages([HumanMessage("I keep bees.")])
        await history.aget_messages()
        await history.aclear()
        await chain.ainvoke({"answer": "Bees [1]."})
        await memory.afeedback(await memory.arecall(USER, "bees"), "Bees [1].")
