"""LlamaIndex models for the examples: the rules of :mod:`_offline`, and endpoints that speak OpenAI's protocol.

Your app has its own, such as ``llama_index.llms.openai.OpenAI``; these two need no further package.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any
from uuid import uuid4

from _offline import OfflineRules, pieces
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.llms.generic_utils import (
    achat_to_completion_decorator,
    astream_chat_to_completion_decorator,
    chat_to_completion_decorator,
    stream_chat_to_completion_decorator,
)
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    LLMMetadata,
    MessageRole,
    TextBlock,
    ToolCallBlock,
)
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.tools import BaseTool
from pydantic import Field, PrivateAttr

from rmm_core import Embedder


class ChatLLM(FunctionCallingLLM):
    """What the two have in common: completions are chats of one message, and tools go out in OpenAI's form."""

    name: str = "offline-example"

    @property
    def metadata(self) -> LLMMetadata:
        """What LlamaIndex asks about a model."""
        return LLMMetadata(
            model_name=self.name,
            context_window=8192,
            num_output=400,
            is_chat_model=True,
            is_function_calling_model=True,
        )

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """The reply to a prompt."""
        return chat_to_completion_decorator(self.chat)(prompt, **kwargs)

    async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """The same for event loops."""
        return await achat_to_completion_decorator(self.achat)(prompt, **kwargs)

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Iterator[CompletionResponse]:
        """The same as it comes."""
        return stream_chat_to_completion_decorator(self.stream_chat)(prompt, **kwargs)

    async def astream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> AsyncIterator[CompletionResponse]:
        """The same as it comes, for event loops."""
        return await astream_chat_to_completion_decorator(self.astream_chat)(prompt, **kwargs)

    def _prepare_chat_with_tools(
        self,
        tools: Sequence[BaseTool],
        user_msg: str | ChatMessage | None = None,
        chat_history: list[ChatMessage] | None = None,
        verbose: bool = False,
        allow_parallel_tool_calls: bool = False,
        tool_required: bool = False,
        **kwargs: Any,
    ) -> dict[str, Any]:
        asked = [ChatMessage(user_msg) if isinstance(user_msg, str) else user_msg] if user_msg is not None else []
        if tools:
            kwargs["tools"] = [tool.metadata.to_openai_tool() for tool in tools]
            if tool_required:
                kwargs["tool_choice"] = "required"
        return {"messages": [*(chat_history or ()), *asked], **kwargs}

    def get_tool_calls_from_response(
        self, response: ChatResponse, error_on_no_tool_call: bool = True, **kwargs: Any
    ) -> list[ToolSelection]:
        """The tools that a reply calls."""
        calls = [
            ToolSelection(tool_id=call.tool_call_id or "", tool_name=call.tool_name, tool_kwargs=call.tool_kwargs)
            for call in _calls(response.message)
        ]
        if error_on_no_tool_call and not calls:
            raise ValueError(f"a tool was to be called; the reply is {response.message.content!r}")
        return calls


class OfflineLLM(ChatLLM):
    """Stands in for a real model.

    Attributes:
        rules: What it replies.
    """

    rules: OfflineRules = Field(exclude=True, repr=False)

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """The reply."""
        *_, whole = self.stream_chat(messages, **kwargs)
        return ChatResponse(message=whole.message)

    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Iterator[ChatResponse]:
        """The reply in pieces."""
        prompt = "\n".join(m.content or "" for m in messages if m.role in (MessageRole.SYSTEM, MessageRole.USER))
        found = messages[-1].content if messages[-1].role == MessageRole.TOOL else None
        reply = self.rules.reply(prompt, _asked(messages), kwargs.get("tools", ()), found)
        if reply.tool:
            call = ToolCallBlock(tool_call_id=f"call-{uuid4().hex}", tool_name=reply.tool, tool_kwargs=reply.arguments)
            yield _response("", [call])
        text = ""
        for piece in pieces(reply.text):
            text += piece
            yield _response(text, (), piece)

    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """The same: it never waits for anything."""
        return self.chat(messages, **kwargs)

    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> AsyncIterator[ChatResponse]:
        """The same."""

        async def streaming() -> AsyncIterator[ChatResponse]:
            for response in self.stream_chat(messages, **kwargs):
                yield response

        return streaming()


class EndpointLLM(ChatLLM):
    """A chat model behind an OpenAI-compatible URL; OpenAI's own, or that of ``OPENAI_BASE_URL``, when left out.

    Attributes:
        client: Settings of the client, such as ``base_url`` and ``api_key``.
        options: Parameters of every request, such as ``temperature``.
    """

    client: dict[str, Any] = Field(default_factory=dict, exclude=True, repr=False)
    options: dict[str, Any] = Field(default_factory=dict)
    _openai: Any = PrivateAttr()
    _blocking: Any = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        """Complain at once where there is no key."""
        super().model_post_init(context)
        import openai

        self._openai, self._blocking = openai, openai.OpenAI(**self.client)

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """The reply."""
        return _whole(self._blocking.chat.completions.create(**self._request(messages, kwargs)))

    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """The same for event loops; each request has a client of its own, since connections die with their loop."""
        async with self._openai.AsyncOpenAI(**self.client) as client:
            return _whole(await client.chat.completions.create(**self._request(messages, kwargs)))

    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Iterator[ChatResponse]:
        """The reply as it comes."""
        said = _Said()
        with self._blocking.chat.completions.create(**self._request(messages, kwargs), stream=True) as chunks:
            for chunk in chunks:
                yield said.add(chunk)

    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> AsyncIterator[ChatResponse]:
        """The reply as it comes, for event loops."""

        async def streaming() -> AsyncIterator[ChatResponse]:
            said = _Said()
            async with self._openai.AsyncOpenAI(**self.client) as client:
                async for chunk in await client.chat.completions.create(**self._request(messages, kwargs), stream=True):
                    yield said.add(chunk)

        return streaming()

    def _request(self, messages: Sequence[ChatMessage], kwargs: dict[str, Any]) -> dict[str, Any]:
        return {"model": self.name, "messages": [_sent(m) for m in messages], **self.options, **kwargs}


class BundledEmbedding(BaseEmbedding):
    """The examples' embedder as one of LlamaIndex's; your app has ``HuggingFaceEmbedding`` or the like.

    Attributes:
        embedder: The embedder.
    """

    embedder: Embedder = Field(exclude=True, repr=False)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self.embedder.embed(texts).tolist()

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


class _Said:
    """What a streamed reply came to so far."""

    def __init__(self) -> None:
        self.text = ""
        self.calls: dict[int, list[str]] = {}  # of each call its id, its tool and the arguments

    def add(self, chunk: Any) -> ChatResponse:
        delta = chunk.choices[0].delta if chunk.choices else None
        word = (delta.content if delta is not None else None) or ""
        self.text += word
        for part in (delta.tool_calls if delta is not None else None) or ():
            call = self.calls.setdefault(part.index, ["", "", ""])
            for place, more in enumerate((part.id, part.function.name, part.function.arguments)):
                call[place] += more or ""
        return _response(self.text, [_call(*call) for call in self.calls.values()], word)


def _asked(messages: Sequence[ChatMessage]) -> str:
    """What the user said last: behind the memories, or behind "Question:" in a query engine's prompt."""
    last = next((m for m in reversed(messages) if m.role == MessageRole.USER), ChatMessage(""))
    texts = [block.text for block in last.blocks if isinstance(block, TextBlock)] or [""]
    return texts[-1].rpartition("\nQuestion: ")[2].removesuffix("\nAnswer:")


def _calls(message: ChatMessage) -> list[ToolCallBlock]:
    return [block for block in message.blocks if isinstance(block, ToolCallBlock)]


def _response(text: str, calls: Sequence[ToolCallBlock], delta: str | None = None) -> ChatResponse:
    blocks = [*([TextBlock(text=text)] if text or not calls else []), *calls]
    return ChatResponse(message=ChatMessage(role=MessageRole.ASSISTANT, blocks=blocks), delta=delta)


def _whole(completion: Any) -> ChatResponse:
    said = completion.choices[0].message
    calls = [_call(c.id, c.function.name, c.function.arguments) for c in said.tool_calls or ()]
    return _response(said.content or "", calls)


def _call(call_id: str, tool: str, arguments: str) -> ToolCallBlock:
    try:
        kwargs = json.loads(arguments or "{}")
    except ValueError:
        kwargs = arguments  # not complete yet, or no JSON
    return ToolCallBlock(tool_call_id=call_id, tool_name=tool, tool_kwargs=kwargs)


def _sent(message: ChatMessage) -> dict[str, Any]:
    """A message in OpenAI's form."""
    sent: dict[str, Any] = {"role": message.role.value, "content": message.content or ""}
    if message.role == MessageRole.TOOL:
        sent["tool_call_id"] = message.additional_kwargs.get("tool_call_id", "")
    if calls := _calls(message):
        sent["tool_calls"] = [
            {
                "id": call.tool_call_id,
                "type": "function",
                "function": {"name": call.tool_name, "arguments": json.dumps(call.tool_kwargs)},
            }
            for call in calls
        ]
    return sent
