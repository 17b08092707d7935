"""Smolagents' models for its example: the rules of :mod:`_offline`, and OpenAI's protocol."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from _models import llama_server
from _offline import OfflineRules
from _options import Choice, Framework, choosing
from huggingface_hub.utils import disable_progress_bars
from smolagents import ChatMessage, MessageRole, Model, OpenAIModel, Tool
from smolagents.models import ChatMessageToolCall, ChatMessageToolCallFunction, get_tool_json_schema

disable_progress_bars()  # smolagents reads the environment before the embedder of the examples can set it
_TASK, _FOUND = "New task:\n", "Observation:\n"


def choice(story: str | None) -> AbstractContextManager[Choice[Model]]:
    """See :func:`_options.choosing`."""
    return choosing(_SMOLAGENTS, story, agent=True)


class OfflineModel(Model):
    """Stands in for a real model; it answers with a call of ``final_answer``, as these agents want it.

    Args:
        rules: What it replies.
    """

    def __init__(self, rules: OfflineRules) -> None:
        super().__init__(model_id="offline-example")
        self._rules = rules

    def generate(
        self,
        messages: list[ChatMessage],
        stop_sequences: list[str] | None = None,
        response_format: dict[str, str] | None = None,
        tools_to_call_from: Sequence[Tool] = (),
        **kwargs: Any,
    ) -> ChatMessage:
        """The reply."""
        spoken = [m for m in messages if m.role in (MessageRole.SYSTEM, MessageRole.USER)]
        asked = _text(next(m for m in reversed(spoken) if m.role == MessageRole.USER)).removeprefix(_TASK)
        last = messages[-1]
        found = _text(last).removeprefix(_FOUND) if last.role == MessageRole.TOOL_RESPONSE else None
        tools = [get_tool_json_schema(tool) for tool in tools_to_call_from]
        reply = self._rules.reply("\n".join(map(_text, spoken)), asked, tools, found)
        if not tools:
            return ChatMessage(MessageRole.ASSISTANT, reply.text)
        name, arguments = (reply.tool, reply.arguments) if reply.tool else ("final_answer", {"answer": reply.text})
        call = ChatMessageToolCall(ChatMessageToolCallFunction(arguments, name), f"call-{len(messages)}", "function")
        return ChatMessage(MessageRole.ASSISTANT, "", [call])


class ModelLLM:
    """A model of smolagents' as one of the core's: it reflects on finished sessions.

    Args:
        model: The model.
    """

    def __init__(self, model: Model) -> None:
        self._model = model

    def complete(self, prompt: str, *, schema: Mapping[str, Any] | None = None) -> str:
        """Reply to a prompt."""
        return _text(self._model([ChatMessage(MessageRole.USER, [{"type": "text", "text": prompt}])]))

    async def acomplete(self, prompt: str, *, schema: Mapping[str, Any] | None = None) -> str:
        """The same for event loops: in a thread, these models block."""
        return await to_thread(self.complete, prompt)


def _text(message: ChatMessage) -> str:
    content = message.content or ""
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def _local(stack: ExitStack, gguf: str | None) -> Model:
    url = stack.enter_context(llama_server(gguf, option="--model"))
    client = {"timeout": 900, "max_retries": 0}
    return OpenAIModel("local", url, "not-needed", client_kwargs=client, temperature=0, max_tokens=400)


_SMOLAGENTS = Framework(
    offline=OfflineModel,
    named=OpenAIModel,
    local=_local,
    names="name",
    known="of OpenAI's, or behind the compatible API at OPENAI_BASE_URL, such as gpt-4o-mini",
)
