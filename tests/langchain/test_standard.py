"""LangChain's own tests of retrievers and tools, none of them overridden."""

import pytest
from langchain_tests.integration_tests import RetrieversIntegrationTests, ToolsIntegrationTests
from langchain_tests.unit_tests import ToolsUnitTests

from langchain_rmm import RMMRetriever, memory_tools


@pytest.fixture
def memory(open_memory):
    return open_memory()


@pytest.fixture(autouse=True)
def filled(request, memory, told):
    """Gives each test class a memory of four facts, since its properties cannot ask for fixtures."""
    for fact in ("I keep bees in Graz.", "I play the violin.", "My cat is called Tofu.", "I drink oolong tea."):
        told("ann", fact)
    request.instance.memory = memory
    request.instance.tools = {tool.name: tool for tool in memory_tools(memory, "ann")}


class TestRetriever(RetrieversIntegrationTests):
    @property
    def retriever_constructor(self):
        return RMMRetriever

    @property
    def retriever_constructor_params(self):
        return {"memory": self.memory, "user_id": "ann"}

    @property
    def retriever_query_example(self):
        return "Where do I keep bees?"


class Search:
    @property
    def tool_constructor(self):
        return self.tools["search_memory"]

    @property
    def tool_invoke_params_example(self):
        return {"query": "bees", "limit": 2}


class Remember:
    @property
    def tool_constructor(self):
        return self.tools["remember"]

    @property
    def tool_invoke_params_example(self):
        return {"fact": "I moved to Linz."}


class Forget:
    @property
    def tool_constructor(self):
        return self.tools["forget"]

    @property
    def tool_invoke_params_example(self):
        return {"memory_id": self.memory.memories("ann")[0].id}


class TestSearchUnit(Search, ToolsUnitTests):
    pass


class TestSearch(Search, ToolsIntegrationTests):
    pass


class TestRememberUnit(Remember, ToolsUnitTests):
    pass


class TestRemember(Remember, ToolsIntegrationTests):
    pass


class TestForgetUnit(Forget, ToolsUnitTests):
    pass


class TestForget(Forget, ToolsIntegrationTests):
    pass
