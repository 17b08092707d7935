"""The memory of a chat engine or an agent: ``memory=RMMMemory.from_defaults(memory=..., user_id=...)``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.memory import BaseMemory
from llama_index_instrumentation import get_dispatcher
from pydantic import ConfigDict, Field, PrivateAttr

from llamaindex_rmm._backend import MemoryField, checked_memory
from llamaindex_rmm._convert import (
    answer_of,
    is_answer,
    message_of,
    quotes_a_tool,
    spoken,
    text_of,
    with_text,
)
from llamaindex_rmm._registry import memory_of, name_of
from llamaindex_rmm._request import newest_of, request
from llamaindex_rmm._turns import answering, unstored
from rmm_core import Answer, Chat, Citations, Message, NotFoundError, Recall, ReflectionReport, ReflectiveMemory, Turn
from rmm_core.chat import going_on, said_under
from rmm_core.flow import Flow, call
from rmm_core.inputs import checked_id, fresh_id

_dispatcher = get_dispatcher(__name__)


@dataclass(frozen=True, slots=True)
class _Turn:
    """What is being answered.

    Attributes:
        said: The user's message, once it was put.
        session_id: Where it is stored, as the turn of this index under this key.
        query: What was searched for, found in the recall of this id; empty when the memory could not be searched.
    """

    said: ChatMessage | None = None
    session_id: str = ""
    index: int = -1
    key: str = ""
    query: str = ""
    recall_id: str = ""

    @property
    def asked(self) -> Message | None:
        """The user's message as a value of the core."""
        said = None if self.said is None else spoken(self.said)
        return None if said is None else replace(said, key=self.key)


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
    and never stored. What the user says is stored when it is put, and its answer when that is; system messages, tool
    calls and their results are no part of it. (``ContextChatEngine`` and ``CondensePlusContextChatEngine`` put both
    only after the answer: what their model fails on is not stored.) When the memory cannot be searched, because its
    embedder is out of reach, the model answers without it, and a log entry says so.

    In an agent's ``Context`` it is saved as the name of the memory, the user and the session: open the memory at the
    same place, with :func:`open_memory`, before a context is restored in another process. LlamaIndex takes the memory
    of a restored context and not the one given to ``run``: a context is one user's.

    Attributes:
        memory: The memory.
        user_id: Whose memory. One object serves one user; a memory serves any number of them.
        session_id: Names the session; after :meth:`reset` it goes on empty, under a name of its own in the memory.
        history_turns: How many messages of the session are repeated at most.
        history_tokens: How long they may be together, at four characters a token; the newest are kept.
        user_name: What the user is called in memories.
        agent_name: What the other side is called there.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    memory: MemoryField
    user_id: str
    session_id: str = Field(default_factory=fresh_id)
    history_turns: int = Field(default=40, ge=0)
    history_tokens: int = Field(default=8_000, ge=0)
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
        history_tokens: int = 8_000,
        user_name: str = "User",
        agent_name: str = "Assistant",
    ) -> Self:
        """A memory for one session of a user; see the attributes.

        Args:
            memory: What :func:`open_memory` returns.
            user_id: Whose memory.
            session_id: Names the session; made up when left out.
            chat_history: What was said in it already, elsewhere. Name the session then, or it is stored anew each time.
            history_turns: How many messages of the session are repeated at most.
            history_tokens: How long they may be together.
            user_name: What the user is called in memories.
            agent_name: What the other side is called there.
        """
        made = cls(
            memory=checked_memory(memory),
            user_id=user_id,
            session_id=fresh_id() if session_id is None else session_id,
            history_turns=history_turns,
            history_tokens=history_tokens,
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
        """Store a message: the user's waits for its answer, and an answer is learned from."""
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
        """Plain data: the memory by its name, and the turn that is on its way."""
        turn, given = self._turn, self._given
        return self.model_dump(mode="json") | {
            "memory": name_of(self.memory),
            "turn": _fields(turn) | {"said": None if turn.said is None else _dumped(turn.said)},
            "given": _fields(given) | {"messages": [_dumped(m) for m in given.messages]},
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
        made._turn = _Turn(**turn | {"said": said})
        made._given = _Given(**given | {"messages": tuple(map(ChatMessage.model_validate, given["messages"]))})
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as it is saved, by the memory's name."""
        return type(self).from_dict, (self.to_dict(),)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """A copy on the same memory, which is not copied."""
        return self.model_copy()

    # -- flows -----------------------------------------------------------------------------

    def _getting(self, asked: str | None) -> Flow[list[ChatMessage]]:
        said = self._turn.said
        waits = said is not None and asked in (None, said.content, text_of(said))
        query = text_of(said) if said is not None and waits else asked or ""
        recall = (yield from self._recalling(query)) if query.strip() else None
        history = yield from self._history(waiting=not waits)
        newest = newest_of(history, self.history_turns, self.history_tokens)
        return request(newest, said if waits else None, recall, self.memory.recent)

    def _recalling(self, query: str) -> Flow[Recall | None]:
        """The turn's recall: one, however often the host asks; None when the memory cannot be searched."""
        turn = self._turn
        if turn.query == query:
            known = self._recalled(turn)
            if known is not None or not turn.recall_id:  # it failed before, and would fail at every step
                return known
        yield from self.memory.sessions.visiting(self.user_id)
        recall = yield from self.memory.recalling_or_none(self.user_id, query)
        if self._turn is turn:  # else it is over, or another one began meanwhile
            self._turn = replace(turn, query=query, recall_id=recall.id if recall is not None else "")
        return recall

    def _putting(self, messages: Sequence[ChatMessage]) -> Flow[None]:
        chat = yield from self._chat()
        for message in messages:
            said = spoken(message)
            if said is not None and said.role == "user":
                yield from self._asking(chat, message, said)
            elif said is not None or is_answer(message):  # one may be nothing but markers
                yield from self._answering(chat, message, "" if said is None else said.text)

    def _asking(self, chat: Chat, message: ChatMessage, said: Message) -> Flow[None]:
        """Store what the user said; what is repeated because it stayed unanswered was said once."""
        found = self._turn if self._turn.recall_id and self._turn.query == said.text else _Turn()  # asked for before
        last = yield from self._last_turn(chat)
        if last is not None and (last.role, last.text, last.attachments) == ("user", said.text, said.attachments):
            same = (self._turn.session_id, self._turn.index) == (chat.session_id, last.index)
            key, index = self._turn.key if same else "", last.index
        else:
            key = fresh_id()
            stored = yield from chat.adding([replace(said, key=key)], reflect=False)
            index = stored[-1].index if stored else -1
        self._turn = replace(
            found, said=message.model_copy(deep=True), session_id=chat.session_id, index=index, key=key
        )

    def _answering(self, chat: Chat, message: ChatMessage, text: str) -> Flow[None]:
        if not text and self._turn == _Turn():
            return
        turn, self._turn = self._turn, _Turn()  # claimed: the next message may come while this one is stored
        asked = turn.asked if turn.key and turn.session_id == chat.session_id else None
        quoted = quotes_a_tool(message)
        try:
            if quoted:  # brackets in it are the tool's
                answer = yield from chat.recording("", Citations(text, (), "silent"))
            else:
                answer = yield from answering(self.memory, chat, asked, self._recalled(turn), text)
        except BaseException:
            if self._turn == _Turn():
                self._turn = turn
            raise
        self._last = answer
        if not quoted and answer_of(text_of(message)) == text_of(message).strip() != answer.text:
            message.blocks = with_text(message, answer.text).blocks  # the host shows this very message

    def _last_turn(self, chat: Chat) -> Flow[Turn | None]:
        try:
            session = yield from call(self.memory.store.session, self.user_id, chat.session_id)
        except NotFoundError:
            return None
        turns = yield from call(self.memory.store.turns, self.user_id, chat.session_id, max(session.turns - 1, 0))
        return turns[-1] if turns else None

    def _recalled(self, turn: _Turn) -> Recall | None:
        """What a turn was shown; None when nothing was yet, the user was forgotten or the process is another one."""
        return self.memory.recent.find(self.user_id, turn.recall_id)

    def _setting(self, messages: Sequence[ChatMessage]) -> Flow[None]:
        if not messages:
            yield from self._ending()
            return
        *given, last = messages
        asked = spoken(last) if last.role == MessageRole.USER else None
        held = tuple(m.model_copy(deep=True) for m in (messages if asked is None else given))
        chat = yield from self._chat()
        known = yield from said_under(self.memory, self.user_id, self.session_id)
        said = [s for s in map(spoken, held) if s is not None]
        yield from chat.adding(unstored(said, known))
        turns = yield from call(self.memory.store.turns, self.user_id, chat.session_id)
        self._given = _Given(held, chat.session_id, len(turns))
        if asked is None:
            self._turn = _Turn()
        elif (self._turn.session_id, self._turn.asked) != (chat.session_id, replace(asked, key=self._turn.key)):
            self._turn = _Turn()
            yield from self._asking(chat, last, asked)
        else:  # it was put before, and is asked again
            self._turn = replace(self._turn, said=last.model_copy(deep=True))

    def _ending(self) -> Flow[ReflectionReport]:
        chat = yield from self._chat()
        self._turn, self._given = _Turn(), _Given()
        return (yield from chat.ending())

    def _reading(self) -> Flow[list[ChatMessage]]:
        history = yield from self._history(waiting=False)
        return history if self._turn.said is None else [*history, self._turn.said.model_copy(deep=True)]

    def _history(self, *, waiting: bool) -> Flow[list[ChatMessage]]:
        """The history given and the turns since, or the session's turns; with the message that waits, or without."""
        chat = yield from self._chat()
        turns = yield from call(self.memory.store.turns, self.user_id, chat.session_id)
        given = [m.model_copy(deep=True) for m in self._given.messages]
        if len(turns) < self._given.turns:  # the user was forgotten, and the session is another one of this name
            self._given = replace(self._given, turns=0)
        stood_for = self._given.turns if self._given.session_id == chat.session_id else 0
        left_out = self._turn.index if not waiting and self._turn.session_id == chat.session_id else -1
        return [*given, *(message_of(t) for t in turns[stood_for:] if t.index != left_out)]

    def _chat(self) -> Flow[Chat]:
        """The session that goes on."""
        names = {"user_name": self.user_name, "agent_name": self.agent_name}
        return (yield from going_on(self.memory, self.user_id, self.session_id, **names))


def _dumped(message: ChatMessage) -> dict[str, Any]:
    return message.model_dump(mode="json")


def _fields(state: _Turn | _Given) -> dict[str, Any]:
    return {field.name: getattr(state, field.name) for field in fields(state)}
