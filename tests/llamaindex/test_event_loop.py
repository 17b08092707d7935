"""Nothing blocks the event loop: with models that sleep, a heartbeat keeps its rhythm in every async path."""

import asyncio

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.utils import get_tokenizer

from llamaindex_rmm import CitationOutputParser, RMMMemory, RMMNodePostprocessor, RMMRetriever, open_memory
from rmm_core import RMMConfig
from rmm_core.testing import ScriptedLLM
from tests.heartbeat import NAP, heartbeat
from tests.llamaindex import hosts
from tests.llamaindex.conftest import HashEmbedding
from tests.story import USER
from tests.test_story import PromptedIndexLLM

CONFIG = RMMConfig(speakers=("user",))  # one extraction a session is slow enough


class SleepyEmbedding(HashEmbedding):
    """Sleeps like a model does; blocking callers and event loops alike."""

    def get_text_embedding_batch(self, texts, **kwargs):
        raise AssertionError("the blocking method was called on an event loop")

    async def _aget_text_embeddings(self, texts):
        await asyncio.sleep(NAP)
        return self._get_text_embeddings(texts)


@pytest.fixture(autouse=True, scope="module")
def _tokenizer():
    get_tokenizer()("LlamaIndex loads it at the first call, on whatever thread that is")


@pytest.fixture
async def memory():
    def reply(prompt):
        return '{"extracted_memories": [{"summary": "Ann keeps bees.", "reference": [0]}]}'

    llm = ScriptedLLM(*[reply] * 40, seconds=NAP)
    memory = open_memory(":memory:", llm=llm, embed_model=SleepyEmbedding(), config=CONFIG)
    chat = memory.chat(USER, session_id="before")
    await chat.arecord("I keep bees in Graz.", "Understood.")
    await chat.aend()
    assert memory.memories(USER)
    yield memory
    memory.store.close()


@pytest.mark.parametrize("host", [name for name in hosts.HOSTS if name != "Memory with a block"])
@pytest.mark.parametrize("way", ["achat", "astream_chat"])
async def test_hosts(memory, host, way):
    slow = PromptedIndexLLM(seconds=NAP)
    playing = hosts.HOSTS[host](memory, slow, way)
    slow.enqueue("Bees [1].")
    async with heartbeat():
        if isinstance(playing, hosts.Agent):
            await playing.run("s1", "What do I keep?")
        else:
            engine = playing.engine(playing.own("s1"))
            response = await getattr(engine, way)("What do I keep?")
            if way == "astream_chat":
                assert [token async for token in response.async_response_gen()]
        await playing.own("s1").areset()
    assert len(memory.store.feedback()) == 1


async def test_parts(memory):
    nodes = [NodeWithScore(node=TextNode(text=t), score=0.5) for t in ("Bees make honey.", "Trains leave at nine.")]
    async with heartbeat():
        found = await RMMRetriever(memory, user_id=USER).aretrieve("bees")
        await RMMNodePostprocessor(memory=memory, user_id=USER).apostprocess_nodes(nodes, query_str="bees")
        await CitationOutputParser().parse("Bees [1].").citing(found).afeedback(memory)
        own = RMMMemory.from_defaults(memory, user_id=USER)
        await own.aset([ChatMessage("I moved to Linz.")])
        await own.aget_all()
        await own.aend()
