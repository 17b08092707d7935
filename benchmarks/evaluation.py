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
    method.remember(conversations)
    reachable = {c.name: method.reachable(c) for c in conversations}
    words = {c.name: _words(c) for c in conversations}
    asked = [(c, q) for c in conversations for q in c.questions if q.id not in method.trained_on]
    rng = np.random.default_rng(seed)
    simulated = citations(rng)
    if method.learns:
        asked = [asked[i] for i in rng.permutation(len(asked))]

    def ask(conversation: Conversation, question: Question, learn: bool) -> Row:
        found = method.find(conversation, question, max(POOL, m))
        shown = found[:m]
        useful = [not question.evidence.isdisjoint(f.turns) for f in shown]
        cited: tuple[int, ...] = ()
        if learn and shown and question.evidence and not question.abstains:  # of the others no citation can be told
            cited = simulated.cited(useful)
            method.learn(cited)
        covers = [f.covers for f in found]
        sessions = frozenset(ref.session_id for ref in question.evidence)
        held = {ref for f in shown for ref in f.turns}
        return Row(
            question=question.id,
            kind=question.kind,
            abstains=question.abstains,
            evidence=len(question.evidence),
            reachable=len(question.evidence & reachable[conversation.name]),
            gains=gains(covers, question.evidence, DEPTH),
            sessions=len(sessions),
            session_gains=gains(of_sessions(covers), sessions, DEPTH),
            turns=len(held),
            words=sum(words[conversation.name][ref] for ref in held),
            shown=len(shown),
            useful=sum(useful),
            cited=len(cited),
        )

    first = [ask(c, q, method.learns) for c, q in track(asked, "Asking")]
    again = [ask(c, q, False) for c, q in track(asked, "Asking again")] if method.learns else []
    return first, again


def _words(conversation: Conversation) -> dict[TurnRef, int]:
    """How many words each turn has."""
    return {
        TurnRef(s.id, index): len(message.text.split())
        for s in conversation.sittings
        for index, message in enumerate(s.messages)
    }
