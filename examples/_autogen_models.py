"""AutoGen's models for its example: the rules of :mod:`_offline`, and the client that ``autogen-ext`` has."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from _models import llama_server
from _offline import OfflineRules, pieces
from _options import Choice, Framework, choosing
from autogen_core import FunctionCall
from autogen_core.models import (
    ChatCompletionClient,
    CreateResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    ModelFamily,
    ModelInfo,
    RequestUsage,
    SystemMessage,
    UserMessage,
)
from autogen_core.tools import Tool, ToolSchema

_INFO = ModelInfo(
    vision=False, function_calling=True, json_output=False, family=ModelFamily.UNKNOWN, structured_output=False
)
_NOTHING = RequestUsage(0, 0)


def choice(story: str | None) -> AbstractContextManager[Choice[ChatCompletionClient]]:
    """See :func:`_options.choosing`."""
    return choosing(_AUTOGEN, story, agent=True)


class OfflineClient(ChatCompletionClient):
    """Stands in for a real model.

    Args:
        rules: What it replies.
    """

    model_info = _INFO
    capabilities = _INFO

    def __init__(self, rules: OfflineRules) -> None:
        self._rules = rules

    async def create(
        self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = (), **kwargs: Any
    ) -> CreateResult:
        """The reply."""
        asked = [str(m.content) for m in messages if isinstance(m, UserMessage)]
        told = [m.content for m in messages if isinstance(m, SystemMessage)]
        last = messages[-1]
        found = last.content[-1].content if isinstance(last, FunctionExecutionResultMessage) else None
        schemas = [tool.schema if isinstance(tool, Tool) else tool for tool in tools]
        reply = self._rules.reply("\n".join([*told, *asked]), asked[-1], [{"function": s} for s in schemas], found)
        if reply.tool:
            call = FunctionCall(f"call-{len(messages)}", json.dumps(reply.arguments), reply.tool)
            return CreateResult(finish_reason="function_calls", content=[call], usage=_NOTHING, cached=False)
        return CreateResult(finish_reason="stop", content=reply.text, usage=_NOTHING, cached=False)

    async def create_stream(
        self, messages: Sequence[LLMMessage], **kwargs: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        """The reply in pieces."""
        result = await self.create(messages, **kwargs)
        if isinstance(result.content, str):
            for piece in pieces(result.content):
                yield piece
        yield result

    async def close(self) -> None:
        """Nothing is open."""

    def actual_usage(self) -> RequestUsage:
        """Nothing is counted."""
        return _NOTHING

    def total_usage(self) -> RequestUsage:
        """Nothing is counted."""
        return _NOTHING

    def count_tokens(self, messages: Sequence[LLMMessage], **kwargs: Any) -> int:
        """Nothing is counted."""
        return 0

    def remaining_tokens(self, messages: Sequence[LLMMessage], **kwargs: Any) -> int:
        """As many as anybody wants."""
        return sys.maxsize


class ClientLLM:
    """A model of AutoGen's as one of the core's: it reflects on finished sessions.

    Args:
        client: The model.
    """

    def __init__(self, client: ChatCompletionClient) -> None:
        self._client = client

    def complete(self, prompt: str, *, schema: Mapping[str, Any] | None = None) -> str:
        """Reply to a prompt."""
        return asyncio.run(self.acomplete(prompt))

    async def acomplete(self, prompt: str, *, schema: Mapping[str, Any] | None = None) -> str:
        """The same for event loops."""
        return str((await self._client.create([UserMessage(content=prompt, source="memory")])).content)


def _named(name: str, **settings: Any) -> ChatCompletionClient:
    try:
        from autogen_ext.models.openai import OpenAIChatCompletionClient
    except ImportError:
        sys.exit("--model needs AutoGen's client of such endpoints: pip install 'autogen-ext[openai]'")
    return OpenAIChatCompletionClient(model=name, **settings)


def _local(stack: ExitStack, gguf: str | None) -> ChatCompletionClient:
    url = stack.enter_context(llama_server(gguf, option="--model"))
    client = {"base_url": url, "api_key": "not-needed", "model_info": _INFO, "timeout": 900, "max_retries": 0}
    return _named("local", temperature=0, max_tokens=400, **client)


_AUTOGEN = Framework(
    offline=OfflineClient,
    named=_named,
    local=_local,
    names="name",
    known="of OpenAI's, such as gpt-4o-mini",
)
