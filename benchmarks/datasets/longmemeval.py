"""LongMemEval (Wu et al., ICLR 2025), read from the official file by path, as ``.json`` or ``.json.xz``.

Every question has a conversation of its own. Sessions are put in order of their dates, which the file does not always
do, and renamed: the file repeats some ids, and the names of those with evidence say so.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.datasets import Conversation, Question, Sitting, read_json, reading
from rmm_core import Message, TurnRef

WHERE = "LongMemEval is had at https://github.com/xiaowu0162/LongMemEval (MIT)"


def load(path: str | Path) -> list[Conversation]:
    """All questions of the file, each with its conversation.

    Raises:
        ValueError: When the file is not there or something else.
    """
    with reading(path, "a LongMemEval file", WHERE):
        return [_conversation(entry) for entry in read_json(path)]


def _conversation(entry: dict[str, Any]) -> Conversation:
    dated = zip(map(_date, entry["haystack_dates"]), entry["haystack_sessions"], strict=True)
    in_order = sorted(dated, key=lambda session: session[0])  # those of one date stay in the file's order
    names = [f"session {number}" for number in range(1, len(in_order) + 1)]
    sittings = [
        Sitting(name, at, tuple(map(_message, turns))) for name, (at, turns) in zip(names, in_order, strict=True)
    ]
    evidence = frozenset(
        TurnRef(name, index)
        for name, (_, turns) in zip(names, in_order, strict=True)
        for index, turn in enumerate(turns)
        if turn.get("has_answer")
    )
    question = Question(
        id=entry["question_id"],
        text=entry["question"],
        answer=str(entry["answer"]),
        kind=entry["question_type"],
        evidence=evidence,
        asked_at=_date(entry["question_date"]),
        abstains=entry["question_id"].endswith("_abs"),
    )
    return Conversation(question.id, tuple(sittings), (question,))


def _message(turn: dict[str, Any]) -> Message:
    return Message("user" if turn["role"] == "user" else "agent", turn["content"])


def _date(text: str) -> datetime:
    return datetime.strptime(text, "%Y/%m/%d (%a) %H:%M").replace(tzinfo=UTC)
