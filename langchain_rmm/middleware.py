"""The memory of an agent: ``create_agent(model, tools, middleware=[RMMMiddleware(memory)])``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, NotRequired, TypedDict, cast

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
from langchain.agents.middleware.types import PrivateStateAttr
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, SystemMessage
from langgraph.config import get_config
from langgraph.runtime import Runtime

from langchain_rmm._convert import spoken
from langchain_rmm._who import Sittings, Who, of_config, who
from langchain_rmm.markers import citations_of, cleaned, hide_markers
from rmm_core import Attachment, Chat, Citations, Message, Recall, ReflectionReport, ReflectiveMemory
from rmm_core.bounded import Bounded
from rmm_core.flow import Flow


class Said(TypedDict):
    """One message of the user, as an agent's state keeps it until it is answered."""

    id: str
    text: str
    attachments: list[list[str]]


class RMMState(AgentState[Any]):
    """An agent's state, and what the user said that is not stored yet: plain data, no memories."""

    rmm_said: Annotated[NotRequired[list[Said]], PrivateStateAttr]


class RMMMiddleware(AgentMiddleware[RMMState, Any]):
    """Recalls before the model is called, and stores and learns from the turn when the agent has answered.

    The memories stand in the system message of the request alone: state and checkpoints never hold them. Markers are
    taken out of what the model returns and streams; what an answer cites stands in its
    ``response_metadata["reflective_memory"]``. A turn is stored once a message id, whatever is retried, resumed or
    replayed. A session is a thread; it is reflected when it fell silent, at the user's next visit, or by :meth:`end`.

    Place it last among the middleware: what stands after it sees the model inside of a wrapper.

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
        self.memory = memory
        self._user_id = user_id
        self._user_name = user_name
        self._agent_name = agent_name
        self._sittings = Sittings(memory.clock, memory.config.idle_minutes)
        self._recalls: Bounded[tuple[str, str], Recall] = Bounded(1024)  # of the turns that are being answered

    # -- at the start of a turn ------------------------------------------------------------

    def before_agent(self, state: RMMState, runtime: Runtime[Any]) -> dict[str, Any]:
        """Note what the user said; reflect what has fallen silent."""
        return self.memory.run(self._beginning(state, runtime))

    async def abefore_agent(self, state: RMMState, runtime: Runtime[Any]) -> dict[str, Any]:
        """:meth:`before_agent` for event loops."""
        return await self.memory.arun(self._beginning(state, runtime))

    def _beginning(self, state: RMMState, runtime: Runtime[Any]) -> Flow[dict[str, Any]]:
        turn = self._who(runtime)
        yield from self.memory.sessions.visiting(turn.user_id, self._sittings.session(turn))
        return {"rmm_said": unanswered(state["messages"])}

    # -- around every model call -----------------------------------------------------------

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Show the model what the memory brings up, and hide its markers."""
        recall = self.memory.run(self._recalling(request))
        return handler(request) if recall is None else _clean(handler(_shown(request, recall)), recall)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """:meth:`wrap_model_call` for event loops."""
        recall = await self.memory.arun(self._recalling(request))
        return await handler(request) if recall is None else _clean(await handler(_shown(request, recall)), recall)

    def _recalling(self, request: ModelRequest[Any]) -> Flow[Recall | None]:
        """The turn's recall: one, however often the model is called or retried; None when nothing is shown."""
        said: Sequence[Said] = cast(RMMState, request.state).get("rmm_said") or ()
        if not said:
            return None
        turn = self._who(request.runtime)
        key = (turn.user_id, said[-1]["id"])
        recall = self._recalls.get(key)
        if recall is None:
            recall = yield from self.memory.recalling(turn.user_id, _message(said[-1]).text)
            self._recalls.put(key, recall)
        return recall if recall.shown else None

    # -- when the agent has answered -------------------------------------------------------

    def after_agent(self, state: RMMState, runtime: Runtime[Any]) -> dict[str, Any]:
        """Store the turn and learn from what its answer cites."""
        return self.memory.run(self._finishing(state, runtime))

    async def aafter_agent(self, state: RMMState, runtime: Runtime[Any]) -> dict[str, Any]:
        """:meth:`after_agent` for event loops."""
        return await self.memory.arun(self._finishing(state, runtime))

    def _finishing(self, state: RMMState, runtime: Runtime[Any]) -> Flow[dict[str, Any]]:
        said = state.get("rmm_said") or []
        if said:
            turn = self._who(runtime)
            chat = self._chat(turn, self._sittings.session(turn))
            *earlier, last = map(_message, said)
            yield from chat.adding(earlier)
            answer = answer_to(state["messages"], {s["id"] for s in said})
            if answer is None:
                yield from chat.adding([last])
            else:
                recall, reply = self._reply((turn.user_id, last.key), answer)
                yield from chat.recording(last.text, reply, recall, attachments=last.attachments, key=last.key)
        return {"rmm_said": []}

    def _reply(self, turn: tuple[str, str], answer: AIMessage) -> tuple[Recall | None, Citations]:
        """What an answer cites, and of which recall; of none when it was shown nothing or came from another process."""
        recall, noted = self._recalls.pop(turn), citations_of(answer)
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
        turn = who(user_id=user_id, session_id=thread_id)
        session_id = self._sittings.end(turn)
        if session_id is None:
            return ReflectionReport(user_id, "", "nothing")
        return (yield from self._chat(turn, session_id).ending())

    def _chat(self, turn: Who, session_id: str) -> Chat:
        name = turn.user_name or self._user_name
        return self.memory.chat(turn.user_id, session_id=session_id, user_name=name, agent_name=self._agent_name)

    def _who(self, runtime: Runtime[Any]) -> Who:
        return who(runtime.context, *of_config(get_config()), user_id=self._user_id)


def unanswered(messages: Sequence[AnyMessage]) -> list[Said]:
    """What the user said since the last answer, the turns of a model error included; what was said twice, once."""
    found: list[Said] = []
    for message in reversed(messages):
        if isinstance(message, AIMessage) and not message.tool_calls:
            break
        said = spoken(message)
        if said is None or said.role != "user" or any(said.text == other["text"] for other in found):
            continue
        attachments = [[a.kind, a.uri, a.caption] for a in said.attachments]
        found.append({"id": said.key, "text": said.text, "attachments": attachments})
    return found[::-1]


def answer_to(messages: Sequence[AnyMessage], said: set[str]) -> AIMessage | None:
    """The last answer after the messages with these ids; None when there is none."""
    for message in reversed(messages):
        if isinstance(message, HumanMessage) and message.id in said:
            return None
        if isinstance(message, AIMessage) and not message.tool_calls and str(message.text).strip():
            return message
    return None


def _message(said: Said) -> Message:
    attachments = tuple(Attachment(*parts) for parts in said["attachments"])
    return Message("user", said["text"], attachments=attachments, key=said["id"])


def _shown(request: ModelRequest[Any], recall: Recall) -> ModelRequest[Any]:
    """The request with the memories in its system message, which stays first and keeps its own text first."""
    text = recall.instructions()
    if isinstance(request.model, BaseChatModel):  # else each call's config chooses it, and its stream keeps its markers
        request = request.override(model=hide_markers(request.model, recall))
    if not hasattr(request, "system_message"):  # langchain 1.0
        own_text = getattr(request, "system_prompt", None)
        return request.override(system_prompt="\n\n".join(filter(None, (own_text, text))))  # type: ignore[call-arg]
    own = request.system_message
    content: str | list[str | dict[Any, Any]]
    if own is None:
        content = text
    elif isinstance(own.content, str):
        content = f"{own.content}\n\n{text}"
    else:
        content = [*own.content, {"type": "text", "text": text}]
    system = SystemMessage(content) if own is None else own.model_copy(update={"content": content})
    return request.override(system_message=system)


def _clean(response: ModelResponse[Any], recall: Recall) -> ModelResponse[Any]:
    """The response without markers, where the model did not see to that itself."""

    def clean(message: BaseMessage) -> BaseMessage:
        return cleaned(message, recall) if isinstance(message, AIMessage) and citations_of(message) is None else message

    return ModelResponse(result=[clean(m) for m in response.result], structured_response=response.structured_response)
