"""Ways to remember, each a small class behind one protocol; `catalogue` names them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from benchmarks.datasets import Conversation, Question
from rmm_core import TurnRef


@dataclass(frozen=True, slots=True)
class Found:
    """Something that a method brings up for a question.

    Attributes:
        text: What it is found by, and shown as; the turns are shown beneath where they say more.
        turns: The turns it stands for. It covers evidence when that is among them: a turn covers itself, a session all
            of its turns, a memory, merged ones included, every turn that it rests on and that is shown with it.
    """

    text: str
    turns: tuple[TurnRef, ...]

    @property
    def covers(self) -> frozenset[TurnRef]:
        """The same, as measures take it."""
        return frozenset(self.turns)


class Method(Protocol):
    """A way to remember conversations and to bring back what a question needs.

    Attributes:
        learns: Whether :meth:`learn` changes what is found later; such a method is run once per seed, over questions in
            the seed's order.
        settings: What it was made with, as JSON: with the data set and the seed, all that its outcome depends on.
        trained_on: Ids of the questions that it saw with their evidence, known once it remembers; not to be asked.
    """

    learns: bool
    settings: Mapping[str, Any]
    trained_on: frozenset[str]

    def remember(self, conversations: Sequence[Conversation]) -> None:
        """Take in all conversations; nothing of one may be found for another."""

    def find(self, conversation: Conversation, question: Question, k: int) -> Sequence[Found]:
        """What the question brings up, best first: ``k`` things at least, where there are as many."""

    def learn(self, cited: tuple[int, ...]) -> None:
        """Take in which of the last found things an answer cited, by number from 1."""

    def reachable(self, conversation: Conversation) -> frozenset[TurnRef]:
        """The turns that some thing to be found stands for: no ranking can cover others."""

    def close(self) -> None:
        """Let go of files."""
