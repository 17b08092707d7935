"""A memory with LangChain's models: what works, what fails, and what nobody is to see."""

import asyncio
import json
import sys

import pytest
from langgraph.graph import END, START, MessagesState, StateGraph

from langchain_rmm import open_memory
from rmm_core import ConfigError, EmbedderError, LLMError, MissingDependencyError, RMMConfig
from rmm_core.testing import HashEmbedder, ScriptedLLM
from tests.langchain.conftest import ScriptedChatModel
from tests.langchain.test_backend import Words

CONFIG = RMMConfig(speakers=("user",))
FOUND = json.dumps({"extracted_memories": [{"summary": "Ann keeps bees in Graz", "reference": [0]}]})


@pytest.fixture
def open_(clock, tmp_path):
    opened = []

    def open_(model, **changes):
        settings = {"embeddings": Words(), "config": CONFIG, "clock": clock} | changes
        opened.append(open_memory(tmp_path / "memory.db", model=model, **settings))
        return opened[-1]

    yield open_
    for memory in opened:
        memory.store.close()


def talk(memory):
    chat = memory.chat("ann", session_id="s")
    chat.record("I keep bees in Graz.", "Noted.")
    return chat


both = pytest.mark.parametrize("blocking", [True, False])


@both
def test_what_a_provider_raises_comes_out_as_ours_once_and_chained(open_, model, blocking):
    memory = open_(model)
    error = ConnectionError("no line")
    model.enqueue(error)
    chat = memory.chat("ann")
    with pytest.raises(LLMError, match=r"\AConnectionError: no line\Z") as caught:
        chat.ask("Hello?") if blocking else asyncio.run(chat.aask("Hello?"))
    assert caught.value.__cause__ is error
    broken = open_(model, embeddings=Words(TimeoutError("too slow")))
    with pytest.raises(EmbedderError, match=r"\ATimeoutError: too slow\Z") as caught:
        broken.recall("ann", "?") if blocking else asyncio.run(broken.arecall("ann", "?"))
    assert isinstance(caught.value.__cause__, TimeoutError)


@both
def test_a_session_becomes_memories(open_, model, blocking):
    memory = open_(model)
    model.enqueue(FOUND)
    chat = talk(memory)
    assert (chat.end() if blocking else asyncio.run(chat.aend())).added == 1
    recall = memory.recall("ann", "bees") if blocking else asyncio.run(memory.arecall("ann", "bees"))
    assert recall.shown[0].memory.summary == "Ann keeps bees in Graz"


@both
def test_a_session_whose_model_fails_stays_pending(open_, model, blocking):
    reports = []
    memory = open_(model, on_reflection=reports.append)
    model.enqueue(ConnectionError("no line"))
    chat = talk(memory)
    report = chat.end() if blocking else asyncio.run(chat.aend())
    assert (report.status, report.error) == ("pending", "ConnectionError: no line")
    assert reports == [report]
    model.enqueue(FOUND)
    assert [r.status for r in memory.reflect_pending("ann")] == ["reflected"]
    assert memory.status("ann").pending == ()


@both
def test_a_model_with_fallbacks_or_retries_is_a_model(open_, model, blocking):
    spare = ScriptedChatModel().enqueue(FOUND)
    model.enqueue(ConnectionError("no line"))
    memory = open_(model.with_fallbacks([spare]))
    assert (talk(memory).end() if blocking else asyncio.run(talk(memory).aend())).added == 1
    assert (model.left, spare.left) == (0, 0)


def test_a_memory_without_a_model(open_):
    memory = open_(None)
    assert talk(memory).end().status == "reflected"
    assert "bees" in memory.recall("ann", "bees").shown[0].memory.summary


def test_models_of_the_core_as_they_are(open_):
    llm = ScriptedLLM(FOUND)
    memory = open_(llm, embeddings=HashEmbedder())
    assert talk(memory).end().added == 1
    assert llm.left == 0


@pytest.mark.parametrize(
    ("model", "embeddings", "message"),
    [
        (3, Words(), "model is a LangChain chat model, its name or a rmm_core.LLM; got int"),
        (None, None, r"embeddings are LangChain Embeddings.*SentenceTransformerEmbedder.*got NoneType"),
        (None, [1.0], r"embeddings are LangChain Embeddings.*got list"),
    ],
)
def test_what_is_no_model(tmp_path, model, embeddings, message):
    with pytest.raises(ConfigError, match=message):
        open_memory(tmp_path / "memory.db", model=model, embeddings=embeddings)
    assert list(tmp_path.iterdir()) == []


def test_models_by_name(monkeypatch, model, open_):
    monkeypatch.setattr("langchain.chat_models.init_chat_model", {"openai:some-model": model}.__getitem__)
    monkeypatch.setattr("langchain.embeddings.init_embeddings", {"openai:some-embeddings": Words()}.__getitem__)
    memory = open_("openai:some-model", embeddings="openai:some-embeddings")
    model.enqueue(FOUND)
    assert talk(memory).end().added == 1
    assert memory.recall("ann", "bees").shown[0].memory.summary == "Ann keeps bees in Graz"


@pytest.mark.parametrize("part", ["chat_models", "embeddings"])
def test_a_name_needs_langchain(monkeypatch, open_, part):
    monkeypatch.setitem(sys.modules, f"langchain.{part}", None)
    named = {"model": "openai:some-model"} if part == "chat_models" else {"model": None, "embeddings": "openai:some"}
    with pytest.raises(MissingDependencyError, match=r"'openai:some.*reflective-memory\[langchain\]"):
        open_(**named)


def graph_of(memory, model, blocking):
    """A graph whose first node answers, and whose second ends the session."""

    def answer(state):
        return {"messages": [model.invoke(state["messages"])]}

    def reflect(state):
        talk(memory).end()
        return {}

    async def aanswer(state):
        return {"messages": [await model.ainvoke(state["messages"])]}

    async def areflect(state):
        await talk(memory).aend()
        return {}

    graph = StateGraph(MessagesState)
    graph.add_node("answer", answer if blocking else aanswer)
    graph.add_node("reflect", reflect if blocking else areflect)
    graph.add_edge(START, "answer").add_edge("answer", "reflect").add_edge("reflect", END)
    return graph.compile()


@both
@pytest.mark.parametrize("spare", [True, False])
def test_no_token_of_a_reflection_is_streamed(open_, blocking, spare):
    ours = ScriptedChatModel().enqueue(FOUND)
    memory = open_(ScriptedChatModel().enqueue(ConnectionError("x")).with_fallbacks([ours]) if spare else ours)
    graph = graph_of(memory, ScriptedChatModel().enqueue("Hello, Ann!"), blocking)

    async def collect():
        return [part async for part in graph.astream({"messages": ["Hi"]}, stream_mode="messages")]

    parts = list(graph.stream({"messages": ["Hi"]}, stream_mode="messages")) if blocking else asyncio.run(collect())
    assert "".join(message.text for message, _ in parts) == "Hello, Ann!"
    assert memory.memories("ann", kind="topic")[0].summary == "Ann keeps bees in Graz"
