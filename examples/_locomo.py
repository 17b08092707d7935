"""LoCoMo conversations (Maharana et al., ACL 2024), read from the official file by path."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rmm_core import Attachment, Message, Session, Turn, TurnRef
from rmm_core.flow import Flow
from rmm_core.protocols import Decision, Extraction
from rmm_core.types import Add, Candidate, Extracted

_DIA = re.compile(r"D(\d+):(\d+)")
ADVERSARIAL = 5


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the turns its answer rests on."""

    text: str
    answer: str
    evidence: frozenset[TurnRef]


@dataclass(frozen=True, slots=True)
class Sitting:
    """One session of a conversation, and the facts somebody extracted from it."""

    id: str
    at: datetime
    messages: tuple[Message, ...]
    facts: tuple[Extracted, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    """Two people over many sessions."""

    name: str
    speakers: tuple[str, str]
    sittings: tuple[Sitting, ...]
    questions: tuple[Question, ...]


def load(path: str | Path) -> list[Conversation]:
    """All conversations of the file; ends the program with one sentence when there is none."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        return [_conversation(c) for c in content]
    except OSError as error:
        sys.exit(f"cannot read {path}: {error.strerror}. It is locomo10.json of the LoCoMo release")
    except (ValueError, KeyError, TypeError) as error:
        sys.exit(f"{path} is not a LoCoMo file: {type(error).__name__}: {error}")


def _conversation(c: dict[str, Any]) -> Conversation:
    talk = c["conversation"]
    numbers = sorted(int(k.split("_")[1]) for k in talk if re.fullmatch(r"session_\d+", k) and talk[k])
    places = {
        turn["dia_id"]: TurnRef(f"session_{n}", i) for n in numbers for i, turn in enumerate(talk[f"session_{n}"])
    }
    sittings = tuple(_sitting(c, n, places) for n in numbers)
    return Conversation(c["sample_id"], (talk["speaker_a"], talk["speaker_b"]), sittings, _questions(c, places))


def _sitting(c: dict[str, Any], n: int, places: dict[str, TurnRef]) -> Sitting:
    talk, name = c["conversation"], f"session_{n}"
    facts = []
    for of_speaker in c["observation"].get(f"{name}_observation", {}).values():
        for summary, where in of_speaker:
            found = _places(where, places)
            here = tuple(sorted(ref.index for ref in found if ref.session_id == name))
            if here:
                facts.append(Extracted(summary, here))
    at = datetime.strptime(talk[f"{name}_date_time"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
    return Sitting(name, at, tuple(_message(t, talk["speaker_a"]) for t in talk[name]), tuple(facts))


def _message(turn: dict[str, Any], first: str) -> Message:
    caption = turn.get("blip_caption", "")
    photos = (Attachment("image", (turn.get("img_url") or [""])[0], caption),) if caption else ()
    return Message("user" if turn["speaker"] == first else "agent", turn["text"], turn["speaker"], attachments=photos)


def _questions(c: dict[str, Any], places: dict[str, TurnRef]) -> tuple[Question, ...]:
    found = []
    for q in c["qa"]:
        evidence = _places(q.get("evidence", []), places)
        if q["category"] != ADVERSARIAL and evidence:
            found.append(Question(q["question"], str(q.get("answer", "")), frozenset(evidence)))
    return tuple(found)


def _places(where: Any, places: dict[str, TurnRef]) -> list[TurnRef]:
    """Turn ids, as well formed as the file has them: a list, or several in one string."""
    names = [f"D{int(s)}:{int(t)}" for s, t in _DIA.findall(str(where))]
    return [places[name] for name in names if name in places]


class RecordedReflector:
    """The facts that ship with the file, in place of an extractor; every fact is a topic of its own."""

    def __init__(self, sittings: Sequence[Sitting]) -> None:
        self._facts = {s.id: s.facts for s in sittings}

    def extract(self, session: Session, turns: Sequence[Turn]) -> Flow[Extraction]:
        """See :class:`rmm_core.Reflector`."""
        yield from ()
        return Extraction(self._facts[session.id])

    def decide(self, new: Extracted, turns: Sequence[Turn], similar: Sequence[Candidate]) -> Flow[Decision]:
        """See :class:`rmm_core.Reflector`."""
        yield from ()
        return Decision((Add(),))
