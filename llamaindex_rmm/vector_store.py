"""LlamaIndex's vector stores as the source of a memory's candidates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores import (
    MetadataFilter,
    MetadataFilters,
    SimpleVectorStore,
    VectorStoreQuery,
    VectorStoreQueryResult,
)
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from rmm_core import ConfigError
from rmm_core.protocols import Entry
from rmm_core.stores.external import key_of, label, labels
from rmm_core.types import Kind, Vector


class VectorStoreSource:
    """Any LlamaIndex vector store as what finds memories by embedding: see ``open_memory(vector_store=...)``.

    Memories stand in it as nodes with the memory's own embeddings: the summary, with ``rmm_id``, ``rmm_user`` and
    ``rmm_kind`` as metadata, all of a user's under one document. Nodes of your own beside them are left alone.

    Args:
        vector_store: Filters by metadata and deletes single nodes.
    """

    def __init__(self, vector_store: BasePydanticVectorStore) -> None:
        name = type(vector_store).__name__
        if not isinstance(vector_store, BasePydanticVectorStore):
            raise ConfigError(f"vector_store is a LlamaIndex vector store; got {name}")
        deletes = type(vector_store).delete_nodes is not BasePydanticVectorStore.delete_nodes
        if not deletes or not (vector_store.stores_text or isinstance(vector_store, SimpleVectorStore)):
            raise ConfigError(
                f"{name} cannot tell users' memories apart: one that stores texts and deletes nodes is wanted"
            )
        self.vector_store = vector_store

    def put(self, user_id: str, entries: Sequence[Entry]) -> None:
        """Hold entries, in place of those of the same user and id: some stores would hold both."""
        self.remove(user_id, [e.memory.id for e in entries])
        self.vector_store.add([_node(user_id, e) for e in entries])

    def remove(self, user_id: str, memory_ids: Sequence[str]) -> None:
        """Let go of memories; those that are not there are no error."""
        self.vector_store.delete_nodes([key_of(user_id, i) for i in memory_ids])

    def forget(self, user_id: str) -> None:
        """Let go of everything of a user."""
        self.vector_store.delete(key_of(user_id))

    def nearest(self, user_id: str, vector: Vector, limit: int, kind: Kind | None) -> list[str]:
        """The ids of the user's memories nearest to ``vector``; what a filter let through of others is left out."""
        name, value = label(user_id, kind)
        filters = MetadataFilters(filters=[MetadataFilter(key=name, value=value)])
        query = VectorStoreQuery(query_embedding=vector.tolist(), similarity_top_k=limit, filters=filters)
        found = self._metadata(self.vector_store.query(query))
        return [str(metadata["rmm_id"]) for metadata in found if metadata.get(name) == value]

    def _metadata(self, result: VectorStoreQueryResult) -> Iterable[Mapping[str, Any]]:
        """What was found is labelled with; the simple store gives ids alone."""
        if isinstance(self.vector_store, SimpleVectorStore):
            return [self.vector_store.data.metadata_dict[i] for i in result.ids or ()]
        return [node.metadata for node in result.nodes or ()]


def as_source(vector_store: Any) -> VectorStoreSource:
    """A vector store, or a source already."""
    return vector_store if isinstance(vector_store, VectorStoreSource) else VectorStoreSource(vector_store)


def _node(user_id: str, entry: Entry) -> TextNode:
    return TextNode(
        id_=key_of(user_id, entry.memory.id),
        text=entry.memory.summary.replace("\x00", "\ufffd"),  # which no text of a database holds
        metadata=labels(user_id, entry.memory.id, entry.memory.kind),
        embedding=entry.embedding.tolist(),
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=key_of(user_id))},
    )
