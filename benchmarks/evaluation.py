"""Ask a method every question, let citations teach it, and note what came up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import numpy as np

from benchmarks.datasets import Conversation, Question
from benchmarks.feedback import SimulatedCitations
from benchmarks.methods import Method
from benchmarks.metrics import gains, of_sessions
from benchmarks.records import Row
from rmm_core import TurnRef

DEPTH = 10
"""How far down a ranking is noted: the largest k of the tables."""

POOL = 50
"""How many things are asked for, so that DEPTH different sessions are among them."""

Asked: TypeAlias = tuple[Conversation, Question]
Track: TypeAlias = Callable[[Sequence[Asked], str], Iterable[Asked]]


Citer: TypeAlias = Callable[[Sequence[bool]], tuple[int, ...]]
"""From which of the things shown cover evidence to the numbers cited, from 1."""


class Examiner:
    """Asks a method questions about the conversations it is made to remember here.

    Args:
        method: What is examined.
        conversations: What it remembers.
        m: How many things are shown.
    """

    def __init__(self, method: Method, conversations: Sequence[Conversation], m: int) -> None:
        method.remember(conversations)
        self._method = method
        self._m = m
        self._reachable = {c.name: method.reachable(c) for c in conversations}
        self._words = {c.name: _words(c) for c in conversations}
        self.asked: list[Asked] = [(c, q) for c in conversations for q in c.questions if q.id not in method.trained_on]

    def ask(self, conversation: Conversation, question: Question, citer: Citer | None = None) -> Row:
        """What comes up for a question; the method learns from what ``citer`` cites of it, afterwards."""
        found = self._method.find(conversation, question, max(POOL, self._m))
        shown = found[: self._m]
        useful = [not question.evidence.isdisjoint(f.turns) for f in shown]
        cited: tuple[int, ...] = ()
        if citer and shown and question.evidence and not question.abstains:  # of the others no citation can be told
            cited = citer(useful)
            self._method.learn(cited)
        covers = [f.covers for f in found]
        sessions = frozenset(ref.session_id for ref in question.evidence)
        held = {ref for f in shown for ref in f.turns}
        return Row(
            question=question.id,
            kind=question.kind,
            abstains=question.abstains,
            evidence=len(question.evidence),
            reachable=len(question.evidence & self._reachable[conversation.name]),
            gains=gains(covers, question.evidence, DEPTH),
            sessions=len(sessions),
            session_gains=gains(of_sessions(covers), sessions, DEPTH),
            turns=len(held),
            words=sum(self._words[conversation.name][ref] for ref in held),
            shown=len(shown),
            useful=sum(useful),
            cited=len(cited),
        )


def evaluate(
    method: Method,
    conversations: Sequence[Conversation],
    *,
    m: int,
    seed: int,
    citations: Callable[[np.random.Generator], SimulatedCitations],
    track: Track,
) -> tuple[list[Row], list[Row]]:
    """Rows of all questions in the seed's order, and of the same asked again when the method learns.

    Args:
        method: What is evaluated; remembers the conversations here.
        m: How many things are shown.
        seed: Of the order of questions and of the citations.
        citations: What stands in for a citing model.
        track: Wraps the questions, for a progress bar.
    """
    examiner = Examiner(method, conversations, m)
    rng = np.random.default_rng(seed)
    citer = citations(rng).cited if method.learns else None
    asked = examiner.asked
    if method.learns:
        asked = [asked[i] for i in rng.permutation(len(asked))]
    first = [examiner.ask(c, q, citer) for c, q in track(asked, "Asking")]
    again = [examiner.ask(c, q) for c, q in track(asked, "Asking again")] if method.learns else []
    return first, again


def _words(conversation: Conversation) -> dict[TurnRef, int]:
    """How many words each turn has."""
    return {
        TurnRef(s.id, index): len(message.text.split())
        for s in conversation.sittings
        for index, message in enumerate(s.messages)
    }
