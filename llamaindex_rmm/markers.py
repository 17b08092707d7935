"""A language model whose users never see a citation marker."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ChatResponseAsyncGen,
    ChatResponseGen,
    CompletionResponse,
    CompletionResponseAsyncGen,
    CompletionResponseGen,
    LLMMetadata,
    MessageRole,
)
from llama_index.core.llms import LLM
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.llms.structured_llm import StructuredLLM
from pydantic import Field

from llamaindex_rmm._backend import checked_memory
from llamaindex_rmm._convert import answer_of, answers_of, text_of, with_text
from rmm_core import ConfigError, ReflectiveMemory
from rmm_core.prompts import read_fences
from rmm_core.replies import ReplyReader, brackets_are_ours

if TYPE_CHECKING:
    from llama_index.core.tools import BaseTool

logger = logging.getLogger(__name__)
R = TypeVar("R", ChatResponse, CompletionResponse)
_OBSERVED = "Observation:"  # what a tool returned, as ReAct agents put it
_HISTORY = re.compile(r"^assistant: .*$", re.MULTILINE)  # earlier answers, in a prompt that is one text


def hide_markers(llm: LLM, memory: ReflectiveMemory) -> LLM:
    """The same model: where a prompt shows memories, markers are taken out of all that it replies and streams.

    What an answer cites reaches the memory beside the text, so that :class:`RMMMemory` learns from it when the engine
    or the agent puts the answer into its history. One wrapped model serves all users and may be shared by threads.

    Left alone are JSON, structured output, and what an agent hands to a tool; and bracketed numbers where what the user
    says now has such numbers itself, or where a tool, or the engine's own prompt, lists sources by them: they cannot be
    told from markers then, and nothing is learned from them.

    Args:
        llm: Any model of LlamaIndex; one that calls functions still does.
        memory: The memory whose recalls its prompts show.

    Raises:
        ConfigError: When it is something else.
    """
    if not isinstance(llm, LLM):
        raise ConfigError(f"markers are hidden in a LlamaIndex LLM; got {type(llm).__name__}")
    memory = checked_memory(memory)
    if isinstance(llm, _MarkerlessLLM):
        return llm if llm.memory is memory else hide_markers(llm.inner, memory)
    if isinstance(llm, StructuredLLM):
        return llm
    settings = {name: getattr(llm, name) for name in LLM.model_fields if hasattr(llm, name)}
    kind: Any = _MarkerlessFunctionCallingLLM if isinstance(llm, FunctionCallingLLM) else _MarkerlessLLM
    return cast(LLM, kind(inner=llm, memory=memory, **settings))


class _Reader:
    """Takes the markers out of one reply, whole or in pieces, and notes what it cites.

    Args:
        memory: Whose recalls.
        recalls: Those that the request shows.
        count: How many memories.
        ours: Whether bracketed numbers in the reply are markers.
    """

    def __init__(self, memory: ReflectiveMemory, recalls: set[str], count: int, *, ours: bool) -> None:
        self._memory = memory
        self._recalls = recalls
        self._count = count
        self._ours = ours
        self._reply = ReplyReader(count, ours=ours)
        self._raw = ""

    def feed(self, piece: str) -> str:
        """What of the next piece is certain to be shown."""
        self._raw += piece
        return self._reply.feed(piece)

    def close(self) -> str:
        """What was held back; the reply is over."""
        tail, cited = self._reply.close()
        if len(self._recalls) > 1:  # numbers of several recalls do not tell which memories they mean
            return tail
        if cited.status != "silent":  # what an agent thinks before its answer cites nothing
            answer = ReplyReader(self._count, ours=self._ours)
            answer.feed(answer_of(self._raw))
            cited = answer.close()[1]
        for text in answers_of(self._reply.shown):
            if not self._memory.recent.read(min(self._recalls), replace(cited, text=text)):
                logger.warning("a prompt shows memories of another memory, or of a forgotten user: nothing is learned")
        return tail

    def whole(self, response: R) -> R:
        """A reply that came in one piece."""
        self.feed(_text(response))
        self.close()
        return _with_text(response, self._reply.shown)

    def chunk(self, response: R) -> R:
        """A chunk of a reply: what it adds, and all so far."""
        grown = response.delta if response.delta is not None else _text(response)[len(self._raw) :]
        delta = self.feed(grown)
        return _with_text(response, self._reply.shown, delta=delta)

    def ending(self, last: R | None) -> list[R]:
        """The chunk that ends a stream, if something was held back."""
        tail = "" if last is None else self.close()
        return [] if last is None or not tail else [_with_text(last, self._reply.shown, delta=tail)]


def _text(response: ChatResponse | CompletionResponse) -> str:
    return text_of(response.message) if isinstance(response, ChatResponse) else response.text


def _with_text(response: R, text: str, **changes: Any) -> R:
    if isinstance(response, ChatResponse):
        return response.model_copy(update={"message": with_text(response.message, text), **changes})
    return response.model_copy(update={"text": text, **changes})


class _MarkerlessLLM(LLM):
    """Asks the model it is made of, which reports to callbacks and instrumentation as it does without this one."""

    inner: LLM = Field(exclude=True, repr=False)
    memory: Any = Field(exclude=True, repr=False)

    @classmethod
    def class_name(cls) -> str:
        """The name in serialised forms."""
        return "MarkerlessLLM"

    @property
    def metadata(self) -> LLMMetadata:
        """The model's."""
        return self.inner.metadata

    def to_payload(self) -> dict[str, Any]:
        """The model's."""
        return self.inner.to_payload()

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """The model's reply without markers."""
        return self._whole(self.inner.chat(messages, **kwargs), *messages)

    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """:meth:`chat` for event loops."""
        return self._whole(await self.inner.achat(messages, **kwargs), *messages)

    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseGen:
        """The model's reply without markers, as it comes."""
        return self._streamed(self.inner.stream_chat(messages, **kwargs), *messages)

    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseAsyncGen:
        """:meth:`stream_chat` for event loops."""
        return self._astreamed(await self.inner.astream_chat(messages, **kwargs), *messages)

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """The model's completion without markers."""
        return self._whole(self.inner.complete(prompt, formatted=formatted, **kwargs), prompt)

    async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """:meth:`complete` for event loops."""
        return self._whole(await self.inner.acomplete(prompt, formatted=formatted, **kwargs), prompt)

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        """The model's completion without markers, as it comes."""
        return self._streamed(self.inner.stream_complete(prompt, formatted=formatted, **kwargs), prompt)

    async def astream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseAsyncGen:
        """:meth:`stream_complete` for event loops."""
        return self._astreamed(await self.inner.astream_complete(prompt, formatted=formatted, **kwargs), prompt)

    def structured_predict(self, *args: Any, **kwargs: Any) -> Any:
        """As the model does it, and so the three below: structured output has no markers to hide."""
        return self.inner.structured_predict(*args, **kwargs)

    async def astructured_predict(self, *args: Any, **kwargs: Any) -> Any:
        """As the model does it."""
        return await self.inner.astructured_predict(*args, **kwargs)

    def stream_structured_predict(self, *args: Any, **kwargs: Any) -> Any:
        """As the model does it."""
        return self.inner.stream_structured_predict(*args, **kwargs)

    async def astream_structured_predict(self, *args: Any, **kwargs: Any) -> Any:
        """As the model does it."""
        return await self.inner.astream_structured_predict(*args, **kwargs)

    def as_structured_llm(self, output_cls: Any, **kwargs: Any) -> StructuredLLM:
        """As the model does it."""
        return self.inner.as_structured_llm(output_cls, **kwargs)

    def _reader(self, request: Sequence[ChatMessage | str]) -> _Reader | None:
        """A reader for the reply to a request; None when it shows no memory, and brackets are nobody's markers."""
        texts = [m if isinstance(m, str) else text_of(m) for m in request]
        recalls, count = read_fences("\n".join(texts))
        if not recalls or not count:
            return None
        roles = [m.role if isinstance(m, ChatMessage) else MessageRole.USER for m in request]
        users = [role == MessageRole.USER for role in roles]
        asks = [user and not text.startswith(_OBSERVED) for user, text in zip(users, texts, strict=True)]
        present = max((i for i, ask in enumerate(asks) if ask), default=0)
        around = [
            text
            for i, (text, role) in enumerate(zip(texts, roles, strict=True))
            if role == MessageRole.SYSTEM or (i > present and (users[i] or role == MessageRole.TOOL))
        ]
        return _Reader(self.memory, recalls, count, ours=brackets_are_ours(_HISTORY.sub("", texts[present]), around))

    def _whole(self, response: R, *request: ChatMessage | str) -> R:
        reader = self._reader(request)
        return response if reader is None else reader.whole(response)

    def _streamed(self, chunks: Generator[R, None, None], *request: ChatMessage | str) -> Generator[R, None, None]:
        reader = self._reader(request)
        return chunks if reader is None else _read(reader, chunks)

    def _astreamed(self, chunks: AsyncGenerator[R, None], *request: ChatMessage | str) -> AsyncGenerator[R, None]:
        reader = self._reader(request)
        return chunks if reader is None else _aread(reader, chunks)

    def __setattr__(self, name: str, value: Any) -> None:
        """What an app sets on a model (its temperature, its callbacks) is the model's own too."""
        if name in type(self).model_fields:
            super().__setattr__(name, value)
        if name not in ("inner", "memory"):
            setattr(self.inner, name, value)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """A copy on the same memory and the same model, which are not copied."""
        return self.model_copy()

    def __getattr__(self, name: str) -> Any:
        """What an app asks a model for (its name, its temperature) is the model's own."""
        if name.startswith("__") or "inner" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.__dict__["inner"], name)


def _read(reader: _Reader, chunks: Generator[R, None, None]) -> Generator[R, None, None]:
    last = None
    for last in chunks:
        yield reader.chunk(last)
    yield from reader.ending(last)


async def _aread(reader: _Reader, chunks: AsyncGenerator[R, None]) -> AsyncGenerator[R, None]:
    last = None
    async with aclosing(chunks):
        async for last in chunks:
            yield reader.chunk(last)
    for chunk in reader.ending(last):
        yield chunk


class _MarkerlessFunctionCallingLLM(_MarkerlessLLM, FunctionCallingLLM):
    """The same for a model that calls functions, in the ways it does."""

    inner: FunctionCallingLLM = Field(exclude=True, repr=False)

    def chat_with_tools(
        self, tools: Sequence[BaseTool], user_msg: Any = None, chat_history: Any = None, *args: Any, **kwargs: Any
    ) -> ChatResponse:
        """The model's reply without markers."""
        response = self.inner.chat_with_tools(tools, user_msg, chat_history, *args, **kwargs)
        return self._whole(response, *_request(user_msg, chat_history))

    async def achat_with_tools(
        self, tools: Sequence[BaseTool], user_msg: Any = None, chat_history: Any = None, *args: Any, **kwargs: Any
    ) -> ChatResponse:
        """:meth:`chat_with_tools` for event loops."""
        response = await self.inner.achat_with_tools(tools, user_msg, chat_history, *args, **kwargs)
        return self._whole(response, *_request(user_msg, chat_history))

    def stream_chat_with_tools(
        self, tools: Sequence[BaseTool], user_msg: Any = None, chat_history: Any = None, *args: Any, **kwargs: Any
    ) -> ChatResponseGen:
        """The model's reply without markers, as it comes."""
        chunks = self.inner.stream_chat_with_tools(tools, user_msg, chat_history, *args, **kwargs)
        return self._streamed(chunks, *_request(user_msg, chat_history))

    async def astream_chat_with_tools(
        self, tools: Sequence[BaseTool], user_msg: Any = None, chat_history: Any = None, *args: Any, **kwargs: Any
    ) -> ChatResponseAsyncGen:
        """:meth:`stream_chat_with_tools` for event loops."""
        chunks = await self.inner.astream_chat_with_tools(tools, user_msg, chat_history, *args, **kwargs)
        return self._astreamed(chunks, *_request(user_msg, chat_history))

    def _prepare_chat_with_tools(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return self.inner._prepare_chat_with_tools(*args, **kwargs)

    def get_tool_calls_from_response(self, *args: Any, **kwargs: Any) -> list[ToolSelection]:
        """As the model reads them."""
        return self.inner.get_tool_calls_from_response(*args, **kwargs)


def _request(user_msg: ChatMessage | str | None, chat_history: Sequence[ChatMessage] | None) -> list[ChatMessage | str]:
    return [*(chat_history or ()), *([] if user_msg is None else [user_msg])]
