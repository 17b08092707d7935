"""What `import llamaindex_rmm` offers, and says when LlamaIndex is not there."""

from importlib import import_module
from pathlib import Path

import pytest

import llamaindex_rmm
from tests.fresh import python, without

EXPECTED = [
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


def test_the_public_names():
    assert sorted(llamaindex_rmm.__all__) == EXPECTED
    for path in sorted(Path(llamaindex_rmm.__file__).parent.glob("[a-z]*.py")):
        module = import_module(f"llamaindex_rmm.{path.stem}")
        classes = {n for n, v in vars(module).items() if isinstance(v, type) and v.__module__ == module.__name__}
        assert {n for n in classes if n.isidentifier() and not n.startswith("_")} <= set(EXPECTED), path.stem


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("RMMMemory", "BaseMemory"),
        ("RMMMemoryBlock", "BaseMemoryBlock"),
        ("RMMNodePostprocessor", "BaseNodePostprocessor"),
        ("RMMRetriever", "BaseRetriever"),
        ("CitationOutputParser", "BaseOutputParser"),
    ],
)
def test_each_is_what_llamaindex_asks_for(name, base):
    kind = getattr(llamaindex_rmm, name)
    assert base in [c.__name__ for c in kind.__mro__]
    if hasattr(kind, "class_name"):
        assert kind.class_name() == name


def test_it_imports_neither_the_other_framework_nor_what_is_slow():
    code = """
import sys
from llamaindex_rmm import *
print([n for n in ("langchain_core", "torch", "faiss", "transformers") if n in sys.modules])"""
    assert python(code) == "[]"


def test_without_llamaindex_the_extra_is_named():
    assert python(without("llama_index", "import llamaindex_rmm")) == "llamaindex True True"
