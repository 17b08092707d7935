"""Everything of one user as JSON lines, and back.

The first line names the format; then come sessions with their turns, then memories. Embeddings and
learned weights are left out: the first are made anew, the second are not the user's data.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from rmm_core.errors import InputError
from rmm_core.flow import Flow, call, embed
from rmm_core.inputs import checked_id
from rmm_core.protocols import Entry, MemoryStore
from rmm_core.types import Attachment, Memory, Revision, Session, Turn, TurnRef

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
            if not user_id:
                if content["format"] != FORMAT:
                    raise InputError(f"the format is {content['format']!r}, this version reads {FORMAT!r}")
                user_id = checked_id(content["user_id"], "user_id")
            elif "session" in content:
                of_session = [_turn(t) for t in content["turns"]]
                sessions.append(_session(content["session"], of_session))
                turns += of_session
            else:
                memories.append(_memory(content["memory"]))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
            raise InputError(
                f"line {number} is not of an export, as export_user and rmm export write it: {error}"
            ) from error
    if not user_id:
        raise InputError(f"this is no export: its first line should name the format {FORMAT!r}")
    for kind, names in (("session", [s.id for s in sessions]), ("memory", [m.id for m in memories])):
        if len(set(names)) < len(names):
            raise InputError(f"a {kind} comes twice")
    return UserContent(user_id, tuple(sessions), tuple(turns), tuple(memories))


def importing(store: MemoryStore, lines: Iterable[str], user_id: str | None) -> Flow[str]:
    """Store what was exported, under its own or another id, as one transaction; the id.

    Raises (inside the flow):
        InputError: When a line is malformed, or the user has something stored already.
    """
    content = parse_lines(lines)
    user_id = checked_id(content.user_id if user_id is None else user_id, "user_id")
    vectors = yield from embed([m.summary for m in content.memories])
    entries = [Entry(replace(m, user_id=user_id), v) for m, v in zip(content.memories, vectors, strict=True)]
    sessions = [replace(s, user_id=user_id) for s in content.sessions]
    yield from call(store.restore_user, user_id, sessions, content.turns, entries)
    return user_id


def _line(**content: Any) -> str:
    """One line whatever reads it: other line breaks than the usual ones are escaped."""
    text = json.dumps(content, ensure_ascii=False, default=_plain)
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").replace("\u0085", "\\u0085")


def _plain(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _session(d: dict[str, Any], turns: list[Turn]) -> Session:
    session = Session(**d | {"started_at": _time(d["started_at"]), "last_at": _time(d["last_at"])})
    _expect(session, str, "user_id", "user_name", "agent_name", "error")
    _expect(session, int, "turns", "reflected", "attempts")
    _expect(session, bool, "ended")
    checked_id(session.id, "a session's id")
    places = [t.index for t in turns]
    if any(t.session_id != session.id for t in turns) or len(set(places)) != len(places):
        raise InputError("turns of another session, or two at one place")
    if not session.reflected <= session.turns or not all(p < session.turns for p in places):
        raise InputError("turns are numbered from 0 and counted in the session")
    return session


def _turn(d: dict[str, Any]) -> Turn:
    turn = Turn(**d | {"at": _time(d["at"]), "attachments": tuple(Attachment(**a) for a in d["attachments"])})
    _expect(turn, str, "session_id", "speaker", "text")
    _expect(turn, int, "index")
    _expect(turn, bool, "from_memory")
    for attachment in turn.attachments:
        _expect(attachment, str, "kind", "uri", "caption")
    if turn.role not in ("user", "agent"):
        raise InputError(f"a turn is of the user or the agent, not {turn.role!r}")
    return turn


def _memory(d: dict[str, Any]) -> Memory:
    memory = Memory(
        **d
        | {
            "evidence": tuple(TurnRef(**r) for r in d["evidence"]),
            "history": tuple(Revision(r["summary"], _time(r["replaced_at"])) for r in d["history"]),
            "created_at": _time(d["created_at"]),
            "updated_at": _time(d["updated_at"]),
            "cited_at": _time(d["cited_at"]) if d.get("cited_at") else None,
        }
    )
    _expect(memory, str, "user_id", "summary")
    checked_id(memory.id, "a memory's id")
    for ref in memory.evidence:
        _expect(ref, int, "index")
        checked_id(ref.session_id, "a session's id")
    if len(set(memory.evidence)) < len(memory.evidence):
        raise InputError("a memory rests on a turn twice")
    for revision in memory.history:
        _expect(revision, str, "summary")
    if memory.kind not in ("topic", "unfiled"):
        raise InputError(f"a memory is a topic or unfiled, not {memory.kind!r}")
    return memory


def _expect(value: object, kind: type[Any], *names: str) -> None:
    for name in names:
        held = getattr(value, name)
        if type(held) is not kind or (kind is int and not 0 <= held < 2**31):
            raise InputError(f"{name} is {held!r}")
        if kind is str:
            held.encode()


def _time(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise InputError(f"the time {text!r} has no timezone")
    at.astimezone(UTC)  # near the ends of time it has none
    return at
