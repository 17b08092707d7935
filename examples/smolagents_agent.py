"""Smolagents: an agent whose system prompt holds what the memory brings up, and whose tools search and forget.

python examples/smolagents_agent.py                      offline, no key
python examples/smolagents_agent.py --model gpt-4o-mini  with a model of yours
python examples/smolagents_agent.py --model local --gguf FILE --no-tools
"""

from __future__ import annotations

from _agents import Turns, cited_now
from _options import Choice
from _smolagents_models import ModelLLM, choice
from _talk import bank, cites, says, session, streams
from smolagents import LogLevel, Model, Tool, ToolCallingAgent, tool

from rmm_core import Chat, Recall, ReflectiveMemory
from rmm_core.prompts import as_data

TALKS = (  # user, session, what is said
    (
        "vera",
        "March",
        (
            "What eats my lettuce?",
            "Hi, I'm Vera. Slugs eat my lettuce every spring.",
            "The bed behind the shed gets no sun before noon.",
            "My neighbour Olaf gave me seeds of a yellow tomato called Dottie.",
            "On Thursdays I play the accordion in a band.",
        ),
    ),
    (
        "vera",
        "April",
        (
            "What is the sowing time of carrots?",
            "What eats my lettuce?",
            "Which bed gets no sun before noon?",
            "What is the name of my yellow tomato?",
            "Please forget about the accordion.",
            "On which days do I play the accordion?",
            "How large is my pond?",
        ),
    ),
    ("nils", "April", ("I grow roses on my balcony.", "What eats my lettuce?")),
)
SOWING = {"carrots": "March to June, outdoors", "tomatoes": "March, on the window sill"}


@tool
def sowing_time(plant: str) -> str:
    """When to sow a plant.

    Args:
        plant: Its name.
    """
    return f"Sow {plant}: {SOWING.get(plant.strip().casefold(), 'nobody knows when')}."


def memory_tools(memory: ReflectiveMemory, user_id: str) -> list[Tool]:
    """The memory of one user as tools; the model does not choose whose."""

    @tool
    def search_memory(query: str) -> str:
        """Look up what this user said in earlier conversations.

        Args:
            query: What to look for, in words.
        """
        found = memory.recall(user_id, query, top_m=1)
        return "; ".join(as_data(shown.memory.summary) for shown in found.shown) or "Nothing was found."

    @tool
    def forget(what: str) -> str:
        """Delete what is known of something. Only when the user asks for it.

        Args:
            what: What it is about, in words.
        """
        for shown in memory.recall(user_id, what, top_m=1).shown:
            memory.delete(user_id, shown.memory.id)
        return "It is forgotten."

    return [search_memory, forget]


def instructions(recall: Recall, turns: Turns) -> str:
    """What the agent knows: of the user, and of this session."""
    return "\n\n".join(
        [
            "You are a gardener. Answer in one or two sentences.",
            recall.instructions(),
            "What you hand to final_answer is your answer: its numbers belong there.",
            *(f"Earlier the user said: {as_data(said)}\nYou: {cited_now(answer, recall)}" for said, answer in turns),
        ]
    )


def talk_with(agent: ToolCallingAgent, chat: Chat, memory: ReflectiveMemory, said: tuple[str, ...]) -> None:
    """One session."""
    turns = []
    for text in said:
        says(chat.user_name, text)
        recall = chat.recall(text)
        agent.instructions = instructions(recall, turns)  # made part of the system prompt at the start of a run
        reply = str(agent.run(text))
        answer = chat.record(text, reply, recall)  # markers stripped, turns stored, citations learned
        streams("Agent", [answer.text])
        cites(memory, chat.user_id, [cited.id for cited in answer.cited])
        turns.append((text, answer))


def serve(chosen: Choice[Model]) -> None:
    """Two sessions of one user and one of another."""
    llm = None if chosen.reflects is None else ModelLLM(chosen.reflects)
    with ReflectiveMemory.open(chosen.db, llm=llm, embedder=chosen.embeddings, config=chosen.config) as memory:
        for user, name, said in TALKS:
            session(f"{user.title()}, {name}")
            tools = [sowing_time, *memory_tools(memory, user)] if chosen.tools else []
            agent = ToolCallingAgent(tools, chosen.model, verbosity_level=LogLevel.OFF)
            with memory.chat(user, user_name=user.title()) as chat:  # leaving it ends the session
                talk_with(agent, chat, memory, said)

        for user in memory.users():
            bank(memory, user)


def main() -> None:
    """Run the talks."""
    with choice(__doc__) as chosen:
        serve(chosen)


if __name__ == "__main__":
    main()
