"""A session as LangChain's chat message history, for ``RunnableWithMessageHistory`` and whatever else takes one."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import BaseMessage

from langchain_rmm._backend import checked_memory
from langchain_rmm._convert import message_of, spoken
from langchain_rmm.markers import reply_of
from rmm_core import Chat, Message, ReflectiveMemory
from rmm_core.chat import going_on
from rmm_core.flow import Flow, call
from rmm_core.inputs import checked_id


class RMMChatMessageHistory(BaseChatMessageHistory):
    """The messages of one session; what is added is stored as turns, and citations in it are learned from.

    An answer is learned from when the chain asked the memory (an :class:`RMMRetriever`, say) for exactly what the
    user said. System and tool messages are not part of what is remembered. It stores turns: leave
    :func:`langchain_rmm.turn_recorder` out of a chain that has it.

    Args:
        memory: The memory.
        user_id: Whose session.
        session_id: Names it; after :meth:`clear` it goes on empty, under a name of its own in the memory.
        user_name: What the user is called in memories.
        agent_name: What the other side is called.
    """

    def __init__(
        self,
        memory: ReflectiveMemory,
        *,
        user_id: str,
        session_id: str,
        user_name: str = "User",
        agent_name: str = "Assistant",
    ) -> None:
        self.memory = checked_memory(memory)
        self.user_id = checked_id(user_id, "user_id")
        self.session_id = checked_id(session_id, "session_id")
        self.user_name = user_name
        self.agent_name = agent_name

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]  # the base class declares an attribute
        """The session so far."""
        return self.memory.run(self._reading())

    async def aget_messages(self) -> list[BaseMessage]:
        """:attr:`messages` for event loops."""
        return await self.memory.arun(self._reading())

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Store messages; the same message id is stored once."""
        self.memory.run(self._adding(messages))

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """:meth:`add_messages` for event loops."""
        await self.memory.arun(self._adding(messages))

    def clear(self) -> None:
        """End the session and reflect it: there are no messages then, and nothing said is lost."""
        self.memory.run(self._ending())

    async def aclear(self) -> None:
        """:meth:`clear` for event loops."""
        await self.memory.arun(self._ending())

    # -- flows ---------------------------------------------------------------------------

    def _reading(self) -> Flow[list[BaseMessage]]:
        chat = yield from self._chat()
        yield from self.memory.sessions.visiting(self.user_id)
        turns = yield from call(self.memory.store.turns, self.user_id, chat.session_id)
        return [message_of(t) for t in turns]

    def _adding(self, messages: Sequence[BaseMessage]) -> Flow[None]:
        chat = yield from self._chat()
        asked: Message | None = None  # not stored yet: an exchange is stored as one
        query = ""
        for message in messages:
            said = spoken(message)
            if said is None:
                continue
            if said.role == "user":
                if asked is not None:
                    yield from chat.adding([asked])
                asked = said
            elif asked is not None:
                query = asked.text
                recall = self.memory.recent.of_query(self.user_id, query)
                yield from chat.recording(
                    query, reply_of(message), recall, attachments=asked.attachments, key=asked.key, reply_key=said.key
                )
                asked = None
            else:  # an answer that comes alone, or after what was said beside a tool call
                query = query or (yield from self._last_asked(chat))
                recall = self.memory.recent.of_query(self.user_id, query)
                yield from chat.recording("", reply_of(message), recall, reply_key=said.key)
        if asked is not None:
            yield from chat.adding([asked])

    def _last_asked(self, chat: Chat) -> Flow[str]:
        turns = yield from call(self.memory.store.turns, self.user_id, chat.session_id)
        return next((t.text for t in reversed(turns) if t.role == "user"), "")

    def _ending(self) -> Flow[None]:
        chat = yield from self._chat()
        yield from chat.ending()

    def _chat(self) -> Flow[Chat]:
        names = {"user_name": self.user_name, "agent_name": self.agent_name}
        return (yield from going_on(self.memory, self.user_id, self.session_id, **names))
