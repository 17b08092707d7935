"""The memory as a retriever: K candidates in, the best as nodes out."""

from __future__ import annotations

from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager
from llama_index.core.schema import NodeWithScore, QueryBundle

from llamaindex_rmm._backend import checked_memory
from llamaindex_rmm._convert import nodes_of
from rmm_core import ReflectiveMemory
from rmm_core.flow import Flow
from rmm_core.inputs import checked_id


class RMMRetriever(BaseRetriever):
    """Finds what a user said before that matters for a query.

    A node's text is the memory with the turns it rests on; its metadata hold ``memory_id``, ``index`` (what an answer
    cites it by), ``kind``, dates, ``evidence`` and the ``recall_id`` that feedback refers to.

    Args:
        memory: The memory.
        user_id: Whose memories.
        similarity_top_k: How many nodes; the configured M when left out.
        callback_manager: LlamaIndex's.
    """

    def __init__(
        self,
        memory: ReflectiveMemory,
        *,
        user_id: str,
        similarity_top_k: int | None = None,
        callback_manager: CallbackManager | None = None,
        **options: Any,
    ) -> None:
        super().__init__(callback_manager=callback_manager, **options)
        self.memory = checked_memory(memory)
        self.user_id = checked_id(user_id, "user_id")
        self.similarity_top_k = similarity_top_k

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self.memory.run(self._finding(query_bundle))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await self.memory.arun(self._finding(query_bundle))

    def _finding(self, query_bundle: QueryBundle) -> Flow[list[NodeWithScore]]:
        yield from self.memory.sessions.visiting(self.user_id)
        recall = yield from self.memory.recalling(self.user_id, query_bundle.query_str, self.similarity_top_k)
        return nodes_of(recall)
