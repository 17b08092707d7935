"""Multi-Session Chat (Xu et al., ACL 2022), its validation split, read from its folder by path.

Two crowd workers talk in four sessions. The first three are what is remembered; Speaker 1, who opens each of them, is
taken for the user. Facts are what a person noted about single messages. In the fourth session each message of Speaker 1
that gets a reply is a question, and the reply its answer. Which turns a reply rests on the data does not say: answers
can be measured, retrieval cannot. A conversation that lacks a session would be left out; of the 500, none does.

The data says how much time passes between sessions, without dates. Here the third session takes place on a day of our
choice, and those before it are counted back from there; when the fourth is held is not said in the files that are read.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.datasets import Conversation, Question, Sitting, read_text, reading
from rmm_core import Message
from rmm_core.types import Extracted, Role

WHERE = (
    "MSC is had at https://parl.ai/projects/msc/, the folder with msc_dialogue and msc_personasummary "
    "(no licence stated: benchmarks only)"
)
LAST = datetime(2022, 5, 22, 18, tzinfo=UTC)
SPEAKERS = ("Speaker 1", "Speaker 2")
_ROLES: dict[str, Role] = {"bot_0": "user", "bot_1": "agent"}
_UNITS = {
    "hour": timedelta(hours=1),
    "hours": timedelta(hours=1),
    "day": timedelta(days=1),
    "days": timedelta(days=1),
}


def load(path: str | Path) -> list[Conversation]:
    """All conversations of the folder.

    Raises:
        ValueError: When the folder is not there or something else.
    """
    with reading(path, "a folder of MSC", WHERE):
        sessions = [
            {row["initial_data_id"]: row["dialog"] for row in _rows(path, f"msc_personasummary/session_{n}")}
            for n in range(1, 5)
        ]
        gaps = {
            row["metadata"]["initial_data_id"]: tuple(map(_gap, row["previous_dialogs"]))
            for row in _rows(path, "msc_dialogue/session_3")
        }
        whole = [name for name in sessions[0] if name in gaps and all(name in session for session in sessions)]
        return [_conversation(name, [session[name] for session in sessions], gaps[name]) for name in whole]


def _rows(path: str | Path, folder: str) -> list[dict[str, Any]]:
    plain = Path(path) / folder / "valid.txt"
    packed = plain.with_suffix(".txt.xz")
    text = read_text(packed if packed.exists() else plain)
    return [json.loads(line) for line in text.split("\n") if line.strip()]


def _gap(previous: dict[str, Any]) -> timedelta:
    """How much later the session after this one took place."""
    return int(previous["time_num"]) * _UNITS[previous["time_unit"]]


def _conversation(name: str, sessions: list[list[dict[str, Any]]], gaps: tuple[timedelta, ...]) -> Conversation:
    first, second = gaps
    times = (LAST - second - first, LAST - second, LAST)
    *before, last = sessions
    sittings = tuple(_sitting(n, at, turns) for n, (at, turns) in enumerate(zip(times, before, strict=True), 1))
    return Conversation(name, sittings, _questions(name, _messages(last)), SPEAKERS)


def _sitting(number: int, at: datetime, turns: list[dict[str, Any]]) -> Sitting:
    messages = _messages(turns)
    facts = tuple(
        Extracted(f"{message.speaker}: {turn['persona_text'].strip()}", (index,))
        for index, (turn, message) in enumerate(zip(turns, messages, strict=True))
        if turn.get("persona_text")
    )
    return Sitting(f"session {number}", at, messages, facts)


def _messages(turns: list[dict[str, Any]]) -> tuple[Message, ...]:
    roles = [_ROLES[turn["id"]] for turn in turns]
    return tuple(
        Message(role, turn["text"].strip(), SPEAKERS[role != "user"]) for role, turn in zip(roles, turns, strict=True)
    )


def _questions(name: str, messages: tuple[Message, ...]) -> tuple[Question, ...]:
    return tuple(
        Question(f"{name} {index}", asked.text, reply.text, "reply", frozenset(), history=messages[:index])
        for index, (asked, reply) in enumerate(pairwise(messages))
        if asked.role == "user" and reply.role == "agent"
    )
