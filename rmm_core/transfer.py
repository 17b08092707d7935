"""Everything of one user as JSON lines, and back.

The first line names the format; then come sessions with their turns, then memories. Embeddings and
learned weights are left out: the first are made anew, the second are not the user's data.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from rmm_core.errors import InputError
from rmm_core.protocols import Entry, MemoryStore
from rmm_core.types import Attachment, Matrix, Memory, Revision, Session, Turn, TurnRef

FORMAT = "reflective-memory/1"


@dataclass(frozen=True, slots=True)
class UserContent:
    """All that is kept of one user."""

    user_id: str
    sessions: tuple[Session, ...]
    turns: tuple[Turn, ...]
    memories: tuple[Memory, ...]


def export_lines(store: MemoryStore, user_id: str) -> Iterator[str]:
    """Everything kept of a user, a JSON document a line."""
    yield _line(format=FORMAT, user_id=user_id)
    for session in store.sessions(user_id):
        turns = [asdict(t) for t in store.turns(user_id, session.id)]
        yield _line(session=asdict(session), turns=turns)
    for memory in store.memories(user_id):
        yield _line(memory=asdict(memory))


def parse_lines(lines: Iterable[str]) -> UserContent:
    """Read what :func:`export_lines` wrote.

    Raises:
        InputError: Naming the first line that is not as it should be.
    """
    user_id, sessions, turns, memories = "", [], [], []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            content = json.loads(line)
            if number == 1:
                if content["format"] != FORMAT:
                    raise InputError(f"line 1: the format is {content['format']!r}, this version reads {FORMAT!r}")
                user_id = str(content["user_id"])
            elif "session" in content:
                sessions.append(_session(content["session"]))
                turns += [_turn(t) for t in content["turns"]]
            else:
                memories.append(_memory(content["memory"]))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"line {number} is not of an export: {type(error).__name__}: {error}") from error
    if not user_id:
        raise InputError(f"this is no export: its first line should name the format {FORMAT!r}")
    return UserContent(user_id, tuple(sessions), tuple(turns), tuple(memories))


def restore(store: MemoryStore, content: UserContent, vectors: Matrix, user_id: str) -> None:
    """Store all of it under ``user_id``, as one transaction.

    Raises:
        InputError: When the user has something stored already.
    """
    entries = [Entry(replace(m, user_id=user_id), v) for m, v in zip(content.memories, vectors, strict=True)]
    sessions = [replace(s, user_id=user_id) for s in content.sessions]
    store.restore_user(user_id, sessions, content.turns, entries)


def _line(**content: Any) -> str:
    return json.dumps(content, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _session(d: dict[str, Any]) -> Session:
    return Session(**d | {"started_at": _time(d["started_at"]), "last_at": _time(d["last_at"])})


def _turn(d: dict[str, Any]) -> Turn:
    return Turn(**d | {"at": _time(d["at"]), "attachments": tuple(Attachment(**a) for a in d["attachments"])})


def _memory(d: dict[str, Any]) -> Memory:
    return Memory(
        **d
        | {
            "evidence": tuple(TurnRef(**r) for r in d["evidence"]),
            "history": tuple(Revision(r["summary"], _time(r["replaced_at"])) for r in d["history"]),
            "created_at": _time(d["created_at"]),
            "updated_at": _time(d["updated_at"]),
        }
    )


def _time(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise InputError(f"the time {text!r} has no timezone")
    return at
