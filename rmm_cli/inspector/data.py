"""What a memory holds, as plain values for JSON; nothing here writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rmm_cli.counts import UserCounts, counted, counts_of
from rmm_cli.decisions import changes, decision
from rmm_core import (
    AnswerRecord,
    Explanation,
    Memory,
    NotFoundError,
    ReflectiveMemory,
    Session,
    Turn,
)
from rmm_core.features import SCORED_BY
from rmm_core.reranker import start_mix

ANSWERS = 1000
"""How many of a user's last answers are shown."""


def users(memory: ReflectiveMemory, *, find: str = "", start: int = 0, limit: int | None = None) -> dict[str, Any]:
    """Users whose id contains ``find``, from the ``start``-th on, with how many there are."""
    names = memory.users()
    matching = [name for name in names if find.casefold() in name.casefold()]
    page = matching[start : None if limit is None else start + limit]
    return {"total": len(names), "matching": len(matching), "rows": [_row(counted(memory, name)) for name in page]}


def user(memory: ReflectiveMemory, user_id: str) -> dict[str, Any]:
    """All that is kept of one user, but for what was learned.

    Raises:
        NotFoundError: When nothing is.
    """
    memories, sessions = memory.memories(user_id), memory.store.sessions(user_id)
    consents = not memory.store.declined(user_id)
    if not memories and not sessions and consents:
        raise NotFoundError(f"nothing is stored of a user {user_id!r}")
    idle = memory.config.idle_minutes
    return {
        **_row(counts_of(user_id, memories, sessions, consents=consents)),
        "consents": consents,
        "held": [_session(s, memory.store.turns(user_id, s.id), idle) for s in sessions],
        "memories": [_memory(m) for m in memories],
        "answers": [_answer(a) for a in memory.answers(user_id, last=ANSWERS)],
    }


def learning(memory: ReflectiveMemory, user_id: str) -> dict[str, Any]:
    """What the answers taught the ranking that serves a user, step by step."""
    steps, learner = memory.learning_curve(user_id), memory.status(user_id).learner
    start = start_mix(memory.config).tolist()
    return {
        "shared": memory.config.learner_scope == "store",
        "ranking": learner.ranking,
        "reason": learner.reason,
        "updates": learner.updates,
        "steps": [[s.answers, round(s.cited, 4), int(s.ranking == "learned")] for s in steps],
        "decisions": [decision(step) for step in changes(steps)],
        "weights": [[name, b, learner.weights[name]] for name, b in zip(SCORED_BY, start, strict=True)],
    }


def explanation(explained: Explanation) -> dict[str, Any]:
    """Both rankings of one query."""
    return {
        "ranking": explained.ranking,
        "reason": explained.reason,
        "candidates": [
            {
                "id": r.memory.id,
                "summary": r.memory.summary,
                "kind": r.memory.kind,
                "similarity": r.similarity,
                "learned": {"rank": r.learned_rank, "score": r.learned},
                "prior": {"rank": r.prior_rank, "score": r.prior},
                "terms": _largest_first(r.terms),
                "shown": r.shown,
                "prior_shown": r.prior_shown,
            }
            for r in explained.candidates
        ],
    }


def _row(counts: UserCounts) -> dict[str, Any]:
    return {
        "id": counts.user_id,
        "topics": counts.topics,
        "unfiled": counts.unfiled,
        "turns": counts.turns,
        "sessions": counts.sessions,
        "pending": counts.pending,
    }


def _session(session: Session, turns: Sequence[Turn], idle_minutes: float) -> dict[str, Any]:
    return {
        "id": session.id,
        "at": _time(session.started_at),
        "agent": session.agent_name,
        "reflected": session.reflected,
        "pending": pending_because(session, idle_minutes),
        "turns": [_turn(t) for t in turns],
    }


def pending_because(session: Session, idle_minutes: float) -> str:
    """Why a session is not reflected; empty when it is."""
    if session.reflected >= session.turns:
        return ""
    if session.error:
        times = "once" if session.attempts == 1 else f"{session.attempts} times"
        return f"its reflection failed {times}, last with: {session.error}"
    if session.ended:
        return "it has ended and waits for its reflection"
    return f"it is open: reflected when it ends, or at the next visit after {idle_minutes:g} minutes of silence"


def _turn(turn: Turn) -> dict[str, Any]:
    told: dict[str, Any] = {
        "index": turn.index,
        "role": turn.role,
        "speaker": turn.speaker,
        "text": turn.text,
        "at": _time(turn.at),
    }
    if turn.attachments:
        told["attachments"] = [[a.kind, a.caption, a.uri] for a in turn.attachments]
    if turn.from_memory:
        told["from_memory"] = True
    return told


def _memory(memory: Memory) -> dict[str, Any]:
    return {
        "id": memory.id,
        "kind": memory.kind,
        "summary": memory.summary,
        "evidence": [[ref.session_id, ref.index] for ref in memory.evidence],
        "created": _time(memory.created_at),
        "updated": _time(memory.updated_at),
        "history": [[r.summary, _time(r.replaced_at)] for r in memory.history],
        "cited": None if memory.cited_at is None else _time(memory.cited_at),
    }


def _answer(answer: AnswerRecord) -> dict[str, Any]:
    return {
        "at": _time(answer.at),
        "query": answer.query,
        "duel": answer.duel,
        "shown": [[s.memory_id, int(s.cited)] for s in answer.shown],
    }


def _largest_first(terms: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(terms.items(), key=lambda term: -abs(term[1]))


def _time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds")
