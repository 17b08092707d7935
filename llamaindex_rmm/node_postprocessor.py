"""The learned reranker behind anybody's retriever."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle, TextNode
from llama_index_instrumentation import get_dispatcher
from pydantic import ConfigDict, Field

from llamaindex_rmm._backend import MemoryField
from llamaindex_rmm._convert import show_number, stands_in
from rmm_core import InputError, Recall
from rmm_core.citable import citable, distinct
from rmm_core.flow import Flow
from rmm_core.inputs import checked_id
from rmm_core.prompts import inert

_dispatcher = get_dispatcher(__name__)


class RMMNodePostprocessor(BaseNodePostprocessor):
    """Orders the nodes of another retriever for a user, keeps the best, and learns which ones answers cite.

    Nodes come out as copies, with ``index`` and ``recall_id`` in their metadata and the reranker's score. Give
    ``CitationOutputParser`` output back with ``answer.citing(nodes).feedback(memory)``.

    Attributes:
        memory: Its reranker and its embedder are used; nodes are not stored in it.
        user_id: Whose reranker.
        top_n: How many nodes are kept; the configured M when left out.
        cite: Whether models read the nodes under their numbers, for answers that cite: :data:`CITING_QA_TEMPLATE`.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    memory: MemoryField
    user_id: str
    top_n: int | None = Field(default=None, ge=0)
    cite: bool = False

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """A copy on the same memory, which is not copied."""
        return self.model_copy()

    def model_post_init(self, context: Any, /) -> None:
        """Refuse a user that cannot be one."""
        super().model_post_init(context)
        checked_id(self.user_id, "user_id")

    @classmethod
    def class_name(cls) -> str:
        """The name in serialised forms."""
        return "RMMNodePostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        self._begin(nodes, query_bundle)
        return self._end(self.memory.run(self._ranking(nodes, query_bundle)))

    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        self._begin(nodes, query_bundle)
        return self._end(await self.memory.arun(self._ranking(nodes, query_bundle)))

    def _ranking(self, nodes: Sequence[NodeWithScore], query_bundle: QueryBundle | None) -> Flow[list[NodeWithScore]]:
        if query_bundle is None:
            raise InputError("nodes are ranked for a query: pass query_str=... or query_bundle=...")
        nodes = [n for n in nodes if not stands_in(n)] or list(nodes)
        if all(map(stands_in, nodes)):
            return list(nodes)
        named = dict(zip(distinct(n.node.node_id for n in nodes), nodes, strict=True))
        texts = {name: n.node.get_content(MetadataMode.EMBED) for name, n in named.items()}
        recall = yield from self.memory.reranking(self.user_id, query_bundle.query_str, texts, self.top_n)
        return _ranked(recall, named, self.cite)

    def _begin(self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None) -> None:
        count = self.memory.config.top_m if self.top_n is None else self.top_n
        _dispatcher.event(
            ReRankStartEvent(query=query_bundle, nodes=nodes, top_n=count, model_name="reflective-memory")
        )

    def _end(self, nodes: list[NodeWithScore]) -> list[NodeWithScore]:
        _dispatcher.event(ReRankEndEvent(nodes=nodes))
        return nodes


def _ranked(recall: Recall, named: dict[str, NodeWithScore], cite: bool) -> list[NodeWithScore]:
    scores = {c.memory.id: c.score for c in recall.candidates}
    found = []
    for shown in recall.shown:
        old = named[shown.memory.id].node
        node = old.model_copy(update={"metadata": old.metadata | citable(recall, shown.number)})
        for keys in ("excluded_llm_metadata_keys", "excluded_embed_metadata_keys"):
            setattr(node, keys, [*getattr(old, keys), *citable(recall, 0)])
        if cite and isinstance(node, TextNode):
            if "recall_id" not in old.metadata:  # somebody's page: ours are data already
                node.text_template = inert(old.get_content(MetadataMode.LLM)).replace("{", "{{").replace("}", "}}")
            node = show_number(node)
        found.append(NodeWithScore(node=node, score=scores[shown.memory.id]))
    return found
