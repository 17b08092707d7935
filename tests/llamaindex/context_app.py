"""An app in a process of its own: an agent whose context is kept as JSON from one start to the next."""

import asyncio
import json
import sys
import warnings
from pathlib import Path

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.workflow import Context

from llamaindex_rmm import RMMMemory, hide_markers, open_memory
from rmm_core import RMMConfig
from rmm_core.testing import HashEmbedder
from tests.llamaindex.conftest import ScriptedIndexLLM, calling


def look_up(topic: str) -> str:
    """What the almanac says of a topic."""
    return f"{topic}: nothing"


async def main(folder, ending, runs):
    saved = folder / "context.json"
    memory = open_memory(folder / "memory.db", embed_model=HashEmbedder(), config=RMMConfig(attribution="markers"))
    model = ScriptedIndexLLM()
    agent = FunctionAgent(llm=hide_markers(model, memory), tools=[look_up])
    context, own = Context(agent), RMMMemory.from_defaults(memory, user_id="ann", session_id="tuesday")
    if saved.exists():
        context, own = Context.from_dict(agent, json.loads(saved.read_text())), None
    for run in runs:
        model.enqueue(calling("look_up", "I look it up.", topic=f"bees {run}"), f"Answer {run}.")
        handler = agent.run(f"I have {run} hives of bees.", ctx=context, memory=own)
        sys.stdout.write(f"{(await handler).response.content} {len(model.history[-1])}\n")
    saved.write_text(json.dumps(context.to_dict()))
    if ending == "crash":
        memory.store.close()
    else:
        await memory.aclose()


if __name__ == "__main__":
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", category=DeprecationWarning)  # LlamaIndex's own: see pyproject.toml
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
