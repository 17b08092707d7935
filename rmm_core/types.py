"""The values that travel between the parts: all frozen, all plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float32]
"""A float32 array of shape ``(d,)``."""

Matrix: TypeAlias = NDArray[np.float32]
"""A float32 array of shape ``(n, d)``."""

Role: TypeAlias = Literal["user", "agent"]
Kind: TypeAlias = Literal["topic", "unfiled"]
CitationStatus: TypeAlias = Literal["cited", "none", "silent", "malformed"]
ReflectionStatus: TypeAlias = Literal["reflected", "nothing", "already", "elsewhere", "declined", "pending"]


@dataclass(frozen=True, slots=True)
class Attachment:
    """Something that is not text and came with a turn.

    Attributes:
        kind: ``"image"``, ``"audio"``, ``"document"`` ...
        uri: Where it lies; never fetched by this package.
        caption: What it shows, in words; searchable, and shown with its turn.
    """

    kind: str
    uri: str
    caption: str = ""


@dataclass(frozen=True, slots=True, order=True)
class TurnRef:
    """Where a turn stands: its session and its position in it, counted from 0."""

    session_id: str
    index: int


@dataclass(frozen=True, slots=True)
class Message:
    """Something said and not yet stored: a turn without a place; see :class:`Turn`.

    Attributes:
        key: What the host calls this message. A session stores a key once, however often a host that retries,
            replays or hands over its whole history comes with it; empty for no such promise.
    """

    role: Role
    text: str
    speaker: str = ""
    at: datetime | None = None
    attachments: tuple[Attachment, ...] = ()
    from_memory: bool = False
    key: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of one speaker, as it was said.

    Attributes:
        session_id: The session it belongs to.
        index: Its position in the session, counted from 0.
        role: Which side said it: the ``"user"`` the memory is about, or the ``"agent"``.
        speaker: The speaker's name.
        text: The words.
        at: When it was said (timezone-aware).
        attachments: What came with it.
        from_memory: Whether all it says is known already: an answer that cites memories, and a bare question
            that got one. It stays part of the session and is never filed again, or the memory would come
            to remember itself.
    """

    session_id: str
    index: int
    role: Role
    speaker: str
    text: str
    at: datetime
    attachments: tuple[Attachment, ...] = ()
    from_memory: bool = False

    @property
    def ref(self) -> TurnRef:
        """Where this turn stands."""
        return TurnRef(self.session_id, self.index)

    @property
    def content(self) -> str:
        """The words, followed by the captions of what came with them."""
        if not self.attachments:
            return self.text.strip()
        notes = [f"[{a.kind}: {a.caption}]" for a in self.attachments if a.caption]
        return " ".join([self.text, *notes]).strip()

    @property
    def line(self) -> str:
        """The content with its speaker: what is searched, since it is found far better than the words alone."""
        return f"{self.speaker}: {self.content}"


@dataclass(frozen=True, slots=True)
class Session:
    """One sitting of one user with the agent.

    Attributes:
        started_at: When it takes place.
        last_at: When it was last written to.
        turns: How many turns it has.
        reflected: How many of them, from the first, the bank already knows.
        ended: Whether somebody said it is over.
        attempts: How often its reflection failed since it last went through.
        error: The kind of the last failure and what it said, with a colon between; empty when there was none.
        born: Tells this session from an earlier one of the same id that was forgotten; given by the store.
    """

    user_id: str
    id: str
    user_name: str
    agent_name: str
    started_at: datetime
    last_at: datetime
    turns: int = 0
    reflected: int = 0
    ended: bool = False
    attempts: int = 0
    error: str = ""
    born: int = 0


@dataclass(frozen=True, slots=True)
class Revision:
    """A summary that a later one took the place of."""

    summary: str
    replaced_at: datetime


@dataclass(frozen=True, slots=True)
class Memory:
    """An entry of the bank: a summary, and the raw turns it rests on (paper section 4).

    Attributes:
        kind: ``"topic"`` for what reflection extracted; ``"unfiled"`` for a turn that
            no topic refers to, which is summary and evidence at once.
        evidence: The turns it rests on, in order; a merge only ever adds to them.
        history: Earlier summaries, oldest first.
        cited_at: When an answer last cited it; None for never.
    """

    id: str
    user_id: str
    kind: Kind
    summary: str
    evidence: tuple[TurnRef, ...]
    created_at: datetime
    updated_at: datetime
    history: tuple[Revision, ...] = ()
    cited_at: datetime | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A memory that a search brought up.

    Attributes:
        memory: The memory.
        embedding: Its embedding, shape ``(d,)``.
        features: What else it is scored by, one number per entry of :data:`rmm_core.features.FEATURES`.
        score: What it was ranked by; higher is better.
    """

    memory: Memory
    embedding: Vector = field(repr=False)
    features: Vector = field(repr=False)
    score: float = 0.0


@dataclass(frozen=True, slots=True)
class Shown:
    """A memory as the model is shown it: with its turns in full.

    Attributes:
        number: What it is cited by, counted from 1.
    """

    number: int
    memory: Memory
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Citations:
    """What an answer cites.

    Attributes:
        text: The answer without its markers.
        numbers: The numbers cited, each once, ascending, all in range.
        status: ``"cited"``; ``"none"`` for an explicit ``[NO_CITE]``; ``"silent"`` when there is
            no marker at all; ``"malformed"`` when markers contradict each other or point nowhere,
            which must not be learned from.
    """

    text: str
    numbers: tuple[int, ...]
    status: CitationStatus


@dataclass(frozen=True, slots=True, eq=False)
class Feedback:
    """Which of the memories shown for a query were cited: one entry of the learning log.

    Attributes:
        memory_ids: The K candidates, in the order of ``features`` and ``noise``.
        features: Their features, shape ``(K, len(FEATURES))``.
        shown: Positions among the candidates of the memories shown, in the order they were shown in.
        cited: Positions among the candidates of the memories cited; a part of ``shown``.
        embeddings: Those of the candidates, shape ``(K, d)``, when the bank does not hold them: texts that somebody
            else's retriever found; None when it does.
        duel: For each of ``shown``, whose it was when the learned ranking and the prior shared the places they did not
            agree on by the toss of a coin: 1 the learned's, -1 the prior's, 0 both's. Empty when they did not.
        asked_in: The turn that asked; None when none was stored. The log holds no text of its own: what is deleted is
            gone from here, too.
    """

    recall_id: str
    user_id: str
    embedding: Vector = field(repr=False)
    memory_ids: tuple[str, ...]
    features: Matrix = field(repr=False)
    noise: Vector = field(repr=False)
    shown: tuple[int, ...]
    cited: tuple[int, ...]
    at: datetime
    embeddings: Matrix | None = field(default=None, repr=False)
    duel: tuple[int, ...] = ()
    asked_in: TurnRef | None = None


@dataclass(frozen=True, slots=True)
class Extracted:
    """A topic memory as extraction returned it, before it met the bank.

    Attributes:
        reference: Turn numbers, as the session counts them.
    """

    summary: str
    reference: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Add:
    """The new memory concerns nothing the bank already holds."""


@dataclass(frozen=True, slots=True)
class Merge:
    """The new memory concerns the same thing as entry ``index`` of those shown, counted from 0."""

    index: int
    summary: str


Action: TypeAlias = Add | Merge


@dataclass(frozen=True, slots=True)
class Extraction:
    """What extraction found in a session.

    Attributes:
        memories: The topic memories, in order.
        dropped: Malformed parts of the replies that were left out.
    """

    memories: tuple[Extracted, ...]
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with one new memory.

    Attributes:
        actions: What to do, in order.
        dropped: Actions that could not be followed and became an :class:`Add`.
    """

    actions: tuple[Action, ...]
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class ReflectionReport:
    """What one reflection did.

    Attributes:
        status: ``"reflected"``; ``"nothing"`` when the session held nothing worth a topic;
            ``"already"`` when somebody else had reflected it, ``"elsewhere"`` when somebody else is
            at it; ``"declined"`` when the user wants nothing stored; ``"pending"`` when it failed and
            will be tried again.
        added: Topics added.
        merged: Topics that took in something new.
        unfiled: Turns filed without a topic.
        dropped: Malformed parts of model replies that were left out.
        error: The failure, when pending.
    """

    user_id: str
    session_id: str
    status: ReflectionStatus
    added: int = 0
    merged: int = 0
    unfiled: int = 0
    dropped: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class LearnerStatus:
    """What a reranker has learned, whether it serves, and why.

    Attributes:
        updates: Steps taken.
        ranking: Which ranking serves.
        reason: Why, in words.
        agreement: By how many standard errors citations go with the scores more than chance would have it, beyond what
            is usual at their places; None before there are enough answers to tell.
        duels: By how many citations an answer the learned ranking is ahead of the prior, and its standard error.
        weights: How much each thing counts now that memories are scored by, as
            :class:`~rmm_core.features.FeatureWeights` names them.
    """

    updates: int
    ranking: Literal["learned", "prior"]
    reason: str
    agreement: float | None
    duels: tuple[float, float] | None
    weights: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Erasure:
    """What was removed of one user: a receipt.

    Attributes:
        at: When.
        answers: Entries of the learning log.
        learners: Saved states of a reranker of the user's own.
    """

    user_id: str
    at: datetime
    sessions: int = 0
    turns: int = 0
    memories: int = 0
    answers: int = 0
    learners: int = 0


@dataclass(frozen=True, slots=True)
class UserStatus:
    """How one user's memory stands.

    Attributes:
        learner: How the reranker that serves this user stands.
        consents: Whether what the user says is stored.
    """

    user_id: str
    topics: int
    unfiled: int
    turns: int
    learner: LearnerStatus
    sessions: tuple[Session, ...] = field(default=())
    consents: bool = True

    @property
    def pending(self) -> tuple[Session, ...]:
        """Sessions with turns the bank does not know yet."""
        return tuple(s for s in self.sessions if s.reflected < s.turns)
