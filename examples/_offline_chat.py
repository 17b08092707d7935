"""The rules of :mod:`_offline` as a chat model of LangChain."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import uuid4

from _offline import OfflineRules, pieces
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
)
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field


class OfflineChatModel(BaseChatModel):
    """Stands in for a real model.

    Attributes:
        rules: What it replies.
    """

    rules: OfflineRules = Field(exclude=True, repr=False)

    @property
    def _llm_type(self) -> str:
        return "offline-example"

    def bind_tools(
        self, tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool], **kwargs: Any
    ) -> Runnable[Any, AIMessage]:
        """This model, knowing the tools."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        message = self._reply(messages, kwargs.get("tools", ()))
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        message = self._reply(messages, kwargs.get("tools", ()))
        for piece in pieces(str(message.content)):
            yield ChatGenerationChunk(message=AIMessageChunk(piece))
        calls = [
            tool_call_chunk(name=call["name"], args=json.dumps(call["args"]), id=call["id"], index=i)
            for i, call in enumerate(message.tool_calls)
        ]
        yield ChatGenerationChunk(message=AIMessageChunk("", tool_call_chunks=calls, chunk_position="last"))

    def _reply(self, messages: Sequence[BaseMessage], tools: Sequence[dict[str, Any]]) -> AIMessage:
        prompt = "\n".join(m.text for m in messages if isinstance(m, SystemMessage | HumanMessage))
        found = messages[-1].text if isinstance(messages[-1], ToolMessage) else None
        reply = self.rules.reply(prompt, _asked(messages), tools, found)
        if not reply.tool:
            return AIMessage(reply.text)
        call = ToolCall(name=reply.tool, args=reply.arguments, id=f"call-{uuid4().hex}", type="tool_call")
        return AIMessage("", tool_calls=[call])


def _asked(messages: Sequence[BaseMessage]) -> str:
    """What the user said last; a classic chain's prompt holds it as its last line "Human: ..."."""
    text = next((m.text for m in reversed(messages) if isinstance(m, HumanMessage)), "")
    return text.rpartition("Human: ")[2].removesuffix("\nAI:")
