"""The memory of a chat engine or an agent: ``memory=RMMMemory.from_defaults(memory=..., user_id=...)``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock
from llama_index.core.memory import BaseMemory
from llama_index_instrumentation import get_dispatcher
from pydantic import ConfigDict, Field, PrivateAttr

from llamaindex_rmm._backend import checked_memory
from llamaindex_rmm._convert import CAPTIONS, Words, answer_of, is_answer, message_of, spoken, text_of, with_text
from llamaindex_rmm._registry import memory_of, name_of
from llamaindex_rmm._turns import answering, unstored
from rmm_core import Answer, Chat, Message, NotFoundError, Recall, ReflectionReport, ReflectiveMemory
from rmm_core.chat import going_on, said_under
from rmm_core.citable import marker
from rmm_core.flow import Flow, call
from rmm_core.inputs import checked_id, fresh_id

_dispatcher = get_dispatcher(__name__)


@dataclass(frozen=True, slots=True)
class _Turn:
    """What is being answered: the user's message once it was put, what was searched for, and the recall's id."""

    said: ChatMessage | None = None
    query: str = ""
    recall_id: str = ""

    @property
    def asked(self) -> Message | None:
        """The user's message as a value of the core."""
        return None if self.said is None else spoken(self.said)


@dataclass(frozen=True, slots=True)
class _Given:
    """A history that the app holds, in place of the first turns of a session."""

    messages: tuple[ChatMessage, ...] = ()
    session_id: str = ""
    turns: int = 0


class RMMMemory(BaseMemory):
    """The session's history, with what the user said in earlier ones; learns from what answers cite.

    Give the engine or agent a model of :func:`hide_markers`, so that users never see a marker.

    :meth:`get` shows the memories for the user's present message: in front of its words when the message was put
    already (agents, ``SimpleChatEngine``), else in a system message before the history. They are recalled once a turn,
    and never stored. A turn is stored when its answer is put, and what stayed unanswered with the next message;
    system messages, tool calls and their results are no part of it. When the memory cannot be searched, because its
    embedder or its file is out of reach, the model answers without it, and a log entry says so.

    In an agent's ``Context`` it is saved as the name of the memory, the user and the session: open the memory at the
    same place, with :func:`open_memory`, before a context is restored in another process.

    Attributes:
        memory: The memory.
        user_id: Whose memory. One object serves one user; a memory serves any number of them.
        session_id: Names the session; after :meth:`reset` it goes on empty, under a name of its own in the memory.
        history_turns: How many messages of the session are repeated at most.
        user_name: What the user is called in memories.
        agent_name: What the other side is called there.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    memory: ReflectiveMemory = Field(repr=False, exclude=True)
    user_id: str
    session_id: str = Field(default_factory=fresh_id)
    history_turns: int = Field(default=40, ge=0)
    user_name: str = "User"
    agent_name: str = "Assistant"
    _turn: _Turn = PrivateAttr(default_factory=_Turn)
    _given: _Given = PrivateAttr(default_factory=_Given)
    _last: Answer | None = PrivateAttr(default=None)

    def model_post_init(self, context: Any, /) -> None:
        """Refuse a user or a session that cannot be one."""
        super().model_post_init(context)
        checked_id(self.user_id, "user_id")
        checked_id(self.session_id, "session_id")

    @classmethod
    def class_name(cls) -> str:
        """The name in serialised forms."""
        return "RMMMemory"

    @classmethod
    def from_defaults(  # type: ignore[override]  # the base class takes whatever comes; a typo shall not pass
        cls,
        memory: ReflectiveMemory,
        user_id: str,
        session_id: str | None = None,
        chat_history: Sequence[ChatMessage] | None = None,
        history_turns: int = 40,
        user_name: str = "User",
        agent_name: str = "Assistant",
    ) -> Self:
        """A memory for one session of a user; see the attributes.

        Args:
            memory: What :func:`open_memory` returns.
            user_id: Whose memory.
            session_id: Names the session; made up when left out.
            chat_history: What was said in it already, elsewhere.
            history_turns: How many messages of the session are repeated at most.
            user_name: What the user is called in memories.
            agent_name: What the other side is called there.
        """
        made = cls(
            memory=checked_memory(memory),
            user_id=user_id,
            session_id=fresh_id() if session_id is None else session_id,
            history_turns=history_turns,
            user_name=user_name,
            agent_name=agent_name,
        )
        if chat_history:
            made.set(list(chat_history))
        return made

    @property
    def last_answer(self) -> Answer | None:
        """The last answer put into this object, with the memories it cites: engines return its text alone."""
        return self._last

    # -- what engines and agents call ------------------------------------------------------

    @_dispatcher.span
    def get(self, input: str | None = None, **kwargs: Any) -> list[ChatMessage]:  # noqa: A002  # LlamaIndex's name
        """The history for the model, with the memories for ``input`` or for the message that waits for its answer."""
        return self.memory.run(self._getting(input))

    @_dispatcher.span
    async def aget(self, input: str | None = None, **kwargs: Any) -> list[ChatMessage]:  # noqa: A002  # the same
        """:meth:`get` for event loops."""
        return await self.memory.arun(self._getting(input))

    def get_all(self) -> list[ChatMessage]:
        """The whole session, as it was said."""
        return self.memory.run(self._reading())

    async def aget_all(self) -> list[ChatMessage]:
        """:meth:`get_all` for event loops."""
        return await self.memory.arun(self._reading())

    @_dispatcher.span
    def put(self, message: ChatMessage) -> None:
        """Take a message: the user's waits for its answer, an answer is stored with it and learned from."""
        self.memory.run(self._putting([message]))

    @_dispatcher.span
    async def aput(self, message: ChatMessage) -> None:
        """:meth:`put` for event loops."""
        await self.memory.arun(self._putting([message]))

    def put_messages(self, messages: list[ChatMessage]) -> None:
        """:meth:`put` each."""
        self.memory.run(self._putting(messages))

    async def aput_messages(self, messages: list[ChatMessage]) -> None:
        """:meth:`put_messages` for event loops."""
        await self.memory.arun(self._putting(messages))

    def set(self, messages: list[ChatMessage]) -> None:
        """Go on from a history that the app holds; what the session does not have yet is stored.

        An empty one begins a new session, as :meth:`reset` does.
        """
        self.memory.run(self._setting(messages))

    async def aset(self, messages: list[ChatMessage]) -> None:
        """:meth:`set` for event loops."""
        await self.memory.arun(self._setting(messages))

    def reset(self) -> None:
        """End the session and reflect it: the history is empty then, and nothing said is lost."""
        self.end()

    async def areset(self) -> None:
        """:meth:`reset` for event loops."""
        await self.aend()

    def end(self) -> ReflectionReport:
        """:meth:`reset`, with what reflection did."""
        return self.memory.run(self._ending())

    async def aend(self) -> ReflectionReport:
        """:meth:`end` for event loops."""
        return await self.memory.arun(self._ending())

    # -- saved and restored ----------------------------------------------------------------

    def to_dict(self, **kwargs: Any) -> dict[str, Any]:
        """Plain data: the memory by its name, and what is on its way and not stored yet."""
        said = None if self._turn.said is None else _dumped(self._turn.said)
        return self.model_dump(mode="json") | {
            "memory": name_of(self.memory),
            "turn": {"said": said, "query": self._turn.query, "recall_id": self._turn.recall_id},
            "given": {
                "messages": [_dumped(m) for m in self._given.messages],
                "session_id": self._given.session_id,
                "turns": self._given.turns,
            },
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any], **kwargs: Any) -> Self:
        """What :meth:`to_dict` gave.

        Raises:
            NotFoundError: When its memory is not open in this process.
        """
        state = {**data, **kwargs}
        turn, given = state.pop("turn"), state.pop("given")
        state.pop("class_name", None)
        made = cls(**{**state, "memory": memory_of(state["memory"])})
        said = None if turn["said"] is None else ChatMessage.model_validate(turn["said"])
        made._turn = _Turn(said, turn["query"], turn["recall_id"])
        made._given = _Given(**given | {"messages": tuple(map(ChatMessage.model_validate, given["messages"]))})
        return made

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """A copy on the same memory, which is not copied."""
        return self.model_copy()

    # -- flows -----------------------------------------------------------------------------

    def _getting(self, asked: str | None) -> Flow[list[ChatMessage]]:
        said = self._turn.said
        waits = said is not None and asked in (None, said.content, text_of(said))
        query = text_of(said) if said is not None and waits else asked or ""
        recall = (yield from self._recalling(query)) if query.strip() else None
        history = yield from self._history()
        if said is not None and not waits:  # it stayed unanswered, and the question is another one
            history.append(said)
        told = [_marked(m, self.memory, self.user_id, recall) for m in self._newest(history)]
        memories = recall.instructions(named=True) if recall is not None else ""
        shown = [Words(text=memories)] if memories else []
        if said is not None and waits:
            present = _inert(said)
            return [*told, present.model_copy(update={"blocks": [*shown, *present.blocks]})]
        return [*([ChatMessage(role=MessageRole.SYSTEM, blocks=shown)] if shown else []), *told]

    def _recalling(self, query: str) -> Flow[Recall | None]:
        """The turn's recall: one, however often the host asks; None when the memory cannot be searched."""
        if self._turn.query == query:
            known = self._recalled()
            if known is not None or not self._turn.recall_id:  # it failed before, and would fail at every step
                return known
        yield from self.memory.sessions.visiting(self.user_id)
        recall = yield from self.memory.recalling_or_none(self.user_id, query)
        self._turn = replace(self._turn, query=query, recall_id=recall.id if recall is not None else "")
        return recall

    def _putting(self, messages: Sequence[ChatMessage]) -> Flow[None]:
        chat = yield from self._chat()
        for message in messages:
            turn, asked, said = self._turn, self._turn.asked, spoken(message)
            if said is None and asked is not None and is_answer(message):
                said = Message("agent", "")  # nothing but markers, or nothing at all: it was answered all the same
            if said is None:
                continue
            if said.role == "user":
                if asked is not None and asked != said:  # what the user repeats after a failure was said once
                    yield from chat.adding([asked])
                found = turn.recall_id and turn.query == said.text  # an engine asked for its memories before it put it
                self._turn = replace(turn if found else _Turn(), said=message.model_copy(deep=True))
            else:
                self._last = answer = yield from answering(self.memory, chat, asked, self._recalled(), said.text)
                self._turn = _Turn()
                if answer_of(text_of(message)) == text_of(message).strip() != answer.text:
                    message.blocks = with_text(message, answer.text).blocks  # the host shows this very message

    def _recalled(self) -> Recall | None:
        """What the turn was shown; None when nothing was yet, the user was forgotten or the process is another one."""
        try:
            return self.memory.recent.get(self.user_id, self._turn.recall_id)
        except NotFoundError:
            return None

    def _setting(self, messages: Sequence[ChatMessage]) -> Flow[None]:
        if not messages:
            yield from self._ending()
            return
        *given, last = messages
        waits = last.role == MessageRole.USER
        held = tuple(m.model_copy(deep=True) for m in (given if waits else messages))
        chat = yield from self._chat()
        said = [s for s in map(spoken, held) if s is not None]
        asked = self._turn.asked
        if asked is not None and asked not in said and not (waits and spoken(last) == asked):
            said.append(asked)
        known = yield from said_under(self.memory, self.user_id, self.session_id)
        yield from chat.adding(unstored(said, known))
        turns = yield from call(self.memory.store.turns, self.user_id, chat.session_id)
        self._given = _Given(held, chat.session_id, len(turns))
        self._turn = _Turn(said=last.model_copy(deep=True)) if waits else _Turn()

    def _ending(self) -> Flow[ReflectionReport]:
        chat = yield from self._chat()
        asked = self._turn.asked
        if asked is not None:
            yield from chat.adding([asked])
        self._turn, self._given = _Turn(), _Given()
        return (yield from chat.ending())

    def _reading(self) -> Flow[list[ChatMessage]]:
        history = yield from self._history()
        return history if self._turn.said is None else [*history, self._turn.said.model_copy(deep=True)]

    def _history(self) -> Flow[list[ChatMessage]]:
        """The history given and the turns since, or the session's turns; without the message that waits."""
        chat = yield from self._chat()
        turns = yield from call(self.memory.store.turns, self.user_id, chat.session_id)
        given = [m.model_copy(deep=True) for m in self._given.messages]
        stood_for = self._given.turns if self._given.session_id == chat.session_id else 0
        return [*given, *(message_of(t) for t in turns[stood_for:])]

    def _newest(self, history: list[ChatMessage]) -> list[ChatMessage]:
        """As many messages as are repeated, none of them an answer to one that is not."""
        cut = max(len(history) - self.history_turns, 0)
        while 0 < cut < len(history) and history[cut].role != MessageRole.USER:
            cut += 1
        return history[cut:]

    def _chat(self) -> Flow[Chat]:
        """The session that goes on."""
        names = {"user_name": self.user_name, "agent_name": self.agent_name}
        return (yield from going_on(self.memory, self.user_id, self.session_id, **names))


def _inert(message: ChatMessage) -> ChatMessage:
    """A copy of a message for a request: its words are no template, and what only we know of it stays behind."""
    blocks = [Words(text=b.text) if isinstance(b, TextBlock) else b.model_copy(deep=True) for b in message.blocks]
    known = {key: value for key, value in message.additional_kwargs.items() if key != CAPTIONS}
    return ChatMessage(role=message.role, blocks=blocks, additional_kwargs=known)


def _marked(message: ChatMessage, memory: ReflectiveMemory, user_id: str, recall: Recall | None) -> ChatMessage:
    """An earlier message for a request, with the markers an answer had, in the numbers of the present recall.

    A model that sees its own answers without markers stops citing.
    """
    inert = _inert(message)
    behind = memory.recent.behind(user_id, text_of(message)) if message.role == MessageRole.ASSISTANT else None
    if recall is None or behind is None:
        return inert
    earlier, citations = behind
    again = marker(recall, [m.id for m in earlier.memories(citations.numbers)], citations.status)
    return with_text(inert, f"{text_of(message)} {again}") if again else inert


def _dumped(message: ChatMessage) -> dict[str, Any]:
    return message.model_dump(mode="json")
