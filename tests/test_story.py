"""The story through every host, in every way to call it: the same bank, the same citations, no marker."""

import pytest

from rmm_core import Citations, RMMConfig
from tests import story
from tests.langchain import hosts as langchain_hosts
from tests.langchain.conftest import ScriptedChatModel


class Prompted(ScriptedChatModel):
    """The story's replies are functions of the prompt as one text."""

    def enqueue(self, *replies):
        return super().enqueue(*(self.of_text(r) if callable(r) else r for r in replies))

    @staticmethod
    def of_text(reply):
        return lambda messages: reply("\n".join(m.text for m in messages))


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


def told(memory, host, way):
    model = Prompted()
    story.play(host(memory, model, way), memory, model)
    assert model.left == 0
    story.check(memory)
    return story.outcome(memory)


@pytest.mark.parametrize("way", langchain_hosts.WAYS)
@pytest.mark.parametrize("host", langchain_hosts.HOSTS)
def test_langchain(open_memory, tmp_path, host, way):
    config = RMMConfig(batch_size=1, attribution="markers")
    by_core = told(open_memory(config=config), Core, way)
    with open_memory(config=config, place=tmp_path / "host.db") as memory:
        assert told(memory, langchain_hosts.HOSTS[host], way) == by_core
