"""AutoGen: an agent with a memory of the kind that AutoGen's agents take.

python examples/autogen_agent.py                      offline, no key
python examples/autogen_agent.py --model gpt-4o-mini  with a model of yours (needs autogen-ext[openai])
python examples/autogen_agent.py --model local --gguf FILE --no-tools
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from _agents import cited_now
from _autogen_models import ClientLLM, choice
from _options import Choice
from _talk import astreams, bank, cites, says, session
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import ModelClientStreamingChunkEvent
from autogen_core.memory import Memory, MemoryContent, MemoryMimeType, MemoryQueryResult, UpdateContextResult
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import AssistantMessage, ChatCompletionClient, SystemMessage, UserMessage

from rmm_core import Answer, CitationStream, Message, Recall, ReflectiveMemory
from rmm_core.prompts import memory_text

TALKS = (  # user, session, what is said
    (
        "leo",
        "Autumn",
        (
            "What do I bake for the market?",
            "Hi, I'm Leo. I bake rye bread for the Saturday market.",
            "My starter is eleven years old, I call it Hugo.",
            "The oven in the yard takes two hours to get hot.",
        ),
    ),
    (
        "leo",
        "Winter",
        (
            "What is the price of rye?",
            "What do I bake for the market?",
            "What do I call my starter?",
            "How long does the oven take to get hot?",
            "Who is my dentist?",
        ),
    ),
    ("mia", "Winter", ("I bake with spelt.", "What do I call my starter?")),
)
PRICES = {"rye": "0.92 a kilo", "spelt": "1.80 a kilo"}


def price(flour: str) -> str:
    """What a kind of flour costs today."""
    return f"Today {flour} is {PRICES.get(flour.strip().casefold(), 'sold out')}."


class RMMMemory(Memory):
    """A session of a user as a memory of AutoGen's: it sees to what the model is shown, and learns what that cites."""

    def __init__(self, memory: ReflectiveMemory, user_id: str, user_name: str) -> None:
        self._memory = memory
        self._chat = memory.chat(user_id, user_name=user_name)
        self._turns: list[tuple[str, Answer]] = []
        self._recall: Recall | None = None
        self.stream = CitationStream(0)

    async def update_context(self, model_context: ChatCompletionContext) -> UpdateContextResult:
        """Before the model is asked: what the memory brings up for the present message, and what this session said."""
        asked = (await model_context.get_messages())[-1]
        self._recall = recall = await self._chat.arecall(str(asked.content))
        self.stream = CitationStream(len(recall.shown))
        await model_context.clear()  # of earlier recalls, and of what tools returned for earlier messages
        if recall.shown:
            await model_context.add_message(SystemMessage(content=recall.instructions()))
        for said, answer in self._turns:
            await model_context.add_message(UserMessage(content=said, source="user"))
            await model_context.add_message(AssistantMessage(content=cited_now(answer, recall), source="agent"))
        await model_context.add_message(asked)
        return UpdateContextResult(memories=_result(recall))

    async def record(self, said: str) -> Answer:
        """After the model was asked: the turn is stored, and what the answer cites is learned from."""
        answer = await self._chat.arecord(said, self.stream.close()[1], self._recall)
        self._turns.append((said, answer))
        return answer

    async def query(self, query: str | MemoryContent, *args: Any, **kwargs: Any) -> MemoryQueryResult:
        """What is known of something."""
        return _result(await self._chat.arecall(query if isinstance(query, str) else str(query.content)))

    async def add(self, content: MemoryContent, *args: Any, **kwargs: Any) -> None:
        """Something that the user said elsewhere."""
        await self._chat.aadd(Message("user", str(content.content)))

    async def clear(self) -> None:
        """Delete all that is known of the user."""
        await asyncio.to_thread(self._memory.forget_user, self._chat.user_id)

    async def close(self) -> None:
        """End the session, which becomes memories."""
        await self._chat.aend()


def _result(recall: Recall) -> MemoryQueryResult:
    return MemoryQueryResult(
        results=[
            MemoryContent(content=memory_text(s), mime_type=MemoryMimeType.TEXT, metadata={"memory_id": s.memory.id})
            for s in recall.shown
        ]
    )


async def serve(chosen: Choice[ChatCompletionClient]) -> None:
    """Two sessions of one user and one of another."""
    llm = None if chosen.reflects is None else ClientLLM(chosen.reflects)
    async with ReflectiveMemory.open(chosen.db, llm=llm, embedder=chosen.embeddings, config=chosen.config) as memory:
        for user, name, talk in TALKS:
            session(f"{user.title()}, {name}")
            own = RMMMemory(memory, user, user.title())
            agent = AssistantAgent(
                "baker",
                chosen.model,
                memory=[own],
                tools=[price] if chosen.tools else [],
                system_message="You are a baker. Answer in one or two sentences.",
                model_client_stream=True,
                reflect_on_tool_use=True,
            )
            for text in talk:
                says(user.title(), text)
                await astreams("Agent", visible(agent, own, text))
                answer = await own.record(text)
                cites(memory, user, [cited.id for cited in answer.cited])
            await own.close()

        for user in memory.users():
            bank(memory, user)


async def visible(agent: AssistantAgent, own: RMMMemory, text: str) -> AsyncIterator[str]:
    """The answer without its markers, as it comes."""
    async for event in agent.run_stream(task=text):
        if isinstance(event, ModelClientStreamingChunkEvent):
            yield own.stream.feed(event.content)
    yield own.stream.close()[0]


def main() -> None:
    """Run the talks."""
    with choice(__doc__) as chosen:
        asyncio.run(serve(chosen))


if __name__ == "__main__":
    main()
