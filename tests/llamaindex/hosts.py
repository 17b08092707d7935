"""The same memory in each of the ways a LlamaIndex app is built, each called in all the ways it has."""

import asyncio
import json
import tempfile
from pathlib import Path

from llama_index.core.agent.workflow import AgentStream, AgentWorkflow, FunctionAgent, ReActAgent
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.chat_engine import (
    CondensePlusContextChatEngine,
    CondenseQuestionChatEngine,
    ContextChatEngine,
    SimpleChatEngine,
)
from llama_index.core.memory import Memory
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.workflow import Context
from sqlalchemy import NullPool
from sqlalchemy.ext.asyncio import create_async_engine

from llamaindex_rmm import CITING_QA_TEMPLATE, RMMMemory, RMMMemoryBlock, RMMRetriever, hide_markers
from tests.story import USER

WAYS = ("chat", "achat", "stream_chat", "astream_chat")


class Pages(BaseRetriever):
    """Somebody's documents."""

    def _retrieve(self, query_bundle):
        return [NodeWithScore(node=TextNode(text="The house opens at nine {query_str}."), score=1.0)]


class Engine:
    """What chat engines have in common: one a session, which ends when it is reset."""

    def __init__(self, memory, model, way):
        self.memory, self.llm, self.way, self.engines = memory, hide_markers(model, memory), way, {}

    def own(self, session_id):
        return RMMMemory.from_defaults(memory=self.memory, user_id=USER, session_id=session_id)

    def say(self, session_id, text):
        if session_id not in self.engines:
            self.engines[session_id] = self.engine(self.own(session_id))
        return said(self.engines[session_id], self.way, text)

    def end(self, session_id):
        engine = self.engines[session_id]
        assert len(engine.chat_history) > 1
        engine.reset()
        assert engine.chat_history == []


class Simple(Engine):
    def engine(self, own):
        return SimpleChatEngine.from_defaults(llm=self.llm, memory=own, system_prompt="Be brief.")


class InContext(Engine):
    def engine(self, own):
        return ContextChatEngine.from_defaults(retriever=Pages(), llm=self.llm, memory=own, system_prompt="Be brief.")


class CondensePlusContext(Engine):
    def engine(self, own):
        return CondensePlusContextChatEngine.from_defaults(retriever=Pages(), llm=self.llm, memory=own)


class CondenseQuestion(Engine):
    """The query engine answers from the memories; the question it gets is made of the history and of them."""

    def engine(self, own):
        retriever = RMMRetriever(self.memory, user_id=USER, cite=True)
        streaming = "stream" in self.way
        writing = get_response_synthesizer(llm=self.llm, text_qa_template=CITING_QA_TEMPLATE, streaming=streaming)
        queries = RetrieverQueryEngine(retriever=retriever, response_synthesizer=writing)
        return CondenseQuestionChatEngine.from_defaults(query_engine=queries, llm=self.llm, memory=own)


class WithBlock(Engine):
    """LlamaIndex's own memory, with a block."""

    def __init__(self, memory, model, way):
        super().__init__(memory, model, way)
        asyncio.set_event_loop(None)  # else LlamaIndex's blocking calls make one, and never close it

    def own(self, session_id):
        self.block = RMMMemoryBlock(memory=self.memory, user_id=USER)
        file = Path(tempfile.mkdtemp(), "short_term.db")
        database = create_async_engine(f"sqlite+aiosqlite:///{file}", poolclass=NullPool)  # closes what it opens
        return Memory.from_defaults(
            session_id=session_id, memory_blocks=[self.block], tokenizer_fn=str.split, async_engine=database
        )

    def engine(self, own):
        self.short_term = own
        return SimpleChatEngine.from_defaults(llm=self.llm, memory=own)

    def end(self, session_id):
        if self.way.startswith("a"):
            asyncio.run(self.block.aend(self.short_term))
        else:
            self.block.end(self.short_term)
        assert self.short_term.get_all() == []


class Agent:
    """What agents have in common: a context over several runs, which is saved and restored in between."""

    def __init__(self, memory, model, way):
        self.memory, self.way, self.contexts = memory, way, {}
        self.agent = self.build(hide_markers(model, memory), streaming="stream" in way)

    def build(self, llm, streaming):
        return FunctionAgent(llm=llm, streaming=streaming, system_prompt="Be brief.")

    def say(self, session_id, text):
        return asyncio.run(self.run(session_id, text))

    def own(self, session_id):
        return RMMMemory.from_defaults(memory=self.memory, user_id=USER, session_id=session_id)

    async def run(self, session_id, text):
        saved = self.contexts.get(session_id)
        context = Context(self.agent) if saved is None else Context.from_dict(self.agent, json.loads(saved))
        handler = self.agent.run(text, ctx=context, memory=self.own(session_id))
        seen = [e.delta async for e in handler.stream_events() if isinstance(e, AgentStream)]
        answer = (await handler).response.content
        self.contexts[session_id] = json.dumps(context.to_dict())
        assert bool(seen) == ("stream" in self.way)
        return self.read("".join(seen)) if seen else answer

    def read(self, streamed):
        return streamed

    def end(self, session_id):
        self.own(session_id).reset()


class ReAct(Agent):
    """Thinks aloud; without a system prompt, so that a system message that comes first is dropped."""

    def build(self, llm, streaming):
        llm.inner.thought = "Thought: I can answer from what I know [1].\nAnswer: "
        return ReActAgent(llm=llm, streaming=streaming)

    def read(self, streamed):
        return streamed.partition("Answer: ")[2]


class Workflow(Agent):
    def build(self, llm, streaming):
        return AgentWorkflow(agents=[super().build(llm, streaming)])


def said(engine, way, text):
    """What the user of a chat engine saw: the response, or the tokens."""

    async def streamed():
        response = await engine.astream_chat(text)
        return [token async for token in response.async_response_gen()]

    match way:
        case "chat":
            return str(engine.chat(text))
        case "achat":
            return str(asyncio.run(engine.achat(text)))
        case "stream_chat":
            tokens = list(engine.stream_chat(text).response_gen)
        case "astream_chat":
            tokens = asyncio.run(streamed())
    assert len(tokens) > 3
    return "".join(tokens)


HOSTS = {
    "SimpleChatEngine": Simple,
    "ContextChatEngine": InContext,
    "CondensePlusContextChatEngine": CondensePlusContext,
    "CondenseQuestionChatEngine": CondenseQuestion,
    "Memory with a block": WithBlock,
    "FunctionAgent": Agent,
    "ReActAgent": ReAct,
    "AgentWorkflow": Workflow,
}
