"""Reflective memory for LlamaIndex (see :mod:`rmm_core` for the memory itself).

Begin with :func:`open_memory`. :class:`RMMRetriever` finds what a user said before; :class:`RMMNodePostprocessor` puts
the learned reranker behind any retriever; :class:`CitationOutputParser` reads what an answer cites.
"""

from importlib.util import find_spec

from rmm_core.errors import MissingDependencyError

if find_spec("llama_index") is None:
    raise MissingDependencyError("llamaindex_rmm", "llamaindex")

from llamaindex_rmm._backend import IndexEmbedder, IndexLLM, open_memory
from llamaindex_rmm.node_postprocessor import RMMNodePostprocessor
from llamaindex_rmm.output_parser import CitationOutputParser, CitedAnswer
from llamaindex_rmm.retriever import RMMRetriever

__all__ = [
    "CitationOutputParser",
    "CitedAnswer",
    "IndexEmbedder",
    "IndexLLM",
    "RMMNodePostprocessor",
    "RMMRetriever",
    "open_memory",
]
