"""A language model that follows a script, and what LlamaIndex tests share."""

import asyncio
import threading
from collections import deque

import pytest
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    LLMMetadata,
    TextBlock,
    ToolCallBlock,
)
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from pydantic import PrivateAttr

from rmm_core.testing import HashEmbedder


class ScriptedIndexLLM(FunctionCallingLLM):
    """Replies what it was told to, in order; streams three characters at a time; remembers what it was asked.

    A reply is a text, a message, an exception to raise, or a function of the messages.
    """

    calls_functions: bool = True
    seconds: float = 0.0
    _replies: deque = PrivateAttr(default_factory=deque)
    _history: list = PrivateAttr(default_factory=list)
    _lock: object = PrivateAttr(default_factory=threading.Lock)

    def enqueue(self, *replies):
        self._replies.extend(replies)
        return self

    @property
    def history(self):
        return self._history

    @property
    def left(self):
        return len(self._replies)

    @property
    def metadata(self):
        return LLMMetadata(model_name="scripted", is_chat_model=True, is_function_calling_model=self.calls_functions)

    def next(self, messages):
        with self._lock:
            self._history.append(list(messages))
            if not self._replies:
                raise AssertionError(f"the script is over; the last message is {str(messages[-1])[:200]!r}")
            reply = self._replies.popleft()
        if callable(reply):
            reply = reply(messages)
        if isinstance(reply, BaseException):
            raise reply
        return ChatMessage(reply, role="assistant") if isinstance(reply, str) else reply

    def chat(self, messages, **kwargs):
        return ChatResponse(message=self.next(messages))

    async def achat(self, messages, **kwargs):
        await asyncio.sleep(self.seconds)
        return ChatResponse(message=self.next(messages))

    def stream_chat(self, messages, **kwargs):
        message = self.next(messages)
        return (chunk for chunk in self.chunks(message))

    async def astream_chat(self, messages, **kwargs):
        await asyncio.sleep(self.seconds)
        message = self.next(messages)

        async def streaming():
            for chunk in self.chunks(message):
                yield chunk

        return streaming()

    @staticmethod
    def chunks(message):
        calls = [b for b in message.blocks if isinstance(b, ToolCallBlock)]
        text = message.content or ""
        for end in range(3, len(text) + 3, 3):
            blocks = [TextBlock(text=text[:end])]
            yield ChatResponse(message=ChatMessage(role="assistant", blocks=blocks), delta=text[end - 3 : end])
        if calls:
            yield ChatResponse(message=message, delta="")

    def complete(self, prompt, formatted=False, **kwargs):
        return CompletionResponse(text=self.chat([ChatMessage(prompt)]).message.content)

    async def acomplete(self, prompt, formatted=False, **kwargs):
        return CompletionResponse(text=(await self.achat([ChatMessage(prompt)])).message.content)

    def stream_complete(self, prompt, formatted=False, **kwargs):
        chunks = self.stream_chat([ChatMessage(prompt)])
        return (CompletionResponse(text=c.message.content, delta=c.delta) for c in chunks)

    async def astream_complete(self, prompt, formatted=False, **kwargs):
        raise NotImplementedError

    def _prepare_chat_with_tools(self, tools, user_msg=None, chat_history=None, **kwargs):
        said = [ChatMessage(user_msg) if isinstance(user_msg, str) else user_msg] if user_msg is not None else []
        return {"messages": [*(chat_history or []), *said]}

    def get_tool_calls_from_response(self, response, error_on_no_tool_call=True, **kwargs):
        return [
            ToolSelection(tool_id=b.tool_call_id or "1", tool_name=b.tool_name, tool_kwargs=b.tool_kwargs)
            for b in response.message.blocks
            if isinstance(b, ToolCallBlock)
        ]


def calling(name, text="", **arguments):
    """A message that calls a tool, with what is said beside it."""
    call = ToolCallBlock(tool_call_id="1", tool_name=name, tool_kwargs=arguments)
    return ChatMessage(role="assistant", blocks=[*([TextBlock(text=text)] if text else []), call])


class HashEmbedding(BaseEmbedding):
    """The core's embedder without weights as one of LlamaIndex's."""

    def _get_text_embedding(self, text):
        return HashEmbedder().embed([text])[0].tolist()

    def _get_query_embedding(self, query):
        raise AssertionError("queries lie in the same space as memories")

    async def _aget_query_embedding(self, query):
        raise AssertionError("queries lie in the same space as memories")


@pytest.fixture
def model():
    return ScriptedIndexLLM()


@pytest.fixture
def told(memory):
    """Lets a user have said something in an earlier session."""

    def told_(user_id, *texts):
        with memory.chat(user_id, session_id=f"before {len(memory.status(user_id).sessions)}") as chat:
            for text in texts:
                chat.record(text, "Understood.")

    return told_
