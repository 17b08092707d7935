"""Conversations with questions whose evidence is known, in one form, whatever file they come from."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from rmm_core import Message, TurnRef
from rmm_core.types import Extracted


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a conversation.

    Attributes:
        id: Its name, unique in its data set.
        text: What is asked.
        answer: What is right.
        kind: Its type, as the data set calls it.
        evidence: The turns that the answer rests on; empty where the file does not say, or nothing supports one.
        asked_at: When it is asked; None where the file does not say.
        abstains: Whether the right answer is that the conversation does not tell.
        history: What was said before it in the session it is asked in, which none of the sittings is.
    """

    id: str
    text: str
    answer: str
    kind: str
    evidence: frozenset[TurnRef]
    asked_at: datetime | None = None
    abstains: bool = False
    history: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class Sitting:
    """One session.

    Attributes:
        facts: Where the file has it, what somebody extracted from it, each with the numbers of its messages.
        summary: What somebody wrote about it, likewise.
    """

    id: str
    at: datetime
    messages: tuple[Message, ...]
    facts: tuple[Extracted, ...] = ()
    summary: str = ""


@dataclass(frozen=True, slots=True)
class Conversation:
    """Sessions in order of time, and the questions about them.

    Attributes:
        speakers: What the user and the other side are called where a message does not say.
    """

    name: str
    sittings: tuple[Sitting, ...]
    questions: tuple[Question, ...]
    speakers: tuple[str, str] = ("User", "Assistant")

    def message(self, ref: TurnRef) -> Message:
        """The message that a reference means."""
        sitting = next(s for s in self.sittings if s.id == ref.session_id)
        return sitting.messages[ref.index]

    def line(self, message: Message) -> str:
        """A message with its speaker and the captions of what came with it: what is searched."""
        speaker = message.speaker or self.speakers[message.role != "user"]
        notes = [f"[{a.kind}: {a.caption}]" for a in message.attachments if a.caption]
        return " ".join([f"{speaker}:", message.text, *notes]).strip()


def users_side(conversation: Conversation) -> Conversation:
    """The same with the user's messages alone, and the evidence among them: what LongMemEval's protocol searches.

    Facts and summaries are not carried over: they rest on both sides.
    """
    places = {
        TurnRef(s.id, index): TurnRef(s.id, place)
        for s in conversation.sittings
        for place, index in enumerate(i for i, m in enumerate(s.messages) if m.role == "user")
    }
    sittings = (Sitting(s.id, s.at, tuple(m for m in s.messages if m.role == "user")) for s in conversation.sittings)
    questions = (
        replace(q, evidence=frozenset(places[ref] for ref in q.evidence if ref in places))
        for q in conversation.questions
    )
    return replace(conversation, sittings=tuple(sittings), questions=tuple(questions))


def read_json(path: str | Path) -> Any:
    """What a ``.json`` or ``.json.xz`` file holds; raises as :func:`read_text` does."""
    return json.loads(read_text(path))


def read_text(path: str | Path) -> str:
    """The text of a file, unpacked when its name ends in ``.xz``.

    Raises:
        OSError: When it cannot be read.
        ValueError: When it holds something else.
    """
    content = Path(path).read_bytes()
    try:
        return (lzma.decompress(content) if str(path).endswith(".xz") else content).decode("utf-8-sig")
    except lzma.LZMAError as error:
        raise ValueError(str(error)) from error


@contextmanager
def reading(path: str | Path, what: str, where: str) -> Iterator[None]:
    """Puts whatever goes wrong while a data set is read into one sentence that says where it is had.

    Raises:
        ValueError: When it is not there or something else.
    """
    try:
        yield
    except OSError as error:
        raise ValueError(f"cannot read {error.filename or path}: {error.strerror or error}. {where}") from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not {what}: {type(error).__name__}: {error}. {where}") from error
