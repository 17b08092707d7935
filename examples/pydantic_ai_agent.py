"""Pydantic AI: an agent whose instructions hold what the memory brings up, whose tool searches further.

python examples/pydantic_ai_agent.py                                  offline, no key
python examples/pydantic_ai_agent.py --model openai-chat:gpt-4o-mini  with a model of yours
python examples/pydantic_ai_agent.py --model local --gguf FILE --no-tools
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from _agents import Turns, cited_now, visible
from _options import Choice
from _pydantic_ai_models import AgentLLM, choice
from _talk import astreams, bank, cites, says, session
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart
from pydantic_ai.models import Model

from rmm_core import CitationStream, Recall, ReflectiveMemory
from rmm_core.prompts import as_data

TRAINS = {
    "graz": "07:26 to Vienna, 08:45 to Salzburg, 09:38 to Ljubljana",
    "linz": "06:30 to Vienna, 07:52 to Passau",
}
TALKS = (  # user, session, what is said
    (
        "ines",
        "Monday",
        (
            "Which way must my seat face?",
            "Hi, I'm Ines. I get sick when I ride backwards, so my seat must face forwards.",
            "My boss pays first class only for trips of more than three hours.",
            "I take a folding bike with me on every trip.",
        ),
    ),
    (
        "ines",
        "Thursday",
        (
            "What are the departures of Graz?",
            "Which way must my seat face?",
            "When does my boss pay first class?",
            "What do I take with me on every trip?",
            "Please search memory for my bike.",
            "What is my shoe size?",
        ),
    ),
    ("otto", "Thursday", ("I like to sit by the window.", "What do I take with me on every trip?")),
)


@dataclass
class Visit:
    """What a run needs: the app knows it, the model never chooses it."""

    user_id: str
    memory: ReflectiveMemory
    recall: Recall


def departures(station: str) -> str:
    """The next trains from a station."""
    return f"From {station}: {TRAINS.get(station.strip().casefold(), 'no trains today')}."


async def search_memory(run: RunContext[Visit], query: str) -> str:
    """Look up what this user said in earlier conversations."""
    found = await run.deps.memory.arecall(run.deps.user_id, query, top_m=1)
    return "; ".join(as_data(shown.memory.summary) for shown in found.shown) or "Nothing was found."


def remembering(model: Model, *, tools: bool) -> Agent[Visit, str]:
    """The agent; what the memory brought up for a run is part of its instructions, and of no history."""
    return Agent(
        model,
        deps_type=Visit,
        instructions=["You sell train tickets. Answer in one or two sentences.", memories],
        tools=[departures, search_memory] if tools else [],
    )


def memories(run: RunContext[Visit]) -> str:
    """The memories, numbered, with the rules for citing them; empty when there are none."""
    return run.deps.recall.instructions()


def history(turns: Turns, recall: Recall) -> list[ModelMessage]:
    """What was said in this session."""
    return [
        message
        for said, answer in turns
        for message in (ModelRequest.user_text_prompt(said), ModelResponse([TextPart(cited_now(answer, recall))]))
    ]


async def serve(chosen: Choice[Model]) -> None:
    """Two sessions of one user and one of another."""
    llm = None if chosen.reflects is None else AgentLLM(chosen.reflects)
    async with ReflectiveMemory.open(chosen.db, llm=llm, embedder=chosen.embeddings, config=chosen.config) as memory:
        agent = remembering(chosen.model, tools=chosen.tools)
        for user, name, talk in TALKS:
            session(f"{user.title()}, {name}")
            async with memory.chat(user, user_name=user.title()) as chat:  # leaving it ends the session
                turns = []
                for text in talk:
                    says(user.title(), text)
                    recall = await chat.arecall(text)
                    stream = CitationStream(len(recall.shown))
                    asked = {"deps": Visit(user, memory, recall), "message_history": history(turns, recall)}
                    async with agent.run_stream(text, **asked) as run:
                        words = run.stream_text(delta=True, debounce_by=None)
                        await astreams("Agent", visible(words, stream))
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
