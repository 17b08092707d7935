"""Vector stores that people have: two on a PostgreSQL server, and the two that their frameworks bring along."""

from contextlib import contextmanager

import pytest
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore
from llama_index.core.vector_stores import SimpleVectorStore

import langchain_rmm
import llamaindex_rmm
from rmm_core.testing import HashEmbedder


class HashEmbeddings(Embeddings):
    """The core's embedder without weights, as LangChain's."""

    def embed_documents(self, texts):
        return HashEmbedder().embed(texts).tolist()

    def embed_query(self, text):
        return self.embed_documents([text])[0]


WIDTH = len(HashEmbeddings().embed_query("x"))


@contextmanager
def in_memory(request):
    store = InMemoryVectorStore(HashEmbeddings())
    yield store, lambda: len(store.store)


@contextmanager
def simple(request):
    store = SimpleVectorStore()
    yield store, lambda: len(store.data.embedding_dict)


@contextmanager
def engine_of(request):
    """An SQLAlchemy engine for a schema with nothing in it, and counts of its tables' rows."""
    pytest.importorskip("sqlalchemy")
    import psycopg
    import sqlalchemy

    url = request.getfixturevalue("postgres_url")
    with psycopg.connect(url, autocommit=True) as connection:
        schema = (
            connection.execute("SELECT split_part(current_setting('search_path'), ',', 1)").fetchone()[0].strip('"')
        )
        connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
        engine = sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url))
        yield engine, schema, lambda table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        engine.dispose()


@contextmanager
def langchain_postgres(request):
    pytest.importorskip("langchain_postgres")
    from langchain_postgres import PGVector

    with engine_of(request) as (engine, _, count):
        store = PGVector(HashEmbeddings(), connection=engine, embedding_length=WIDTH)
        yield store, lambda: count("langchain_pg_embedding")


@contextmanager
def llamaindex_postgres(request):
    pytest.importorskip("llama_index.vector_stores.postgres")
    from llama_index.vector_stores.postgres import PGVectorStore
    from sqlalchemy.ext.asyncio import create_async_engine

    with engine_of(request) as (engine, schema, count):
        unused = create_async_engine("postgresql+asyncpg://")  # it wants both
        settings = {"schema_name": schema, "table_name": "notes", "embed_dim": WIDTH}
        yield PGVectorStore(engine=engine, async_engine=unused, **settings), lambda: count("data_notes")


STORES = {
    "langchain in memory": (langchain_rmm, in_memory),
    "langchain postgres": (langchain_rmm, langchain_postgres),
    "llamaindex simple": (llamaindex_rmm, simple),
    "llamaindex postgres": (llamaindex_rmm, llamaindex_postgres),
}


def open_with(adapter, place, store, **settings):
    """A memory with a vector store, through an adapter."""
    if adapter is llamaindex_rmm:
        settings = {"embed_model": HashEmbedder()} | settings
    return adapter.open_memory(place, vector_store=store, **settings)
