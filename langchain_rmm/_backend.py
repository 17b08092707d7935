"""LangChain's models as the core's protocols, and the memory that uses them.

What a provider raises becomes ours where the core calls a model (:mod:`rmm_core.drivers`), in one place for all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseLanguageModel
from langchain_core.runnables import Runnable, RunnableConfig

from langchain_rmm._convert import text_of
from rmm_core import (
    LLM,
    ConfigError,
    Embedder,
    MissingDependencyError,
    ReflectionReport,
    ReflectiveMemory,
    RMMConfig,
    adapters,
)
from rmm_core.types import Matrix

if TYPE_CHECKING:
    from langchain_core.vectorstores import VectorStore

    from langchain_rmm.vector_store import VectorStoreSource

# Reflection often runs inside of somebody's agent: its tokens are not for the user's screen.
_UNSEEN: RunnableConfig = {"tags": ["nostream"], "run_name": "reflective-memory"}


class ChatModelLLM:
    """Any LangChain language model as the core's :class:`~rmm_core.protocols.LLM`.

    A JSON schema is passed on where the model's profile says that it can hold to one; when that fails twice where
    asking without it succeeds, the provider refuses schemas, and is asked without from then on.
    """

    def __init__(self, model: BaseLanguageModel[Any]) -> None:
        self.model = model
        profile = getattr(model, "profile", None) or {}
        self._refusals_left = 2 if profile.get("structured_output") else 0

    def complete(self, prompt: str, *, schema: Mapping[str, Any] | None = None) -> str:
        """Reply to ``prompt``."""
        if schema is not None and self._refusals_left:
            try:
                return text_of(self._bound(schema).invoke(prompt, _UNSEEN))
            except Exception:  # providers differ in what a refused schema raises; asked without, an outage is raised
                reply = text_of(self.model.invoke(prompt, _UNSEEN))
                self._refusals_left -= 1  # it works without
                return reply
        return text_of(self.model.invoke(prompt, _UNSEEN))

    async def acomplete(self, prompt: str, *, schema: Mapping[str, Any] | None = None) -> str:
        """The same, without blocking the event loop."""
        if schema is not None and self._refusals_left:
            try:
                return text_of(await self._bound(schema).ainvoke(prompt, _UNSEEN))
            except Exception:  # providers differ in what a refused schema raises; asked without, an outage is raised
                reply = text_of(await self.model.ainvoke(prompt, _UNSEEN))
                self._refusals_left -= 1
                return reply
        return text_of(await self.model.ainvoke(prompt, _UNSEEN))

    def _bound(self, schema: Mapping[str, Any]) -> Runnable[Any, Any]:
        form = {"name": "reply", "schema": dict(schema)}
        return self.model.bind(response_format={"type": "json_schema", "json_schema": form})


class EmbeddingsEmbedder:
    """Any LangChain embeddings as the core's :class:`~rmm_core.protocols.Embedder`.

    Queries and memories go through ``embed_documents`` alike, so that both lie in one space.
    """

    def __init__(self, embeddings: Embeddings) -> None:
        self.embeddings = embeddings

    def embed(self, texts: Sequence[str]) -> Matrix:
        """Rows of shape ``(len(texts), d)``."""
        return np.asarray(self.embeddings.embed_documents(list(texts)), dtype=np.float32)

    async def aembed(self, texts: Sequence[str]) -> Matrix:
        """The same, without blocking the event loop."""
        return np.asarray(await self.embeddings.aembed_documents(list(texts)), dtype=np.float32)


def open_memory(
    place: str | PathLike[str],
    *,
    key: str | bytes | None = None,
    model: BaseLanguageModel[Any] | LLM | str | None = None,
    embeddings: Embeddings | Embedder | str | None = None,
    vector_store: VectorStore | VectorStoreSource | None = None,
    config: RMMConfig | None = None,
    clock: Callable[[], datetime] | None = None,
    on_reflection: Callable[[ReflectionReport], None] | None = None,
    redact: Callable[[str], str] | None = None,
) -> ReflectiveMemory:
    """The memory at ``place``, with LangChain's models as they are.

    Args:
        place: The path of a file, a ``postgresql://`` URL, or ``":memory:"``.
        key: Encrypts the file: see :meth:`rmm_core.ReflectiveMemory.open`.
        model: Reflects on sessions: a chat model, its name (``"openai:gpt-4o-mini"``), or one of the core's.
            Without one, memories are made of the users' own sentences.
        embeddings: Embeddings, their name (``"openai:text-embedding-3-small"``), or an embedder of the core's.
        vector_store: A vector store of yours that finds memories by embedding, in place of our own search; all is kept
            at ``place`` all the same. Its embeddings are the memory's when none are given, and else must be of the same
            model, which is checked with one text.
        config: Settings.
        clock: Tells the time; timezone-aware.
        on_reflection: Called with the report of every reflection.
        redact: What is made of every text of a user before it is stored, or a model is asked with it.

    Raises:
        ConfigError: When a model is of no kind that works here; what LangChain raises for a name it does not know,
            or a key that is missing, comes as it is.
    """
    if embeddings is None and vector_store is not None:
        embeddings = _held(vector_store).embeddings
    embedder = _as_embedder(embeddings)
    return ReflectiveMemory.open(
        place,
        key=key,
        llm=None if model is None else _as_llm(model),
        embedder=embedder,
        config=config,
        clock=clock,
        on_reflection=on_reflection,
        redact=redact,
        source=None if vector_store is None else _as_source(vector_store, embedder),
    )


def checked_memory(memory: Any) -> ReflectiveMemory:
    """See :func:`rmm_core.adapters.checked_memory`."""
    return adapters.checked_memory(memory, "langchain_rmm.open_memory")


def _as_llm(model: Any) -> LLM:
    if isinstance(model, str):
        try:
            from langchain.chat_models import init_chat_model
        except ImportError as error:
            raise MissingDependencyError(f"model={model!r}", "langchain") from error
        model = init_chat_model(model)
    if isinstance(model, Runnable):
        return ChatModelLLM(model)  # type: ignore[arg-type]  # a model with fallbacks or retries is a Runnable only
    if isinstance(model, LLM):
        return model
    raise ConfigError(f"model is a LangChain chat model, its name or a rmm_core.LLM; got {type(model).__name__}")


def _held(vector_store: Any) -> Any:
    return getattr(vector_store, "vector_store", vector_store)


def _as_source(vector_store: Any, embedder: Embedder) -> VectorStoreSource:
    from langchain_rmm.vector_store import as_source  # who has none does not wait for LangChain's

    return as_source(vector_store, embedder)


def _as_embedder(embeddings: Any) -> Embedder:
    if isinstance(embeddings, str):
        try:
            from langchain.embeddings import init_embeddings
        except ImportError as error:
            raise MissingDependencyError(f"embeddings={embeddings!r}", "langchain") from error
        embeddings = init_embeddings(embeddings)
    if isinstance(embeddings, Embeddings):
        return EmbeddingsEmbedder(embeddings)
    if isinstance(embeddings, Embedder):
        return embeddings
    wanted = "embeddings are LangChain Embeddings, their name or a rmm_core.Embedder, for example "
    example = "rmm_core.models.SentenceTransformerEmbedder('all-MiniLM-L6-v2')"
    raise ConfigError(f"{wanted}{example}; got {type(embeddings).__name__}")
