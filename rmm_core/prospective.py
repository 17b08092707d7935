"""Prospective reflection: how an ended session enters the bank (paper section 3).

extract -> for each new memory: search, decide -> commit, as one flow. Nothing is written before the one commit
at the end; a model that fails or replies garbage leaves the bank as it was and the session pending.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rmm_core.config import RMMConfig
from rmm_core.errors import ConflictError
from rmm_core.extractive import is_small_talk
from rmm_core.features import FEATURES
from rmm_core.flow import Flow, call, complete, embed
from rmm_core.parsing import merge_repeats, parse_actions, parse_extraction
from rmm_core.prompts import EXTRACTION_SCHEMA, extraction_prompt, update_prompt
from rmm_core.protocols import BankChange, Entry, MemoryStore, Reflector
from rmm_core.types import (
    Add,
    Candidate,
    Decision,
    Extracted,
    Extraction,
    Kind,
    Matrix,
    Memory,
    Merge,
    ReflectionReport,
    Revision,
    Session,
    Turn,
    TurnRef,
    Vector,
)

logger = logging.getLogger(__name__)


class LLMReflector:
    """Reflection by a language model, in the paper's reply formats."""

    def __init__(self, config: RMMConfig) -> None:
        self._config = config

    def extract(self, session: Session, turns: Sequence[Turn]) -> Flow[Extraction]:
        """One call per speaker and piece; see :class:`~rmm_core.protocols.Reflector`."""
        c = self._config
        found: list[Extracted] = []
        dropped = 0
        for role in c.speakers:
            for piece in pieces(turns, c.piece_turns, c.piece_overlap, c.piece_characters):
                if all(t.role != role for t in piece):
                    continue
                reply = yield from complete(extraction_prompt(session, piece, role), EXTRACTION_SCHEMA)
                part = parse_extraction(reply, [t.index for t in piece])
                theirs = {t.index for t in piece if t.role == role}
                own = [m for m in part.memories if not theirs.isdisjoint(m.reference)]  # facts belong to who said them
                found += own
                dropped += part.dropped + len(part.memories) - len(own)
        return Extraction(merge_repeats(found), dropped)

    def decide(self, new: Extracted, turns: Sequence[Turn], similar: Sequence[Candidate]) -> Flow[Decision]:
        """One call per new memory; see :class:`~rmm_core.protocols.Reflector`."""
        reply = yield from complete(update_prompt(new.summary, [c.memory.summary for c in similar]))
        return parse_actions(reply, len(similar))


def pieces(turns: Sequence[Turn], size: int | None, overlap: int, characters: int) -> list[Sequence[Turn]]:
    """Cut a session into overlapping pieces that a model can read whole.

    A piece ends after ``size`` turns or before it would grow past ``characters``, and has at least one
    turn. The last ``overlap`` turns of a piece open the next, unless they alone would fill it. ``size`` None
    cuts nowhere.
    """
    if size is None or not turns:
        return [turns] if turns else []
    cut: list[Sequence[Turn]] = []
    start = 0
    while True:
        stop, length = start, 0
        while stop < len(turns) and stop - start < size:
            length += len(turns[stop].content)
            if length > characters and stop > start:
                break
            stop += 1
        cut.append(turns[start:stop])
        if stop >= len(turns):
            return cut
        start = max(stop - overlap, start + 1)


def reflect(
    store: MemoryStore, reflector: Reflector, config: RMMConfig, user_id: str, session_id: str
) -> Flow[ReflectionReport]:
    """Bring the bank up to date with a session's turns; doing so twice changes nothing.

    Raises (inside the flow):
        ModelError: When a model failed or replied nothing usable; the bank is as it was.
        ConflictError: When others kept changing the bank; likewise.
    """
    session = yield from call(store.session, user_id, session_id)
    if session.reflected >= session.turns:
        return ReflectionReport(user_id, session_id, "already")
    turns = yield from call(store.turns, user_id, session_id, session.reflected, session.turns)
    extraction = yield from reflector.extract(session, turns)
    said = {t.index: t for t in turns}
    memories = [anchored(m, said) for m in extraction.memories]
    vectors = yield from embed([m.summary for m in memories])
    loose = _loose(session, turns, memories) if config.unfiled else []
    loose_vectors = yield from embed([t.line for t in loose])
    for attempt in range(_ATTEMPTS):
        base = yield from call(store.bank_version, user_id)
        draft = Draft(session)
        for new, vector in zip(memories, vectors, strict=True):
            yield from _place(store, reflector, config, draft, new, vector, said)
        for turn, vector in zip(loose, loose_vectors, strict=True):
            draft.put(_memory(session, "unfiled", turn.line, [turn]), vector)
        change = draft.change(base, session.reflected, session.turns)
        try:
            yield from call(store.commit, user_id, change)
        except ConflictError:
            fresh = yield from call(store.session, user_id, session_id)
            if (fresh.born, fresh.reflected) != (session.born, session.reflected):
                return ReflectionReport(user_id, session_id, "already")
            if attempt == _ATTEMPTS - 1:
                raise
            logger.info("the bank of a user moved during reflection; deciding again")
            continue
        break
    report = draft.report(extraction.dropped, unfiled=len(loose))
    if report.dropped:
        logger.warning("of what a model replied, %d malformed parts were left out", report.dropped)
    return report


def reembedding(store: MemoryStore) -> Flow[int]:
    """Embed every memory of every user anew, all or nothing; how many were.

    Raises (inside the flow):
        ConflictError: When a bank changed meanwhile.
    """
    banks = {}
    for user_id in (yield from call(lambda: list(store.users()))):
        version = yield from call(store.bank_version, user_id)
        memories = yield from call(store.memories, user_id)
        vectors = yield from embed([m.summary for m in memories])
        banks[user_id] = (version, {m.id: v for m, v in zip(memories, vectors, strict=True)})
    yield from call(store.reembed, banks)
    return sum(len(rows) for _, rows in banks.values())


_ATTEMPTS = 5
_ROUNDING = 1e-5  # by which a product of many rows may differ from those of each


@dataclass
class Draft:
    """The changes of one reflection while it is being decided."""

    session: Session
    entries: dict[str, Entry] = field(default_factory=dict)
    added: int = 0
    merged: set[str] = field(default_factory=set)
    dropped: int = 0
    _places: dict[str, int] = field(default_factory=dict)  # the row of each entry
    _rows: Matrix = field(default_factory=lambda: np.zeros((0, 0), dtype=np.float32))

    def put(self, memory: Memory, vector: Vector) -> None:
        """Add a memory, or replace the one of its id."""
        place = self._places.setdefault(memory.id, len(self._places))
        if place == len(self._rows):
            room = np.zeros((max(len(self._rows), 16), len(vector)), dtype=np.float32)
            self._rows = np.concatenate([self._rows, room]) if place else room
        self._rows[place] = vector
        self.entries[memory.id] = Entry(memory, vector)

    def similar(self, stored: Sequence[Candidate], vector: Vector, count: int) -> list[Candidate]:
        """The topics most similar to ``vector`` in the bank as this draft leaves it."""
        drafted = [
            Candidate(e.memory, e.embedding, _NO_FEATURES, float(e.embedding @ vector))
            for e in self._nearest(vector, count)
        ]
        untouched = [c for c in stored if c.memory.id not in self.entries]
        return sorted([*drafted, *untouched], key=lambda c: (-c.score, c.memory.id))[:count]

    def _nearest(self, vector: Vector, count: int) -> list[Entry]:
        """The drafted entries that can be among the ``count`` most similar."""
        held = list(self.entries.values())  # in the order of their rows
        if len(held) <= count:
            return held
        scores = self._rows[: len(held)] @ vector
        least = np.partition(scores, -count)[-count] - _ROUNDING
        return [held[place] for place in np.flatnonzero(scores >= least)]

    def change(self, base: int, start: int, stop: int) -> BankChange:
        """The whole draft; unfiled turns that a topic now rests on go away."""
        filed = {
            memory_id("unfiled", self.session.user_id, ref)
            for e in self.entries.values()
            if e.memory.kind == "topic"
            for ref in e.memory.evidence
        }
        return BankChange(
            base_version=base,
            entries=tuple(e for i, e in self.entries.items() if i not in filed),
            removed=tuple(sorted(filed)),
            session_id=self.session.id,
            session_born=self.session.born,
            reflected_from=start,
            reflected_to=stop,
        )

    def report(self, dropped: int, unfiled: int) -> ReflectionReport:
        """What was done."""
        return ReflectionReport(
            user_id=self.session.user_id,
            session_id=self.session.id,
            status="reflected" if self.added or self.merged else "nothing",
            added=self.added,
            merged=len(self.merged),
            unfiled=unfiled,
            dropped=dropped + self.dropped,
        )


def anchored(memory: Extracted, said: Mapping[int, Turn]) -> Extracted:
    """A memory whose summary still says "yesterday" or "two months ago", told from when.

    Models are asked to write dates, and not all do; the user's own sentences never do. English only.
    """
    if not _RELATIVE.search(memory.summary) or _YEAR.search(memory.summary):
        return memory
    at = max(said[i].at for i in memory.reference if i in said)
    return replace(memory, summary=f"{memory.summary} (said on {at.day} {at:%B %Y})")


_YEAR = re.compile(r"\b(?:19|20)\d\d\b")
_UNIT = r"(?:night|day|morning|evening|weekend|week|month|year|spring|summer|autumn|fall|winter|\w+day)s?"
_WHEN = (
    rf"yesterday|today|tonight|tomorrow|(?:last|next|this|past) {_UNIT}|(?:\w+ ){{1,2}}ago|in (?:\w+ ){{1,2}}{_UNIT}"
)
_RELATIVE = re.compile(rf"\b(?:{_WHEN})\b", re.IGNORECASE)


def memory_id(kind: Kind, user_id: str, first: TurnRef, ordinal: int = 0) -> str:
    """A memory's id: the same wherever and whenever the same session is reflected; holds no content."""
    parts = "\x1f".join((kind, user_id, first.session_id, str(first.index), str(ordinal)))
    return hashlib.blake2b(parts.encode(), digest_size=10).hexdigest()


def merged(old: Memory, new: Memory, summary: str) -> Memory:
    """``old`` with what ``new`` adds: the evidence of both, the superseded summary as history."""
    history = old.history if summary == old.summary else (*old.history, Revision(old.summary, new.updated_at))
    return replace(
        old,
        summary=summary,
        evidence=tuple(sorted({*old.evidence, *new.evidence})),
        created_at=min(old.created_at, new.created_at),
        updated_at=max(old.updated_at, new.updated_at),
        history=history,
    )


def _place(
    store: MemoryStore,
    reflector: Reflector,
    config: RMMConfig,
    draft: Draft,
    new: Extracted,
    vector: Vector,
    said: Mapping[int, Turn],
) -> Flow[None]:
    """Add one new memory to the draft, or merge it into what is there (paper section 3, update)."""
    session = draft.session
    rests_on = [said[i] for i in sorted(new.reference) if i in said]
    count = config.neighbours
    stored = yield from call(store.search, session.user_id, vector, limit=count + len(draft.merged), kind="topic")
    floor = config.merge_floor
    similar = [c for c in draft.similar(stored, vector, count) if floor is None or c.score >= floor]
    decision = (yield from reflector.decide(new, rests_on, similar)) if similar else Decision((Add(),))
    draft.dropped += decision.dropped
    memory = _memory(session, "topic", new.summary, rests_on, ordinal=draft.added)
    for action in decision.actions:
        match action:
            case Add():
                draft.put(memory, vector)
                draft.added += 1
            case Merge(index, summary):
                target = similar[index].memory
                changed = yield from embed([summary])
                draft.put(merged(target, memory, summary), changed[0])
                draft.merged.add(target.id)


def _memory(session: Session, kind: Kind, summary: str, turns: Sequence[Turn], ordinal: int = 0) -> Memory:
    said = turns[-1].at
    return Memory(
        id=memory_id(kind, session.user_id, turns[0].ref, ordinal),
        user_id=session.user_id,
        kind=kind,
        summary=summary,
        evidence=tuple(t.ref for t in turns),
        created_at=said,
        updated_at=said,
    )


def _loose(session: Session, turns: Sequence[Turn], memories: Sequence[Extracted]) -> list[Turn]:
    """Turns that no memory refers to and that say something new; what is said again in the same words, once."""
    covered = {index for m in memories for index in m.reference}
    names = (session.user_name, session.agent_name)
    rest = [t for t in turns if t.index not in covered and t.content and not t.from_memory]
    first = {(t.role, t.content): t for t in reversed(rest)}
    return [t for t in rest if first[t.role, t.content] is t and not is_small_talk(t.content, names=names)]


_NO_FEATURES = np.zeros(len(FEATURES), dtype=np.float32)
