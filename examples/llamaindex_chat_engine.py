"""A chat engine whose users come back: it remembers their earlier sessions, and never one's for another.

python examples/llamaindex_chat_engine.py                             offline, no key
python examples/llamaindex_chat_engine.py --model openai:gpt-4o-mini  with a chat model of yours
python examples/llamaindex_chat_engine.py --model local --gguf FILE   with a small model on this machine
"""

from __future__ import annotations

from _llamaindex_options import choice
from _talk import bank, cites, says, session, streams
from llama_index.core.chat_engine import SimpleChatEngine

from llamaindex_rmm import RMMMemory, hide_markers, open_memory

SESSIONS = (  # user, session, what is said
    (
        "noor",
        "March",
        (
            "Hi! I'm renovating an old canal house in Utrecht together with my brother Sami.",
            "The kitchen has to be finished before my son's birthday on 20 June.",
            "One thing about paint: the smell of oil paint gives me a headache.",
        ),
    ),
    (
        "noor",
        "April",
        (
            "What gives me a headache?",
            "Guess what, we found a mosaic floor from 1890 under the carpet.",
            "Who is renovating the house with me?",
        ),
    ),
    (
        "noor",
        "June",
        (
            "What did we find under the carpet?",
            "When does the kitchen have to be finished?",
            "Which car do I drive?",
        ),
    ),
    ("tom", "June", ("I rent a flat in Leeds.", "What did we find under the carpet?")),
)


def main() -> None:
    """Three sessions of one user and one of another; an engine and its history last as long as one of them."""
    with (
        choice(__doc__) as chosen,
        open_memory(chosen.db, llm=chosen.reflects, embed_model=chosen.embeddings, config=chosen.config) as memory,
    ):
        llm = hide_markers(chosen.model, memory)  # the model cites what it uses; users never see how
        for user, name, talk in SESSIONS:
            session(f"{user.title()}, {name}")
            rmm = RMMMemory.from_defaults(memory=memory, user_id=user, user_name=user.title())
            engine = SimpleChatEngine.from_defaults(llm=llm, memory=rmm, system_prompt="Answer in one sentence.")
            for text in talk:
                says(user.title(), text)
                if text.endswith("?"):
                    streams("App", engine.stream_chat(text).response_gen)
                else:
                    says("App", str(engine.chat(text)))
                if rmm.last_answer is not None:  # a model may say nothing at all
                    cites(memory, user, [cited.id for cited in rmm.last_answer.cited])
            engine.reset()  # what your app does at the end of a session: here it is also when topics are made of it

        for user in memory.users():
            bank(memory, user)


if __name__ == "__main__":
    main()
