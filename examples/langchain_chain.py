"""An existing ConversationChain, and a memory that outlives its session.

python examples/langchain_chain.py                             offline, no key
python examples/langchain_chain.py --model openai:gpt-4o-mini  with a chat model of yours
"""

from __future__ import annotations

import warnings

from _langchain_options import choice
from _talk import bank, cites, says, session
from langchain_classic.chains import ConversationChain
from langchain_core._api import LangChainDeprecationWarning

from langchain_rmm import RMMMemory, open_memory

MONDAY = (
    "Hi! I just moved from Ghent to Lisbon for a job at the oceanarium.",
    "I look after the sea otters there; my favourite is called Biscuit.",
    "One thing before you suggest lunch places: I'm allergic to hazelnuts, even traces of them.",
    "My sister Lotte runs a bakery in the old fish market of Ghent.",
)
FRIDAY = (
    "What am I allergic to?",
    "Where is my sister's bakery?",
    "What is my favourite otter called?",
    "Which animals do I look after?",
    "When is my birthday?",
)


def main() -> None:
    """Two sessions of one user; the chain's history ends with the first, what was said in it does not."""
    with (
        choice(__doc__) as chosen,
        open_memory(chosen.db, model=chosen.reflects, embeddings=chosen.embeddings, config=chosen.config) as memory,
    ):
        remembers = RMMMemory(memory=memory, user_id="mara", user_name="Mara")
        with warnings.catch_warnings():
            # LangChain calls this class its legacy. Apps that have it keep it; new ones begin with langchain_agent.py.
            warnings.simplefilter("ignore", LangChainDeprecationWarning)
            chain = ConversationChain(llm=chosen.model, memory=remembers)  # memory= is all that changes in your app

        session("Monday")
        for text in MONDAY:
            says("Mara", text)
            says("App", chain.predict(input=text))
        remembers.clear()  # what your app does at the end of a session: here it is also when topics are made of it

        session("Friday")
        for text in FRIDAY:
            says("Mara", text)
            says("App", chain.predict(input=text))
            cites(memory, "mara", [m.id for m in remembers.last_answer.cited])
        remembers.clear()

        bank(memory, "mara")


if __name__ == "__main__":
    main()
