"""Reflective memory for LlamaIndex: chat engines, agents, query engines (see :mod:`rmm_core` for the memory itself).

Begin with :func:`open_memory`, then take what fits your app: :class:`RMMMemory` with :func:`hide_markers` for chat
engines and agents, :class:`RMMMemoryBlock` inside of LlamaIndex's own ``Memory``, :class:`RMMRetriever`,
:class:`RMMNodePostprocessor` and :class:`CitationOutputParser` for query engines.
"""

from importlib.util import find_spec

from rmm_core.errors import MissingDependencyError

if find_spec("llama_index") is None:
    raise MissingDependencyError("llamaindex_rmm", "llamaindex")

from llamaindex_rmm._backend import IndexEmbedder, IndexLLM, open_memory
from llamaindex_rmm._tracing import as_span
from llamaindex_rmm.markers import hide_markers
from llamaindex_rmm.memory import RMMMemory
from llamaindex_rmm.memory_block import RMMMemoryBlock
from llamaindex_rmm.node_postprocessor import RMMNodePostprocessor
from llamaindex_rmm.output_parser import CitationOutputParser, CitedAnswer
from llamaindex_rmm.retriever import CITING_QA_TEMPLATE, RMMRetriever
from llamaindex_rmm.vector_store import VectorStoreSource
from rmm_core.tracing import watch

watch(as_span)

__all__ = [
    "CITING_QA_TEMPLATE",
    "CitationOutputParser",
    "CitedAnswer",
    "IndexEmbedder",
    "IndexLLM",
    "RMMMemory",
    "RMMMemoryBlock",
    "RMMNodePostprocessor",
    "RMMRetriever",
    "VectorStoreSource",
    "hide_markers",
    "open_memory",
]
