"""An agent with tools that remembers its users across threads, and never one's facts for another.

python examples/langchain_agent.py                             offline, no key
python examples/langchain_agent.py --model openai:gpt-4o-mini  with a chat model of yours
python examples/langchain_agent.py --model local --gguf FILE --no-tools
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from _langchain_options import choice
from _talk import bank, cites, says, session, streams
from langchain.agents import create_agent
from langchain_core.messages import BaseMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from langchain_rmm import RMMMiddleware, memory_tools, open_memory

MENUS = {
    "aqua": "hazelnut soup, grilled sea bass, pear tart",
    "zazah": "fried octopus, rice with beans, orange cake",
}


@tool
def menu(restaurant: str) -> str:
    """Tonight's menu of a restaurant in town."""
    dishes = MENUS.get(restaurant.strip().casefold())
    return f"Tonight at {restaurant}: {dishes}." if dishes else f"There is no menu of {restaurant}."


@dataclass
class Context:
    """Who is talking: the app knows it from the login, the model never chooses it."""

    user_id: str


VISITS = (  # user, thread, what is said
    (
        "mara",
        "mara-in-may",
        (
            "Hi, I'm Mara. I'm allergic to hazelnuts, even traces of them.",
            "I never drink wine.",
            "Please remember: I always want a table by the window.",
        ),
    ),
    (
        "mara",
        "mara-in-june",
        (
            "What is on the menu of Aqua?",
            "Which drink should you not offer me?",
            "Which table do I want?",
            "What am I allergic to?",
        ),
    ),
    ("tom", "tom-in-june", ("I eat no meat.", "What am I allergic to?")),
)


def main() -> None:
    """Two threads of one user and one of another; what was said in a thread is remembered when it has ended."""
    with (
        choice(__doc__, agent=True) as chosen,
        open_memory(chosen.db, model=chosen.reflects, embeddings=chosen.embeddings, config=chosen.config) as memory,
    ):
        remembers = RMMMiddleware(memory)
        agent = create_agent(
            chosen.model,
            tools=[menu, *memory_tools(memory)] if chosen.tools else [],
            system_prompt="You are the concierge of a hotel. Answer in one or two sentences.",
            middleware=[remembers],
            context_schema=Context,
            checkpointer=InMemorySaver(),
        )

        def answer(user: str, thread: str, text: str) -> Iterator[BaseMessage]:
            """What the agent says, as it says it."""
            for chunk, where in agent.stream(
                {"messages": [("user", text)]},
                {"configurable": {"thread_id": thread}},
                context=Context(user),
                stream_mode="messages",
            ):
                if where["langgraph_node"] == "model":
                    yield chunk

        for user, thread, talk in VISITS:
            session(f"{user.title()}, thread {thread}")
            for text in talk:
                says(user.title(), text)
                streams("Agent", answer(user, thread, text))
                last = agent.get_state({"configurable": {"thread_id": thread}}).values["messages"][-1]
                cited = last.response_metadata.get("reflective_memory", {}).get("memory_ids", [])
                cites(memory, user, cited)
            remembers.end(user, thread)  # or leave it: a thread that fell silent is reflected at the next visit

        for user in memory.users():
            bank(memory, user)


if __name__ == "__main__":
    main()
