import json

import llama_index_instrumentation as instrumentation
import pytest
from llama_index_instrumentation.span import SimpleSpan
from llama_index_instrumentation.span_handlers import BaseSpanHandler
from pydantic import PrivateAttr

from llamaindex_rmm import IndexLLM
from rmm_core import RMMConfig
from rmm_core.errors import EmbedderError
from rmm_core.testing import HashEmbedder

FOUND = json.dumps({"extracted_memories": [{"summary": "Alice keeps four bees.", "reference": [0]}]})
dispatcher = instrumentation.get_dispatcher(__name__)


class Spans(BaseSpanHandler[SimpleSpan]):
    """Spans by name: their parents' names, attributes and results."""

    _seen: dict = PrivateAttr(default_factory=dict)
    _dropped: dict = PrivateAttr(default_factory=dict)

    def new_span(self, id_, bound_args, instance=None, parent_span_id=None, tags=None, **kwargs):
        self._seen[id_.partition("-")[0]] = [(parent_span_id or "").partition("-")[0], bound_args]
        return SimpleSpan(id_=id_, parent_id=parent_span_id)

    def prepare_to_exit_span(self, id_, bound_args, instance=None, result=None, **kwargs):
        self._seen[id_.partition("-")[0]].append(result)
        return self.open_spans[id_]

    def prepare_to_drop_span(self, id_, bound_args, instance=None, err=None, **kwargs):
        self._dropped[id_.partition("-")[0]] = type(err)
        return self.open_spans[id_]


@pytest.fixture
def spans():
    root = instrumentation.root_dispatcher
    handler = Spans()
    root.add_span_handler(handler)
    yield handler
    root.span_handlers.remove(handler)


@dispatcher.span
def app(memory):
    with memory.chat("alice", session_id="monday") as chat:
        chat.record("I keep four bees.", "Only four?")
    return memory.feedback(memory.recall("alice", "How many bees?"), "Four [1].").numbers


def test_what_a_memory_does_is_a_span_below_the_one_that_asks(open_memory, model, spans):
    memory = open_memory(IndexLLM(model), config=RMMConfig(batch_size=1, speakers=("user",), unfiled=False))
    model.enqueue(FOUND)
    assert app(memory) == (1,)
    parents = {name: span[0] for name, span in spans._seen.items() if name.startswith("rmm.")}
    assert parents == {"rmm.reflect": "app", "rmm.recall": "app", "rmm.rerank": "rmm.recall", "rmm.learn": "app"}
    assert spans._seen["rmm.reflect"][1].arguments == {"attributes": {"rmm.session": "monday"}}
    assert spans._seen["rmm.reflect"][2]["rmm.added"] == 1
    assert spans._seen["rmm.learn"][2] == {"rmm.steps": 1}


async def test_the_same_on_an_event_loop(open_memory, spans):
    memory = open_memory()
    with memory.chat("alice") as chat:
        chat.record("I keep four bees.", "Only four?")

    @dispatcher.span
    async def answer():
        return len((await memory.arecall("alice", "How many bees?")).shown)

    assert await answer() == 1
    assert spans._seen["rmm.rerank"][0] == "rmm.recall"
    assert spans._seen["rmm.recall"][0].endswith("answer")


def test_a_failure_drops_the_span(open_memory, spans):
    class Failing(HashEmbedder):
        def embed(self, texts):
            raise RuntimeError("no weights")

    with pytest.raises(EmbedderError, match="no weights"):
        open_memory(embedder=Failing()).recall("alice", "How many bees?")
    assert spans._dropped == {"rmm.recall": EmbedderError}
