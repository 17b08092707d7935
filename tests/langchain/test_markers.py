"""A model that hides its markers is the same model in everything else."""

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel, GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import tool

from langchain_rmm import hide_markers
from langchain_rmm.markers import citations_of
from tests.langchain.conftest import ScriptedChatModel

ASKED = [HumanMessage("What must I not eat?")]
CITING = "No hazelnuts [1]. Code like `a[0]` stays, and [a link](https://a.example) [1]."
CLEAN = "No hazelnuts. Code like `a[0]` stays, and [a link](https://a.example)."


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return city


@pytest.fixture
def recall(memory, told, llm):
    llm.enqueue("NO_TRAIT", "NO_TRAIT")
    told("ann", "I am allergic to hazelnuts.")
    return memory.recall("ann", "What must I not eat?", top_m=1)


@pytest.fixture
def cites(recall):
    def check(message):
        recall_id, citations = citations_of(message)
        return (recall_id, citations.numbers, citations.status) == (recall.id, (1,), "cited")

    return check


class Counter(BaseCallbackHandler):
    def __init__(self):
        self.starts, self.tokens, self.ends = 0, [], []

    def on_chat_model_start(self, *args, **kwargs):
        self.starts += 1

    def on_llm_new_token(self, token, **kwargs):
        self.tokens.append(token)

    def on_llm_end(self, response, **kwargs):
        self.ends.append(response.generations[0][0].text)


async def test_every_way_to_call_it(model, recall, cites):
    quiet = hide_markers(model, recall)
    model.enqueue(*[CITING] * 6)
    for message in (quiet.invoke(ASKED), await quiet.ainvoke(ASKED), quiet.batch([ASKED])[0]):
        assert message.text == CLEAN
        assert cites(message)
    for chunks in (list(quiet.stream(ASKED)), [c async for c in quiet.astream(ASKED)]):
        assert len(chunks) > 10
        whole = sum(chunks[1:], chunks[0])
        assert whole.text == CLEAN
        assert cites(whole)
        assert chunks[-1].chunk_position == "last"
        assert len({c.id for c in chunks}) == 1


def test_one_answer_is_one_run(model, recall):
    model.enqueue(CITING, CITING)
    seen = Counter()
    quiet = hide_markers(model, recall)
    quiet.invoke(ASKED, {"callbacks": [seen]})
    list(quiet.stream(ASKED, {"callbacks": [seen]}))
    assert seen.starts == 2
    assert seen.ends == [CLEAN, CLEAN]
    assert "".join(seen.tokens) == CLEAN


def test_callbacks_and_tags_of_the_model_are_kept(model, recall):
    seen = Counter()
    model = type(model)(callbacks=[seen], tags=["mine"], metadata={"team": "a"}).enqueue(CITING)
    quiet = hide_markers(model, recall)
    quiet.invoke(ASKED)
    assert (seen.starts, quiet.tags, quiet._llm_type) == (1, ["mine"], "scripted")


def test_tools_are_bound_as_the_model_binds_them(model, recall, cites):
    model.enqueue(AIMessage("Let me see [1]", tool_calls=[{"name": "weather", "args": {"city": "Graz"}, "id": "1"}]))
    model.enqueue(CITING)
    bound = hide_markers(model, recall).bind_tools([weather])
    assert bound.kwargs == {"tools": ["weather"]}
    calling = bound.invoke(ASKED)
    assert (calling.text, calling.tool_calls[0]["name"]) == ("Let me see", "weather")
    assert cites(bound.invoke(ASKED))


def test_a_real_provider_class_passes_through(recall):
    openai = pytest.importorskip("langchain_openai", exc_type=ImportError)
    model = openai.ChatOpenAI(model="gpt-4o-mini", api_key="none", base_url="http://127.0.0.1:9/v1")
    quiet = hide_markers(model, recall)
    assert quiet.model_name == "gpt-4o-mini"
    assert quiet.profile == model.profile
    assert quiet._get_ls_params() == model._get_ls_params()
    assert quiet.bind_tools([weather]).kwargs == model.bind_tools([weather]).kwargs
    with pytest.raises(AttributeError):
        quiet.no_such_thing  # noqa: B018  # asking is what is tested


class WithoutStream(BaseChatModel):
    @property
    def _llm_type(self):
        return "without stream"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        return ChatResult(generations=[ChatGeneration(message=AIMessage(CITING))])


class OnEventLoopsOnly(WithoutStream):
    async def _astream(self, messages, stop=None, run_manager=None, **kwargs):
        for word in CITING.split(" "):
            yield ChatGenerationChunk(message=AIMessageChunk(f"{word} "))


@pytest.mark.parametrize("kind", [WithoutStream, OnEventLoopsOnly])
async def test_models_that_do_not_stream(kind, recall, cites):
    quiet = hide_markers(kind(), recall)
    chunks = list(quiet.stream(ASKED))
    assert "".join(c.text for c in chunks) == CLEAN
    assert cites(sum(chunks[1:], chunks[0]))
    chunks = [c async for c in quiet.astream(ASKED)]
    assert (len(chunks) > 5) == (kind is OnEventLoopsOnly)
    assert "".join(c.text for c in chunks).strip() == CLEAN


def test_blocks_in_a_stream(recall, cites):
    class Blocks(WithoutStream):
        def _stream(self, messages, stop=None, run_manager=None, **kwargs):
            parts = [("reasoning", "hm [1]", 0), ("text", "No hazel", 1), ("text", "nuts [", 1), ("text", "1", 1)]
            for kind, text, index in parts:
                message = AIMessageChunk([{"type": kind, kind: text, "index": index}])
                yield ChatGenerationChunk(message=message)
            yield ChatGenerationChunk(message=AIMessageChunk([{"type": "text", "text": "]! [", "index": 1}]))

    chunks = list(hide_markers(Blocks(), recall).stream(ASKED))
    whole = sum(chunks[1:], chunks[0])
    assert whole.text == "No hazelnuts! ["
    assert whole.content[0]["reasoning"] == "hm [1]"
    assert len(whole.content) == 2
    assert cites(whole)


def test_a_langchain_fake_and_an_error(recall):
    quiet = hide_markers(GenericFakeChatModel(messages=iter([AIMessage(CITING)])), recall)
    assert "".join(c.text for c in quiet.stream(ASKED)) == CLEAN

    def fails(messages):
        raise ConnectionError("down")

    with pytest.raises(ConnectionError, match="down"):
        hide_markers(ScriptedChatModel().enqueue(fails), recall).invoke(ASKED)
    assert citations_of(AIMessage("plain")) is None


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda model: model.bind(stop=["x"]),
        lambda model: model.with_retry(),
        lambda model: model.with_config(tags=["mine"]),
        lambda model: model.with_fallbacks([ScriptedChatModel()]),
    ],
)
def test_a_model_inside_of_something(model, recall, cites, wrapped):
    model.enqueue(CITING)
    chunks = list(hide_markers(wrapped(model), recall).stream(ASKED))
    assert "".join(c.text for c in chunks) == CLEAN
    assert cites(sum(chunks[1:], chunks[0]))


def test_what_is_no_model_is_refused(recall):
    with pytest.raises(TypeError, match="markers are hidden in chat models; got str"):
        hide_markers("openai:gpt-4o", recall)


def test_a_cache_keeps_turns_apart(model, memory, recall):
    other = memory.recall("ann", "What must I not eat?", top_m=1)
    cached = type(model)(cache=InMemoryCache()).enqueue(CITING, CITING)
    noted = [citations_of(hide_markers(cached, r).invoke(ASKED))[0] for r in (recall, other)]
    assert noted == [recall.id, other.id]


def test_a_stream_of_nothing_is_an_error_as_it_is_for_the_model(recall):
    class Silent(WithoutStream):
        def _stream(self, messages, stop=None, run_manager=None, **kwargs):
            yield from ()

    for model in (Silent(), hide_markers(Silent(), recall)):
        with pytest.raises(ValueError, match="No generation"):
            list(model.stream(ASKED))


@pytest.mark.parametrize("reply", ['{"ids": [1]}', '[{"id": [1]}]'])
def test_data_is_left_alone(model, recall, reply):
    assert hide_markers(model.enqueue(reply), recall).invoke(ASKED).text == reply
    assert "".join(c.text for c in hide_markers(model.enqueue(reply), recall).stream(ASKED)) == reply


@pytest.mark.parametrize(
    "other",
    [
        HumanMessage("[1] fish or [2] meat?"),
        SystemMessage("Cite the documents.\n[1] The manual\n[2] The almanac"),
        ToolMessage("Results:\n[1] a page\n[2] another", tool_call_id="1"),
    ],
)
def test_where_a_request_has_numbers_of_its_own_none_are_ours(model, recall, other):
    answer = hide_markers(model.enqueue(CITING), recall).invoke([*ASKED, other])
    assert answer.text == CITING
    assert citations_of(answer)[1].numbers == ()
    assert hide_markers(model.enqueue("None [1]. [NO_CITE]"), recall).invoke([*ASKED, other]).text == "None [1]."
    harmless = [
        SystemMessage("Reply like this: Paris is nice [1]."),
        AIMessage("[1]"),
        ToolMessage('{"ids": [1, 2]}', tool_call_id="1"),
    ]
    earlier = [] if isinstance(other, SystemMessage) else [other]
    assert hide_markers(model.enqueue(CITING), recall).invoke([*earlier, *ASKED, *harmless]).text == CLEAN
