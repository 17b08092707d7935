"""mem0's Memory, with ``infer=False``: what is added is kept as it is, and no model is asked.

``qdrant`` is its default vector store in a local folder, ``faiss`` the other one that needs no server. Its language
model is never used, and made with a key that opens nothing. Keyword search is off, as it is when mem0 is installed
without extras: theirs download models from a hub.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mem0 import Memory
from mem0.embeddings.base import EmbeddingBase
from worker import TOP, WIDTH, Session, Vectors, main


class Lookup(EmbeddingBase):
    """Looks embeddings up."""

    def __init__(self, vectors: Vectors) -> None:
        super().__init__()
        self.vectors = vectors

    def embed(self, text: str, memory_action: Any = None) -> list[float]:
        """The embedding of a text."""
        return self.vectors.values(text)


class Mem0:
    """One collection for all users, as mem0 has it."""

    persists = True

    def __init__(self, vectors: Vectors, variant: str) -> None:
        self.embedder, self.variant, self.count = Lookup(vectors), variant, 0

    def open(self, path: str, users: Sequence[str]) -> None:
        """See :class:`worker.Peer`."""
        place = {"path": f"{path}/{self.variant}", "embedding_model_dims": WIDTH, "collection_name": "memories"}
        kind = {"qdrant": {}, "faiss": {"distance_strategy": "cosine"}}[self.variant]
        nobody = {"provider": "openai", "config": {"api_key": "none"}}
        self.memory = Memory.from_config(
            {
                "vector_store": {"provider": self.variant, "config": place | kind},
                "llm": nobody,
                "embedder": nobody,
                "history_db_path": f"{path}/history.db",
            }
        )
        self.memory.embedding_model = self.embedder

    def ingest(self, user: str, session: Session) -> None:
        """See :class:`worker.Peer`."""
        roles = {"user": "user", "agent": "assistant"}
        messages = [{"role": roles[turn.role], "content": turn.line} for turn in session.turns]
        self.count += len(self.memory.add(messages, user_id=user, infer=False)["results"])

    def recall(self, user: str, query: str) -> list[list[str]]:
        """See :class:`worker.Peer`."""
        found = self.memory.search(query, filters={"user_id": user}, top_k=TOP)
        return [[result["memory"]] for result in found["results"]]

    def close(self) -> dict[str, Any]:
        """See :class:`worker.Peer`."""
        if self.variant == "qdrant":
            self.memory.vector_store.client.close()
        self.memory.db.close()
        return {"memories": self.count}


if __name__ == "__main__":
    main(Mem0)
