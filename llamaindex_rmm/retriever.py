"""The memory as a retriever: K candidates in, the best as nodes out."""

from __future__ import annotations

from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager
from llama_index.core.prompts import PromptTemplate
from llama_index.core.schema import NodeWithScore, QueryBundle

from llamaindex_rmm._backend import checked_memory
from llamaindex_rmm._convert import nodes_of
from rmm_core import ConfigError, ReflectiveMemory
from rmm_core.flow import Flow
from rmm_core.inputs import checked_id
from rmm_core.prompts import HOST_RULES, NO_MEMORIES

CITING_QA_TEMPLATE = PromptTemplate(
    f"""What this user said in earlier sessions, and what else was found for the question, follows as numbered memories.

{HOST_RULES}

<memories>
{{context_str}}
</memories>

Question: {{query_str}}
Answer:"""
)
"""A ``text_qa_template`` for nodes that show their numbers: answers cite them."""


class RMMRetriever(BaseRetriever):
    """Finds what a user said before that matters for a query.

    A node's text is the memory with the turns it rests on; its metadata hold ``memory_id``, ``index`` (what an answer
    cites it by), ``kind``, dates, ``evidence`` and the ``recall_id`` that feedback refers to.

    Args:
        memory: The memory.
        user_id: Whose memories.
        similarity_top_k: How many nodes; the configured M when left out.
        cite: Whether models read the nodes under their numbers, for answers that cite: :data:`CITING_QA_TEMPLATE`.
        when_empty: What the one node says that stands in when there is no memory yet: LlamaIndex's engines answer an
            empty list with "Empty Response" and never ask the model. None for an empty list.
        callback_manager: LlamaIndex's.
    """

    def __init__(
        self,
        memory: ReflectiveMemory,
        *,
        user_id: str,
        similarity_top_k: int | None = None,
        cite: bool = False,
        when_empty: str | None = NO_MEMORIES,
        callback_manager: CallbackManager | None = None,
        **options: Any,
    ) -> None:
        super().__init__(callback_manager=callback_manager, **options)
        self.memory = checked_memory(memory)
        self.user_id = checked_id(user_id, "user_id")
        if similarity_top_k is not None and (not isinstance(similarity_top_k, int) or similarity_top_k < 0):
            raise ConfigError(f"similarity_top_k is a whole number from 0; got {similarity_top_k!r}")
        self.similarity_top_k = similarity_top_k
        self.cite = cite
        self.when_empty = when_empty

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self.memory.run(self._finding(query_bundle))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await self.memory.arun(self._finding(query_bundle))

    def _finding(self, query_bundle: QueryBundle) -> Flow[list[NodeWithScore]]:
        yield from self.memory.sessions.visiting(self.user_id)
        recall = yield from self.memory.recalling(self.user_id, query_bundle.query_str, self.similarity_top_k)
        return nodes_of(recall, cite=self.cite, when_empty=self.when_empty)
