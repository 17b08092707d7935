"""Reflective memory for LangChain: chains, retrievers, agents (see :mod:`rmm_core` for the memory itself).

Begin with :func:`open_memory`, then take the one that fits your app: :class:`RMMMiddleware` for ``create_agent``,
:class:`RMMMemory` for classic chains, :class:`RMMRetriever` with :class:`CitationOutputParser` and
:func:`turn_recorder` for chains of your own. Each is imported when it is first named.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from langchain_rmm._tracing import as_run
from rmm_core.errors import MissingDependencyError
from rmm_core.tracing import watch

if TYPE_CHECKING:
    from langchain_rmm._backend import ChatModelLLM, EmbeddingsEmbedder, open_memory
    from langchain_rmm.chat_history import RMMChatMessageHistory
    from langchain_rmm.markers import citations_of, hide_markers, with_markers
    from langchain_rmm.memory import RMMMemory
    from langchain_rmm.middleware import RMMMiddleware
    from langchain_rmm.output_parser import CitationOutputParser, CitedAnswer
    from langchain_rmm.recorder import turn_recorder
    from langchain_rmm.reranker import RMMReranker
    from langchain_rmm.retriever import RMMRetriever, format_memories
    from langchain_rmm.tools import memory_tools
    from langchain_rmm.vector_store import VectorStoreSource

_HOMES = {
    "ChatModelLLM": "_backend",
    "CitationOutputParser": "output_parser",
    "CitedAnswer": "output_parser",
    "EmbeddingsEmbedder": "_backend",
    "RMMChatMessageHistory": "chat_history",
    "RMMMemory": "memory",
    "RMMMiddleware": "middleware",
    "RMMReranker": "reranker",
    "RMMRetriever": "retriever",
    "VectorStoreSource": "vector_store",
    "format_memories": "retriever",
    "citations_of": "markers",
    "hide_markers": "markers",
    "memory_tools": "tools",
    "open_memory": "_backend",
    "turn_recorder": "recorder",
    "with_markers": "markers",
}
__all__ = [
    "ChatModelLLM",
    "CitationOutputParser",
    "CitedAnswer",
    "EmbeddingsEmbedder",
    "RMMChatMessageHistory",
    "RMMMemory",
    "RMMMiddleware",
    "RMMReranker",
    "RMMRetriever",
    "VectorStoreSource",
    "citations_of",
    "format_memories",
    "hide_markers",
    "memory_tools",
    "open_memory",
    "turn_recorder",
    "with_markers",
]
_PARTS = ("langchain_core", "langchain_classic", "langchain", "langgraph")

if find_spec("langchain_core") is None:
    raise MissingDependencyError("langchain_rmm", "langchain")
watch(as_run)


def __getattr__(name: str) -> Any:
    """Import what is named; a missing part of LangChain is reported as the extra to install."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        home = import_module(f"{__name__}.{_HOMES[name]}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in _PARTS:
            raise MissingDependencyError(f"langchain_rmm.{name}", "langchain") from error
        raise
    value = globals()[name] = getattr(home, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
