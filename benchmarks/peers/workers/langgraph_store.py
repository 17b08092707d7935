"""LangGraph's stores with an index: ``memory`` is InMemoryStore, ``sqlite`` SqliteStore with sqlite-vec.

``langmem`` is InMemoryStore through LangMem's two tools, one to store and one to search; neither asks a model.
Python's own sqlite3 often cannot load extensions: pysqlite3 stands in for it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from langchain_core.embeddings import Embeddings
from langgraph.store.base import PutOp
from worker import TOP, WIDTH, Session, Vectors, main


class Lookup(Embeddings):
    """Looks embeddings up."""

    def __init__(self, vectors: Vectors) -> None:
        self.vectors = vectors

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """The embeddings of texts."""
        return [self.vectors.values(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """The embedding of a query."""
        return self.vectors.values(text)


class Store:
    """A store, a namespace a user; a session is put in one batch."""

    FIELD = "text"

    def __init__(self, vectors: Vectors, variant: str) -> None:
        index: Any = {"dims": WIDTH, "embed": Lookup(vectors)}
        index |= {"fields": [self.FIELD], "text_fields": [self.FIELD]}  # the two stores read different ones
        self.persists = variant == "sqlite"
        self.opening = (sqlite if self.persists else memory)(index)
        self.count = 0

    def open(self, path: str, users: Sequence[str]) -> None:
        """See :class:`worker.Peer`."""
        self.store = self.opening(Path(path) / "store.db")

    def ingest(self, user: str, session: Session) -> None:
        """A batch for a session; what is said twice in it waits for the next, since a batch may not repeat a text."""
        waiting = [turn.line for turn in session.turns]
        while waiting:
            batch = list(dict.fromkeys(waiting))
            self.store.batch([PutOp(("memories", user), self._key(), {self.FIELD: text}) for text in batch])
            for text in batch:
                waiting.remove(text)

    def recall(self, user: str, query: str) -> list[list[str]]:
        """See :class:`worker.Peer`."""
        return [[item.value[self.FIELD]] for item in self.store.search(("memories", user), query=query, limit=TOP)]

    def close(self) -> dict[str, Any]:
        """See :class:`worker.Peer`."""
        if self.persists:
            self.store.conn.close()
        return {"memories": self.count}

    def _key(self) -> str:
        self.count += 1
        return f"m{self.count:07}"


def memory(index: Any) -> Callable[[Path], Any]:
    """What opens a store that ends with its process."""
    from langgraph.store.memory import InMemoryStore

    return lambda path: InMemoryStore(index=index)


def sqlite(index: Any) -> Callable[[Path], Any]:
    """What opens a store in a file."""
    import pysqlite3

    sys.modules["sqlite3"] = pysqlite3
    from langgraph.store.sqlite import SqliteStore

    def opened(path: Path) -> SqliteStore:
        store = SqliteStore(pysqlite3.connect(path, check_same_thread=False, isolation_level=None), index=index)
        store.setup()
        return store

    return opened


class Tools(Store):
    """The same store behind LangMem's tools, one call a turn."""

    FIELD = "content"

    def __init__(self, vectors: Vectors, variant: str) -> None:
        from langmem import create_manage_memory_tool, create_search_memory_tool

        super().__init__(vectors, variant)
        self.tools = create_manage_memory_tool, create_search_memory_tool

    def open(self, path: str, users: Sequence[str]) -> None:
        """See :class:`worker.Peer`."""
        super().open(path, users)
        manage, search = self.tools
        self.manage = {user: manage(("memories", user), store=self.store) for user in users}
        self.search = {user: search(("memories", user), store=self.store) for user in users}

    def ingest(self, user: str, session: Session) -> None:
        """See :class:`worker.Peer`."""
        for turn in session.turns:
            self.manage[user].invoke({"content": turn.line, "action": "create"})
            self.count += 1

    def recall(self, user: str, query: str) -> list[list[str]]:
        """See :class:`worker.Peer`."""
        found = self.search[user].invoke({"query": query, "limit": TOP})
        return [[item["value"][self.FIELD]] for item in json.loads(found)]


if __name__ == "__main__":
    main(lambda vectors, variant: (Tools if variant == "langmem" else Store)(vectors, variant))
