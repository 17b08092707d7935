"""LlamaIndex's own Memory, with a block that remembers across sessions.

python examples/llamaindex_memory_block.py                             offline, no key
python examples/llamaindex_memory_block.py --model openai:gpt-4o-mini  with a chat model of yours
"""

from __future__ import annotations

import asyncio

from _llamaindex_models import ChatLLM
from _llamaindex_options import choice
from _options import Choice
from _talk import bank, says, session
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.memory import Memory

from llamaindex_rmm import RMMMemoryBlock, hide_markers, open_memory

SESSIONS = {
    "first rehearsal": (
        "Hello, I sing alto in the choir of Saint Gall and want to learn the Mozart Requiem.",
        "I can practise on Tuesdays and on Sunday evenings.",
        "The high notes in the Dies irae hurt my throat.",
        "My vocal coach is called Beatrix.",
    ),
    "second rehearsal": (
        "When can I practise?",
        "What hurts my throat?",
        "Who is my vocal coach?",
        "Beatrix showed me a breathing exercise with a straw, it helps a lot.",
    ),
    "third rehearsal": (
        "Which exercise helps me a lot?",
        "Which part do I sing in the choir?",
        "What colour is my dress?",
    ),
}


async def rehearse(chosen: Choice[ChatLLM]) -> None:
    """Three sessions of one user, each with a memory of LlamaIndex's for the session itself."""
    with open_memory(chosen.db, llm=chosen.reflects, embed_model=chosen.embeddings, config=chosen.config) as memory:
        llm = hide_markers(chosen.model, memory)
        block = RMMMemoryBlock(memory=memory, user_id="paula", user_name="Paula")
        for name, talk in SESSIONS.items():
            session(f"Paula, {name}")
            short_term = Memory.from_defaults(session_id=name, memory_blocks=[block])
            engine = SimpleChatEngine.from_defaults(llm=llm, memory=short_term, system_prompt="Answer in one sentence.")
            for text in talk:
                says("Paula", text)
                says("App", str(await engine.achat(text)))
            # Memory never tells its blocks that a session is over; until you do, the block does not have it.
            report = await block.aend(short_term)
            print(f"       -- the session is over and {report.status}; new topics: {report.added}")
        bank(memory, "paula")


def main() -> None:
    """Run the sessions."""
    with choice(__doc__) as chosen:
        asyncio.run(rehearse(chosen))


if __name__ == "__main__":
    main()
