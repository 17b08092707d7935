"""The OpenAI Agents SDK's models for its example: the rules of :mod:`_offline`, and OpenAI's protocol."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from _models import llama_server
from _offline import OfflineRules, pieces
from _options import Choice, Framework, choosing

try:
    from agents import (
        FunctionTool,
        Model,
        ModelResponse,
        ModelSettings,
        ModelTracing,
        OpenAIChatCompletionsModel,
        Tool,
        Usage,
        set_tracing_disabled,
    )
except ImportError:
    sys.exit("this example needs the OpenAI Agents SDK: pip install openai-agents")
from openai import AsyncOpenAI
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputItem,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseStreamEvent,
    ResponseTextDeltaEvent,
)

set_tracing_disabled(True)  # traces go to OpenAI, and these talks are nobody's business


def choice(story: str | None) -> AbstractContextManager[Choice[Model]]:
    """See :func:`_options.choosing`."""
    return choosing(_OPENAI_AGENTS, story, agent=True)


class OfflineModel(Model):
    """Stands in for a real model.

    Args:
        rules: What it replies.
    """

    def __init__(self, rules: OfflineRules) -> None:
        self._rules = rules

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[dict[str, Any]],  # noqa: A002 -- the SDK's name
        model_settings: ModelSettings,
        tools: list[Tool],
        *args: Any,
        **kwargs: Any,
    ) -> ModelResponse:
        """The reply."""
        return ModelResponse([self._reply(system_instructions, input, tools)], Usage(), None)

    async def stream_response(
        self,
        system_instructions: str | None,
        input: str | list[dict[str, Any]],  # noqa: A002 -- likewise
        model_settings: ModelSettings,
        tools: list[Tool],
        *args: Any,
        **kwargs: Any,
    ) -> AsyncIterator[ResponseStreamEvent]:
        """The reply in pieces."""
        item = self._reply(system_instructions, input, tools)
        place = {"item_id": item.id, "output_index": 0, "content_index": 0, "logprobs": []}
        text = item.content[0].text if isinstance(item, ResponseOutputMessage) else ""
        for number, piece in enumerate(pieces(text)):
            yield ResponseTextDeltaEvent(
                type="response.output_text.delta", delta=piece, sequence_number=number, **place
            )
        response = Response(
            id="response",
            created_at=0,
            model="offline-example",
            object="response",
            output=[item],
            parallel_tool_calls=False,
            tool_choice="auto",
            tools=[],
        )
        yield ResponseCompletedEvent(type="response.completed", response=response, sequence_number=len(text))

    def _reply(
        self, instructions: str | None, given: str | list[dict[str, Any]], tools: Sequence[Tool]
    ) -> ResponseOutputItem:
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        asked = [item["content"] for item in items if item.get("role") == "user"]
        found = items[-1]["output"] if items[-1].get("type") == "function_call_output" else None
        known = [
            {"function": {"name": tool.name, "parameters": tool.params_json_schema}}
            for tool in tools
            if isinstance(tool, FunctionTool)
        ]
        reply = self._rules.reply("\n".join([instructions or "", *asked]), asked[-1], known, found)
        if reply.tool:
            call = {"name": reply.tool, "arguments": json.dumps(reply.arguments), "call_id": f"call-{len(items)}"}
            return ResponseFunctionToolCall(type="function_call", **call)
        text = ResponseOutputText(type="output_text", text=reply.text, annotations=[])
        return ResponseOutputMessage(id="message", type="message", role="assistant", status="completed", content=[text])


class ModelLLM:
    """A model of the SDK's as one of the core's: it reflects on finished sessions.

    Args:
        model: The model.
    """

    def __init__(self, model: Model) -> None:
        self._model = model

    def complete(self, prompt: str, *, schema: Mapping[str, Any] | None = None) -> str:
        """Reply to a prompt."""
        return asyncio.run(self.acomplete(prompt))

    async def acomplete(self, prompt: str, *, schema: Mapping[str, Any] | None = None) -> str:
        """The same for event loops."""
        response = await self._model.get_response(
            None,
            prompt,
            ModelSettings(),
            [],
            None,
            [],
            ModelTracing.DISABLED,
            previous_response_id=None,
            conversation_id=None,
            prompt=None,
        )
        said = (item for item in response.output if isinstance(item, ResponseOutputMessage))
        return "".join(part.text for item in said for part in item.content if isinstance(part, ResponseOutputText))


def _named(name: str, **client: Any) -> Model:
    return OpenAIChatCompletionsModel(name, AsyncOpenAI(**client))


def _local(stack: ExitStack, gguf: str | None) -> Model:
    url = stack.enter_context(llama_server(gguf, option="--model"))
    return _named("local", base_url=url, api_key="not-needed", timeout=900, max_retries=0)


_OPENAI_AGENTS = Framework(
    offline=OfflineModel,
    named=_named,
    local=_local,
    names="name",
    known="of OpenAI's, or behind the compatible API at OPENAI_BASE_URL, such as gpt-4o-mini",
)
