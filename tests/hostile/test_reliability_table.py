"""The page on reliability names tests that exist, one for every fault, and every public report it answers to."""

import ast
import importlib
import re
from functools import cache

import pytest

from tests.conftest import ROOT

PAGE = ROOT / "docs" / "reliability.md"
ISSUES = """
mem0#1855 mem0#1970 mem0#2736 mem0#2892 mem0#3008 mem0#3184 mem0#3246 mem0#3391 mem0#3707 mem0#3729 mem0#3931 mem0#4212
mem0#4536 mem0#4573 mem0#4607 mem0#5148 mem0#5642 mem0#6448 mem0#6515 mem0#7117 mem0#7196 hindsight#44 hindsight#2453
hindsight#3876 graphiti#1707 letta#2601 CVE-2026-71433 adk-python#1019 cognee#3236 llama_index#9371 llama_index#19026
llama_index#19228 llama_index#22701 llama_index#23144 langchain#33474 crewAI#5057 MemOS#2277 EverOS#73
""".split()


def rows():
    """The rows of the table, without its heads."""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        if line.startswith("| ") and "tests/" in line:
            yield cells


@cache
def names(path):
    """The functions of a module, and the classes with theirs."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {
        node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }


def exists(path, first, *method):
    """Whether a module has a test, of its own or of a class that it builds on."""
    node = names(path).get(first)
    if node is None or not method:
        return node is not None and not isinstance(node, ast.ClassDef)
    if any(getattr(inner, "name", "") == method[0] for inner in node.body):
        return True
    return callable(getattr(getattr(importlib.import_module(path[:-3].replace("/", ".")), first), method[0], None))


def test_every_row_says_what_is_done_and_names_tests():
    found = list(rows())
    assert len(found) > 50
    for cells in found:
        fault, what, tests = cells
        assert fault
        assert what
        assert re.fullmatch(r"`[\w/.:]+`(, `[\w/.:]+`)*", tests), tests


@pytest.mark.parametrize("named", sorted({n for cells in rows() for n in re.findall(r"`([^`]+)`", cells[2])}))
def test_what_the_page_names_exists(named):
    path, *test = named.split("::")
    assert (ROOT / path).is_file()
    assert test
    assert test[-1].startswith("test_")
    assert exists(path, *test), named


def test_a_test_that_is_not_there_would_be_noticed():
    assert not exists("tests/core/test_memory.py", "test_of_nothing")
    assert not exists("tests/core/test_sqlite_store.py", "TestFile", "test_of_nothing")
    assert exists("tests/core/test_sqlite_store.py", "TestFile", "test_deleted_is_gone")


def test_every_public_report_has_a_row():
    page = " ".join(cells[0] for cells in rows())
    assert [issue for issue in ISSUES if not re.search(rf"{re.escape(issue)}\b", page)] == []
