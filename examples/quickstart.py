"""A memory at work: sessions become topics, questions find them again, citations train the ranking.

python examples/quickstart.py                         our own little conversation: no network, no key
python examples/quickstart.py --llm URL --model NAME  with a language model behind an OpenAI-compatible URL
python examples/quickstart.py --locomo locomo10.json --conversation 0 --facts recorded
python examples/quickstart.py --locomo locomo10.json --conversation all
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # where benchmarks lies, which is never installed

from _conversation import CONVERSATION, hold
from _measure import USER, Report, measure
from _models import bundled_embedder, language_model
from _show import Screen

from benchmarks.datasets import Conversation
from benchmarks.datasets.locomo import answerable, load
from benchmarks.reflectors import RecordedReflector
from rmm_core import LLM, Embedder, ReflectiveMemory, RMMConfig, RMMError


def main(arguments: Sequence[str] | None = None) -> None:
    """Play the conversations the options name."""
    options = parse(arguments)
    conversations = chosen(options)
    screen = Screen()
    embedder = bundled_embedder()
    with language_model(options.llm, model=options.model, gguf=options.gguf) as llm:
        reports = [play(conversation, options, screen, llm, embedder) for conversation in conversations]
    if len(reports) > 1:
        screen.overview(reports)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--locomo", metavar="FILE", help="play conversations of this LoCoMo file")
    parser.add_argument("--conversation", default="0", metavar="N|all", help="which one, from 0, or all of them")
    parser.add_argument("--sessions", type=int, metavar="N", help="only its first N sessions")
    parser.add_argument(
        "--facts", choices=("none", "recorded"), default="none", help="use LoCoMo's own extracted facts"
    )
    parser.add_argument("--llm", default="none", metavar="none|local|URL", help="who extracts and answers")
    parser.add_argument("--model", default="default", help="the model's name behind the URL")
    parser.add_argument("--gguf", default=os.environ.get("RMM_GGUF"), metavar="FILE", help="the model of --llm local")
    parser.add_argument("--paper", action="store_true", help="the paper's settings and sampling, to the letter")
    parser.add_argument("--ask", type=int, default=4, metavar="N", help="how many questions to answer in full")
    parser.add_argument("--db", metavar="FILE", help="keep the memory in this file")
    options = parser.parse_args(arguments)
    if options.facts == "recorded" and options.locomo is None:
        parser.error("--facts recorded goes with --locomo FILE, which has them")
    if options.conversation != "all" and not options.conversation.isdecimal():
        parser.error(f"--conversation is a number from 0, or all; got {options.conversation!r}")
    return options


def chosen(options: argparse.Namespace) -> list[Conversation]:
    """The conversations to play, cut to what was asked for."""
    try:
        conversations = [CONVERSATION] if options.locomo is None else [answerable(c) for c in load(options.locomo)]
    except ValueError as error:
        sys.exit(str(error))
    if options.conversation != "all":
        number = int(options.conversation)
        if number >= len(conversations):
            sys.exit(f"--conversation is from 0 to {len(conversations) - 1}; got {number}")
        conversations = [conversations[number]]
    return [cut(c, options.sessions) for c in conversations]


def cut(whole: Conversation, sessions: int | None) -> Conversation:
    """The first sessions of a conversation, and the questions that rest on them alone."""
    sittings = whole.sittings[:sessions]
    here = {s.id for s in sittings}
    asked = tuple(q for q in whole.questions if {ref.session_id for ref in q.evidence} <= here)
    return replace(whole, sittings=sittings, questions=asked)


def play(
    conversation: Conversation, options: argparse.Namespace, screen: Screen, llm: LLM | None, embedder: Embedder
) -> Report:
    """Remember a conversation, ask about it, learn from the citations."""
    # A small model reads short pieces best, and merges whatever it is offered.
    small = {"piece_turns": 10, "merge_floor": 0.6} if options.llm == "local" else {}
    config = RMMConfig.paper() if options.paper else RMMConfig(**small)
    reflector = RecordedReflector(conversation.sittings) if options.facts == "recorded" else None
    with ExitStack() as stack:
        place = options.db or str(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "memory.db")
        memory = stack.enter_context(
            ReflectiveMemory.open(place, llm=llm, embedder=embedder, config=config, reflector=reflector)
        )
        screen.introduce(conversation, options)
        known = {s.id for s in memory.status(USER).sessions}
        for sitting in screen.sessions(conversation.sittings):
            if sitting.id not in known:
                screen.remembered(sitting, hold(memory, USER, conversation, sitting))
        screen.bank(memory, some=None if options.locomo is None or llm is not None else 10)
        if options.locomo is None or llm is not None:
            for question in conversation.questions[: options.ask]:
                recall = memory.recall(USER, question.text)
                reply = memory.run(memory.answering(recall, question.text, ""))
                screen.answered(question, recall, reply, memory.feedback(recall, reply))
        report = measure(memory, embedder, conversation, screen.questions, passes=1 if options.locomo else 10)
        screen.learned(report, memory)
    return report


if __name__ == "__main__":
    try:
        main()
    except RMMError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
