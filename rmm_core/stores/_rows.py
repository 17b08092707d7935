"""Rows of the databases as values, and back."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import numpy as np

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

SESSION_COLUMNS = (
    "user_id, id, user_name, agent_name, started_at, last_at, turns, reflected, ended, attempts, error, born"
)
TURN_COLUMNS = "session_id, position, role, speaker, text, at, attachments, from_memory"
MEMORY_COLUMNS = "id, user_id, kind, summary, created_at, updated_at, cited_at"
FEEDBACK_COLUMNS = (
    "recall_id, user_id, at, embedding, memory_ids, features, noise, shown, cited, embeddings, duel,"
    " asked_session, asked_position"
)


def time_text(at: datetime) -> str:
    """A time as UTC text that sorts by time; a naive one is taken as UTC."""
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    return at.isoformat(timespec="microseconds")


def time_of(value: str | datetime) -> datetime:
    """The time that :func:`time_text` wrote, from a database that has no type for it or one that has."""
    return datetime.fromisoformat(value) if isinstance(value, str) else value.astimezone(UTC)


def session_of(row: tuple[Any, ...]) -> Session:
    """A row of ``SESSION_COLUMNS``."""
    user, name, user_name, agent_name, started, last, turns, reflected, ended, attempts, error, born = row
    return Session(
        user_id=user,
        id=name,
        user_name=user_name,
        agent_name=agent_name,
        started_at=time_of(started),
        last_at=time_of(last),
        turns=turns,
        reflected=reflected,
        ended=bool(ended),
        attempts=attempts,
        error=error,
        born=born,
    )


def turn_of(row: tuple[Any, ...]) -> Turn:
    """A row of ``TURN_COLUMNS``."""
    session_id, position, role, speaker, text, at, attachments, from_memory = row
    return Turn(
        session_id=session_id,
        index=position,
        role=role,
        speaker=speaker,
        text=text,
        at=time_of(at),
        attachments=() if attachments == "[]" else tuple(Attachment(*parts) for parts in json.loads(attachments)),
        from_memory=bool(from_memory),
    )


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


def memory_of(row: tuple[Any, ...], evidence: tuple[TurnRef, ...] = (), history: tuple[Revision, ...] = ()) -> Memory:
    """A row of ``MEMORY_COLUMNS`` with what belongs to it."""
    name, user, kind, summary, created, updated, cited = row
    return Memory(
        id=name,
        user_id=user,
        kind=kind,
        summary=summary,
        evidence=evidence,
        created_at=time_of(created),
        updated_at=time_of(updated),
        history=history,
        cited_at=None if cited is None else time_of(cited),
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


def feedback_of(row: tuple[Any, ...]) -> Feedback:
    """A row of ``FEEDBACK_COLUMNS``."""
    recall_id, user_id, at, embedding, memory_ids, features, noise, shown, cited, embeddings, duel, *asked_in = row
    query, names = vector(embedding), tuple(json.loads(memory_ids))
    return Feedback(
        recall_id=recall_id,
        user_id=user_id,
        embedding=query,
        memory_ids=names,
        features=_features(features, len(names)),
        noise=vector(noise),
        shown=tuple(json.loads(shown)),
        cited=tuple(json.loads(cited)),
        at=time_of(at),
        embeddings=None if embeddings is None else vector(embeddings).reshape(len(names), -1),
        duel=tuple(json.loads(duel)),
        asked_in=None if asked_in[0] is None else TurnRef(*asked_in),
    )


def blob(array: Vector | Matrix) -> bytes:
    """An array as little-endian float32 bytes."""
    return np.ascontiguousarray(array, dtype="<f4").tobytes()


def vector(packed: Any) -> Vector:
    """The vector that :func:`blob` packed, or that a database with a type for it gave."""
    if isinstance(packed, bytes):
        return np.frombuffer(packed, dtype="<f4").astype(np.float32, copy=False)
    to_numpy = getattr(packed, "to_numpy", None)
    return np.asarray(packed if to_numpy is None else to_numpy(), dtype=np.float32)


def _features(packed: bytes, count: int) -> Matrix:
    """The features of ``count`` memories; those that the version that wrote them did not know yet are 0."""
    known = vector(packed).reshape(count, -1)
    return np.pad(known, ((0, 0), (0, len(FEATURES) - known.shape[1])))
