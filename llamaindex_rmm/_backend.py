"""LlamaIndex's models as the core's protocols, and the memory that uses them.

What a provider raises becomes ours where the core calls a model (:mod:`rmm_core.drivers`), in one place for all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from os import PathLike, fspath
from typing import Annotated, Any

import numpy as np
from llama_index.core import llms
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.vector_stores.types import BasePydanticVectorStore
from pydantic import BeforeValidator, Field

from llamaindex_rmm._convert import text_of
from llamaindex_rmm._registry import register
from llamaindex_rmm.vector_store import VectorStoreSource, as_source
from rmm_core import LLM, ConfigError, Embedder, ReflectionReport, ReflectiveMemory, RMMConfig, adapters
from rmm_core.types import Matrix


class IndexLLM:
    """Any LlamaIndex language model as the core's :class:`~rmm_core.protocols.LLM`.

    The prompt goes out as one message of a user. Schemas are not passed on: how a provider takes one differs, and the
    prompt alone suffices.
    """

    def __init__(self, llm: llms.LLM) -> None:
        self.llm = llm

    def complete(self, prompt: str, *, schema: Mapping[str, Any] | None = None) -> str:
        """Reply to ``prompt``."""
        return text_of(self.llm.chat([llms.ChatMessage(prompt)]).message)

    async def acomplete(self, prompt: str, *, schema: Mapping[str, Any] | None = None) -> str:
        """The same, without blocking the event loop."""
        return text_of((await self.llm.achat([llms.ChatMessage(prompt)])).message)


class IndexEmbedder:
    """Any LlamaIndex embedding model as the core's :class:`~rmm_core.protocols.Embedder`.

    Queries and memories are embedded as texts alike, so that both lie in one space.
    """

    def __init__(self, embed_model: BaseEmbedding) -> None:
        self.embed_model = embed_model

    def embed(self, texts: Sequence[str]) -> Matrix:
        """Rows of shape ``(len(texts), d)``."""
        return np.asarray(self.embed_model.get_text_embedding_batch(list(texts)), dtype=np.float32)

    async def aembed(self, texts: Sequence[str]) -> Matrix:
        """The same, without blocking the event loop."""
        return np.asarray(await self.embed_model.aget_text_embedding_batch(list(texts)), dtype=np.float32)


def open_memory(
    place: str | PathLike[str],
    *,
    key: str | bytes | None = None,
    llm: llms.LLM | LLM | None = None,
    embed_model: BaseEmbedding | Embedder | None = None,
    vector_store: BasePydanticVectorStore | VectorStoreSource | None = None,
    config: RMMConfig | None = None,
    clock: Callable[[], datetime] | None = None,
    on_reflection: Callable[[ReflectionReport], None] | None = None,
    redact: Callable[[str], str] | None = None,
) -> ReflectiveMemory:
    """The memory at ``place``, with LlamaIndex's models as they are.

    What LlamaIndex saves of an agent's context names it by its place: open it there before the context is restored.

    Args:
        place: The path of a file, a ``postgresql://`` URL, or ``":memory:"``.
        key: Encrypts the file (see :meth:`rmm_core.ReflectiveMemory.open`); not saved with a context.
        llm: Reflects on sessions: LlamaIndex's or the core's. Without one, memories are the users' own sentences.
        embed_model: LlamaIndex's, or an embedder of the core's.
        vector_store: A vector store of yours that finds memories by embedding, in place of our own search; all is kept
            at ``place`` all the same.
        config: Settings.
        clock: Tells the time; timezone-aware.
        on_reflection: Called with the report of every reflection.
        redact: What is made of every text of a user before it is stored, or a model is asked with it.

    Raises:
        ConfigError: When a model is of no kind that works here.
    """
    memory = ReflectiveMemory.open(
        place,
        key=key,
        llm=_as_llm(llm),
        embedder=_as_embedder(embed_model),
        config=config,
        clock=clock,
        on_reflection=on_reflection,
        redact=redact,
        source=None if vector_store is None else as_source(vector_store),
    )
    return register(memory, fspath(place))


def checked_memory(memory: Any) -> ReflectiveMemory:
    """See :func:`rmm_core.adapters.checked_memory`."""
    return adapters.checked_memory(memory, "llamaindex_rmm.open_memory")


MemoryField = Annotated[ReflectiveMemory, BeforeValidator(checked_memory), Field(repr=False, exclude=True)]
"""The memory in a component of LlamaIndex's: neither printed nor saved with it."""


def _as_llm(llm: Any) -> LLM | None:
    if isinstance(llm, llms.LLM):
        return IndexLLM(llm)
    if llm is None or isinstance(llm, LLM):
        return llm
    raise ConfigError(f"llm is a LlamaIndex LLM or a rmm_core.LLM; got {type(llm).__name__}")


def _as_embedder(embed_model: Any) -> Embedder:
    if isinstance(embed_model, BaseEmbedding):
        return IndexEmbedder(embed_model)
    if isinstance(embed_model, Embedder):
        return embed_model
    wanted = "embed_model is a LlamaIndex embedding or a rmm_core.Embedder, for example "
    example = "rmm_core.models.SentenceTransformerEmbedder('all-MiniLM-L6-v2')"
    raise ConfigError(f"{wanted}{example}; got {type(embed_model).__name__}")
