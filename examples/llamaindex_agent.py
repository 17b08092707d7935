"""An agent with a tool, whose context is saved as JSON after every message and restored for the next.

python examples/llamaindex_agent.py                             offline, no key
python examples/llamaindex_agent.py --model openai:gpt-4o-mini  with a chat model of yours
python examples/llamaindex_agent.py --model local --gguf FILE --no-tools
"""

from __future__ import annotations

import asyncio
import json

from _llamaindex_models import ChatLLM
from _llamaindex_options import choice
from _options import Choice
from _talk import astreams, bank, cites, says, session
from llama_index.core.agent.workflow import AgentStream, FunctionAgent
from llama_index.core.workflow import Context

from llamaindex_rmm import RMMMemory, hide_markers, open_memory

INGREDIENTS = {
    "pho": "beef broth, rice noodles, star anise, fresh coriander",
    "bibimbap": "rice, spinach, carrots, fried egg, gochujang",
}


def recipe(dish: str) -> str:
    """What goes into a dish."""
    needed = INGREDIENTS.get(dish.strip().casefold())
    return f"For {dish}: {needed}." if needed else f"There is no recipe of {dish}."


TALKS = (  # user, session, what is said
    (
        "jonas",
        "Sunday",
        (
            "Hi, I'm Jonas. I can't stand fresh coriander, it tastes like soap to me.",
            "My oven broke down this morning.",
            "On Fridays I cook for six, my in-laws come over.",
        ),
    ),
    (
        "jonas",
        "Friday",
        (
            "What is the recipe for pho?",
            "For how many people do I cook on Fridays?",
            "What happened to my oven?",
            "What is the name of my neighbour?",
        ),
    ),
    ("ada", "Friday", ("I like bibimbap.", "Which herb can I not stand?")),
)


async def serve(chosen: Choice[ChatLLM]) -> None:
    """Two sessions of one user and one of another; between two messages the app keeps nothing but text."""
    with open_memory(chosen.db, llm=chosen.reflects, embed_model=chosen.embeddings, config=chosen.config) as memory:
        agent = FunctionAgent(
            llm=hide_markers(chosen.model, memory),
            tools=[recipe] if chosen.tools else [],
            system_prompt="You are a cook. Answer in one or two sentences.",
        )
        for user, name, talk in TALKS:
            session(f"{user.title()}, {name}")
            rmm = RMMMemory.from_defaults(memory=memory, user_id=user, session_id=name, user_name=user.title())
            saved = ""
            for text in talk:
                says(user.title(), text)
                context = Context.from_dict(agent, json.loads(saved)) if saved else Context(agent)
                running = agent.run(text, ctx=context, memory=rmm)  # a restored context has the memory already
                await astreams("Agent", (e.delta async for e in running.stream_events() if isinstance(e, AgentStream)))
                await running
                rmm = await context.store.get("memory")
                if rmm.last_answer is not None:  # a model may say nothing at all
                    cites(memory, user, [cited.id for cited in rmm.last_answer.cited])
                saved = json.dumps(context.to_dict())  # it names the memory, the user and the session
            print(f"       -- {len(await rmm.aget_all())} messages, saved and restored as {len(saved)} letters of JSON")
            await rmm.areset()  # what your app does at the end of a session: here it is also when topics are made of it

        for user in memory.users():
            bank(memory, user)


def main() -> None:
    """Run the talks."""
    with choice(__doc__, agent=True) as chosen:
        asyncio.run(serve(chosen))


if __name__ == "__main__":
    main()
