"""Rows of the databases as values, and back; what a damaged row holds is not taken for a value."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from rmm_core.errors import StoreError
from rmm_core.features import FEATURES
from rmm_core.types import (
    Attachment,
    Feedback,
    Matrix,
    Memory,
    Message,
    Revision,
    Session,
    Turn,
    TurnRef,
    Vector,
)

_LARGEST = 1e6  # embeddings have length 1, features and noise are smaller than a hundred
P = ParamSpec("P")
T = TypeVar("T")

SESSION_COLUMNS = (
    "user_id, id, user_name, agent_name, started_at, last_at, turns, reflected, ended, attempts, error, born"
)
TURN_COLUMNS = "session_id, position, role, speaker, text, at, attachments, from_memory"
MEMORY_COLUMNS = "id, user_id, kind, summary, created_at, updated_at, cited_at"
FEEDBACK_COLUMNS = (
    "recall_id, user_id, at, embedding, memory_ids, features, noise, shown, cited, embeddings, duel,"
    " asked_session, asked_position"
)


def _of_row(read: Callable[P, T]) -> Callable[P, T]:
    """``read``, with a row that holds no such value a failure of the database."""

    @wraps(read)
    def reading(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return read(*args, **kwargs)
        except (ValueError, TypeError, LookupError, OverflowError) as error:
            raise StoreError(
                f"a row cannot be read ({type(error).__name__}: {error}): the database is damaged; "
                "restore a copy of it, or export the users that can be read"
            ) from error

    return reading


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(f"a text is wanted, not {type(value).__name__}")
    return value


whole_number: Callable[[Any], int] = _of_row(int)


@_of_row
def ref_of(session_id: Any, position: Any) -> TurnRef:
    """Where a turn stands that a memory rests on."""
    return TurnRef(_text(session_id), int(position))


@_of_row
def revision_of(summary: Any, at: Any) -> Revision:
    """An earlier summary."""
    return Revision(_text(summary), _time(at))


def time_text(at: datetime) -> str:
    """A time as UTC text that sorts by time; a naive one is taken as UTC."""
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    return at.isoformat(timespec="microseconds")


def _time(value: str | datetime) -> datetime:
    """The time that :func:`time_text` wrote, from a database that has no type for it or one that has."""
    at = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    if at.tzinfo is None:
        raise ValueError(f"the time {value!r} has no timezone")
    return at if isinstance(value, str) else at.astimezone(UTC)


time_of = _of_row(_time)


@_of_row
def session_of(row: tuple[Any, ...]) -> Session:
    """A row of ``SESSION_COLUMNS``."""
    user, name, user_name, agent_name, started, last, turns, reflected, ended, attempts, error, born = row
    return Session(
        user_id=_text(user),
        id=_text(name),
        user_name=_text(user_name),
        agent_name=_text(agent_name),
        started_at=_time(started),
        last_at=_time(last),
        turns=int(turns),
        reflected=int(reflected),
        ended=bool(ended),
        attempts=int(attempts),
        error=_text(error),
        born=int(born),
    )


@_of_row
def turn_of(row: tuple[Any, ...]) -> Turn:
    """A row of ``TURN_COLUMNS``."""
    session_id, position, role, speaker, text, at, attachments, from_memory = row
    if role not in ("user", "agent"):
        raise ValueError(f"nobody is {role!r}")
    return Turn(
        session_id=_text(session_id),
        index=int(position),
        role=role,
        speaker=_text(speaker),
        text=_text(text),
        at=_time(at),
        attachments=() if attachments == "[]" else tuple(_attachment(*parts) for parts in json.loads(attachments)),
        from_memory=bool(from_memory),
    )


def _attachment(kind: Any, uri: Any, caption: Any) -> Attachment:
    return Attachment(_text(kind), _text(uri), _text(caption))


def turn_at(message: Message, session: Session, index: int, at: datetime) -> Turn:
    """A message as the session's turn ``index``, its name and time filled in."""
    m = message
    name = m.speaker or (session.user_name if m.role == "user" else session.agent_name)
    said_at = at if m.at is None else m.at
    return Turn(session.id, index, m.role, name, m.text, said_at, m.attachments, m.from_memory)


def turn_row(turn: Turn) -> tuple[Any, ...]:
    """A turn as a row of ``TURN_COLUMNS``."""
    t = turn
    attachments = json.dumps([[a.kind, a.uri, a.caption] for a in t.attachments], ensure_ascii=False)
    return t.session_id, t.index, t.role, t.speaker, t.text, time_text(t.at), attachments, t.from_memory


def session_row(session: Session) -> tuple[Any, ...]:
    """A session as a row of ``SESSION_COLUMNS``."""
    s = session
    names = (s.user_id, s.id, s.user_name, s.agent_name, time_text(s.started_at), time_text(s.last_at))
    return (*names, s.turns, s.reflected, s.ended, s.attempts, s.error, s.born)


@_of_row
def memory_of(row: tuple[Any, ...], evidence: tuple[TurnRef, ...] = (), history: tuple[Revision, ...] = ()) -> Memory:
    """A row of ``MEMORY_COLUMNS`` with what belongs to it."""
    name, user, kind, summary, created, updated, cited = row
    if kind not in ("topic", "unfiled"):
        raise ValueError(f"no memory is {kind!r}")
    return Memory(
        id=_text(name),
        user_id=_text(user),
        kind=kind,
        summary=_text(summary),
        evidence=evidence,
        created_at=_time(created),
        updated_at=_time(updated),
        history=history,
        cited_at=None if cited is None else _time(cited),
    )


def memory_row(memory: Memory) -> tuple[Any, ...]:
    """A memory as a row of ``MEMORY_COLUMNS``."""
    m = memory
    cited = None if m.cited_at is None else time_text(m.cited_at)
    return m.id, m.user_id, m.kind, m.summary, time_text(m.created_at), time_text(m.updated_at), cited


def feedback_row(feedback: Feedback) -> tuple[Any, ...]:
    """An entry of the learning log as a row of ``FEEDBACK_COLUMNS``."""
    return (
        feedback.recall_id,
        feedback.user_id,
        time_text(feedback.at),
        blob(feedback.embedding),
        json.dumps(feedback.memory_ids),
        blob(feedback.features),
        blob(feedback.noise),
        json.dumps(feedback.shown),
        json.dumps(feedback.cited),
        None if feedback.embeddings is None else blob(feedback.embeddings),
        json.dumps(feedback.duel),
        *((None, None) if feedback.asked_in is None else (feedback.asked_in.session_id, feedback.asked_in.index)),
    )


@_of_row
def feedback_of(row: tuple[Any, ...]) -> Feedback:
    """A row of ``FEEDBACK_COLUMNS``."""
    recall_id, user_id, at, embedding, memory_ids, features, noise, shown, cited, embeddings, duel, *asked_in = row
    query, names = vector(embedding), tuple(map(_text, json.loads(memory_ids)))
    places = [tuple(json.loads(column)) for column in (shown, cited)]
    if not all(0 <= place < len(names) for column in places for place in column):
        raise ValueError("an answer cites what was not shown")
    return Feedback(
        recall_id=_text(recall_id),
        user_id=_text(user_id),
        embedding=query,
        memory_ids=names,
        features=_features(features, len(names)),
        noise=vector(noise),
        shown=places[0],
        cited=places[1],
        at=_time(at),
        embeddings=None if embeddings is None else vector(embeddings).reshape(len(names), -1),
        duel=tuple(json.loads(duel)),
        asked_in=None if asked_in[0] is None else TurnRef(*asked_in),
    )


def blob(array: Vector | Matrix) -> bytes:
    """An array as little-endian float32 bytes."""
    return np.ascontiguousarray(array, dtype="<f4").tobytes()


@_of_row
def vector(packed: Any) -> Vector:
    """The vector that :func:`blob` packed, or that a database with a type for it gave."""
    if isinstance(packed, bytes):
        held = np.frombuffer(packed, dtype="<f4").astype(np.float32, copy=False)
    else:
        to_numpy = getattr(packed, "to_numpy", None)
        held = np.asarray(packed if to_numpy is None else to_numpy(), dtype=np.float32)
    if not (np.abs(held) < _LARGEST).all():  # one such number would spoil the weights that all users share
        raise ValueError("an embedding or a feature is no number of its size")
    return held


def _features(packed: bytes, count: int) -> Matrix:
    """The features of ``count`` memories; those that the version that wrote them did not know yet are 0."""
    known = vector(packed).reshape(count, -1)
    return np.pad(known, ((0, 0), (0, len(FEATURES) - known.shape[1])))
