"""A chat model without weights of its own, so that the LangChain examples run anywhere."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import uuid4

import numpy as np
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

from rmm_core import Embedder
from rmm_core.extractive import split_sentences

_MEMORY = re.compile(r'<memory number="(\d+)">\n(.*?)\n</memory>', re.DOTALL)
_TURN = re.compile(r"^- \w+, \d+ \w+ \d+, ([^:\n]+): (.*(?:\n    .*)*)", re.MULTILINE)
_LINKS = r"(?:\W+(?:of|for|that|in|at|is)\b)*[\s:,]+"


class OfflineChatModel(BaseChatModel):
    """Stands in for a real model: it quotes and cites memories, acknowledges statements, and calls tools by a rule.

    It does what a model is asked to do with memories, and nothing else; give the examples ``--model`` for one that
    thinks. Its rules, in this order:

    - A message that names a tool in words ("menu", "search memory" for ``search_memory``) calls it; what follows the
      name, without "of", "for", "that" and the like, is the tool's first argument. The answer is then what the tool
      returned, and the memory nearest to any part of that.
    - A question is answered with the sentence nearest to it that the user said in a numbered memory, cited as ``[n]``.
    - Anything else is a statement, and is acknowledged.

    Attributes:
        embedder: Tells which sentence is near.
        floor: What is less similar (cosine) is not quoted: 0.4 as in :class:`rmm_core.extractive.ExtractiveAnswerer`.
        agent_name: Who is never quoted: the assistant.
    """

    embedder: Embedder = Field(exclude=True, repr=False)
    floor: float = 0.4
    agent_name: str = "Assistant"

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
        """The same in pieces of a few letters, which cut through words and markers as a real model's tokens do."""
        message = self._reply(messages, kwargs.get("tools", ()))
        for piece in re.findall(r".{1,4}", str(message.content), re.DOTALL):
            yield ChatGenerationChunk(message=AIMessageChunk(piece))
        calls = [
            tool_call_chunk(name=call["name"], args=json.dumps(call["args"]), id=call["id"], index=i)
            for i, call in enumerate(message.tool_calls)
        ]
        yield ChatGenerationChunk(message=AIMessageChunk("", tool_call_chunks=calls, chunk_position="last"))

    # -- the rules -------------------------------------------------------------------------

    def _reply(self, messages: Sequence[BaseMessage], tools: Sequence[dict[str, Any]]) -> AIMessage:
        prompt = "\n".join(m.text for m in messages if isinstance(m, SystemMessage | HumanMessage))
        asked = _asked(messages)
        if isinstance(messages[-1], ToolMessage):
            found = messages[-1].text
            return AIMessage(f"{found} {self._quote(prompt, *re.split('[,:;.]', found))}".strip())
        if call := _tool_call(asked, tools):
            return AIMessage("", tool_calls=[call])
        if not asked.rstrip().endswith("?"):
            return AIMessage("Thank you.")  # no more: small talk is not kept
        unknown = "I do not know that yet." + (" [NO_CITE]" if _MEMORY.search(prompt) else "")
        return AIMessage(self._quote(prompt, asked) or unknown)

    def _quote(self, prompt: str, *queries: str) -> str:
        """The sentence from the memories in ``prompt`` that is nearest to a query, with its marker; empty if none."""
        said = [
            (sentence, number)
            for number, memory in _MEMORY.findall(prompt)
            for speaker, words in _TURN.findall(memory)
            for sentence in split_sentences(words)
            if speaker != self.agent_name and not sentence.endswith("?")
        ]
        if not said:
            return ""
        rows = np.asarray(self.embedder.embed([*queries, *(sentence for sentence, _ in said)]))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        near = (rows[len(queries) :] @ rows[: len(queries)].T).max(axis=1)
        sentence, number = said[int(near.argmax())]
        return f'You said: "{sentence}" [{number}]' if near.max() >= self.floor else ""


def _asked(messages: Sequence[BaseMessage]) -> str:
    """What the user said last; a classic chain's prompt holds it as its last line "Human: ..."."""
    text = next((m.text for m in reversed(messages) if isinstance(m, HumanMessage)), "")
    return text.rpartition("Human: ")[2].removesuffix("\nAI:")


def _tool_call(asked: str, tools: Sequence[dict[str, Any]]) -> ToolCall | None:
    for tool in (t["function"] for t in tools):
        spoken = tool["name"].replace("_", " ")
        named = re.search(rf"\b{spoken}\b{_LINKS}(?P<rest>.+)", asked, re.IGNORECASE | re.DOTALL)
        if named:
            argument = next(iter(tool["parameters"]["properties"]))
            value = named["rest"].strip().rstrip("?!")
            return ToolCall(name=tool["name"], args={argument: value}, id=f"call-{uuid4().hex}", type="tool_call")
    return None
