"""One user's open session."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rmm_core.errors import InputError, NotFoundError, StoreError
from rmm_core.extractive import NOT_FOUND, is_bare, is_known, only_asks
from rmm_core.flow import Flow, call
from rmm_core.inputs import checked_message, checked_text
from rmm_core.prompts import as_data, speaker_name, without_memories
from rmm_core.recall import Answer, Recall
from rmm_core.retrospective import feedback_of
from rmm_core.types import Attachment, Citations, Feedback, Message, ReflectionReport, Session, Turn

if TYPE_CHECKING:
    from rmm_core.memory import ReflectiveMemory

_HISTORY_TURNS = 20  # what `ask` repeats of the session; a host with a window of its own calls recall and record


class Chat:
    """A session: recall, answer, record, again and again; then end it.

    Made by :meth:`rmm_core.ReflectiveMemory.chat`. Leaving a ``with`` or ``async with`` block ends the
    session and reflects it; when the block is left by an exception the session is ended and stays pending.
    """

    def __init__(
        self,
        memory: ReflectiveMemory,
        *,
        user_id: str,
        session_id: str,
        user_name: str,
        agent_name: str,
        at: datetime | None,
    ) -> None:
        self.user_id = user_id
        self.session_id = session_id
        self.user_name = user_name
        self.agent_name = agent_name
        self._memory = memory
        self._at = at
        self._opened = False

    # -- blocking ------------------------------------------------------------------------

    def recall(self, query: str) -> Recall:
        """What the memory brings up for ``query``; stores nothing."""
        return self._memory.recall(self.user_id, query)

    def record(
        self,
        query: str,
        reply: str | Citations,
        recall: Recall | None = None,
        *,
        attachments: Sequence[Attachment] = (),
        key: str = "",
    ) -> Answer:
        """Store one exchange, durably, and learn from what the reply cites.

        Args:
            query: What the user said.
            reply: What the model replied, citation markers included, or what was read from it.
            recall: What the model was shown; without it nothing is learned.
            attachments: What came with the user's message.
            key: What the host calls this exchange; an exchange is stored, and learned from, once a key.
        """
        return self._memory.run(self.recording(query, reply, recall, attachments=attachments, key=key))

    def ask(self, query: str) -> Answer:
        """Recall, answer and record in one step; by quoting the user when the memory has no language model."""
        return self._memory.run(self._ask(query))

    def add(self, *messages: Message) -> tuple[Turn, ...]:
        """Store messages as they were said, durably, for conversations that took place elsewhere."""
        return self._memory.run(self.adding(messages))

    def end(self) -> ReflectionReport:
        """End the session and reflect it; a failure is in the report, and the session stays pending."""
        return self._memory.run(self.ending())

    # -- for event loops -----------------------------------------------------------------

    async def arecall(self, query: str) -> Recall:
        """:meth:`recall` for event loops."""
        return await self._memory.arecall(self.user_id, query)

    async def arecord(
        self,
        query: str,
        reply: str | Citations,
        recall: Recall | None = None,
        *,
        attachments: Sequence[Attachment] = (),
        key: str = "",
    ) -> Answer:
        """:meth:`record` for event loops."""
        return await self._memory.arun(self.recording(query, reply, recall, attachments=attachments, key=key))

    async def aask(self, query: str) -> Answer:
        """:meth:`ask` for event loops."""
        return await self._memory.arun(self._ask(query))

    async def aadd(self, *messages: Message) -> tuple[Turn, ...]:
        """:meth:`add` for event loops."""
        return await self._memory.arun(self.adding(messages))

    async def aend(self) -> ReflectionReport:
        """:meth:`end` for event loops."""
        return await self._memory.arun(self.ending())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._memory.run(self.ending() if kind is None else self._mark_ended())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._memory.arun(self.ending() if kind is None else self._mark_ended())

    # -- flows ---------------------------------------------------------------------------

    def _append(self, messages: Sequence[Message], feedback: Feedback | None = None) -> Flow[tuple[Turn, ...]]:
        """Store messages, opening the session when this chat has not, or when its user was forgotten meanwhile."""
        if not self._opened:
            yield from self._open()
        now = self._memory.clock()
        kept = [self._redacted(m) for m in messages]
        dated = [m if m.at is not None else replace(m, at=now if self._at is None else self._at) for m in kept]
        store = self._memory.store
        try:
            return (yield from call(store.append, self.user_id, self.session_id, dated, at=now, feedback=feedback))
        except NotFoundError:
            yield from self._open()
            return (yield from call(store.append, self.user_id, self.session_id, dated, at=now))

    def _redacted(self, message: Message) -> Message:
        redacted = self._memory.redacted
        attachments = tuple(replace(a, caption=redacted(a.caption)) for a in message.attachments)
        return replace(message, text=redacted(message.text), attachments=attachments)

    def _open(self) -> Flow[None]:
        now = self._memory.clock()
        at = now if self._at is None else self._at
        yield from self._memory.sessions.opening(
            Session(self.user_id, self.session_id, self.user_name, self.agent_name, started_at=at, last_at=now)
        )
        self._opened = True

    def recording(
        self,
        query: str,
        reply: str | Citations,
        recall: Recall | None = None,
        *,
        attachments: Sequence[Attachment] = (),
        key: str = "",
        reply_key: str = "",
    ) -> Flow[Answer]:
        """:meth:`record` as a flow; the reply may have a key of its own, else its key is of the exchange."""
        query = checked_text(query, "query")
        if recall is not None and recall.user_id != self.user_id:
            raise InputError(f"this recall is of user {recall.user_id!r}, the chat of {self.user_id!r}")
        if recall is not None:
            citations = self._memory.citations(recall, reply)
        elif isinstance(reply, Citations):
            citations = replace(reply, numbers=(), status="silent")
        else:
            citations = Citations(checked_text(reply, "reply"), (), "silent")
        entry = None if recall is None else feedback_of(recall, citations, self._memory.clock())
        cited = () if recall is None else tuple(recall.shown[n - 1] for n in citations.numbers)
        asked, told = without_memories(query), without_memories(citations.text)
        names = (self.user_id, self.user_name, self.agent_name)
        nothing, asks = told == NOT_FOUND, bool(cited) and only_asks(asked, cited, names=names)
        said = Message(
            "user",
            asked,
            attachments=tuple(attachments),
            from_memory=not attachments and (asks or (not cited and nothing and is_bare(asked))),
            key=key,
        )
        known = bool(cited) and is_known(told if asks else f"{told} {asked}", cited)
        answered = Message("agent", told, from_memory=known or nothing, key=reply_key or (key and f"{key}/reply"))
        messages = [checked_message(m) for m in (said, answered) if m.text.strip() or m.attachments]
        turns = yield from self._append(messages, entry)
        if recall is not None and entry is not None and turns:
            yield from self._memory.learning(recall)
        yield from self._reflect_on_the_way(turns)
        return Answer(citations.text, tuple(shown.memory for shown in cited), citations, recall)

    def _ask(self, query: str) -> Flow[Answer]:
        recall = yield from self._memory.recalling(self.user_id, query)
        history = yield from self._history()
        reply = yield from self._memory.answering(recall, recall.query, history)
        return (yield from self.recording(query, reply, recall))

    def adding(self, messages: Sequence[Message], *, reflect: bool = True) -> Flow[tuple[Turn, ...]]:
        """:meth:`add` as a flow; a question that is not answered yet is not reflected on the way."""
        checked = [checked_message(m) for m in messages]
        turns = yield from self._append([replace(m, text=without_memories(m.text)) for m in checked])
        if reflect:
            yield from self._reflect_on_the_way(turns)
        return turns

    def _reflect_on_the_way(self, turns: Sequence[Turn]) -> Flow[None]:
        """Reflect an endless session whenever enough turns have come together; after a failure, twice as many."""
        limit = self._memory.config.session_turns
        if limit is None or not turns:
            return
        session = yield from call(self._memory.store.session, self.user_id, self.session_id)
        if session.turns - session.reflected >= limit * 2**session.attempts:
            yield from self._memory.sessions.reflecting(self.user_id, self.session_id)

    def ending(self) -> Flow[ReflectionReport]:
        """:meth:`end` as a flow."""
        self._opened = False
        try:
            return (yield from self._memory.sessions.ending(self.user_id, self.session_id))
        except NotFoundError:  # never begun, or forgotten
            return ReflectionReport(self.user_id, self.session_id, "nothing")

    def _mark_ended(self) -> Flow[None]:
        """End the session without asking a model; the app's own exception is on its way and must not be hidden."""
        self._opened = False
        with suppress(NotFoundError, StoreError):
            yield from call(self._memory.store.end_session, self.user_id, self.session_id)

    def _history(self) -> Flow[str]:
        turns = yield from call(self._memory.store.turns, self.user_id, self.session_id)
        return "\n".join(f"- {speaker_name(t.speaker)}: {as_data(t.content)}" for t in turns[-_HISTORY_TURNS:])


def going_on(memory: ReflectiveMemory, user_id: str, name: str, *, user_name: str, agent_name: str) -> Flow[Chat]:
    """The session that goes on under a name the app uses again after clearing it: name, name/2, name/3 ..."""
    for session_id in _names(name):
        session = yield from _session(memory, user_id, session_id)
        if session is None or not session.ended:
            return memory.chat(user_id, session_id=session_id, user_name=user_name, agent_name=agent_name)
    raise AssertionError("names never end")


def said_under(memory: ReflectiveMemory, user_id: str, name: str) -> Flow[tuple[Turn, ...]]:
    """The turns of all sessions under a name that was used again: name, name/2, name/3 ..."""
    turns: tuple[Turn, ...] = ()
    for session_id in _names(name):
        if (yield from _session(memory, user_id, session_id)) is None:
            break
        turns += yield from call(memory.store.turns, user_id, session_id)
    return turns


def _names(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}/{number}" for number in count(2))


def _session(memory: ReflectiveMemory, user_id: str, session_id: str) -> Flow[Session | None]:
    try:
        return (yield from call(memory.store.session, user_id, session_id))
    except NotFoundError:
        return None
