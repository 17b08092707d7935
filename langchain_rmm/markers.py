"""A chat model whose users never see a citation marker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, TypeVar, cast

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableWithFallbacks
from langchain_core.runnables.base import RunnableBindingBase
from pydantic import Field

from langchain_rmm._convert import text_of
from rmm_core import Citations, Recall
from rmm_core.citable import marker
from rmm_core.replies import ReplyReader, brackets_are_ours

METADATA_KEY = "reflective_memory"
"""Where ``response_metadata`` of an answer holds what it cites: plain data, and no text of a memory."""

M = TypeVar("M", bound=BaseMessage)


def hide_markers(model: Any, recall: Recall) -> Any:
    """The same model, for one answer to what was recalled: markers are taken out of all it returns and streams.

    What the answer cites stands in ``response_metadata["reflective_memory"]``: the recall's id, the numbers, their
    memories' ids and the status. JSON is left alone, and so are bracketed numbers where what the user says now has such
    numbers itself, or a tool found a list of sources: they cannot be told from markers then.

    Args:
        model: A chat model; one with bound arguments, retries or fallbacks is one too.
        recall: What its prompt shows.

    Raises:
        TypeError: When it is something else.
    """
    match model:
        case BaseChatModel():
            return _MarkerlessChatModel.of(model, recall)
        case RunnableBindingBase():
            return model.model_copy(update={"bound": hide_markers(model.bound, recall)})
        case RunnableWithFallbacks():
            others = [hide_markers(m, recall) for m in model.fallbacks]
            return model.model_copy(update={"runnable": hide_markers(model.runnable, recall), "fallbacks": others})
    raise TypeError(f"markers are hidden in chat models; got {type(model).__name__}, take the model inside of it")


def citations_of(message: BaseMessage) -> tuple[str, Citations] | None:
    """The recall's id and what a message of :func:`hide_markers` cites; None for any other message."""
    noted = message.response_metadata.get(METADATA_KEY)
    if not isinstance(noted, dict):
        return None
    return noted["recall_id"], Citations(text_of(message), tuple(noted["numbers"]), noted["status"])


def reply_of(answer: Any) -> str | Citations:
    """An answer for the core: with its citations where they were read from it before, else as its text."""
    noted = citations_of(answer) if isinstance(answer, BaseMessage) else None
    return text_of(answer) if noted is None else noted[1]


def without_markers(message: M, recall: Recall, request: Sequence[BaseMessage] = ()) -> M:
    """A whole message without its markers, and with what it cites."""
    reader = _Reader(recall, request)
    return reader.end(reader.read(message))


def with_markers(messages: Sequence[AnyMessage], recall: Recall) -> list[AnyMessage]:
    """Messages for a model's request, its earlier answers with the markers they had, in the numbers of this recall.

    A model that sees its own answers without markers stops citing; what the app keeps and shows stays without them.
    """
    return [_marked(message, recall) for message in messages]


def _marked(message: AnyMessage, recall: Recall) -> AnyMessage:
    noted = message.response_metadata.get(METADATA_KEY)
    if not isinstance(noted, dict) or not isinstance(message, AIMessage) or message.tool_calls:
        return message
    again = marker(recall, noted["memory_ids"], noted["status"])
    if not again:
        return message
    content = message.content
    marked = f"{content} {again}" if isinstance(content, str) else [*content, {"type": "text", "text": f" {again}"}]
    return message.model_copy(update={"content": marked})


class _Reader:
    """Takes markers out of a message or of its chunks, whose content is a text or blocks."""

    def __init__(self, recall: Recall, request: Sequence[BaseMessage] = ()) -> None:
        self._recall = recall
        self._stream = ReplyReader(len(recall.shown), ours=_cites_alone(request))
        self._block: dict[str, Any] | None = None  # the last block of text, where what is held back belongs

    def read(self, message: M) -> M:
        """The message with what is certain to be shown."""
        content: str | list[str | dict[Any, Any]]
        if isinstance(message.content, str):
            content = self._stream.feed(message.content)
        else:
            content = [self._read_block(block) for block in message.content]
        return message.model_copy(update={"content": content})

    def end(self, message: M) -> M:
        """The last message or chunk, with what was held back and with what the whole answer cites."""
        tail, citations = self._stream.close()
        content = message.content
        if isinstance(content, str):
            content += tail
        elif tail:
            content = [*content[:-1], *self._ending(content[-1:], tail)]
        return message.model_copy(
            update={
                "content": content,
                "response_metadata": message.response_metadata | {METADATA_KEY: self._note(citations)},
            }
        )

    def last(self, previous: AIMessageChunk) -> AIMessageChunk:
        """A chunk that ends a stream."""
        content: str | list[str | dict[Any, Any]] = "" if isinstance(previous.content, str) else []
        empty = AIMessageChunk(content=content, id=previous.id, chunk_position="last")
        return self.end(empty)

    def _read_block(self, block: str | dict[Any, Any]) -> str | dict[Any, Any]:
        if isinstance(block, str):
            return self._stream.feed(block)
        if block.get("type") != "text" or not isinstance(block.get("text"), str):
            return block
        self._block = block
        return block | {"text": self._stream.feed(block["text"])}

    def _ending(self, last: list[str | dict[Any, Any]], tail: str) -> list[str | dict[Any, Any]]:
        """The last block with ``tail``, or a block more that a stream's reader joins to the one it belongs to."""
        match last:
            case [str(text)]:
                return [text + tail]
            case [{"type": "text", "text": str(text), **rest}]:
                return [{"type": "text", "text": text + tail, **rest}]
        place = {"index": self._block["index"]} if self._block is not None and "index" in self._block else {}
        return [*last, {"type": "text", "text": tail, **place}]

    def _note(self, citations: Citations) -> dict[str, Any]:
        return {
            "recall_id": self._recall.id,
            "numbers": list(citations.numbers),
            "memory_ids": [m.id for m in self._recall.memories(citations.numbers)],
            "status": citations.status,
        }


def _cites_alone(request: Sequence[BaseMessage]) -> bool:
    """See :func:`rmm_core.replies.brackets_are_ours`."""
    present = max((i for i, m in enumerate(request) if isinstance(m, HumanMessage)), default=-1)
    tools = [m for m in request[present + 1 :] if isinstance(m, ToolMessage)]
    around = [*(m for m in request if isinstance(m, SystemMessage)), *tools]
    return brackets_are_ours("" if present < 0 else text_of(request[present]), map(text_of, around))


class _MarkerlessChatModel(BaseChatModel):
    """Asks the model it is made of, below its callbacks, so that an answer is one run and is counted once."""

    inner: BaseChatModel = Field(exclude=True, repr=False)
    recall: Any = Field(exclude=True, repr=False)

    @classmethod
    def of(cls, model: BaseChatModel, recall: Recall) -> _MarkerlessChatModel:
        """``model``, with the settings that LangChain applies above a model's own methods."""
        kept = {
            name: getattr(model, name)
            for name in BaseChatModel.model_fields
            if name != "custom_get_token_ids" and hasattr(model, name)
        }
        streams = type(model)._stream is not BaseChatModel._stream or type(model)._astream is not BaseChatModel._astream
        if not streams:
            kept["disable_streaming"] = True
        return cls(inner=model, recall=recall, **kept)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return self._read(self.inner._generate(messages, stop=stop, **kwargs), messages)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return self._read(await self.inner._agenerate(messages, stop=stop, **kwargs), messages)

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        if type(self.inner)._stream is BaseChatModel._stream:  # it streams on event loops only
            yield from _chunks(self._generate(messages, stop, **kwargs))
            return
        reader, last = _Reader(self.recall, messages), None
        for chunk in self.inner._stream(messages, stop=stop, **kwargs):
            last, clean = _read_chunk(reader, chunk)
            yield clean
        if last is not None:  # what streams nothing has failed, and LangChain says so
            yield ChatGenerationChunk(message=reader.last(last))

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        reader, last = _Reader(self.recall, messages), None
        async for chunk in self.inner._astream(messages, stop=stop, **kwargs):
            last, clean = _read_chunk(reader, chunk)
            yield clean
        if last is not None:  # what streams nothing has failed, and LangChain says so
            yield ChatGenerationChunk(message=reader.last(last))

    def _read(self, result: ChatResult, messages: Sequence[BaseMessage]) -> ChatResult:
        answers = [
            ChatGeneration(message=without_markers(g.message, self.recall, messages), generation_info=g.generation_info)
            for g in result.generations
        ]
        return ChatResult(generations=answers, llm_output=result.llm_output)

    def bind_tools(self, tools: Any, **kwargs: Any) -> Runnable[Any, AIMessage]:
        """The tools as the model binds them, bound to this one."""
        return cast(Runnable[Any, AIMessage], hide_markers(self.inner.bind_tools(tools, **kwargs), self.recall))

    def with_structured_output(self, schema: Any, **kwargs: Any) -> Runnable[Any, Any]:
        """As the model does it: structured output has no markers to hide."""
        return self.inner.with_structured_output(schema, **kwargs)

    @property
    def _llm_type(self) -> str:
        return self.inner._llm_type

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return dict(self.inner._identifying_params)

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> Any:
        return self.inner._get_ls_params(stop=stop, **kwargs)

    def _get_llm_string(self, stop: list[str] | None = None, **kwargs: Any) -> str:
        """A cache must not give one turn's citations to another."""
        return f"{self.inner._get_llm_string(stop=stop, **kwargs)} {self.recall.id}"

    def get_token_ids(self, text: str) -> list[int]:
        """As the model counts."""
        return self.inner.get_token_ids(text)

    def __getattr__(self, name: str) -> Any:
        """What middleware asks a model for (its name, its profile) is the model's own."""
        if name.startswith("__") or "inner" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.__dict__["inner"], name)


def _read_chunk(reader: _Reader, chunk: ChatGenerationChunk) -> tuple[AIMessageChunk, ChatGenerationChunk]:
    message = cast(AIMessageChunk, reader.read(chunk.message))
    if message.chunk_position == "last":  # ours is
        message = message.model_copy(update={"chunk_position": None})
    return message, ChatGenerationChunk(message=message, generation_info=chunk.generation_info)


def _chunks(result: ChatResult) -> Iterator[ChatGenerationChunk]:
    for generation in result.generations:
        fields = {n: getattr(generation.message, n) for n in type(generation.message).model_fields if n != "type"}
        yield ChatGenerationChunk(message=AIMessageChunk(**fields), generation_info=generation.generation_info)
