"""Pydantic AI's models for its example: the rules of :mod:`_offline`, and what its own names mean."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from _models import llama_server
from _offline import OfflineRules, Reply, pieces
from _options import Choice, Framework, choosing
from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, infer_model
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel


def choice(story: str | None) -> AbstractContextManager[Choice[Model]]:
    """See :func:`_options.choosing`."""
    return choosing(_PYDANTIC_AI, story, agent=True)


def offline(rules: OfflineRules) -> FunctionModel:
    """Stands in for a real model."""

    def replied(messages: Sequence[ModelMessage], info: AgentInfo) -> Reply:
        parts = [part for m in messages if isinstance(m, ModelRequest) for part in m.parts]
        asked = [str(part.content) for part in parts if isinstance(part, UserPromptPart)]
        found = str(parts[-1].content) if isinstance(parts[-1], ToolReturnPart) else None
        tools = [{"function": {"name": t.name, "parameters": t.parameters_json_schema}} for t in info.function_tools]
        return rules.reply("\n".join([info.instructions or "", *asked]), asked[-1], tools, found)

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        reply = replied(messages, info)
        return ModelResponse([ToolCallPart(reply.tool, reply.arguments) if reply.tool else TextPart(reply.text)])

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        reply = replied(messages, info)
        if reply.tool:
            yield {0: DeltaToolCall(reply.tool, json.dumps(reply.arguments))}
        for piece in pieces(reply.text):
            yield piece

    return FunctionModel(answer, stream_function=stream)


class AgentLLM:
    """A model of Pydantic AI's as one of the core's: it reflects on finished sessions.

    Args:
        model: The model.
    """

    def __init__(self, model: Model) -> None:
        self._agent = Agent(model)

    def complete(self, prompt: str, *, schema: Mapping[str, Any] | None = None) -> str:
        """Reply to a prompt."""
        return asyncio.run(self.acomplete(prompt))

    async def acomplete(self, prompt: str, *, schema: Mapping[str, Any] | None = None) -> str:
        """The same for event loops."""
        return (await self._agent.run(prompt)).output


def _local(stack: ExitStack, gguf: str | None) -> Model:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    url = stack.enter_context(llama_server(gguf, option="--model"))
    provider = OpenAIProvider(base_url=url, api_key="not-needed")
    return OpenAIChatModel("local", provider=provider, settings={"temperature": 0, "max_tokens": 400, "timeout": 900})


_PYDANTIC_AI = Framework(
    offline=offline,
    named=infer_model,
    local=_local,
    names="provider:name",
    known="that Pydantic AI knows, such as openai-chat:gpt-4o-mini",
)
