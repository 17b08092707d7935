"""A graph of your own: one node recalls, one answers, one records.

python examples/langgraph_agent.py                             offline, no key
python examples/langgraph_agent.py --model openai:gpt-4o-mini  with a chat model of yours
"""

from __future__ import annotations

from _langchain_options import choice
from _talk import bank, cites, says, session, streams
from langchain_core.messages import SystemMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph

from langchain_rmm import citations_of, hide_markers, open_memory, with_markers

SESSIONS = {
    "first lesson": (
        "Hello! I'm learning Portuguese for a job interview at the harbour on 12 May.",
        "I keep mixing up the verbs ser and estar.",
        "I learn best with the songs of Amália Rodrigues, grammar tables bore me.",
    ),
    "second lesson": (
        "Which verbs do I keep mixing up?",
        "Which songs do I learn best with?",
        "When is my job interview?",
    ),
    "third lesson": (
        "Guess what, they hired me! I start at the harbour on 1 June.",
        "Why did I learn Portuguese?",
    ),
}


class State(MessagesState):
    """The talk, and the name of what was recalled for it: a checkpoint holds no text of a memory."""

    recall_id: str


def main() -> None:
    """Three threads of one user."""
    with (
        choice(__doc__) as chosen,
        open_memory(chosen.db, model=chosen.reflects, embeddings=chosen.embeddings, config=chosen.config) as memory,
    ):

        def recall(state: State, config: RunnableConfig) -> dict:
            user = config["configurable"]["user_id"]
            return {"recall_id": memory.recall(user, state["messages"][-1].text).id}

        def answer(state: State, config: RunnableConfig) -> dict:
            recalled = memory.recent.get(config["configurable"]["user_id"], state["recall_id"])
            rules = SystemMessage(f"You teach Portuguese. Answer in one sentence.\n\n{recalled.instructions()}")
            # The model sees its earlier markers; what it streams has none, they stand in response_metadata.
            said = with_markers(state["messages"], recalled)
            return {"messages": [hide_markers(chosen.model, recalled).invoke([rules, *said])]}

        def record(state: State, config: RunnableConfig) -> None:
            user, thread = config["configurable"]["user_id"], config["configurable"]["thread_id"]
            *_, said, reply = state["messages"]
            recall_id, citations = citations_of(reply)
            lesson = memory.chat(user, session_id=thread, user_name="Nuria")
            # Named by the message's id, the exchange is stored once, even when this node is run again.
            lesson.record(said.text, citations, memory.recent.get(user, recall_id), key=said.id)

        graph = StateGraph(State)
        graph.add_sequence([recall, answer, record])
        graph.add_edge(START, "recall")
        graph.add_edge("record", END)
        app = graph.compile(checkpointer=InMemorySaver())

        for thread, talk in SESSIONS.items():
            session(f"Nuria, {thread}")
            config = {"configurable": {"user_id": "nuria", "thread_id": thread}}
            for text in talk:
                says("Nuria", text)
                stream = app.stream({"messages": [("user", text)]}, config, stream_mode="messages")
                streams("Tutor", (chunk for chunk, _ in stream))
                last = app.get_state(config).values["messages"][-1]
                cites(memory, "nuria", last.response_metadata["reflective_memory"]["memory_ids"])
            memory.chat("nuria", session_id=thread).end()  # or leave it: silence ends a session too

        bank(memory, "nuria")


if __name__ == "__main__":
    main()
