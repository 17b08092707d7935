"""The learned reranker over anybody's retriever."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.callbacks import BaseCallbackManager, Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.runnables import ensure_config
from pydantic import ConfigDict, Field

from langchain_rmm._who import agent_context, who
from rmm_core import Recall, ReflectiveMemory
from rmm_core.citable import citable, distinct
from rmm_core.flow import Flow


class RMMReranker(BaseDocumentCompressor):
    """Orders the documents of another retriever for a user, keeps the best, and learns which ones answers cite.

    Put it into a ``ContextualCompressionRetriever``; show the documents with :func:`format_memories`, and give
    ``CitationOutputParser`` output back with ``answer.citing(documents).feedback(memory)``. Documents come out as
    copies, with ``index``, ``relevance_score`` and ``recall_id`` in their metadata.

    Attributes:
        memory: Its reranker and its embedder are used; documents are not stored in it.
        user_id: Whose reranker; else the one that each call names, as for :class:`RMMRetriever`.
        top_n: How many documents are kept; the configured M when left out.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    memory: ReflectiveMemory = Field(repr=False, exclude=True)
    user_id: str | None = None
    top_n: int | None = Field(default=None, ge=0)

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> list[Document]:
        """The best documents for ``query``, best first."""
        return self.memory.run(self._ranking(documents, query, callbacks))

    async def acompress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> list[Document]:
        """:meth:`compress_documents` for event loops."""
        return await self.memory.arun(self._ranking(documents, query, callbacks))

    def _ranking(self, documents: Sequence[Document], query: str, callbacks: Any) -> Flow[list[Document]]:
        metadata = callbacks.metadata if isinstance(callbacks, BaseCallbackManager) else None
        user_id = who(ensure_config(), agent_context(), metadata=metadata, user_id=self.user_id).user_id
        names = distinct(d.id or f"document {place}" for place, d in enumerate(documents))
        named = dict(zip(names, documents, strict=True))
        texts = {name: d.page_content for name, d in named.items()}
        return _ranked((yield from self.memory.reranking(user_id, query, texts, self.top_n)), named)


def _ranked(recall: Recall, named: dict[str, Document]) -> list[Document]:
    scores = {c.memory.id: c.score for c in recall.candidates}
    chosen = [(s.number, named[s.memory.id], scores[s.memory.id]) for s in recall.shown]
    return [
        d.model_copy(update={"metadata": d.metadata | citable(recall, number) | {"relevance_score": score}})
        for number, d, score in chosen
    ]
