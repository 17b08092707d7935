"""A memory at work: several sessions become topics, questions find them again, citations train the ranking.

python examples/quickstart.py                        our own little conversation, no network, no key
python examples/quickstart.py --llm URL --model NAME with a language model behind an OpenAI-compatible URL
python examples/quickstart.py --locomo locomo10.json --conversation 0 --facts recorded
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from _conversation import CONVERSATION
from _locomo import Conversation, Question, RecordedReflector, SimulatedCitations, Sitting, coverage, load
from _models import bundled_embedder, language_model
from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from rmm_core import Embedder, Memory, Recall, ReflectiveMemory, Reflector, RMMConfig, RMMError

console = Console(highlight=False)
USER = "demo-user"


@dataclass(frozen=True, slots=True)
class Scores:
    """Coverage of evidence by the memories shown, averaged over questions.

    Attributes:
        dense: The nearest single turns by embedding: what a plain vector memory shows.
        prior: The bank, before anything was learned.
        learned: The bank while it learns, each question scored before it is learned from.
        again: The same questions asked once more afterwards.
        turns: How many turns the shown memories hold, mean.
    """

    dense: float
    prior: float
    learned: float
    again: float
    turns: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Play the conversation the options name."""
    options = parse(arguments)
    with ExitStack() as stack:
        llm = stack.enter_context(language_model(options.llm, model=options.model, gguf=options.gguf))
        conversation = chosen(options)
        config = configured(options)
        embedder = bundled_embedder()
        folder = options.db or stack.enter_context(tempfile.TemporaryDirectory())
        if options.db is None:
            folder = str(Path(folder) / "memory.db")
        reflector = RecordedReflector(conversation.sittings) if options.facts == "recorded" else None
        memory = stack.enter_context(
            ReflectiveMemory.open(folder, llm=llm, embedder=embedder, config=config, reflector=reflector)
        )
        introduce(conversation, options)
        remember(memory, conversation, reflector)
        show_bank(memory, full=options.locomo is None or options.llm != "none")
        if options.locomo is None or llm is not None:
            answer(memory, conversation.questions[: options.ask], conversation)
        learn(memory, embedder, conversation, passes=1 if options.locomo else 12)
        if options.db is not None:
            console.print(f"\nThe memory is in {options.db}; run this again and nothing is reflected twice.")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--locomo", metavar="FILE", help="play a conversation of this LoCoMo file")
    parser.add_argument("--conversation", type=int, default=0, metavar="N", help="which one, from 0")
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
    return options


def chosen(options: argparse.Namespace) -> Conversation:
    """The conversation to play, cut to what was asked for."""
    conversations = [CONVERSATION] if options.locomo is None else load(options.locomo)
    if not 0 <= options.conversation < len(conversations):
        sys.exit(f"--conversation is from 0 to {len(conversations) - 1}; got {options.conversation}")
    whole = conversations[options.conversation]
    if options.sessions is None:
        return whole
    sittings = whole.sittings[: options.sessions]
    here = {s.id for s in sittings}
    asked = tuple(q for q in whole.questions if {ref.session_id for ref in q.evidence} <= here)
    return replace(whole, sittings=sittings, questions=asked)


def configured(options: argparse.Namespace) -> RMMConfig:
    """Settings: the measured default or the paper's; short pieces for a small local model."""
    changes = {"piece_turns": 10} if options.llm == "local" else {}
    return RMMConfig.paper() if options.paper else RMMConfig(**changes)


def introduce(conversation: Conversation, options: argparse.Namespace) -> None:
    """Say what is about to happen."""
    turns = sum(len(s.messages) for s in conversation.sittings)
    who = {"none": "no language model: topics and answers are made of what was said"}.get(
        options.llm, f"a language model ({options.llm}) extracts and answers"
    )
    if options.facts == "recorded":
        who = "topics: the facts recorded with the data set"
    body = (
        f"[b]{' and '.join(conversation.speakers)}[/b] talk in {len(conversation.sittings)} sessions, {turns} turns.\n"
        f"{who}.\nsettings: {'the paper, to the letter' if options.paper else 'measured defaults'}"
    )
    console.print(Panel(body, title="reflective-memory", border_style="cyan", expand=False))


def remember(memory: ReflectiveMemory, conversation: Conversation, reflector: Reflector | None) -> None:
    """Prospective reflection, session by session."""
    table = Table(title="Each session, once it has ended", title_justify="left", box=None, pad_edge=False)
    for name in ("session", "date", "turns", "new topics", "merged", "unfiled turns"):
        table.add_column(
            name, justify="left" if name in ("session", "date") else "right", style="dim" if name == "date" else ""
        )
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    known = {s.id for s in memory.status(USER).sessions}
    with Progress(*columns, console=console, transient=True) as progress:
        for sitting in progress.track(conversation.sittings, description="Remembering"):
            if sitting.id in known:
                continue
            report = play(memory, conversation, sitting)
            table.add_row(
                sitting.id,
                f"{sitting.at:%d %b %Y}",
                *map(str, (len(sitting.messages), report.added, report.merged, report.unfiled)),
            )
            if report.status == "pending":
                console.print(Text(f"{sitting.id} stays pending: {report.error}", style="yellow"))
    if len(table.rows) <= _SHORT:
        console.print(table)
    status = memory.status(USER)
    console.print(
        f"[b]{status.turns}[/b] turns became [b]{status.topics}[/b] topics; "
        f"[b]{status.unfiled}[/b] turns stay findable on their own.\n"
    )


def play(memory: ReflectiveMemory, conversation: Conversation, sitting: Sitting):  # noqa: ANN201
    """One session, as it was held."""
    user_name, agent_name = conversation.speakers
    chat = memory.chat(USER, session_id=sitting.id, user_name=user_name, agent_name=agent_name, at=sitting.at)
    chat.add(*sitting.messages)
    return chat.end()


def show_bank(memory: ReflectiveMemory, *, full: bool) -> None:
    """Some of what is remembered."""
    topics = memory.memories(USER, kind="topic")
    table = Table(title="The bank", title_justify="left", box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim")
    table.add_column(style="dim", justify="right", no_wrap=True)
    table.add_column()
    some = topics if full else topics[:_SHORT]
    for topic in some:
        before = "".join(f"\n[dim]formerly: {r.summary}[/dim]" for r in topic.history)
        table.add_row(
            f"{topic.created_at:%d %b %Y}",
            f"{len(topic.evidence)} turns",
            Text.from_markup(_plain(topic.summary) + before),
        )
    console.print(table)
    if len(some) < len(topics):
        console.print(f"[dim]... and {len(topics) - len(some)} more[/dim]")
    console.print()


def answer(memory: ReflectiveMemory, questions: Sequence[Question], conversation: Conversation) -> None:
    """Retrospective reflection in the open: what is shown, what is answered, what is cited."""
    for question in questions:
        with console.status("Thinking ..."), memory.chat("somebody-else") as elsewhere:
            recall = memory.recall(USER, question.text)
            reply = memory.run(memory.answering(recall, question.text, ""))
            said = memory.feedback(recall, reply)
            nothing = elsewhere.recall(question.text)
        console.print(f"[b cyan]Q[/b cyan] [b]{_plain(question.text)}[/b]")
        for shown in recall.shown:
            mark = "[green]cited[/green]" if shown.number in said.numbers else "     "
            console.print(
                f"  {mark} [dim]\\[{shown.number}] {_plain(_short(shown.memory))}[/dim]",
                overflow="ellipsis",
                no_wrap=True,
            )
        console.print(f"[b cyan]A[/b cyan] {_plain(said.text)}")
        assert nothing.shown == ()  # another user's memory is empty
        console.print()


def learn(memory: ReflectiveMemory, embedder: Embedder, conversation: Conversation, *, passes: int) -> None:
    """Ask everything, let simulated citations teach, ask again."""
    questions = conversation.questions
    if not questions:
        console.print("None of the questions rests on these sessions alone.")
        return
    with Progress(console=console, transient=True) as progress:
        scores = measured(memory, embedder, conversation, progress, passes)
    m = memory.config.top_m
    table = Table(
        title=f"R@{m} over {len(questions)} questions: how much of the evidence is among the {m} memories shown",
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    table.add_column("")
    table.add_column(f"R@{m}", justify="right")
    table.add_row("single turns by embedding (a plain vector memory)", f"{scores.dense:.3f}")
    table.add_row("this memory, before learning (prior)", f"{scores.prior:.3f}")
    table.add_row("while learning, each question scored first", f"{scores.learned:.3f}")
    table.add_row(
        f"asked again after learning ({'one pass' if passes == 1 else f'{passes} passes'})",
        f"[b]{scores.again:.3f}[/b]",
    )
    console.print(table)
    status = memory.status(USER)
    console.print(
        f"[dim]The citations are simulated (a memory that holds evidence is cited in 91.1 % of cases, another in 5 %, "
        f"the paper's error rates). {status.updates} updates; the {status.ranking} ranking serves; the memories shown "
        f"hold {scores.turns:.1f} turns per question on average.[/dim]"
    )


def measured(
    memory: ReflectiveMemory, embedder: Embedder, conversation: Conversation, progress: Progress, passes: int
) -> Scores:
    """The four figures of :class:`Scores`."""
    questions = conversation.questions
    task = progress.add_task("Asking", total=len(questions) * (passes + 3))

    def recalls() -> Iterator[tuple[Question, Recall]]:
        for question in questions:
            yield question, memory.recall(USER, question.text)
            progress.advance(task)

    dense = dense_over_turns(embedder, conversation, memory.config.top_m)
    progress.advance(task, len(questions))
    before = [(q, r) for q, r in recalls()]
    prior = float(np.mean([found(q, r) for q, r in before]))
    turns = float(np.mean([sum(len(s.turns) for s in r.shown) for _, r in before]))
    simulated = SimulatedCitations(np.random.default_rng(memory.config.seed))
    during = []
    for _ in range(passes):
        for question, recall in recalls():
            during.append(found(question, recall))
            memory.feedback(recall, simulated.reply(question, [s.memory for s in recall.shown]))
    again = float(np.mean([found(q, r) for q, r in recalls()]))
    return Scores(dense, prior, float(np.mean(during[: len(questions)])), again, turns)


def found(question: Question, recall: Recall) -> float:
    """Coverage of the question's evidence by what was shown."""
    return coverage(question, [s.memory for s in recall.shown])


def dense_over_turns(embedder: Embedder, conversation: Conversation, m: int) -> float:
    """Coverage by the m turns nearest by embedding."""
    places = [(s.id, i) for s in conversation.sittings for i in range(len(s.messages))]
    turns = embedder.embed([f"{m.speaker}: {m.text}" for s in conversation.sittings for m in s.messages])
    queries = embedder.embed([q.text for q in conversation.questions])
    best = np.argsort(-(queries @ turns.T), axis=1)[:, :m]
    covered = [
        len({(r.session_id, r.index) for r in q.evidence} & {places[i] for i in row}) / len(q.evidence)
        for q, row in zip(conversation.questions, best, strict=True)
    ]
    return float(np.mean(covered))


def _short(memory: Memory) -> str:
    return memory.summary.replace("\n", " ")


def _plain(text: str) -> str:
    """Text whose brackets the terminal must not take for markup."""
    return text.replace("[", "\\[")


_SHORT = 12

if __name__ == "__main__":
    try:
        main()
    except RMMError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
