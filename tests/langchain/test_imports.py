"""What `import langchain_rmm` costs, offers, and says when LangChain is not there."""

from importlib import import_module
from pathlib import Path

import pytest

import langchain_rmm
from tests.fresh import python, without

EXPECTED = [
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


def test_the_public_names():
    assert sorted(langchain_rmm.__all__) == EXPECTED
    assert set(EXPECTED) <= set(dir(langchain_rmm))
    assert len(dir(langchain_rmm)) == len(set(dir(langchain_rmm)))


@pytest.mark.parametrize("name", EXPECTED)
def test_each_name_resolves_to_what_is_called_so(name):
    assert getattr(langchain_rmm, name).__name__ == name


def test_what_the_modules_define_in_public_is_exported_or_known_to_be_shared():
    shared = {"Said", "RMMState", "METADATA_KEY", "SearchMemory", "Remember", "Forget"}  # named by types and schemas
    for path in sorted(Path(langchain_rmm.__file__).parent.glob("[a-z]*.py")):
        module = import_module(f"langchain_rmm.{path.stem}")
        classes = {n for n, v in vars(module).items() if isinstance(v, type) and v.__module__ == module.__name__}
        assert {n for n in classes if n.isidentifier() and not n.startswith("_")} <= {*EXPECTED, *shared}, path.stem


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'langchain_rmm' has no attribute 'RMMRetreiver'"):
        langchain_rmm.RMMRetreiver  # noqa: B018  # asking is what is tested
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        from langchain_rmm import nothing  # noqa: F401


def test_importing_the_package_imports_no_framework():
    heavy = "('langchain_core', 'langchain', 'langchain_classic', 'langgraph', 'torch', 'faiss', 'pydantic')"
    assert python(f"import sys, langchain_rmm; print([n for n in {heavy} if n in sys.modules])") == "[]"


def test_every_name_together_imports_neither_the_other_framework_nor_torch():
    code = "import sys; from langchain_rmm import *; print([n for n in ('llama_index', 'torch') if n in sys.modules])"
    assert python(code) == "[]"


def test_the_retriever_does_not_import_agents_or_classic_chains():
    code = """
import sys
from langchain_rmm import CitationOutputParser, RMMRetriever, open_memory, turn_recorder
print([n for n in ("langchain.agents", "langchain_classic", "langgraph") if n in sys.modules])"""
    assert python(code) == "[]"


@pytest.mark.parametrize(
    ("missing", "use"),
    [
        ("langchain_core", "import langchain_rmm"),
        ("langchain_classic", "from langchain_rmm import RMMMemory"),
        ("langchain", "from langchain_rmm import RMMMiddleware"),
        ("langgraph", "from langchain_rmm import RMMMiddleware"),
    ],
)
def test_a_missing_part_of_langchain_names_the_extra(missing, use):
    assert python(without(missing, use)) == "langchain True True"


def test_what_is_missing_and_not_langchain_is_not_blamed_on_it():
    code = """
import sys
sys.modules["langchain_rmm._convert"] = None
import langchain_rmm
try:
    langchain_rmm.RMMRetriever
except ImportError as error:
    print(type(error).__name__, error.name)"""
    assert python(code) == "ModuleNotFoundError langchain_rmm._convert"
