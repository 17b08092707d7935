"""What the quickstart puts on the terminal."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TypeVar

from _measure import USER, Report, Score
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.datasets import Conversation, Question, Sitting
from rmm_core import Citations, Recall, ReflectionReport, ReflectiveMemory

T = TypeVar("T")


class Screen:
    """Tells the story, on a terminal or into a file."""

    def __init__(self) -> None:
        self._out = Console(highlight=False)

    def introduce(self, conversation: Conversation, options: argparse.Namespace) -> None:
        """Say what is about to happen."""
        turns = sum(len(s.messages) for s in conversation.sittings)
        how = f"A language model ({options.llm}) extracts topics and answers."
        if options.llm == "none":
            how = "No language model: topics and answers are made of what was said."
        if options.facts == "recorded":
            how = "Topics are the facts recorded with the data set."
        settings = "the paper's, to the letter" if options.paper else "the measured defaults"
        self._out.print(
            Panel(
                f"[b]{' and '.join(conversation.speakers)}[/b] talk in {len(conversation.sittings)} sessions, "
                f"{turns} turns. {how}\nSettings: {settings}.",
                title="reflective-memory",
                border_style="cyan",
            )
        )

    def sessions(self, sittings: Sequence[Sitting]) -> Iterator[Sitting]:
        """Go through the sessions behind a progress bar."""
        self._out.print("\n[b cyan]1[/b cyan] [b]Each session, once it has ended, is reflected on[/b]")
        yield from self._track(sittings, "Remembering")

    def questions(self, questions: Sequence[Question], what: str) -> Iterator[Question]:
        """Go through questions behind a progress bar."""
        yield from self._track(questions, what)

    def remembered(self, sitting: Sitting, report: ReflectionReport) -> None:
        """One line for a session."""
        if report.status == "pending":
            self._out.print(f"  [yellow]{sitting.id} stays pending, nothing is lost:[/yellow] {escape(report.error)}")
            return
        merged = f", {report.merged} merged" if report.merged else ""
        unfiled = f", {report.unfiled} turns on their own" if report.unfiled else ""
        self._out.print(
            f"  [dim]{sitting.at:%d %b %Y}[/dim]  {len(sitting.messages):3} turns  "
            f"[dim]→[/dim] {report.added} topics{merged}{unfiled}"
        )

    def bank(self, memory: ReflectiveMemory, some: int | None) -> None:
        """What is remembered."""
        topics = memory.memories(USER, kind="topic")
        status = memory.status(USER)
        self._out.print(
            f"\n[b cyan]2[/b cyan] [b]The bank: {status.turns} turns became {status.topics} topics; "
            f"{status.unfiled} turns stay findable on their own[/b]"
        )
        table = Table(box=None, show_header=False, padding=(0, 1, 0, 2))
        table.add_column(style="dim", no_wrap=True)
        table.add_column()
        for topic in topics[:some]:
            before = "".join(f"\n[dim]formerly: {escape(r.summary)}[/dim]" for r in topic.history)
            turns = f"[dim]({len(topic.evidence)} turn{'s' if len(topic.evidence) > 1 else ''})[/dim]"
            table.add_row(f"{topic.created_at:%d %b %Y}", f"{escape(topic.summary)} {turns}{before}")
        self._out.print(table)
        if some is not None and len(topics) > some:
            self._out.print(f"  [dim]... and {len(topics) - some} more[/dim]")

    def answered(self, question: Question, recall: Recall, reply: str, said: Citations) -> None:
        """A question, what was shown for it, the answer, what that cites."""
        self._out.print(f"\n[b cyan]3[/b cyan] [b]{escape(question.text)}[/b]")
        for shown in recall.shown:
            cited = "●" if shown.number in said.numbers else "○"
            useful = "✓" if question.evidence & set(shown.memory.evidence) else " "
            line = escape(f"{cited} {shown.number} {useful} {' '.join(shown.memory.summary.split())}")
            style = "green" if cited == "●" else "dim"
            self._out.print(f"  [{style}]{line}[/{style}]", overflow="ellipsis", no_wrap=True)
        self._out.print(f"  [b]{escape(' '.join(reply.split()))}[/b]")
        self._out.print(f"  [dim]expected: {escape(question.answer)}; ● cited, ✓ rests on the evidence[/dim]")

    def learned(self, report: Report, memory: ReflectiveMemory) -> None:
        """What learning from citations changed."""
        if not report.questions:
            self._out.print("\nNone of the questions rests on these sessions alone.")
            return
        m = memory.config.top_m
        self._out.print(f"\n[b cyan]4[/b cyan] [b]Citations train the ranking: {report.questions} questions[/b]")
        table = Table(box=None, padding=(0, 2))
        for name in ("", f"R@{m}", "MRR"):
            table.add_column(name, justify="left" if not name else "right")
        passes = "one pass" if report.passes == 1 else f"{report.passes} passes"
        for name, score in (
            ("dense: single turns by embedding, a plain vector memory", report.dense),
            ("prior: this memory before it learned", report.prior),
            ("learning: each question scored before it is learned from", report.learning),
            (f"learned: asked again after {passes}", report.again),
        ):
            table.add_row(name, f"{score.recall:.3f}", f"{score.mrr:.3f}")
        self._out.print(table)
        if report.moved is not None:
            question, before, after = report.moved
            rise = f"its evidence rose from place {before} to place {after}"
            self._out.print(f"  [b]{escape(question.text)}[/b] {rise}.")
        learner = memory.status(USER).learner
        self._out.print(
            f"  [dim]R@{m}: share of the evidence turns that the {m} memories shown rest on; they hold "
            f"{report.turns:.1f} turns together. MRR: one over the place of the first that does.\n"
            f"  The citations that train are simulated: a memory with evidence is cited in 91.1 % of cases, another "
            f"in 5 %, the paper's rates.\n  {learner.updates} updates; the {learner.ranking} ranking serves.[/dim]\n"
        )

    def overview(self, reports: Sequence[Report]) -> None:
        """All conversations in one table, and their mean over questions."""
        table = Table(title="R@M by conversation", title_justify="left", box=None, padding=(0, 2))
        for name in ("conversation", "questions", "dense", "prior", "learning", "learned", "turns shown"):
            table.add_column(name, justify="left" if name == "conversation" else "right")
        for r in reports:
            table.add_row(r.name, str(r.questions), *(f"{s.recall:.3f}" for s in _scores(r)), f"{r.turns:.1f}")
        total = sum(r.questions for r in reports)
        means = [sum(_scores(r)[i].recall * r.questions for r in reports) / total for i in range(4)]
        turns = sum(r.turns * r.questions for r in reports) / total
        table.add_row("[b]all[/b]", str(total), *(f"[b]{m:.3f}[/b]" for m in means), f"{turns:.1f}")
        self._out.print(table)

    def _track(self, items: Sequence[T], what: str) -> Iterator[T]:
        columns = (TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        live = self._out.is_terminal
        with Progress(*columns, console=self._out, transient=True, disable=not live) as progress:
            yield from progress.track(items, description=what)


def _scores(report: Report) -> tuple[Score, ...]:
    return report.dense, report.prior, report.learning, report.again
