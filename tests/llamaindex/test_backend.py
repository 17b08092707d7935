"""LlamaIndex's models in the memory."""

import pytest

from llamaindex_rmm import IndexEmbedder, IndexLLM, open_memory
from rmm_core import LLM, ConfigError, Embedder
from rmm_core.testing import HashEmbedder, ScriptedLLM
from tests.llamaindex.conftest import HashEmbedding

FACT = '{"extracted_memories": [{"summary": "Ann keeps bees in Graz.", "reference": [0]}]}'


async def test_the_models_go_in_as_they_are(model):
    model.enqueue(FACT, "NO_TRAIT", FACT, "NO_TRAIT", "Add()")
    memory = open_memory(":memory:", llm=model, embed_model=HashEmbedding())
    with memory.chat("ann") as chat:
        chat.record("I keep bees in Graz.", "Noted.")
    assert [m.summary for m in memory.memories("ann", kind="topic")] == ["Ann keeps bees in Graz."]
    async with memory.chat("bob") as chat:
        await chat.arecord("I keep bees in Graz.", "Noted.")
    assert [m.summary for m in memory.memories("bob", kind="topic")] == ["Ann keeps bees in Graz."]
    assert (await memory.arecall("bob", "bees")).shown
    memory.close()


def test_they_are_what_the_core_asks_for(model):
    assert isinstance(IndexLLM(model), LLM)
    assert isinstance(IndexEmbedder(HashEmbedding()), Embedder)


def test_a_failing_model_leaves_the_session_pending(model):
    model.enqueue(ConnectionError("no line"))
    memory = open_memory(":memory:", llm=model, embed_model=HashEmbedder())
    chat = memory.chat("ann")
    chat.record("I keep bees in Graz.", "Noted.")
    report = chat.end()
    assert (report.status, report.error) == ("pending", "ConnectionError: no line")
    memory.store.close()


@pytest.mark.parametrize(
    ("models", "complaint"),
    [
        ({}, r"embed_model is a LlamaIndex embedding .* got NoneType"),
        ({"embed_model": "bge"}, r"embed_model is a LlamaIndex embedding .* got str"),
        ({"embed_model": HashEmbedder(), "llm": "gpt"}, r"llm is a LlamaIndex LLM .* got str"),
    ],
)
def test_what_is_no_model_is_refused(models, complaint):
    with pytest.raises(ConfigError, match=complaint):
        open_memory(":memory:", **models)


def test_the_cores_own_models_are_taken_too():
    open_memory(":memory:", llm=ScriptedLLM(), embed_model=HashEmbedder()).close()
