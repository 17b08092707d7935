"""What retrieval is measured against: nothing, everything, and what a perfect choice would give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.datasets import Conversation, Question
from benchmarks.methods import Found
from benchmarks.methods.units import UnitRetrieval, turns
from benchmarks.metrics import gains
from rmm_core import TurnRef


class Stateless:
    """What methods share that learn nothing and open nothing."""

    learns = False
    settings: Mapping[str, Any] = {}
    trained_on: frozenset[str] = frozenset()

    def remember(self, conversations: Sequence[Conversation]) -> None:
        """Nothing is taken in beforehand."""

    def learn(self, cited: tuple[int, ...]) -> None:
        """Nothing is learned."""

    def reachable(self, conversation: Conversation) -> frozenset[TurnRef]:
        """See :class:`benchmarks.methods.Method`."""
        return frozenset(ref for turn in turns(conversation) for ref in turn.turns)

    def close(self) -> None:
        """Nothing is open."""


class NoHistory(Stateless):
    """No memory at all."""

    def find(self, conversation: Conversation, question: Question, k: int) -> Sequence[Found]:
        """Nothing."""
        return []


class LongContext(Stateless):
    """The history as it fits into a window, the oldest turns cut; one thing that stands for all of its turns.

    Args:
        words: How many fit.
    """

    def __init__(self, words: int) -> None:
        self._words = words
        self.settings = {"words": words}

    def find(self, conversation: Conversation, question: Question, k: int) -> Sequence[Found]:
        """The newest turns, in order of time."""
        kept: list[Found] = []
        left = self._words
        for turn in reversed(list(turns(conversation))):
            left -= len(turn.text.split())
            if left < 0:
                break
            kept.append(turn)
        kept.reverse()
        refs = tuple(ref for turn in kept for ref in turn.turns)
        return [Found("\n".join(turn.text for turn in kept), refs)] if kept else []


class Oracle(Stateless):
    """The evidence itself, turn by turn: what answers are worth when retrieval is perfect."""

    def find(self, conversation: Conversation, question: Question, k: int) -> Sequence[Found]:
        """The evidence in order of time."""
        return [turn for turn in turns(conversation) if not question.evidence.isdisjoint(turn.turns)][:k]


class BestOf(UnitRetrieval):
    """For each question, whichever of two ways covers more evidence: the paper's best of turn and session.

    It looks at the evidence to choose: nobody can build it.
    """

    def __init__(self, *ways: UnitRetrieval) -> None:
        self._ways = ways

    def remember(self, conversations: Sequence[Conversation]) -> None:
        """See :class:`benchmarks.methods.Method`."""
        for way in self._ways:
            way.remember(conversations)

    def find(self, conversation: Conversation, question: Question, k: int) -> Sequence[Found]:
        """The better of the two at 5; the first where they are equal."""
        found = [way.find(conversation, question, k) for way in self._ways]
        return max(found, key=lambda f: sum(gains([x.covers for x in f], question.evidence, 5)))

    def reachable(self, conversation: Conversation) -> frozenset[TurnRef]:
        """See :class:`benchmarks.methods.Method`."""
        return self._ways[0].reachable(conversation)
