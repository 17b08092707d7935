"""The same memory in each of the ways a LangChain app is built, each called in all four ways."""

import asyncio
import warnings
from operator import itemgetter

from langchain.agents import create_agent
from langchain_classic.chains import ConversationChain
from langchain_core.messages import SystemMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph

from langchain_rmm import (
    CitationOutputParser,
    RMMMemory,
    RMMMiddleware,
    RMMRetriever,
    citations_of,
    format_memories,
    hide_markers,
    turn_recorder,
)
from tests.story import USER

WAYS = ("invoke", "ainvoke", "stream", "astream")


def chunks(runnable, way, value, config=None, **options):
    """What a call returns: one thing, or what streamed."""

    async def gathered():
        return [c async for c in runnable.astream(value, config, **options)]

    match way:
        case "invoke":
            return [runnable.invoke(value, config)]
        case "ainvoke":
            return [asyncio.run(runnable.ainvoke(value, config))]
        case "stream":
            return list(runnable.stream(value, config, **options))
        case "astream":
            return asyncio.run(gathered())


def config(session_id):
    return {"configurable": {"thread_id": session_id, "user_id": USER}}


class Chain:
    """A classic chain: its memory gives the history, and the chain's result is what the user sees."""

    def __init__(self, memory, model, way):
        self.memory, self.model, self.way = memory, model, way

    def runnable(self, session_id):
        self.own = RMMMemory(memory=self.memory, user_id=USER, session_id=session_id)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # the class is LangChain's legacy, as its users know
            return ConversationChain(llm=self.model, memory=self.own)

    def say(self, session_id, text):
        (result,) = chunks(self.runnable(session_id), self.way, {"input": text})
        return result["response"]

    def end(self, session_id):
        asyncio.run(self.own.aclear()) if self.way.startswith("a") else self.own.clear()


class Pipeline:
    """LCEL: retriever, prompt, model, parser, recorder."""

    def __init__(self, memory, model, way):
        self.memory, self.way = memory, way
        prompt = ChatPromptTemplate.from_messages([("system", "{memories}"), ("human", "{question}")])
        finding = itemgetter("question") | RMMRetriever(memory=memory)
        answering = (
            RunnablePassthrough.assign(memories=lambda x: format_memories(x["documents"]))
            | prompt
            | model
            | CitationOutputParser()
        )
        self.chain = (
            RunnablePassthrough.assign(documents=finding)
            | RunnablePassthrough.assign(answer=answering)
            | turn_recorder(memory)
        )

    def runnable(self, session_id):
        return self.chain

    def say(self, session_id, text):
        seen = chunks(self.chain, self.way, {"question": text}, config(session_id))
        assert self.way.endswith("invoke") or len(seen) > 3
        return "".join(answer.text for answer in seen)

    def end(self, session_id):
        self.memory.chat(USER, session_id=session_id).end()


class Agent:
    """create_agent with the middleware."""

    def __init__(self, memory, model, way):
        self.way, self.middleware = way, RMMMiddleware(memory)
        self.agent = create_agent(model, [], middleware=[self.middleware], checkpointer=InMemorySaver())

    def runnable(self, session_id):
        return self.agent

    def say(self, session_id, text):
        return said(self.agent, self.way, session_id, text)

    def end(self, session_id):
        self.middleware.end(USER, session_id)


class Graph:
    """A StateGraph of one's own: recall and answer in one node, record in the next."""

    def __init__(self, memory, model, way):
        self.memory, self.model, self.way = memory, model, way
        graph = StateGraph(MessagesState)
        graph.add_node("answer", RunnableLambda(self.answer, self.aanswer))
        graph.add_node("record", RunnableLambda(self.record, self.arecord))
        graph.add_edge(START, "answer")
        graph.add_edge("answer", "record")
        graph.add_edge("record", END)
        self.agent = graph.compile(checkpointer=InMemorySaver())

    def runnable(self, session_id):
        return self.agent

    def say(self, session_id, text):
        return said(self.agent, self.way, session_id, text)

    def end(self, session_id):
        self.memory.chat(USER, session_id=session_id).end()

    def prompt(self, recall, state):
        system = [SystemMessage(recall.instructions())] if recall.shown else []
        return [*system, *state["messages"]]

    def answer(self, state):
        recall = self.memory.recall(USER, state["messages"][-1].text)
        return {"messages": [hide_markers(self.model, recall).invoke(self.prompt(recall, state))]}

    async def aanswer(self, state):
        recall = await self.memory.arecall(USER, state["messages"][-1].text)
        return {"messages": [await hide_markers(self.model, recall).ainvoke(self.prompt(recall, state))]}

    def exchange(self, state):
        question, answer = state["messages"][-2:]
        recall_id, citations = citations_of(answer)
        return question, citations, self.memory.recent.get(USER, recall_id)

    def record(self, state, config):
        question, citations, recall = self.exchange(state)
        chat = self.memory.chat(USER, session_id=config["configurable"]["thread_id"])
        chat.record(question.text, citations, recall, key=question.id)

    async def arecord(self, state, config):
        question, citations, recall = self.exchange(state)
        chat = self.memory.chat(USER, session_id=config["configurable"]["thread_id"])
        await chat.arecord(question.text, citations, recall, key=question.id)


def said(agent, way, session_id, text):
    """What the user of an agent saw: the last message, or the tokens."""
    seen = chunks(agent, way, {"messages": [("user", text)]}, config(session_id), stream_mode="messages")
    if way.endswith("invoke"):
        return seen[0]["messages"][-1].text
    assert len(seen) > 3
    return "".join(chunk.text for chunk, _ in seen)


HOSTS = {"chain": Chain, "pipeline": Pipeline, "agent": Agent, "graph": Graph}
