"""LangChain's vector stores as the source of a memory's candidates."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore

from rmm_core import ConfigError, Embedder, StoreError
from rmm_core.protocols import Entry
from rmm_core.stores.external import key_of, label, labels
from rmm_core.types import Kind, Vector

logger = logging.getLogger(__name__)
_PROBE = "Ann moved to Graz in May 2024 and keeps bees there."


class VectorStoreSource:
    """Any LangChain vector store as what finds memories by embedding: see ``open_memory(vector_store=...)``.

    Memories stand in it as documents: the summary, with ``rmm_id``, ``rmm_user`` and ``rmm_kind`` as metadata.
    Documents of your own beside them are left alone. It embeds summaries by itself: its model has to be the memory's.

    Args:
        vector_store: Adds in place of what has the same id, and deletes what is not there without an error, as
            LangChain's own tests for vector stores want it.
        filter: From a name and a value, the arguments of a search for documents whose metadata have them. Most stores
            take ``{"filter": {name: value}}``, which is what it gives when left out.
    """

    def __init__(
        self,
        vector_store: VectorStore,
        *,
        filter: Callable[[str, str], Mapping[str, Any]] | None = None,  # noqa: A002  # LangChain's own name for it
    ) -> None:
        if not isinstance(vector_store, VectorStore):
            raise ConfigError(f"vector_store is a LangChain VectorStore; got {type(vector_store).__name__}")
        self.vector_store = vector_store
        by_function = isinstance(vector_store, InMemoryVectorStore)
        self._filter = filter or (_of_function if by_function else _of_dictionary)

    def put(self, user_id: str, entries: Sequence[Entry]) -> None:
        """Hold entries, in place of those of the same user and id."""
        documents = [
            Document(
                id=key_of(user_id, e.memory.id),
                page_content=e.memory.summary.replace("\x00", "\ufffd"),  # which no text of a database holds
                metadata=labels(user_id, e.memory.id, e.memory.kind),
            )
            for e in entries
        ]
        self.vector_store.add_documents(documents, ids=[str(d.id) for d in documents])

    def remove(self, user_id: str, memory_ids: Sequence[str]) -> None:
        """Let go of memories; those that are not there are no error."""
        if self.vector_store.delete([key_of(user_id, i) for i in memory_ids]) is False:
            raise StoreError(f"{type(self.vector_store).__name__}.delete says that it did not")

    def forget(self, user_id: str) -> None:
        """Let go of everything of a user: a store can list nothing, so it is searched until it finds no more."""
        gone: set[str] = set()
        name, value = label(user_id)
        while True:
            found = self.vector_store.similarity_search(_PROBE, k=_AT_ONCE, **self._filter(name, value))
            ids = {d.metadata["rmm_id"] for d in found if d.metadata.get(name) == value}
            if not ids:
                return
            if ids <= gone:
                raise StoreError(f"{type(self.vector_store).__name__} still finds what it deleted")
            self.remove(user_id, sorted(ids))
            gone |= ids

    def nearest(self, user_id: str, vector: Vector, limit: int, kind: Kind | None) -> list[str]:
        """The ids of the user's memories nearest to ``vector``; what a filter let through of others is left out."""
        name, value = label(user_id, kind)
        found = self.vector_store.similarity_search_by_vector(vector.tolist(), k=limit, **self._filter(name, value))
        return [d.metadata["rmm_id"] for d in found if d.metadata.get(name) == value]

    def check(self, embedder: Embedder) -> None:
        """See with one text that the store embeds as the memory does; nothing is asked where both hold one object.

        Raises:
            ConfigError: When it does not.
        """
        own = self.vector_store.embeddings
        if own is None or getattr(embedder, "embeddings", None) is own:
            return
        try:
            theirs, ours = np.ravel(own.embed_documents([_PROBE])), np.ravel(embedder.embed([_PROBE]))
        except Exception:  # a provider that cannot be reached now is no reason not to start
            logger.warning("whether the vector store embeds as the memory does could not be checked", exc_info=True)
            return
        lengths = np.linalg.norm(theirs) * np.linalg.norm(ours)
        if len(theirs) != len(ours) or float(theirs @ ours) < 0.98 * lengths:
            raise ConfigError("the vector store embeds with another model than the memory; give both the same")


def as_source(vector_store: Any, embedder: Embedder) -> VectorStoreSource:
    """A vector store, or a source already, that embeds as ``embedder`` does."""
    source = vector_store if isinstance(vector_store, VectorStoreSource) else VectorStoreSource(vector_store)
    source.check(embedder)
    return source


_AT_ONCE = 200


def _of_dictionary(name: str, value: str) -> dict[str, Any]:
    return {"filter": {name: value}}


def _of_function(name: str, value: str) -> dict[str, Any]:
    return {"filter": lambda document: document.metadata.get(name) == value}
