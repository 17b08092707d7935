"""Whether a small model goes on citing in a running conversation: its earlier answers with their markers, or without.

    python -m benchmarks.citing --gguf MODEL.gguf [--json FILE]

Nine questions in one thread, five of which a memory answers; the answers, stripped, are the history of the next. The
model runs at temperature 0; with two threads single answers may still differ.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AnyMessage, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI
from rich.console import Console
from rich.table import Table

from langchain_rmm import citations_of, hide_markers, with_markers
from rmm_core import ReflectiveMemory
from rmm_core.testing import HashEmbedder

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from _models import llama_server

SAID = (
    "I'm allergic to hazelnuts, even traces of them.",
    "I never drink wine.",
    "I always want a table by the window.",
    "My sister Ida plays the cello in Vienna.",
)
ASKED = (  # and a word of the memory that should be cited; None for an explicit "none"
    ("What am I allergic to?", "hazelnuts"),
    ("Which drink should you not offer me?", "wine"),
    ("Which table do I want?", "window"),
    ("Where does my sister play?", "cello"),
    ("What is 12 times 12?", None),
    ("Suggest a dessert for me.", "hazelnuts"),
    ("Who wrote Hamlet?", None),
    ("What is wrong with my knee?", None),
    ("When can I train?", None),
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Hold both conversations, print what was cited, and write JSON when asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gguf", default=os.environ.get("RMM_GGUF"), metavar="FILE", help="a small instruct model")
    parser.add_argument("--json", metavar="FILE", help="write the answers here as well")
    options = parser.parse_args(arguments)
    with llama_server(options.gguf, option="--gguf") as url:
        model = ChatOpenAI(
            base_url=url, api_key="not-needed", model="local", temperature=0, max_tokens=100, timeout=900
        )
        memory = remembered()
        answers = {
            name: conversation(memory, model, given_back=name == "with markers") for name in ("without", "with markers")
        }
    table = Table("question", *(f"{name}: {sum(a['right'] for a in found)} of 9" for name, found in answers.items()))
    for place, (question, _) in enumerate(ASKED):
        table.add_row(
            question, *(f"{'+' if a[place]['right'] else '-'} {a[place]['answer']}" for a in answers.values())
        )
    Console().print(table)
    if options.json:
        Path(options.json).write_text(json.dumps(answers, indent=1) + "\n")


def remembered() -> ReflectiveMemory:
    """A memory in which a user said four things in four sessions."""
    memory = ReflectiveMemory.open(":memory:", embedder=HashEmbedder())
    for number, text in enumerate(SAID):
        with memory.chat("mara", session_id=str(number), user_name="Mara") as chat:
            chat.record(text, "Thanks.")
    return memory


def conversation(memory: ReflectiveMemory, model: BaseChatModel, *, given_back: bool) -> list[dict[str, Any]]:
    """Ask all questions in one thread; whether each answer cites what it should."""
    history: list[AnyMessage] = []
    answers = []
    for question, word in ASKED:
        recall = memory.recall("mara", question)
        system = SystemMessage(
            f"You are the concierge of a hotel. Answer in one or two sentences.\n\n{recall.instructions()}"
        )
        history.append(HumanMessage(question))
        seen = with_markers(history, recall) if given_back else history
        answer = hide_markers(model, recall).invoke([system, *seen])
        noted = citations_of(answer)
        assert noted is not None
        citations = noted[1]
        wanted = tuple(s.number for s in recall.shown if word and word in s.memory.summary)
        right = citations.numbers == wanted and citations.status == ("cited" if word else "none")
        answers.append({"question": question, "answer": citations.text, "status": citations.status, "right": right})
        history.append(answer)
    return answers


if __name__ == "__main__":
    main()
