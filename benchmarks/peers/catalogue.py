"""Who races: this memory in two ways, and others, each with the versions that its environment is made of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

WORKERS = Path(__file__).parent / "workers"
NUMPY = "numpy==2.4.6"


@dataclass(frozen=True)
class Entry:
    """A memory in the race.

    Attributes:
        label: What tables call it.
        script: Its worker, in ``workers``.
        variant: Which of the kinds that the worker knows.
        environment: The name of its environment; empty for this repository's own interpreter.
        requirements: What is installed there, pinned.
        durable: When a turn is where another process finds it.
    """

    label: str
    script: str
    variant: str
    environment: str
    requirements: tuple[str, ...]
    durable: str

    @property
    def path(self) -> Path:
        """The worker."""
        return WORKERS / self.script

    @property
    def lines(self) -> int:
        """Lines of the worker's code that set the memory up: all that are not blank, comments or texts about it."""
        return code_lines(self.path.read_text(encoding="utf-8"))


def code_lines(text: str) -> int:
    """Lines that hold code: not blank, no comments, no docstrings."""
    import ast

    kept = {n for n, line in enumerate(text.splitlines(), 1) if line.strip() and not line.lstrip().startswith("#")}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            kept -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(kept)


_LANGGRAPH = ("langgraph==1.2.24", "langgraph-checkpoint-sqlite==3.1.2", "pysqlite3-binary==0.5.4.post2")
_SQLITE = (*_LANGGRAPH, "langchain-core==1.8.3", "sqlite-vec==0.1.9", NUMPY)
_MEM0 = ("mem0ai==2.2.1", "qdrant-client==1.20.0", "faiss-cpu==1.15.1", NUMPY)
_LLAMAINDEX = ("llama-index-core==0.14.25", NUMPY)
_QDRANT = (*_LLAMAINDEX, "llama-index-vector-stores-qdrant==0.10.4", "qdrant-client==1.20.0")
_CHROMA = (*_LLAMAINDEX, "llama-index-vector-stores-chroma==0.6.0", "chromadb==1.5.9")
_LANGCHAIN = ("langchain-classic==1.0.8", "langchain-community==0.4.2", "faiss-cpu==1.15.1", NUMPY)

CATALOGUE = {
    "ours": Entry("**this memory**", "ours.py", "default", "", (), "as a session ends"),
    "ours-turns": Entry("this memory, each turn one", "ours.py", "turns", "", (), "as a session ends"),
    "mem0-qdrant": Entry("mem0, Qdrant", "mem0_memory.py", "qdrant", "mem0", _MEM0, "each turn"),
    "mem0-faiss": Entry("mem0, FAISS", "mem0_memory.py", "faiss", "mem0-faiss", _MEM0, "each turn"),
    "langgraph-memory": Entry("LangGraph InMemoryStore", "langgraph_store.py", "memory", "langgraph", _SQLITE, "never"),
    "langgraph-sqlite": Entry(
        "LangGraph SqliteStore", "langgraph_store.py", "sqlite", "langgraph-sqlite", _SQLITE, "each session"
    ),
    "langmem": Entry(
        "LangMem's tools", "langgraph_store.py", "langmem", "langmem", ("langmem==0.0.30", *_SQLITE), "never"
    ),
    "llamaindex-qdrant": Entry(
        "LlamaIndex block, Qdrant", "llamaindex_block.py", "qdrant", "llamaindex", _QDRANT, "each turn"
    ),
    "llamaindex-chroma": Entry(
        "LlamaIndex block, Chroma",
        "llamaindex_block.py",
        "chroma",
        "llamaindex-chroma",
        _CHROMA,
        "each turn",
    ),
    "langchain": Entry(
        "LangChain retriever memory", "langchain_retriever.py", "faiss", "langchain", _LANGCHAIN, "on close"
    ),
}
