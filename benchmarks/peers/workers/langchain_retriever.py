"""LangChain's VectorStoreRetrieverMemory over FAISS: a memory and an index for each user, saved when it is closed."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import faiss
from langchain_classic.memory import VectorStoreRetrieverMemory
from langchain_community.docstore.in_memory import InMemoryDocstore
from langchain_community.vectorstores import FAISS
from langchain_core.embeddings import Embeddings
from worker import TOP, WIDTH, Session, Vectors, main

PREFIX = "input: "  # which the memory puts before what it is given


class Lookup(Embeddings):
    """Looks embeddings up, those of the words alone."""

    def __init__(self, vectors: Vectors) -> None:
        self.vectors = vectors

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """The embeddings of texts."""
        return [self.vectors.values(text.removeprefix(PREFIX)) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """The embedding of a query."""
        return self.vectors.values(text)


class Retriever:
    """A memory for each user, loaded when its user first comes."""

    persists = True

    def __init__(self, vectors: Vectors, variant: str) -> None:
        warnings.simplefilter("ignore")  # it is deprecated
        self.embedder, self.count = Lookup(vectors), 0
        self.changed: set[str] = set()
        self.memories: dict[str, VectorStoreRetrieverMemory] = {}

    def open(self, path: str, users: Sequence[str]) -> None:
        """See :class:`worker.Peer`."""
        self.folder = Path(path)

    def ingest(self, user: str, session: Session) -> None:
        """See :class:`worker.Peer`."""
        memory = self._of(user)
        self.changed.add(user)
        for turn in session.turns:
            memory.save_context({"input": turn.line}, {})
            self.count += 1

    def recall(self, user: str, query: str) -> list[list[str]]:
        """See :class:`worker.Peer`."""
        found = self._of(user).load_memory_variables({"input": query})["history"]
        return [[document.page_content.removeprefix(PREFIX)] for document in found]

    def close(self) -> dict[str, Any]:
        """See :class:`worker.Peer`."""
        for user in self.changed:
            self.memories[user].retriever.vectorstore.save_local(str(self.folder / user))
        return {"memories": self.count}

    def _of(self, user: str) -> VectorStoreRetrieverMemory:
        if user not in self.memories:
            self.memories[user] = VectorStoreRetrieverMemory(
                retriever=self._index(user).as_retriever(search_kwargs={"k": TOP}), return_docs=True
            )
        return self.memories[user]

    def _index(self, user: str) -> FAISS:
        saved = self.folder / user
        if saved.exists():
            return FAISS.load_local(str(saved), self.embedder, allow_dangerous_deserialization=True)
        return FAISS(self.embedder, faiss.IndexFlatL2(WIDTH), InMemoryDocstore(), {})


if __name__ == "__main__":
    main(Retriever)
