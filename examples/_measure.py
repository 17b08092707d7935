"""How much of the evidence a memory shows: before it learned, while it learns, and afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.datasets import Conversation, Question
from benchmarks.feedback import SimulatedCitations
from rmm_core import Citations, Embedder, Recall, ReflectiveMemory

USER = "demo-user"


@dataclass(frozen=True, slots=True)
class Score:
    """Averages over questions.

    Attributes:
        recall: Share of the evidence turns that the M memories shown rest on: R@M.
        mrr: One over the place of the first memory that rests on evidence, among all candidates.
    """

    recall: float
    mrr: float


@dataclass(frozen=True, slots=True)
class Report:
    """What asking a conversation's questions gave.

    Attributes:
        dense: The nearest single turns by embedding: what a plain vector memory shows.
        prior: The memory before it learned.
        learning: While it learns, each question scored before it is learned from.
        again: The same questions asked once more.
        turns: Turns held by the memories shown before learning, mean.
        moved: The question whose evidence rose most, with its place before and after.
    """

    name: str
    questions: int
    passes: int
    dense: Score
    prior: Score
    learning: Score
    again: Score
    turns: float
    moved: tuple[Question, int, int] | None


def measure(
    memory: ReflectiveMemory,
    embedder: Embedder,
    conversation: Conversation,
    track: Callable[[Sequence[Question], str], Iterable[Question]],
    *,
    passes: int,
) -> Report:
    """Ask every question, let simulated citations teach, ask again.

    Args:
        track: Wraps an iteration over questions, for a progress bar.
        passes: How often everything is asked while learning.
    """
    questions = conversation.questions
    simulated = SimulatedCitations(np.random.default_rng(memory.config.seed))
    dense = dense_over_turns(embedder, conversation, memory.config.top_m)
    before = [memory.recall(USER, q.text) for q in track(questions, "Asking")]
    during: list[Score] = []
    for number in range(passes):
        for question in track(questions, "Learning" if passes == 1 else f"Learning {number + 1}/{passes}"):
            recall = memory.recall(USER, question.text)
            during.append(scored(question, recall))
            memory.feedback(recall, cited(simulated, question, recall))
    after = [memory.recall(USER, q.text) for q in track(questions, "Asking again")]
    return Report(
        name=conversation.name,
        questions=len(questions),
        passes=passes,
        dense=dense,
        prior=mean(scored(q, r) for q, r in zip(questions, before, strict=True)),
        learning=mean(during[: len(questions)]),
        again=mean(scored(q, r) for q, r in zip(questions, after, strict=True)),
        turns=float(np.mean([sum(len(s.turns) for s in r.shown) for r in before])) if before else 0.0,
        moved=most_moved(questions, before, after),
    )


def cited(simulated: SimulatedCitations, question: Question, recall: Recall) -> Citations:
    """What a simulated answer cites of the memories shown."""
    numbers = simulated.cited([bool(question.evidence & set(s.memory.evidence)) for s in recall.shown])
    return Citations("", numbers, "cited" if numbers else "none")


def place(question: Question, recall: Recall) -> int:
    """The place of the first candidate that rests on evidence, from 1; 0 when there is none."""
    places = (i for i, c in enumerate(recall.candidates, 1) if question.evidence & set(c.memory.evidence))
    return next(places, 0)


def scored(question: Question, recall: Recall) -> Score:
    """One question's score."""
    covered = question.evidence & {ref for s in recall.shown for ref in s.memory.evidence}
    first = place(question, recall)
    return Score(len(covered) / len(question.evidence), 1 / first if first else 0.0)


def mean(scores: Iterable[Score]) -> Score:
    """The average."""
    rows = [(s.recall, s.mrr) for s in scores]
    recall, mrr = np.mean(rows, axis=0) if rows else (0.0, 0.0)
    return Score(float(recall), float(mrr))


def most_moved(
    questions: Sequence[Question], before: Sequence[Recall], after: Sequence[Recall]
) -> tuple[Question, int, int] | None:
    """The question whose evidence rose by most places; None when none rose."""
    moves = [(q, place(q, b), place(q, a)) for q, b, a in zip(questions, before, after, strict=True)]
    rose = [m for m in moves if 0 < m[2] < m[1]]
    return max(rose, key=lambda m: m[1] / m[2], default=None)


def dense_over_turns(embedder: Embedder, conversation: Conversation, m: int) -> Score:
    """The m turns nearest by embedding, each turn with its speaker's name."""
    if not conversation.questions:
        return Score(0.0, 0.0)
    turns = [(s.id, i, message) for s in conversation.sittings for i, message in enumerate(s.messages)]
    rows = embedder.embed([f"{message.speaker}: {message.text}" for _, _, message in turns])
    queries = embedder.embed([q.text for q in conversation.questions])
    scores = []
    for question, order in zip(conversation.questions, np.argsort(-(queries @ rows.T), axis=1), strict=True):
        wanted = {(ref.session_id, ref.index) for ref in question.evidence}
        hits = [turns[i][:2] in wanted for i in order]
        scores.append(Score(sum(hits[:m]) / len(wanted), 1 / (hits.index(True) + 1)))
    return mean(scores)
