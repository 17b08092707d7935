"""A user's own data: one question a line, each line a JSON object, as ``.jsonl`` or ``.jsonl.xz``.

For example::

    {"conversation": "m", "sessions": [{"at": "2024-01-14", "messages": [["user", "I keep bees"]]}], "question": "Why?"}
    {"conversation": "m", "question": "Which pets?", "answer": "bees", "evidence": [[0, 0]], "kind": "single-hop"}

The six fields of a line:

- ``conversation``: the name of the conversation that is asked about.
- ``sessions``: what was said in it, in order of time. Each has ``at``, an ISO date that is taken for UTC where it names
  no zone, and ``messages``, each a role, ``"user"`` or ``"agent"``, and a text. They stand in the first line of their
  conversation, and are left out in later ones.
- ``question``: what is asked. Its id is the name of the conversation and the number of the line.
- ``answer``: what is right; empty when left out, and then only what is found can be measured.
- ``evidence``: the messages that the answer rests on, each as the number of its session and its own in that session,
  both from 0; none when left out, and then only answers can be measured.
- ``kind``: a name to group questions by; ``"question"`` when left out.
"""

from __future__ import annotations

import difflib
import json
import reprlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.datasets import Conversation, Question, Sitting, read_text, reading
from rmm_core import Message, TurnRef

WHERE = "It is a file of your own; the top of benchmarks/datasets/jsonl.py says how it is written"
FIELDS = ("conversation", "sessions", "question", "answer", "evidence", "kind")
ROLES = ("user", "agent")


def load(path: str | Path) -> list[Conversation]:
    """All conversations of the file, in the order in which they first come.

    Raises:
        ValueError: When the file is not there, or a line of it is something else.
    """
    with reading(path, "a file of text", WHERE):
        lines = read_text(path).split("\n")
    sittings: dict[str, tuple[Sitting, ...]] = {}
    questions: dict[str, list[Question]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = _fields(_parsed(line), "a line", FIELDS)
            name = _text(row, "conversation")
            if name not in sittings:
                sittings[name] = _sittings(row, name)
            elif "sessions" in row:
                raise ValueError(f"the sessions of {name!r} stand in an earlier line; leave 'sessions' out here")
            questions.setdefault(name, []).append(_question(row, f"{name} {number}", sittings[name]))
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from error
    if not sittings:
        raise ValueError(f"{path} is empty. {WHERE}")
    return [Conversation(name, sittings[name], tuple(asked)) for name, asked in questions.items()]


def _parsed(line: str) -> Any:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"this is not JSON: {error.msg} at character {error.pos + 1}") from error
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = ascii(error.object[error.start])
        raise ValueError(f"a text holds {half}, half of a character; write the whole one, or leave it out") from None
    return value


def _fields(value: Any, what: str, known: Sequence[str]) -> dict[str, Any]:
    """An object that has no other fields than the known ones."""
    if not isinstance(value, dict):
        raise ValueError(f"{what} is an object with {_listed(known)}; got {reprlib.repr(value)}")  # noqa: TRY004 -- the file's fault
    for name in value:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"{what} has {_listed(known)}"
            raise ValueError(f"unknown field {name!r}; {hint}")
    return value


def _text(row: dict[str, Any], name: str, default: str | None = None) -> str:
    """A field that is text: not blank, unless it may be left out."""
    value = row.get(name, default)
    if value is None:
        raise ValueError(f"{name!r} is missing")
    if not isinstance(value, str) or (default is None and not value.strip()):
        raise ValueError(f"{name!r} is text; got {reprlib.repr(value)}")
    return value


def _list(row: dict[str, Any], name: str, where: str = "") -> list[Any]:
    """A field that is a list with something in it."""
    value = row.get(name)
    if not isinstance(value, list) or not value:
        raise ValueError(f"{name!r}{where} is a list with at least one entry; got {reprlib.repr(value)}")
    return value


def _sittings(row: dict[str, Any], name: str) -> tuple[Sitting, ...]:
    if "sessions" not in row:
        raise ValueError(f"this is the first line of conversation {name!r}, and has no 'sessions'")
    found = tuple(_sitting(number, session) for number, session in enumerate(_list(row, "sessions")))
    for before, after in pairwise(found):
        if after.at < before.at:
            late, early = before.at.isoformat(), after.at.isoformat()
            raise ValueError(f"{after.id} ({early}) is earlier than {before.id} ({late}); put them in order of time")
    return found


def _sitting(number: int, session: Any) -> Sitting:
    name = f"session {number}"
    fields = _fields(session, name, ("at", "messages"))
    messages = enumerate(_list(fields, "messages", f" of {name}"))
    return Sitting(
        name, _date(fields.get("at"), name), tuple(_message(m, f"message {i} of {name}") for i, m in messages)
    )


def _date(value: Any, where: str) -> datetime:
    try:
        at = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        shown = reprlib.repr(value)
        raise ValueError(f"'at' of {where} is an ISO date such as 2024-01-14T18:00; got {shown}") from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _message(value: Any, where: str) -> Message:
    if not isinstance(value, list) or len(value) != 2 or not isinstance(value[1], str):
        raise ValueError(f"{where} is a list of its role and its text; got {reprlib.repr(value)}")
    role, text = value
    if role not in ROLES:
        raise ValueError(f"the role of {where} is {_listed(ROLES, 'or')}; got {reprlib.repr(role)}")
    return Message(role, text)


def _question(row: dict[str, Any], name: str, sittings: Sequence[Sitting]) -> Question:
    evidence = [] if row.get("evidence", []) == [] else _list(row, "evidence")
    refs = frozenset(_reference(pair, sittings) for pair in evidence)
    return Question(name, _text(row, "question"), _text(row, "answer", ""), _text(row, "kind", "question"), refs)


def _reference(pair: Any, sittings: Sequence[Sitting]) -> TurnRef:
    if not isinstance(pair, list) or len(pair) != 2 or any(type(number) is not int for number in pair):
        raise ValueError(f"each of 'evidence' is [session, message], two numbers from 0; got {reprlib.repr(pair)}")
    session, index = pair
    if not 0 <= session < len(sittings):
        raise ValueError(f"'evidence' {pair} is not there: the sessions are 0 to {len(sittings) - 1}")
    sitting = sittings[session]
    if not 0 <= index < len(sitting.messages):
        raise ValueError(
            f"'evidence' {pair} is not there: the messages of {sitting.id} are 0 to {len(sitting.messages) - 1}"
        )
    return TurnRef(sitting.id, index)


def _listed(names: Iterable[str], word: str = "and") -> str:
    *most, last = (repr(name) for name in names)
    return f"{', '.join(most)} {word} {last}"
