"""LlamaIndex's VectorMemoryBlock over Qdrant or Chroma in a local folder.

LlamaIndex's own simple vector store keeps no text, and the block refuses it.
"""

from __future__ import annotations

import asyncio
import re
import warnings
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.memory import VectorMemoryBlock
from worker import TOP, Session, Vectors, main

MESSAGE = re.compile(r"<message role='\w+'>(.*?)</message>", re.DOTALL)  # what the block puts around the words


class Lookup(BaseEmbedding):
    """Looks embeddings up, those of the words alone."""

    vectors: Any

    def _get_text_embedding(self, text: str) -> list[float]:
        said = MESSAGE.fullmatch(text)
        return self.vectors.values(said[1] if said else text)

    def _get_query_embedding(self, query: str) -> list[float]:
        return self.vectors.values(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self.vectors.values(query)


Opened: TypeAlias = tuple[Any, Callable[[], Awaitable[None]] | None]
Opening: TypeAlias = Callable[[str], Awaitable[Opened]]


def qdrant() -> Opening:
    """What opens a vector store in a folder: Qdrant, in this process."""
    from llama_index.vector_stores.qdrant import QdrantVectorStore
    from qdrant_client import AsyncQdrantClient

    async def opened(path: str) -> Opened:
        client = AsyncQdrantClient(path=path)
        return QdrantVectorStore("memories", aclient=client), client.close

    return opened


def chroma() -> Opening:
    """The same with Chroma, which closes by itself."""
    import chromadb
    from llama_index.vector_stores.chroma import ChromaVectorStore

    async def opened(path: str) -> Opened:
        client = chromadb.PersistentClient(path=path)
        collection = client.get_or_create_collection("memories", metadata={"hnsw:space": "cosine"})
        return ChromaVectorStore(chroma_collection=collection), None

    return opened


class Block:
    """One block, a session id a user; each turn is put by itself, since what is put at once is one node."""

    persists = True

    def __init__(self, vectors: Vectors, variant: str) -> None:
        warnings.simplefilter("ignore")
        self.embedder, self.count = Lookup(vectors=vectors), 0
        self.opening = {"qdrant": qdrant, "chroma": chroma}[variant]()
        self.blocks: dict[str, VectorMemoryBlock] = {}
        self.loop = asyncio.new_event_loop()

    def open(self, path: str, users: Sequence[str]) -> None:
        """See :class:`worker.Peer`."""
        self.store, self.shut = self.loop.run_until_complete(self.opening(path))

    def ingest(self, user: str, session: Session) -> None:
        """See :class:`worker.Peer`."""
        self.loop.run_until_complete(self._ingest(user, session))

    async def _ingest(self, user: str, session: Session) -> None:
        block = self._of(user)
        for turn in session.turns:
            role = "user" if turn.role == "user" else "assistant"
            await block.aput([ChatMessage(turn.line, role=role, additional_kwargs={"session_id": user})])
            self.count += 1

    def recall(self, user: str, query: str) -> list[list[str]]:
        """See :class:`worker.Peer`."""
        asked = self._of(user).aget([ChatMessage(query, role="user")], session_id=user)
        return [[line] for line in MESSAGE.findall(self.loop.run_until_complete(asked))]

    def close(self) -> dict[str, Any]:
        """See :class:`worker.Peer`."""
        if self.shut is not None:
            self.loop.run_until_complete(self.shut())
        return {"memories": self.count}

    def _of(self, user: str) -> VectorMemoryBlock:
        """A block keeps the filter of the first user who asked it, so that each has one of their own."""
        if user not in self.blocks:
            self.blocks[user] = VectorMemoryBlock(
                vector_store=self.store, embed_model=self.embedder, similarity_top_k=TOP
            )
        return self.blocks[user]


if __name__ == "__main__":
    main(Block)
