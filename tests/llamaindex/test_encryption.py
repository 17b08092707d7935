"""A memory with LlamaIndex's models and a key: what is saved of it, and how it comes back."""

import json
import pickle
from importlib.util import find_spec
from weakref import WeakValueDictionary

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.workflow import Context

from llamaindex_rmm import RMMMemory, hide_markers, open_memory
from rmm_core import ConfigError, NotFoundError
from rmm_core.errors import WrongKeyError
from rmm_core.testing import HashEmbedder
from tests.llamaindex.conftest import ScriptedIndexLLM

encrypted = pytest.mark.skipif(
    find_spec("sqlcipher3") is None, reason="needs the extra 'encryption': pip install sqlcipher3"
)
KEY = "correct horse"


def open_(folder, key=KEY):
    return open_memory(folder / "memory.db", embed_model=HashEmbedder(), key=key)


@pytest.fixture
def restart(monkeypatch):
    """Knows of no open memory any more, as another process."""
    return lambda: monkeypatch.setattr("llamaindex_rmm._registry._memories", WeakValueDictionary())


def test_what_is_no_key(tmp_path):
    with pytest.raises(ConfigError, match="32 random ones"):
        open_(tmp_path, b"short")
    assert list(tmp_path.iterdir()) == []


@encrypted
async def test_a_context_does_not_hold_the_key_and_its_memory_is_opened_with_it(tmp_path, restart):
    memory = open_(tmp_path)
    model = ScriptedIndexLLM().enqueue("Two.")
    agent = FunctionAgent(llm=hide_markers(model, memory))
    context = Context(agent)
    own = RMMMemory.from_defaults(memory, user_id="ann", session_id="tuesday")
    await agent.run("I have two hives.", ctx=context, memory=own)
    saved = json.dumps(context.to_dict())
    assert "memory.db" in saved
    assert "horse" not in saved + repr(own) + own.model_dump_json()
    await memory.aclose()
    restart()
    model.enqueue("Still two.")
    again = FunctionAgent(llm=model)
    said = r"open_memory\('.*memory\.db', \.\.\.\) before .* with its key if it is encrypted \(keys are not saved\)"
    with pytest.raises(ValueError, match=said):
        await again.run("And now?", ctx=Context.from_dict(again, json.loads(saved)))
    for wrong in (None, "wrong horse"):
        with pytest.raises(WrongKeyError, match=r"memory\.db"):
            open_(tmp_path, wrong)
    memory = open_(tmp_path)
    await again.run("And now?", ctx=Context.from_dict(again, json.loads(saved)))
    assert [t.text for t in memory.store.turns("ann", "tuesday")][::2] == ["I have two hives.", "And now?"]
    memory.store.close()


@encrypted
def test_a_pickle_does_not_hold_the_key(tmp_path, restart):
    memory = open_(tmp_path)
    saved = pickle.dumps(RMMMemory.from_defaults(memory, user_id="ann"))
    assert b"horse" not in saved
    assert pickle.loads(saved).memory is memory
    memory.store.close()
    restart()
    with pytest.raises(NotFoundError, match="with its key if it is encrypted"):
        pickle.loads(saved)
