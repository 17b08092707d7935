"""The memory as tools, for agents that decide themselves when to look and what to keep."""

from __future__ import annotations

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool
from pydantic import BaseModel, Field

from langchain_rmm._backend import checked_memory
from langchain_rmm._who import agent_context, checked_user, who
from rmm_core import Message, Recall, ReflectionReport, ReflectiveMemory
from rmm_core.flow import Flow, call
from rmm_core.inputs import fresh_id
from rmm_core.prompts import memory_text


class SearchMemory(BaseModel):
    """What ``search_memory`` takes."""

    query: str = Field(description="What to look for, in words.")
    limit: int = Field(default=5, ge=1, le=20, description="How many memories at most.")


class Remember(BaseModel):
    """What ``remember`` takes."""

    fact: str = Field(
        min_length=1, description="One self-contained statement, in the user's words, with names and dates."
    )


class Forget(BaseModel):
    """What ``forget`` takes."""

    memory_id: str = Field(description="The id of the memory, as search_memory gives it.")


def memory_tools(memory: ReflectiveMemory, user_id: str | None = None) -> list[BaseTool]:
    """Tools named ``search_memory``, ``remember`` and ``forget``.

    Args:
        memory: The memory.
        user_id: Whose memory; else the one in each call's config or in the agent's context. The model never chooses it.
    """
    steps = _Tools(memory, user_id)
    return [
        StructuredTool.from_function(
            func=steps.search,
            coroutine=steps.asearch,
            name="search_memory",
            description="Search what this user said in earlier conversations. Returns memories with their ids.",
            args_schema=SearchMemory,
        ),
        StructuredTool.from_function(
            func=steps.remember,
            coroutine=steps.aremember,
            name="remember",
            description="Keep a fact about this user for later conversations.",
            args_schema=Remember,
        ),
        StructuredTool.from_function(
            func=steps.forget,
            coroutine=steps.aforget,
            name="forget",
            description="Delete one memory of this user for good. Only when the user asks for it.",
            args_schema=Forget,
        ),
    ]


class _Tools:
    def __init__(self, memory: ReflectiveMemory, user_id: str | None) -> None:
        self._memory = checked_memory(memory)
        self._user_id = checked_user(user_id)

    def search(self, query: str, config: RunnableConfig, limit: int = 5) -> str:
        return _found(self._memory.recall(self._user(config), query, top_m=limit))

    async def asearch(self, query: str, config: RunnableConfig, limit: int = 5) -> str:
        return _found(await self._memory.arecall(self._user(config), query, top_m=limit))

    def remember(self, fact: str, config: RunnableConfig) -> str:
        return _kept(self._memory.run(self._keeping(fact, config)))

    async def aremember(self, fact: str, config: RunnableConfig) -> str:
        return _kept(await self._memory.arun(self._keeping(fact, config)))

    def forget(self, memory_id: str, config: RunnableConfig) -> str:
        return self._memory.run(self._forgetting(memory_id, config))

    async def aforget(self, memory_id: str, config: RunnableConfig) -> str:
        return await self._memory.arun(self._forgetting(memory_id, config))

    def _keeping(self, fact: str, config: RunnableConfig) -> Flow[ReflectionReport]:
        """A session of one message, reflected at once: found from now on, and pending when that fails."""
        chat = self._memory.chat(self._user(config), session_id=fresh_id())
        yield from chat.adding([Message("user", fact)])
        return (yield from chat.ending())

    def _forgetting(self, memory_id: str, config: RunnableConfig) -> Flow[str]:
        was_there = yield from call(self._memory.delete, self._user(config), memory_id)
        return f"Deleted {memory_id}." if was_there else f"There is no memory {memory_id}; search_memory gives ids."

    def _user(self, config: RunnableConfig) -> str:
        return who(config, agent_context(), user_id=self._user_id).user_id


def _found(recall: Recall) -> str:
    if not recall.shown:
        return "Nothing was found."
    return "\n\n".join(f"id: {s.memory.id}\n{memory_text(s)}" for s in recall.shown)


def _kept(report: ReflectionReport) -> str:
    words = {"pending": "Kept; it will be filed later.", "nothing": "There was nothing to keep in it."}
    return words.get(report.status, "Kept.")
