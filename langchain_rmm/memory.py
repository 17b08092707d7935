"""The memory of a classic chain: ``ConversationChain(llm=..., memory=RMMMemory(...))``."""

from __future__ import annotations

from typing import Any

from langchain_classic.base_memory import BaseMemory
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
from pydantic import ConfigDict, Field, PrivateAttr

from langchain_rmm._convert import attachments_of, message_of, text_of
from langchain_rmm.markers import reply_of
from rmm_core import Answer, Chat, InputError, Recall, ReflectionReport, ReflectiveMemory, Turn
from rmm_core.chat import going_on
from rmm_core.flow import Flow, call
from rmm_core.inputs import checked_id, fresh_id
from rmm_core.prompts import as_data


class RMMMemory(BaseMemory):
    """Gives a chain its session's history and what its user said in earlier ones, and learns from what it cites.

    Attributes:
        memory: The memory.
        user_id: Whose memory.
        session_id: Names the session; one that was cleared goes on under a name of its own. Made up when left out.
        memory_key: The prompt's variable.
        memories_key: A variable of its own for the recalled memories; before the history when left out.
        input_key: Which input the user said; may be left out when there is one.
        output_key: Which output is the answer; may be left out when there is one.
        return_messages: Whether the variables are lists of messages, for a ``MessagesPlaceholder``, or texts.
        history_turns: How many turns of the session are repeated at most.
        human_prefix: What the user is called in the history.
        ai_prefix: What the other side is called there.
        user_name: What the user is called in memories.
        agent_name: What the other side is called there.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    memory: ReflectiveMemory = Field(repr=False, exclude=True)
    user_id: str
    session_id: str = Field(default_factory=fresh_id)
    memory_key: str = "history"
    memories_key: str | None = None
    input_key: str | None = None
    output_key: str | None = None
    return_messages: bool = False
    history_turns: int = Field(default=40, ge=0)
    human_prefix: str = "Human"
    ai_prefix: str = "AI"
    user_name: str = "User"
    agent_name: str = "Assistant"
    _last: Answer | None = PrivateAttr(default=None)

    def model_post_init(self, context: Any, /) -> None:
        """Refuse a user or a session that cannot be one."""
        super().model_post_init(context)
        checked_id(self.user_id, "user_id")
        checked_id(self.session_id, "session_id")

    @property
    def memory_variables(self) -> list[str]:
        """The variables this memory fills in."""
        return [self.memory_key] if self.memories_key is None else [self.memory_key, self.memories_key]

    @property
    def last_answer(self) -> Answer | None:
        """The last answer saved, whoever's call it was, with the memories it cites: a chain returns its text alone."""
        return self._last

    def load_memory_variables(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The history, and what the memory brings up for the input."""
        return self.memory.run(self._loading(inputs))

    async def aload_memory_variables(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """:meth:`load_memory_variables` for event loops."""
        return await self.memory.arun(self._loading(inputs))

    def save_context(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        """Store the exchange and learn from what its answer cites.

        The markers are taken out of ``outputs`` too: what the chain returns is what its user sees.
        """
        self.memory.run(self._saving(inputs, outputs))

    async def asave_context(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        """:meth:`save_context` for event loops."""
        await self.memory.arun(self._saving(inputs, outputs))

    def clear(self) -> None:
        """End the session and reflect it: the history is empty then, and nothing said is lost."""
        self.end()

    async def aclear(self) -> None:
        """:meth:`clear` for event loops."""
        await self.aend()

    def end(self) -> ReflectionReport:
        """:meth:`clear`, with what reflection did."""
        return self.memory.run(self._ending())

    async def aend(self) -> ReflectionReport:
        """:meth:`end` for event loops."""
        return await self.memory.arun(self._ending())

    def forget(self) -> None:
        """Delete everything of this user, past sessions included."""
        self._last = None
        self.memory.forget_user(self.user_id)

    async def aforget(self) -> None:
        """:meth:`forget` for event loops."""
        await self.memory.arun(call(self.forget))

    # -- flows ---------------------------------------------------------------------------

    def _loading(self, inputs: dict[str, Any]) -> Flow[dict[str, Any]]:
        chat = yield from self._chat()
        yield from self.memory.sessions.visiting(self.user_id)
        query = text_of(inputs[self._input_key(inputs)])
        recall = yield from self.memory.recalling(self.user_id, query)
        turns = yield from call(self.memory.store.turns, self.user_id, chat.session_id)
        return self._variables(recall, turns[max(len(turns) - self.history_turns, 0) :])

    def _saving(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> Flow[None]:
        said, key = inputs[self._input_key(inputs)], self._output_key(outputs)
        query, reply = text_of(said), outputs[key]
        chat = yield from self._chat()
        recall = self.memory.recent.of_query(self.user_id, query)
        self._last = answer = yield from chat.recording(
            query, reply_of(reply), recall, attachments=attachments_of(said)
        )
        is_message = isinstance(reply, AIMessage)
        outputs[key] = reply.model_copy(update={"content": answer.text}) if is_message else answer.text

    def _ending(self) -> Flow[ReflectionReport]:
        chat = yield from self._chat()
        return (yield from chat.ending())

    def _chat(self) -> Flow[Chat]:
        """The session that goes on."""
        names = {"user_name": self.user_name, "agent_name": self.agent_name}
        return (yield from going_on(self.memory, self.user_id, self.session_id, **names))

    def _variables(self, recall: Recall, turns: tuple[Turn, ...]) -> dict[str, Any]:
        memories = recall.instructions()
        if self.return_messages:
            told: list[BaseMessage] = [SystemMessage(memories)] if memories else []
            history: Any = [message_of(t) for t in turns]
            shown: Any = told
        else:
            names = {"user": self.human_prefix, "agent": self.ai_prefix}
            history = "\n".join(f"{names[t.role]}: {as_data(t.content)}" for t in turns)
            shown = memories
        if self.memories_key is not None:
            return {self.memory_key: history, self.memories_key: shown}
        if self.return_messages:
            return {self.memory_key: [*shown, *history]}
        return {self.memory_key: "\n\n".join(part for part in (shown, history) if part)}

    def _input_key(self, inputs: dict[str, Any]) -> str:
        return _only(self.input_key, [k for k in inputs if k not in (*self.memory_variables, "stop")], "input")

    def _output_key(self, outputs: dict[str, Any]) -> str:
        return _only(self.output_key, list(outputs), "output")


def _only(named: str | None, keys: list[str], kind: str) -> str:
    if named is not None and named in keys:
        return named
    if named is None and len(keys) == 1:
        return keys[0]
    wanted = f"{kind}_key={named!r} is not among them" if named is not None else f"name one with {kind}_key=..."
    raise InputError(f"the chain's {kind}s are {sorted(keys)}: {wanted}")
