"""All conversations of LoCoMo as users of one memory, to look at with `rmm`.

python examples/locomo_bank.py locomo10.json locomo.db            ten users, 60 questions asked of each
python examples/locomo_bank.py locomo10.json locomo.db --ask 0    only what was said

Questions are asked in a session of their own after the last. Answers repeat the memories that cover the data set's
evidence, with the errors that the paper measured of a model, and cite them (simulated: no model is asked).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # where benchmarks lies, which is never installed

from _conversation import hold
from _models import bundled_embedder
from rich.progress import track

from benchmarks.datasets import Conversation
from benchmarks.datasets.locomo import answerable, load
from benchmarks.feedback import SimulatedCitations
from rmm_core import Recall, ReflectiveMemory, RMMError


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the bank that the options name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("locomo", metavar="FILE", help="locomo10.json")
    parser.add_argument("store", metavar="STORE", help="where the memory goes: a file, or a postgresql:// URL")
    parser.add_argument("--ask", type=int, default=60, metavar="N", help="questions asked of each user: %(default)s")
    options = parser.parse_args(arguments)
    try:
        conversations = [answerable(c) for c in load(options.locomo)]
    except ValueError as error:
        sys.exit(str(error))
    citing = SimulatedCitations(np.random.default_rng(0))
    with ReflectiveMemory.open(options.store, embedder=bundled_embedder()) as memory:
        known = set(memory.users())
        for conversation in track(conversations, "Remembering"):
            if conversation.name not in known:
                for sitting in conversation.sittings:
                    hold(memory, conversation.name, conversation, sitting)
                ask(memory, conversation, options.ask, citing)
        learner = memory.status(conversations[0].name).learner
        print(f"{len(memory.users())} users in {options.store}; {learner.updates} updates; {learner.reason}")


def ask(memory: ReflectiveMemory, conversation: Conversation, count: int, citing: SimulatedCitations) -> None:
    """Questions, spread over all there are, in one more session; answers cite what covers the evidence."""
    asked = conversation.questions[:: max(len(conversation.questions) // max(count, 1), 1)][:count]
    if not asked:
        return
    user_name, agent_name = conversation.speakers
    at = conversation.sittings[-1].at + timedelta(days=1)
    with memory.chat(
        conversation.name, session_id="questions", user_name=user_name, agent_name=agent_name, at=at
    ) as chat:
        for question in asked:
            recall = chat.recall(question.text)
            useful = [not question.evidence.isdisjoint(shown.memory.evidence) for shown in recall.shown]
            chat.record(question.text, quoting(recall, citing.cited(useful)), recall)


def quoting(recall: Recall, numbers: Sequence[int]) -> str:
    """An answer that says what these memories say, and cites them."""
    said = [f"{recall.shown[number - 1].memory.summary} [{number}]" for number in numbers]
    return " ".join(said) or "I don't know. [NO_CITE]"


if __name__ == "__main__":
    try:
        main()
    except RMMError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
