"""OpenAI Agents SDK: an agent whose instructions hold what the memory brings up, whose tool forgets.

python examples/openai_agents_agent.py                      offline, no key
python examples/openai_agents_agent.py --model gpt-4o-mini  with a model of yours
python examples/openai_agents_agent.py --model local --gguf FILE --no-tools
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from _agents import Turns, cited_now, visible
from _openai_agents_models import ModelLLM, choice
from _options import Choice
from _talk import astreams, bank, cites, says, session
from agents import Agent, Model, RunContextWrapper, Runner, function_tool
from openai.types.responses import ResponseTextDeltaEvent

from rmm_core import CitationStream, Recall, ReflectiveMemory

TALKS = (  # user, session, what is said
    (
        "rosa",
        "Spring",
        (
            "Which saddle hurts my back?",
            "Hi, I'm Rosa. The narrow saddle hurts my back.",
            "I ride to work through the forest, eleven kilometres each way.",
            "My chain breaks every winter because of the road salt.",
            "On Wednesdays I sing in a choir.",
        ),
    ),
    (
        "rosa",
        "Winter",
        (
            "What is the stock of chains?",
            "Which saddle hurts my back?",
            "How far do I ride to work?",
            "Why does my chain break every winter?",
            "Please forget about the choir.",
            "On which day do I sing in a choir?",
            "What colour is my helmet?",
        ),
    ),
    ("kim", "Winter", ("I ride a cargo bike.", "Which saddle hurts my back?")),
)
STOCK = {"chains": 14, "saddles": 3}


@dataclass
class Visit:
    """What a run needs: the app knows it, the model never chooses it."""

    user_id: str
    memory: ReflectiveMemory
    recall: Recall


@function_tool
def stock(part: str) -> str:
    """How many of a part there are in the workshop."""
    return f"There are {STOCK.get(part.strip().casefold(), 'no')} {part} here."


@function_tool
async def forget(run: RunContextWrapper[Visit], what: str) -> str:
    """Delete what is known of something. Only when the user asks for it."""
    memory, user_id = run.context.memory, run.context.user_id
    for shown in (await memory.arecall(user_id, what, top_m=1)).shown:
        await asyncio.to_thread(memory.delete, user_id, shown.memory.id)
    return "It is forgotten."


def instructions(run: RunContextWrapper[Visit], agent: Agent[Visit]) -> str:
    """What the agent knows of the user, made anew for every run; it is part of no history."""
    return f"You repair bicycles. Answer in one or two sentences.\n\n{run.context.recall.instructions()}"


def messages(turns: Turns, recall: Recall, text: str) -> list[dict[str, str]]:
    """What was said in this session, and is said now."""
    earlier = [
        {"role": role, "content": words}
        for said, answer in turns
        for role, words in (("user", said), ("assistant", cited_now(answer, recall)))
    ]
    return [*earlier, {"role": "user", "content": text}]


async def words(agent: Agent[Visit], given: list[Any], visit: Visit) -> AsyncIterator[str]:
    """What the agent says, as it says it."""
    async for event in Runner.run_streamed(agent, given, context=visit).stream_events():
        if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent):
            yield event.data.delta


async def serve(chosen: Choice[Model]) -> None:
    """Two sessions of one user and one of another."""
    llm = None if chosen.reflects is None else ModelLLM(chosen.reflects)
    tools = [stock, forget] if chosen.tools else []
    agent = Agent[Visit]("mechanic", instructions=instructions, model=chosen.model, tools=tools)
    async with ReflectiveMemory.open(chosen.db, llm=llm, embedder=chosen.embeddings, config=chosen.config) as memory:
        for user, name, talk in TALKS:
            session(f"{user.title()}, {name}")
            async with memory.chat(user, user_name=user.title()) as chat:  # leaving it ends the session
                turns = []
                for text in talk:
                    says(user.title(), text)
                    recall = await chat.arecall(text)
                    stream = CitationStream(len(recall.shown))
                    said = words(agent, messages(turns, recall, text), Visit(user, memory, recall))
                    await astreams("Agent", visible(said, stream))
                    answer = await chat.arecord(text, stream.close()[1], recall)  # stored, and learned from
                    cites(memory, user, [cited.id for cited in answer.cited])
                    turns.append((text, answer))

        for user in memory.users():
            bank(memory, user)


def main() -> None:
    """Run the talks."""
    with choice(__doc__) as chosen:
        asyncio.run(serve(chosen))


if __name__ == "__main__":
    main()
