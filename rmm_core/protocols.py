"""What a model or a database must offer to be used here: read this file to write one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from rmm_core.flow import Flow
from rmm_core.recall import Recall
from rmm_core.types import (
    Candidate,
    Decision,
    Extracted,
    Extraction,
    Feedback,
    Kind,
    Memory,
    Message,
    Session,
    Turn,
    TurnRef,
    Vector,
)


@runtime_checkable
class LLM(Protocol):
    """A language model that completes a prompt."""

    def complete(self, prompt: str, *, schema: Mapping[str, Any] | None = None) -> str:
        """Reply to ``prompt``.

        Args:
            prompt: The whole prompt.
            schema: JSON schema the reply should follow, for providers that can constrain
                one; others ignore it, the prompt alone must suffice.
        """
        ...

    async def acomplete(self, prompt: str, *, schema: Mapping[str, Any] | None = None) -> str:
        """The same, without blocking the event loop."""
        ...


@runtime_checkable
class Embedder(Protocol):
    """A model that turns texts into vectors of one width."""

    def embed(self, texts: Sequence[str]) -> NDArray[Any]:
        """Embed ``texts`` as rows of shape ``(len(texts), d)``, normalised to length 1."""
        ...

    async def aembed(self, texts: Sequence[str]) -> NDArray[Any]:
        """The same, without blocking the event loop."""
        ...


class Reflector(Protocol):
    """How sessions become topic memories (paper section 3): with a language model, or without."""

    def extract(self, session: Session, turns: Sequence[Turn]) -> Flow[Extraction]:
        """Find the topic memories of a session; a ReplyError in the flow leaves it pending."""
        ...

    def decide(self, new: Extracted, turns: Sequence[Turn], similar: Sequence[Candidate]) -> Flow[Decision]:
        """Add ``new`` to the bank, or merge it into one of ``similar`` (never empty).

        Args:
            new: The new memory.
            turns: The turns it rests on.
            similar: The most similar topics of the bank; ``Merge.index`` counts them from 0.
        """
        ...


class Answerer(Protocol):
    """How a question is answered from what was recalled; the reply cites its memories."""

    def answer(self, recall: Recall, query: str, history: str) -> Flow[str]:
        """Reply to ``query``, citing shown memories as ``[i]``."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A memory together with its embedding, shape ``(d,)``."""

    memory: Memory
    embedding: Vector


@dataclass(frozen=True, slots=True)
class BankChange:
    """Everything one reflection changes, committed as one.

    Attributes:
        base_version: The version of the user's bank it was decided on.
        entries: Memories that are new, or replace the one of the same id.
        removed: Ids of memories that go away.
        session_id: The reflected session; empty when the change comes from elsewhere.
        session_born: Its :attr:`~rmm_core.types.Session.born` when it was read.
        reflected_from, reflected_to: The turns that are now known, ``from <= index < to``.
    """

    base_version: int
    entries: tuple[Entry, ...] = ()
    removed: tuple[str, ...] = ()
    session_id: str = ""
    session_born: int = 0
    reflected_from: int = 0
    reflected_to: int = 0


@dataclass(frozen=True, slots=True)
class LearnerState:
    """A saved learner: its version, and its content as the learner packed it."""

    version: int
    content: bytes


class MemoryStore(Protocol):
    """A database of turns, memories, feedback and learner states.

    All methods are blocking and may be called from any thread. Users are told apart by exact
    equality of ``user_id``, never by prefix, pattern or case; no method sees two users at once
    except those that name none. Times are timezone-aware. What raises leaves nothing half done.
    :class:`rmm_core.testing.MemoryStoreContract` holds every rule of this page as a test.

    Raises:
        StoreClosedError: From every method once the store is closed.
        StoreError: When the database itself fails.
    """

    # -- sessions and turns --------------------------------------------------------------

    def open_session(self, session: Session) -> Session:
        """Create the session, or return the stored one of the same user and id as it stands.

        An ended session that is opened again is no longer ended.
        """
        ...

    def append(
        self,
        user_id: str,
        session_id: str,
        messages: Sequence[Message],
        *,
        at: datetime,
        feedback: Feedback | None = None,
    ) -> tuple[Turn, ...]:
        """Store messages as the next turns, and feedback with them; durable on return.

        A message whose :attr:`~rmm_core.types.Message.key` the session holds already is left out of what is
        stored and returned; when that leaves none of those given, the feedback is left out too. What comes again
        from the memory (``from_memory``: a question is stored before its answer shows that) is marked so. Feedback
        refers to the first of the messages that is the user's (``asked_in``), stored now or before.

        Args:
            at: The time now, and of messages that carry none.

        Raises:
            NotFoundError: When there is no such session.
        """
        ...

    def end_session(self, user_id: str, session_id: str) -> Session:
        """Mark the session as over; doing so twice changes nothing.

        Raises:
            NotFoundError: When there is no such session.
        """
        ...

    def fail_session(self, user_id: str, session_id: str, error: str) -> Session:
        """Count a failed reflection and keep what it said."""
        ...

    def lease(self, user_id: str, session_id: str, *, holder: str, seconds: float) -> bool:
        """Take the session for reflection, or hold on to it; whether it is ``holder``'s now.

        Somebody else's is theirs until they give it back, or have not held on to it for as long as they said: one who
        died holds nobody up. Time is the database's own, whatever the clock of the memory.

        Args:
            holder: Names who takes it.
            seconds: For how long, from now.

        Raises:
            NotFoundError: When there is no such session.
        """
        ...

    def release(self, user_id: str, session_id: str, *, holder: str) -> None:
        """Give a session back that ``holder`` took; nothing happens when it is not theirs any more."""
        ...

    def session(self, user_id: str, session_id: str) -> Session:
        """One session.

        Raises:
            NotFoundError: When there is no such session.
        """
        ...

    def sessions(self, user_id: str) -> tuple[Session, ...]:
        """The user's sessions, oldest first."""
        ...

    def pending(self, *, idle_since: datetime, user_id: str | None = None) -> tuple[Session, ...]:
        """Sessions with turns the bank does not know that ended or fell silent before ``idle_since``, oldest first."""
        ...

    def turns(self, user_id: str, session_id: str, start: int = 0, stop: int | None = None) -> tuple[Turn, ...]:
        """The session's turns from ``start`` up to and not including ``stop``, in order."""
        ...

    def turns_at(self, user_id: str, refs: Sequence[TurnRef]) -> dict[TurnRef, Turn]:
        """The turns at ``refs``; those that do not exist are left out."""
        ...

    # -- the bank ------------------------------------------------------------------------

    def bank_version(self, user_id: str) -> int:
        """A number that every change of the user's bank raises; 0 for a bank never written."""
        ...

    def commit(self, user_id: str, change: BankChange) -> int:
        """Apply a change in one transaction and return the bank's new version.

        Raises:
            ConflictError: When the bank's version is not ``change.base_version`` any more, or the
                session's turns are already reflected, or it is not the session that was read but a
                later one of the same id; nothing is changed then.
            DimensionError: When an embedding has another width than the store's.
        """
        ...

    def search(
        self,
        user_id: str,
        vector: Vector,
        *,
        text: str = "",
        limit: int,
        kind: Kind | None = None,
        near: Sequence[str] = (),
    ) -> tuple[Candidate, ...]:
        """The user's memories nearest to a query.

        The union of the ``limit`` best by inner product with ``vector`` and, when ``text`` is given, of
        the ``limit`` best by their own words and by those of their window. Ordered by inner product,
        which is their ``score``; ties by id. Every candidate carries all its features
        (:class:`rmm_core.features.FeatureWeights` says what they are); with ``text``, what answers to similar
        questions cited is among the candidates too.

        Args:
            text: The query's words; empty leaves the features at 0.
            kind: Only memories of this kind.
            near: Ids found elsewhere: the first ``limit`` that can be found here take the place of those best by
                ``vector``; fewer do not.

        Raises:
            DimensionError: When ``vector`` has another width than the store's.
        """
        ...

    def get(self, user_id: str, memory_id: str) -> Memory:
        """One memory.

        Raises:
            NotFoundError: When the user has no such memory.
        """
        ...

    def memories(self, user_id: str, *, kind: Kind | None = None) -> tuple[Memory, ...]:
        """The user's memories, oldest first."""
        ...

    def entries(self, user_id: str, memory_ids: Sequence[str]) -> dict[str, Entry]:
        """Memories with their embeddings; those that do not exist are left out."""
        ...

    def delete(self, user_id: str, memory_id: str) -> bool:
        """Delete one memory and all that was kept of it; whether there was one."""
        ...

    def forget_user(self, user_id: str) -> Mapping[str, int]:
        """Delete everything of one user, and leave no trace of it in the store's own files.

        That the user declined is kept, or the next turn would be stored again.

        Returns:
            How many rows were removed, by table: ``sessions``, ``turns``, ``memories``, ``feedback``, ``learners``.
        """
        ...

    def purge(self, user_id: str, memory_ids: Sequence[str], *, before: datetime | None = None) -> Mapping[str, int]:
        """Delete memories with the turns that they alone rest on, as :meth:`delete` does.

        Args:
            before: Delete, too, what was said and answered before this and no memory rests on, and empty sessions.

        Returns:
            How many rows were removed, as :meth:`forget_user` gives it.
        """
        ...

    def decline(self, user_id: str, *, wants_nothing: bool) -> None:
        """Note that nothing of what this user says is to be stored or learned from, or that it may be again.

        Of a user who declined :meth:`append` stores no turn and no feedback, and :meth:`pending` names no session.
        """
        ...

    def declined(self, user_id: str) -> bool:
        """Whether the user declined."""
        ...

    def restore_user(
        self, user_id: str, sessions: Sequence[Session], turns: Sequence[Turn], entries: Sequence[Entry]
    ) -> None:
        """Store a user as exported, in one transaction; turn counts are taken from ``sessions``.

        Raises:
            InputError: When anything of the user is stored already; nothing is changed then.
            DimensionError: When an embedding has another width than the store's.
        """
        ...

    def users(self) -> Iterator[str]:
        """All user ids, sorted."""
        ...

    def reembed(self, banks: dict[str, tuple[int, dict[str, Vector]]]) -> None:
        """Replace the embeddings of all banks in one transaction; their width becomes the store's.

        The learning log, which speaks of the earlier embeddings, is emptied.

        Args:
            banks: For every user, the version the bank was read at and the embeddings by memory id.

        Raises:
            ConflictError: When a bank is at another version, or there is a bank that is not named.
        """
        ...

    # -- learning ------------------------------------------------------------------------

    def add_feedback(self, feedback: Feedback) -> None:
        """Append to the learning log, durably.

        The same recall of the same user counts once. Nothing is kept of a user who has nothing else stored, unless
        the feedback brings its own embeddings.
        """
        ...

    def width(self) -> int | None:
        """The width of the embeddings held; None before the first."""
        ...

    def feedback(
        self, *, after: int = 0, limit: int = 100, user_id: str | None = None, newest: bool = False
    ) -> list[tuple[int, Feedback]]:
        """Entries of the learning log above ``after``, the first or the ``newest``, in order of their number."""
        ...

    def remove_feedback(self, last: int, *, user_id: str | None = None) -> int:
        """Take the last entries out of the learning log, one user's or anybody's; how many there were."""
        ...

    def learner_version(self, scope: str) -> int:
        """The version of the state saved under ``scope``; 0 when there is none."""
        ...

    def learner_state(self, scope: str) -> LearnerState | None:
        """The state saved under ``scope``; None when there is none."""
        ...

    def save_learner_state(self, scope: str, content: bytes, *, base_version: int) -> int:
        """Save a state and return its version.

        Args:
            base_version: The version it was learned from; 0 for the first.

        Raises:
            ConflictError: When the saved version is another; nothing is changed then.
        """
        ...

    def close(self) -> None:
        """Let go of the database; doing so twice is fine."""
        ...
