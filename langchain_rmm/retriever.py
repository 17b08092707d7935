"""The memory as a retriever: K candidates in, the best as documents out."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import ensure_config
from pydantic import Field

from langchain_rmm._convert import documents_of, numbered
from langchain_rmm._who import agent_context, who
from rmm_core import ReflectiveMemory
from rmm_core.flow import Flow
from rmm_core.prompts import fenced, host_instructions, inert, numbered_memory


class RMMRetriever(BaseRetriever):
    """Finds what a user said before that matters for a query.

    ``page_content`` is the memory with the turns it rests on; ``metadata`` holds ``memory_id``, ``index`` (what an
    answer cites it by), ``score``, ``kind``, dates, ``evidence`` and the ``recall_id`` that feedback refers to.

    Attributes:
        memory: The memory.
        user_id: Whose memories; else the one that each call names: ``config["configurable"]`` of the chain or agent
            that the retriever is part of, an agent's context, or ``config["metadata"]``, the one place that LangChain
            shows to a retriever called by itself.
        k: How many documents, here or with each call: ``retriever.invoke(query, k=3)``; the configured M when left out.
    """

    memory: ReflectiveMemory = Field(repr=False, exclude=True)
    user_id: str | None = None
    k: int | None = Field(default=None, ge=0)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[Document]:
        return self.memory.run(self._finding(query, run_manager, k))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[Document]:
        return await self.memory.arun(self._finding(query, run_manager, k))

    def _finding(
        self,
        query: str,
        run_manager: CallbackManagerForRetrieverRun | AsyncCallbackManagerForRetrieverRun,
        k: int | None,
    ) -> Flow[list[Document]]:
        user_id = who(ensure_config(), agent_context(), metadata=run_manager.metadata, user_id=self.user_id).user_id
        yield from self.memory.sessions.visiting(user_id)
        recall = yield from self.memory.recalling(user_id, query, self.k if k is None else k)
        return documents_of(recall)


def format_memories(documents: Sequence[Document]) -> str:
    """Documents for a system prompt: numbered, fenced, with the rules for citing them; empty when there are none.

    Args:
        documents: Those of one :class:`RMMRetriever` or :class:`RMMReranker` call; other retrievers' among them are
            numbered after them. Answers from documents of several calls of ours cannot be learned from.
    """
    texts = [numbered_memory(number, inert(document.page_content)) for number, document in numbered(documents)]
    return host_instructions(fenced(texts)) if texts else ""
