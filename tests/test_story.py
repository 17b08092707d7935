"""The story through every host of both frameworks, in every way to call it; all end alike."""

import re

import pytest
from llama_index.core.base.llms.types import ChatMessage

from rmm_core import Citations, ReflectiveMemory, RMMConfig
from rmm_core.testing import HashEmbedder
from tests import story
from tests.conftest import Clock
from tests.langchain import hosts as langchain
from tests.langchain.conftest import ScriptedChatModel
from tests.llamaindex import hosts as llamaindex
from tests.llamaindex.conftest import ScriptedIndexLLM
from tests.vector_stores import STORES, open_with


class PromptedChatModel(ScriptedChatModel):
    """The story's replies are functions of the prompt as one text."""

    def enqueue(self, *replies):
        return super().enqueue(*(self.of_text(r) if callable(r) else r for r in replies))

    @staticmethod
    def of_text(reply):
        return lambda messages: reply("\n".join(m.text for m in messages))


class PromptedIndexLLM(ScriptedIndexLLM):
    """The same for LlamaIndex; a question to condense comes back as it is, and no line of the script is used up."""

    thought: str = ""  # what a ReAct agent thinks before it answers

    def next(self, messages):
        text = "\n".join(m.content or "" for m in messages)
        if "standalone question" in text:
            (question,) = re.findall(r"(?:Follow Up (?:Input|Message)|<Follow Up Message>):?\s*(.*)", text)[-1:]
            return ChatMessage(question, role="assistant")
        return super().next(messages)

    def enqueue(self, *replies):
        return super().enqueue(*(self.of_text(r) for r in replies))

    def of_text(self, reply):
        def text(messages):
            words = reply("\n".join(m.content or "" for m in messages)) if callable(reply) else reply
            return self.thought + words

        return text


class Core:
    """The core alone: what all hosts are held to."""

    def __init__(self, memory, model, way):
        self.memory, self.model = memory, model

    def say(self, session_id, text):
        recall = self.memory.recall(story.USER, text)
        reply = self.model.invoke(recall.instructions() or "hello").text
        answer = self.memory.chat(story.USER, session_id=session_id).record(text, reply, recall)
        assert isinstance(answer.citations, Citations)
        return answer.text

    def end(self, session_id):
        self.memory.chat(story.USER, session_id=session_id).end()


def told(memory, host, way, model):
    story.play(host(memory, model, way), memory, model)
    assert model.left == 0
    story.check(memory)
    return story.outcome(memory)


CONFIG = RMMConfig(batch_size=1, attribution="markers")


@pytest.fixture(scope="module")
def by_core(tmp_path_factory):
    place = tmp_path_factory.mktemp("core") / "memory.db"
    with ReflectiveMemory.open(place, embedder=HashEmbedder(), clock=Clock(), config=CONFIG) as memory:
        return told(memory, Core, "invoke", PromptedChatModel())


@pytest.mark.parametrize(
    ("name", "way"),
    [("core", "invoke")]
    + [(f"langchain {name}", langchain.WAYS[0]) for name in langchain.HOSTS]
    + [(f"llamaindex {name}", llamaindex.WAYS[-1]) for name in llamaindex.HOSTS],
)
def test_one_story_on_postgres(postgres_url, by_core, name, way):
    framework, _, host = name.partition(" ")
    hosts, model = {
        "core": ({"": Core}, PromptedChatModel()),
        "langchain": (langchain.HOSTS, PromptedChatModel()),
        "llamaindex": (llamaindex.HOSTS, PromptedIndexLLM()),
    }[framework]
    with ReflectiveMemory.open(postgres_url, embedder=HashEmbedder(), clock=Clock(), config=CONFIG) as memory:
        assert told(memory, hosts[host], way, model) == by_core


@pytest.mark.parametrize("place", ["core", "postgres"])
@pytest.mark.parametrize("name", STORES)
def test_one_story_with_a_vector_store(request, tmp_path, by_core, name, place):
    adapter, made = STORES[name]
    at = tmp_path / "memory.db" if place == "core" else request.getfixturevalue("postgres_url")
    with made(request) as (store, count):
        with open_with(adapter, at, store, clock=Clock(), config=CONFIG) as memory:
            assert told(memory, Core, "invoke", PromptedChatModel()) == by_core
            assert count() == len(memory.memories(story.USER))
            memory.forget_user(story.USER)
            assert count() == 0


@pytest.mark.parametrize(
    ("name", "way"),
    [(f"langchain {name}", way) for name in langchain.HOSTS for way in langchain.WAYS]
    + [(f"llamaindex {name}", way) for name in llamaindex.HOSTS for way in llamaindex.WAYS],
)
def test_one_story(open_memory, by_core, name, way):
    framework, _, host = name.partition(" ")
    hosts, model = (langchain, PromptedChatModel()) if framework == "langchain" else (llamaindex, PromptedIndexLLM())
    with open_memory(config=CONFIG) as memory:
        assert told(memory, hosts.HOSTS[host], way, model) == by_core
