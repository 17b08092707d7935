"""The memory of an agent: ``create_agent(model, tools, middleware=[RMMMiddleware(memory)])``."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, NotRequired, TypedDict, cast

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
from langchain.agents.middleware.types import PrivateStateAttr
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, SystemMessage
from langgraph.config import get_config
from langgraph.runtime import Runtime

from langchain_rmm._backend import checked_memory
from langchain_rmm._convert import message_key, spoken
from langchain_rmm._who import Sittings, Who, checked_user, who
from langchain_rmm.markers import citations_of, hide_markers, with_markers, without_markers
from rmm_core import (
    Attachment,
    Chat,
    Citations,
    Message,
    Recall,
    ReflectionReport,
    ReflectiveMemory,
    StoreError,
)
from rmm_core.bounded import Bounded
from rmm_core.flow import Flow

logger = logging.getLogger(__name__)


class Said(TypedDict):
    """One message of a user, as an agent's state keeps it until it is answered.

    The words are filled in right before the model sees them, so that what other middleware redacts stays redacted;
    they are kept because a summary may take the message's place before the answer is there.
    """

    id: str
    user_id: str
    text: str
    attachments: list[list[str]]


class RMMState(AgentState[Any]):
    """An agent's state, and what was said and is not stored yet: plain data, no memories."""

    rmm_said: Annotated[NotRequired[list[Said]], PrivateStateAttr]
    rmm_done: Annotated[NotRequired[str], PrivateStateAttr]


class RMMMiddleware(AgentMiddleware[RMMState, Any]):
    """Recalls before the model is called, and stores and learns from the turn when the agent has answered.

    The memories stand in the system message of the request alone: state and checkpoints never hold them. Markers are
    taken out of what the model returns and streams; what an answer cites stands in its
    ``response_metadata["reflective_memory"]``. Structured output is asked for without citations, and left alone.

    A turn is stored once, whatever is retried, resumed or replayed; an edited message is a new one. What a failed call
    left unanswered is stored with the next answer of the thread, also when another middleware had refused it. When the
    memory cannot be searched, because its embedder or its file is out of reach, the model answers without it, and a log
    entry says so. A session is a thread; it is reflected at the user's next visit after a silence, or by :meth:`end`.

    One is enough for an agent: two would number their memories alike. Place it last among the middleware: what stands
    before it is honoured, redaction for example, and what stands after it sees the model inside of a wrapper.

    Args:
        memory: The memory.
        user_id: Whose turns; else ``user_id`` in the agent's context or config.
        user_name: What a user is called in memories whose ``user_name`` is not in the agent's context or config.
        agent_name: What the agent is called.
    """

    state_schema = RMMState

    def __init__(
        self,
        memory: ReflectiveMemory,
        *,
        user_id: str | None = None,
        user_name: str = "User",
        agent_name: str = "Assistant",
    ) -> None:
        super().__init__()
        self.memory = checked_memory(memory)
        self._user_id = checked_user(user_id)
        self._user_name = user_name
        self._agent_name = agent_name
        self._sittings = Sittings(memory.clock, memory.config.idle_minutes)
        self._recalls: Bounded[tuple[str, str, str], str] = Bounded(1024)  # their ids, of turns that are being answered

    # -- at the start of a turn ------------------------------------------------------------

    def before_agent(self, state: RMMState, runtime: Runtime[Any]) -> dict[str, Any]:
        """Note whose turn it is; reflect what has fallen silent."""
        return self.memory.run(self._beginning(state, runtime))

    async def abefore_agent(self, state: RMMState, runtime: Runtime[Any]) -> dict[str, Any]:
        """:meth:`before_agent` for event loops."""
        return await self.memory.arun(self._beginning(state, runtime))

    def _beginning(self, state: RMMState, runtime: Runtime[Any]) -> Flow[dict[str, Any]]:
        turn = self._who(runtime)
        try:
            yield from self.memory.sessions.visiting(turn.user_id)
        except StoreError:
            logger.exception("sessions that fell silent wait for the next visit")
        return {"rmm_said": unanswered(state, turn.user_id)}

    # -- before and around every model call ------------------------------------------------

    def before_model(self, state: RMMState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Note what the user said, as the model will see it."""
        noted = state.get("rmm_said") or []
        said = in_words(noted, state["messages"])
        return None if said == noted else {"rmm_said": said}

    async def abefore_model(self, state: RMMState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        """:meth:`before_model`, which waits for nothing."""
        return self.before_model(state, runtime)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Show the model what the memory brings up, and hide its markers."""
        recall = self.memory.run(self._recalling(request))
        return handler(request) if recall is None else _without(handler(_shown(request, recall)), request, recall)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """:meth:`wrap_model_call` for event loops."""
        recall = await self.memory.arun(self._recalling(request))
        return (
            await handler(request)
            if recall is None
            else _without(await handler(_shown(request, recall)), request, recall)
        )

    def _recalling(self, request: ModelRequest[Any]) -> Flow[Recall | None]:
        """The turn's recall: one, however often the model is called or retried; None when nothing is shown."""
        turn = self._who(request.runtime)
        said = _mine(cast(RMMState, request.state), turn)
        if not said:
            return None
        key = (turn.user_id, self._sittings.session(turn), _message(said[-1]).key)
        recall = self._recalled(key)
        if recall is None:
            recall = yield from self.memory.recalling_or_none(turn.user_id, said[-1]["text"])
            if recall is None:
                return None
            self._recalls.put(key, recall.id)
        return recall if recall.shown else None

    def _recalled(self, key: tuple[str, str, str]) -> Recall | None:
        """The turn's recall, unless the user was forgotten or the process is another one meanwhile."""
        return self.memory.recent.find(key[0], self._recalls.get(key) or "")

    # -- when the agent has answered -------------------------------------------------------

    def after_agent(self, state: RMMState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Store the turn and learn from what its answer cites."""
        return self.memory.run(self._finishing(state, runtime))

    async def aafter_agent(self, state: RMMState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        """:meth:`after_agent` for event loops."""
        return await self.memory.arun(self._finishing(state, runtime))

    def _finishing(self, state: RMMState, runtime: Runtime[Any]) -> Flow[dict[str, Any] | None]:
        turn = self._who(runtime)
        said = _mine(state, turn)
        if not said:
            return None
        session_id = self._sittings.session(turn)
        chat = self._chat(turn, session_id)
        *earlier, last = map(_message, said)
        yield from chat.adding(earlier)
        answer = answer_to(state["messages"], {s["id"] for s in said})
        if answer is None:
            yield from chat.adding([last])
        else:
            recall, reply = self._reply((turn.user_id, session_id, last.key), answer)
            yield from chat.recording(last.text, reply, recall, attachments=last.attachments, key=last.key)
        return {"rmm_done": said[-1]["id"]}

    def _reply(self, turn: tuple[str, str, str], answer: AIMessage) -> tuple[Recall | None, Citations]:
        """What an answer cites, and of which recall; of none when it was shown nothing or came from another process."""
        recall, noted = self._recalled(turn), citations_of(answer)
        if noted is None:
            return None, Citations(str(answer.text), (), "silent")
        return recall if recall is not None and recall.id == noted[0] else None, noted[1]

    # -- the end of a session --------------------------------------------------------------

    def end(self, user_id: str, thread_id: str | None = None) -> ReflectionReport:
        """End a thread's session and reflect it; without a thread, the one of calls that name none."""
        return self.memory.run(self._ending(user_id, thread_id))

    async def aend(self, user_id: str, thread_id: str | None = None) -> ReflectionReport:
        """:meth:`end` for event loops."""
        return await self.memory.arun(self._ending(user_id, thread_id))

    def _ending(self, user_id: str, thread_id: str | None) -> Flow[ReflectionReport]:
        turn = who(None, user_id=user_id, session_id=thread_id)
        session_id = self._sittings.end(turn)
        if session_id is None:
            return ReflectionReport(user_id, "", "nothing")
        return (yield from self._chat(turn, session_id).ending())

    def _chat(self, turn: Who, session_id: str) -> Chat:
        name = turn.user_name or self._user_name
        return self.memory.chat(turn.user_id, session_id=session_id, user_name=name, agent_name=self._agent_name)

    def _who(self, runtime: Runtime[Any]) -> Who:
        return who(get_config(), runtime.context, user_id=self._user_id)


def unanswered(state: RMMState, user_id: str) -> list[Said]:
    """What was said since the last answer, without words yet: this turn's, and what a failed call left.

    A failed attempt that the user repeats now counts once, and what was noted for another user stays theirs.
    """
    noted = {s["id"]: s for s in state.get("rmm_said") or ()}
    found: list[Said] = []
    words: set[tuple[str, tuple[Attachment, ...]]] = set()
    for message in reversed(state["messages"]):
        if message.id == state.get("rmm_done") or (isinstance(message, AIMessage) and not message.tool_calls):
            break
        said = spoken(message)
        if said is None or said.role != "user" or not message.id:
            continue
        old = noted.get(message.id)
        if old is None:
            words.add((said.text, said.attachments))
        elif (said.text, said.attachments) in words:
            continue
        found.append(old or {"id": message.id, "user_id": user_id, "text": "", "attachments": []})
    return found[::-1]


def in_words(noted: Sequence[Said], messages: Sequence[AnyMessage]) -> list[Said]:
    """The notes with the words as they stand now; a message that a summary took the place of keeps its last ones."""
    present = {m.id: said for m in messages if (said := spoken(m)) is not None}
    return [
        {
            "id": note["id"],
            "user_id": note["user_id"],
            "text": present[note["id"]].text,
            "attachments": [[a.kind, a.uri, a.caption] for a in present[note["id"]].attachments],
        }
        if note["id"] in present
        else note
        for note in noted
    ]


def answer_to(messages: Sequence[AnyMessage], said: set[str]) -> AIMessage | None:
    """The last answer after the messages with these ids; None when there is none."""
    for message in reversed(messages):
        if message.id in said:
            return None
        if isinstance(message, AIMessage) and not message.tool_calls and str(message.text).strip():
            return message
    return None


def _mine(state: RMMState, turn: Who) -> list[Said]:
    """The notes of this turn's user that have words."""
    said = in_words(state.get("rmm_said") or (), state["messages"])
    return [s for s in said if s["user_id"] == turn.user_id and (s["text"].strip() or s["attachments"])]


def _message(said: Said) -> Message:
    attachments = tuple(Attachment(*parts) for parts in said["attachments"])
    return Message("user", said["text"], attachments=attachments, key=message_key(said["id"], said["text"]))


def _shown(request: ModelRequest[Any], recall: Recall) -> ModelRequest[Any]:
    """The request as the model gets it: with the memories, and with a model that hides its markers."""
    cites = request.response_format is None
    if cites:
        request = request.override(messages=with_markers(request.messages, recall))
        try:
            request = request.override(model=hide_markers(request.model, recall))
        except TypeError:  # each call's config chooses the model; its answer is cleaned below, its stream is not
            logger.warning("%s streams citation markers: they cannot be hidden in it", type(request.model).__name__)
    return _with_system_text(request, recall.instructions(cite=cites))


def _with_system_text(request: ModelRequest[Any], text: str) -> ModelRequest[Any]:
    """The request with ``text`` in its system message, which stays first and keeps its own text first."""
    if not hasattr(request, "system_message"):
        whole = "\n\n".join(filter(None, (getattr(request, "system_prompt", None), text)))
        return request.override(system_prompt=whole)  # type: ignore[call-arg]  # langchain 1.0 knows this one alone
    own = request.system_message
    if own is None:
        return request.override(system_message=SystemMessage(text))
    content: str | list[str | dict[Any, Any]]
    if isinstance(own.content, str):
        content = f"{own.content}\n\n{text}"
    else:
        content = [*own.content, {"type": "text", "text": text}]
    return request.override(system_message=own.model_copy(update={"content": content}))


def _without(response: ModelResponse[Any], request: ModelRequest[Any], recall: Recall) -> ModelResponse[Any]:
    """The response without markers, where the model did not see to that itself."""
    if request.response_format is not None:
        return response

    def clean(message: BaseMessage) -> BaseMessage:
        unread = isinstance(message, AIMessage) and citations_of(message) is None
        return without_markers(message, recall, request.messages) if unread else message

    return ModelResponse(result=[clean(m) for m in response.result], structured_response=response.structured_response)
