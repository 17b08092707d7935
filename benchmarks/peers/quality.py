"""How good is what comes up: the evidence of LoCoMo's questions among the first five things.

A thing covers the turns whose words it is, a memory with several turns all of them. The measure is the repository's
any@5 of its pool of single turns: over all questions with evidence, the adversarial ones too, and over the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from benchmarks.datasets import Conversation, Question
from benchmarks.learner.pools import interval
from benchmarks.metrics import gains, measures
from benchmarks.peers.workers.worker import TOP, plain
from rmm_core import TurnRef

Answers: TypeAlias = Sequence[Sequence[Sequence[str]]]
Values: TypeAlias = dict[tuple[str, str], float]


def asked(conversations: Sequence[Conversation]) -> list[tuple[Conversation, Question]]:
    """All questions with evidence, in the order in which answers come."""
    return [(c, q) for c in conversations for q in c.questions if q.evidence]


def scored(conversations: Sequence[Conversation], answers: Answers) -> dict[str, Values]:
    """Every measure of every question."""
    found: dict[str, Values] = {name: {} for name in ("any@5", "any@5, answerable", "coverage@5, answerable", "words")}
    places = {c.name: lines(c) for c in conversations}
    for (conversation, question), answer in zip(asked(conversations), answers, strict=True):
        at = places[conversation.name]
        covers = [frozenset(ref for line in thing for ref in at.get(plain(line), ())) for thing in answer[:TOP]]
        here = measures(gains(covers, question.evidence, TOP), len(question.evidence), TOP)
        which = (conversation.name, question.id)
        found["any@5"][which] = here.any
        found["words"][which] = sum(len(line.split()) for line in {x for thing in answer[:TOP] for x in thing})
        if not question.abstains:
            found["any@5, answerable"][which] = here.any
            found["coverage@5, answerable"][which] = here.coverage
    return found


def lines(conversation: Conversation) -> dict[str, set[TurnRef]]:
    """Where each line of a conversation stands; a few are said twice."""
    found: dict[str, set[TurnRef]] = {}
    for sitting in conversation.sittings:
        for index, message in enumerate(sitting.messages):
            found.setdefault(plain(conversation.line(message)), set()).add(TurnRef(sitting.id, index))
    return found


def compared(scores: dict[str, dict[str, Values]], ours: str, say: Callable[[str], None]) -> dict[str, dict[str, Any]]:
    """Every peer's measures with their intervals, and how far ahead of it we are on the same questions."""
    found: dict[str, dict[str, Any]] = {}
    for name, measured in scores.items():
        figures: dict[str, Any] = {measure: interval(values) for measure, values in measured.items()}
        mine = scores.get(ours, {})
        if name != ours and mine:
            figures["ours ahead"] = {
                measure: interval({key: mine[measure][key] - values[key] for key in values})
                for measure, values in measured.items()
            }
        found[name] = figures
        say(f"quality: {name} {figures['any@5']['mean']:.3f} any@5 over {figures['any@5']['n']:,} questions")
    return found
