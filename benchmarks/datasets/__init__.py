"""Conversations with questions whose evidence is known, in one form, whatever file they come from."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from rmm_core import Message, TurnRef


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a conversation.

    Attributes:
        id: Its name in the file.
        text: What is asked.
        answer: What is right.
        kind: Its type, as the file calls it.
        evidence: The turns that the answer rests on; empty where the file does not say, or nothing supports one.
        asked_at: When it is asked; None where the file does not say.
        abstains: Whether the right answer is that the conversation does not tell.
    """

    id: str
    text: str
    answer: str
    kind: str
    evidence: frozenset[TurnRef]
    asked_at: datetime | None = None
    abstains: bool = False


@dataclass(frozen=True, slots=True)
class Sitting:
    """One session."""

    id: str
    at: datetime
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    """Sessions in order of time, and the questions about them."""

    name: str
    sittings: tuple[Sitting, ...]
    questions: tuple[Question, ...]

    def message(self, ref: TurnRef) -> Message:
        """The message that a reference means."""
        sitting = next(s for s in self.sittings if s.id == ref.session_id)
        return sitting.messages[ref.index]


def of_the_user(conversation: Conversation, refs: frozenset[TurnRef]) -> frozenset[TurnRef]:
    """Those of the turns that the user said: LongMemEval's official protocol searches among these alone."""
    return frozenset(ref for ref in refs if conversation.message(ref).role == "user")
