"""A chain of your own that streams: retriever, prompt, model, parser, and a last step that remembers the turn.

python examples/langchain_lcel_rag.py                             offline, no key
python examples/langchain_lcel_rag.py --model openai:gpt-4o-mini  with a chat model of yours
"""

from __future__ import annotations

from operator import itemgetter

from _langchain_options import choice
from _talk import bank, cites, says, session, streams
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough

from langchain_rmm import CitationOutputParser, CitedAnswer, RMMRetriever, format_memories, open_memory, turn_recorder

SESSIONS = {
    "March": (
        "Hi, I want to run the marathon in Porto on 3 November.",
        "I only have time to train before seven in the morning.",
        "My left knee hurts after about fifteen kilometres.",
    ),
    "May": (
        "What is wrong with my knee?",
        "The knee is fine again, the physiotherapist gave me new insoles.",
        "When can I train?",
    ),
    "October": (
        "Which marathon do I want to run?",
        "Who gave me the new insoles?",
        "What did I have for breakfast?",
    ),
}
PROMPT = ChatPromptTemplate.from_messages(
    [("system", "You are a running coach. Answer in one sentence.\n\n{memories}"), ("human", "{question}")]
)


def main() -> None:
    """Three sessions of one user; each answer streams, and is learned from when it is complete."""
    with (
        choice(__doc__) as chosen,
        open_memory(chosen.db, model=chosen.reflects, embeddings=chosen.embeddings, config=chosen.config) as memory,
    ):
        chain = (
            RunnablePassthrough.assign(documents=itemgetter("question") | RMMRetriever(memory=memory))
            | RunnablePassthrough.assign(memories=lambda known: format_memories(known["documents"]))
            | RunnablePassthrough.assign(answer=PROMPT | chosen.model | CitationOutputParser())
            | turn_recorder(memory, user_name="Ines")
        )

        for name, talk in SESSIONS.items():
            session(name)
            config = {"configurable": {"user_id": "ines", "session_id": name}}  # retriever and recorder read it
            for text in talk:
                says("Ines", text)
                chunks = streams("Coach", chain.stream({"question": text}, config))
                answer = sum(chunks, CitedAnswer(""))  # chunks add up; the last one knows what is cited
                cites(memory, "ines", [document.metadata["memory_id"] for document in answer.memories])
            memory.chat("ines", session_id=name).end()  # or leave it: silence ends a session too

        bank(memory, "ines")


if __name__ == "__main__":
    main()
