import json

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import RunnableLambda

from langchain_rmm import ChatModelLLM
from rmm_core import RMMConfig

FOUND = json.dumps({"extracted_memories": [{"summary": "Alice keeps four bees.", "reference": [0]}]})


@pytest.fixture
def traced(open_memory, model):
    """A memory whose language model is one of LangChain's, and finds one fact."""
    memory = open_memory(ChatModelLLM(model), config=RMMConfig(batch_size=1, speakers=("user",), unfiled=False))
    model.enqueue(FOUND)
    return memory


class Runs(BaseCallbackHandler):
    """Runs by id: their names, parents, inputs and outputs."""

    def __init__(self):
        self.runs = {}

    def on_chain_start(self, serialized, inputs, *, run_id, parent_run_id=None, name=None, **kwargs):
        self.runs[run_id] = [name, parent_run_id, inputs, None]

    def on_chat_model_start(self, serialized, messages, *, run_id, parent_run_id=None, **kwargs):
        self.runs[run_id] = ["model", parent_run_id, None, None]

    def on_chain_end(self, outputs, *, run_id, **kwargs):
        self.runs[run_id][3] = outputs

    def parent(self, name):
        return {self.runs[run[1]][0] for run in self.runs.values() if run[0] == name}

    def outputs(self, name):
        return next(run[3] for run in self.runs.values() if run[0] == name)


def app(memory):
    def answer(question):
        with memory.chat("alice", session_id="monday") as chat:
            chat.record("I keep four bees.", "Only four?")
        recall = memory.recall("alice", question)
        return memory.feedback(recall, "Four [1].").numbers

    return RunnableLambda(answer, name="app")


def test_what_a_memory_does_is_a_run_below_the_run_that_asks(traced):
    runs = Runs()
    assert app(traced).invoke("How many bees?", {"callbacks": [runs]}) == (1,)
    assert {name: runs.parent(name) for name in ("rmm.reflect", "rmm.recall", "rmm.learn", "rmm.rerank", "model")} == {
        "rmm.reflect": {"app"},
        "rmm.recall": {"app"},
        "rmm.learn": {"app"},
        "rmm.rerank": {"rmm.recall"},
        "model": {"rmm.reflect"},
    }
    assert runs.outputs("rmm.reflect") == {
        "rmm.status": "reflected",
        "rmm.added": 1,
        "rmm.merged": 0,
        "rmm.unfiled": 0,
        "rmm.dropped": 0,
    }
    assert runs.outputs("rmm.learn") == {"rmm.steps": 1}
    assert runs.outputs("rmm.rerank")["rmm.shown"] == 1


async def test_the_same_on_an_event_loop(traced):
    runs, memory = Runs(), traced
    with memory.chat("alice") as chat:
        chat.record("I keep four bees.", "Only four?")

    async def answer(question):
        return len((await memory.arecall("alice", question)).shown)

    assert await RunnableLambda(answer, name="app").ainvoke("How many bees?", {"callbacks": [runs]}) == 1
    assert (runs.parent("rmm.recall"), runs.parent("rmm.rerank")) == ({"app"}, {"rmm.recall"})


def test_outside_of_any_run_nobody_is_told(traced):
    memory = traced
    with memory.chat("alice") as chat:
        chat.record("I keep four bees.", "Only four?")
    assert memory.recall("alice", "How many bees?").shown
