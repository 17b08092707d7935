"""The memory as a block of LlamaIndex's own: ``Memory.from_defaults(memory_blocks=[RMMMemoryBlock(...)])``."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Self

from llama_index.core.async_utils import asyncio_run
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.memory import BaseMemoryBlock, Memory
from llama_index.core.storage.chat_store.base_db import MessageStatus
from pydantic import ConfigDict, PrivateAttr

from llamaindex_rmm._backend import MemoryField
from llamaindex_rmm._convert import Words, spoken, text_of
from llamaindex_rmm._turns import answering, unstored
from rmm_core import Chat, Message, Recall, ReflectionReport
from rmm_core.chat import going_on, said_under
from rmm_core.flow import Flow, call
from rmm_core.inputs import checked_id

_SESSION = "session_id"  # where Memory names itself in what it flushes


class RMMMemoryBlock(BaseMemoryBlock[list[ChatMessage]]):
    """Shows what the user said in earlier sessions, and stores what the short-term memory lets go of.

    ``Memory`` flushes only what no longer fits, and never tells a block that a session is over: call :meth:`aend` with
    it then. Until that, or a flush, what was said is in LlamaIndex's own store alone. Answers are learned from when
    they are stored, while their recalls are among the last few hundred of the process.

    Attributes:
        memory: The memory.
        user_id: Whose memory; ``Memory`` knows its session alone.
        role: Of the message that shows the memories. ``ReActAgent`` drops a system message that comes first: give it
            a ``system_prompt``, or take ``"user"`` here.
        user_name: What the user is called in memories.
        agent_name: What the other side is called there.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    name: str = "reflective_memory"
    memory: MemoryField
    user_id: str
    role: MessageRole = MessageRole.SYSTEM
    user_name: str = "User"
    agent_name: str = "Assistant"
    _turn: tuple[str, int] = PrivateAttr(default=("", 0))
    _recall_id: str = PrivateAttr(default="")
    _unanswered: deque[tuple[str, str]] = PrivateAttr(default_factory=lambda: deque(maxlen=512))  # query, recall's id

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """A copy on the same memory, which is not copied."""
        return self.model_copy()

    def model_post_init(self, context: Any, /) -> None:
        """Refuse a user that cannot be one."""
        super().model_post_init(context)
        checked_id(self.user_id, "user_id")

    def end(self, short_term: Memory) -> ReflectionReport:
        """End the session: what the short-term memory holds is stored and reflected, and it is emptied."""
        report: ReflectionReport = asyncio_run(self.aend(short_term))
        return report

    async def aend(self, short_term: Memory) -> ReflectionReport:
        """:meth:`end` for event loops."""
        flushed = await short_term.aget_all(status=MessageStatus.ARCHIVED)
        held = await short_term.aget_all(status=MessageStatus.ACTIVE)
        report = await self.memory.arun(self._ending(short_term.session_id, flushed, held))
        await short_term.areset()
        return report

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> list[ChatMessage]:
        recall = await self.memory.arun(self._recalling(messages or []))
        if recall is None or not recall.shown:
            return []
        return [ChatMessage(role=self.role, blocks=[Words(text=recall.instructions(named=True))])]

    async def _aput(self, messages: list[ChatMessage]) -> None:
        await self.memory.arun(self._storing(messages))

    def _recalling(self, messages: Sequence[ChatMessage]) -> Flow[Recall | None]:
        """The turn's recall: one, however often the host asks; None when the memory cannot be searched."""
        said = [text for m in messages if m.role == MessageRole.USER and (text := text_of(m)).strip()]
        if not said:
            return None
        turn = (said[-1], len(said))
        if self._turn == turn:
            known = self.memory.recent.find(self.user_id, self._recall_id)
            if known is not None or not self._recall_id:  # it failed before, and would fail at every step
                return known
        yield from self.memory.sessions.visiting(self.user_id)
        recall = yield from self.memory.recalling_or_none(self.user_id, said[-1])
        self._turn, self._recall_id = turn, "" if recall is None else recall.id
        if recall is not None:
            self._unanswered.append((recall.query, recall.id))
        return recall

    def _recalled(self, asked: Message | None) -> Recall | None:
        """What the model was shown for a message: the first of its words whose answer is not stored yet."""
        if asked is None:
            return None
        for entry in [e for e in self._unanswered if e[0] == asked.text]:
            self._unanswered.remove(entry)
            if (recall := self.memory.recent.find(self.user_id, entry[1])) is not None:
                return recall
        return self.memory.recent.of_query(self.user_id, asked.text)

    def _storing(self, messages: Sequence[ChatMessage]) -> Flow[None]:
        by_session: dict[str, list[Message]] = {}
        for message in messages:
            said = spoken(message)
            if said is not None:
                by_session.setdefault(str(message.additional_kwargs.get(_SESSION, "memory")), []).append(said)
        for session_id, said_then in by_session.items():
            chat = yield from self._chat(session_id)
            yield from self._adding(chat, said_then)

    def _adding(self, chat: Chat, messages: Sequence[Message]) -> Flow[None]:
        asked: Message | None = None
        for message in messages:
            if message.role == "agent":
                yield from answering(self.memory, chat, asked, self._recalled(asked), message.text)
                asked = None
                continue
            if asked is not None:
                yield from chat.adding([asked])
            asked = message
        if asked is not None:
            yield from chat.adding([asked])

    def _ending(
        self, session_id: str, flushed: Sequence[ChatMessage], held: Sequence[ChatMessage]
    ) -> Flow[ReflectionReport]:
        """Store what is not stored yet, also of a flush that came to nothing; end the session."""
        chat = yield from self._chat(session_id)
        before = [s for s in map(spoken, flushed) if s is not None]
        known = yield from said_under(self.memory, self.user_id, session_id)
        turns = yield from call(self.memory.store.turns, self.user_id, chat.session_id)
        now = [s for s in map(spoken, held) if s is not None]
        lost, left = unstored(before, known), unstored([*before, *now], turns)[len(unstored(before, turns)) :]
        yield from self._adding(chat, [*lost, *left])
        return (yield from chat.ending())

    def _chat(self, session_id: str) -> Flow[Chat]:
        names = {"user_name": self.user_name, "agent_name": self.agent_name}
        return (yield from going_on(self.memory, self.user_id, session_id, **names))
