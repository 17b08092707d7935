"""A chat model that follows a script, and what LangChain tests share."""

import asyncio
import threading
import time
from collections import deque

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from pydantic import PrivateAttr


class ScriptedChatModel(BaseChatModel):
    """Replies what it was told to, in order; streams three characters at a time; remembers what it was asked.

    A reply is a text, a message, an exception to raise, or a function of the messages.
    """

    seconds: float = 0.0
    _replies: deque = PrivateAttr(default_factory=deque)
    _history: list = PrivateAttr(default_factory=list)
    _bound: list = PrivateAttr(default_factory=list)
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
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **kwargs):
        return self.bind(tools=[t.name if hasattr(t, "name") else str(t) for t in tools])

    def _next(self, messages):
        with self._lock:
            self._history.append(list(messages))
            if not self._replies:
                raise AssertionError(f"the script is over; the last message is {messages[-1].text[:200]!r}")
            reply = self._replies.popleft()
        if callable(reply):
            reply = reply(messages)
        if isinstance(reply, BaseException):
            raise reply
        return AIMessage(reply) if isinstance(reply, str) else reply

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        time.sleep(self.seconds)
        return ChatResult(generations=[ChatGeneration(message=self._next(messages))])

    async def _agenerate(self, messages, stop=None, run_manager=None, **kwargs):
        await asyncio.sleep(self.seconds)
        return ChatResult(generations=[ChatGeneration(message=self._next(messages))])

    def _stream(self, messages, stop=None, run_manager=None, **kwargs):
        time.sleep(self.seconds)
        yield from self._chunks(self._next(messages))

    async def _astream(self, messages, stop=None, run_manager=None, **kwargs):
        await asyncio.sleep(self.seconds)
        for chunk in self._chunks(self._next(messages)):
            yield chunk

    @staticmethod
    def _chunks(message):
        if message.tool_calls:
            fields = {"content": message.content, "tool_calls": message.tool_calls}
            yield ChatGenerationChunk(message=AIMessageChunk(**fields))
            return
        text = message.text
        for start in range(0, len(text), 3):
            yield ChatGenerationChunk(message=AIMessageChunk(text[start : start + 3]))


@pytest.fixture
def model():
    return ScriptedChatModel()


@pytest.fixture
def told(memory):
    """Lets a user have said something in an earlier session."""

    def told_(user_id, *texts):
        with memory.chat(user_id, session_id=f"before {len(memory.status(user_id).sessions)}") as chat:
            for text in texts:
                chat.record(text, "Understood.")

    return told_
