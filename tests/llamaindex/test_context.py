"""An agent's context: over several runs, as JSON, and in another process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.workflow import Context
from workflows.context.serializers import JsonSerializer

import llamaindex_rmm
from llamaindex_rmm import RMMMemory, hide_markers
from rmm_core import RMMConfig
from rmm_core.testing import HashEmbedder
from tests.llamaindex.conftest import ScriptedIndexLLM

ROOT = Path(__file__).parents[2]
HIVES = ("two", "three", "four", "five", "six")


def app(folder, ending, *runs):
    command = [sys.executable, "-m", "tests.llamaindex.context_app", folder, ending, *runs]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return [line.rsplit(" ", 1) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("ending", ["close", "crash"])
def test_five_runs_of_one_context_and_one_in_another_process(tmp_path, ending):
    first = app(tmp_path, ending, *HIVES)
    assert [answer for answer, _ in first] == [f"Answer {n}." for n in HIVES]
    saved = (tmp_path / "context.json").read_text()
    assert "RMMMemory" in saved
    assert "two hives" not in saved, "a context holds a key, and not what was said"
    ((answer, seen),) = app(tmp_path, ending, "seven")
    assert (answer, int(seen)) == ("Answer seven.", 10 + 1 + 2)  # five exchanges, the message, the tool and its result
    with llamaindex_rmm.open_memory(tmp_path / "memory.db", embed_model=HashEmbedder()) as memory:
        turns = [t.text for t in memory.store.turns("ann", "tuesday")]
    assert turns == [text for n in (*HIVES, "seven") for text in (f"I have {n} hives of bees.", f"Answer {n}.")]


async def test_a_context_whose_memory_is_not_open_says_what_to_do(tmp_path):
    app(tmp_path, "crash", "two")
    agent = FunctionAgent(llm=ScriptedIndexLLM())
    context = Context.from_dict(agent, json.loads((tmp_path / "context.json").read_text()))
    with pytest.raises(ValueError, match=r"call llamaindex_rmm\.open_memory\('.*memory\.db', \.\.\.\) before"):
        await agent.run("And now?", ctx=context)


@pytest.fixture
def memory(tmp_path):
    config = RMMConfig(batch_size=1, attribution="markers")
    memory = llamaindex_rmm.open_memory(tmp_path / "memory.db", embed_model=HashEmbedder(), config=config)
    yield memory
    memory.store.close()


def through_json(own):
    serializer = JsonSerializer()
    return serializer.deserialize(serializer.serialize(own))


def test_what_waits_for_its_answer_is_saved_too(memory, told):
    told("ann", "I keep bees in Graz.")
    own = RMMMemory.from_defaults(memory, user_id="ann", session_id="s", history_turns=7, user_name="Ann")
    own.put(ChatMessage("Where are my bees?"))
    before = own.get()
    again = through_json(own)
    assert again == own
    assert (again.user_name, again.history_turns) == ("Ann", 7)
    assert [m.content for m in again.get()] == [m.content for m in before]  # the same recall
    again.put(ChatMessage("In Graz [1].", role="assistant"))
    assert [t.text for t in memory.store.turns("ann", "s")] == ["Where are my bees?", "In Graz."]
    assert len(memory.store.feedback()) == 1


def test_a_history_that_was_given_is_saved_too(memory):
    own = RMMMemory.from_defaults(
        memory, user_id="ann", chat_history=[ChatMessage("I am Ann."), ChatMessage("Hello Ann.", role="assistant")]
    )
    own.put(ChatMessage("And now?"))
    assert [m.content for m in through_json(own).get()] == ["I am Ann.", "Hello Ann.", "And now?"]


def test_a_memory_opened_otherwise_is_found_in_this_process(open_memory):
    memory = open_memory()
    own = RMMMemory.from_defaults(memory, user_id="ann")
    assert through_json(own).memory is memory
    assert through_json(through_json(own)) == own


async def test_a_question_of_two_contexts_is_recalled_for_each_user(memory, told, model):
    for user, town in (("ann", "Graz"), ("bob", "Linz")):
        told(user, f"I keep bees in {town}.")
    agent = FunctionAgent(llm=hide_markers(model, memory))
    for user, town, other in (("ann", "Graz", "Linz"), ("bob", "Linz", "Graz")):
        model.enqueue("There [1].")
        await agent.run("Where are my bees?", memory=RMMMemory.from_defaults(memory, user_id=user))
        prompt = "\n".join(m.content for m in model.history[-1])
        assert town in prompt
        assert other not in prompt
    assert len(memory.store.feedback()) == 2
