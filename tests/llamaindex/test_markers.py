"""A model that hides its markers is the same model in everything else."""

import copy

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    LLMMetadata,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.callbacks import CallbackManager
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers.base import BaseEventHandler
from llama_index.core.llms import CustomLLM, MockLLM
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from pydantic import BaseModel, Field, PrivateAttr

from llamaindex_rmm import hide_markers
from rmm_core import ConfigError, RMMConfig
from tests.llamaindex.conftest import ScriptedIndexLLM, calling

QUESTION = "What must I not eat?"
CITING = "No hazelnuts [1]. Code like `a[0]` stays, and [a link](https://a.example) [1]."
CLEAN = "No hazelnuts. Code like `a[0]` stays, and [a link](https://a.example)."
ACTION = 'Action: weather\nAction Input: {"city": "Graz [1]", "days": [1]}'
TOOLS = [FunctionTool.from_defaults(lambda city: city, name="weather", description="The weather of a city.")]
WAYS = (
    "chat",
    "achat",
    "stream_chat",
    "astream_chat",
    "complete",
    "acomplete",
    "stream_complete",
    "chat_with_tools",
    "achat_with_tools",
    "stream_chat_with_tools",
    "astream_chat_with_tools",
)


class Cut(ScriptedIndexLLM):
    """Streams pieces that end where it is told."""

    _ends: list = PrivateAttr(default_factory=list)

    def cut(self, *ends):
        self._ends = sorted(ends)
        return self

    def chunks(self, message):
        text, start = message.content, 0
        for end in [*(e for e in self._ends if e < len(text)), len(text)]:
            yield ChatResponse(message=ChatMessage(text[:end], role="assistant"), delta=text[start:end])
            start = end


class Plain(CustomLLM):
    """Calls no functions, has settings of its own, and reports as LlamaIndex's models do."""

    temperature: float = 0.3

    @property
    def metadata(self):
        return LLMMetadata(model_name="plain", context_window=512)

    @llm_completion_callback()
    def complete(self, prompt, formatted=False, **kwargs):
        return CompletionResponse(text=CITING, raw={"prompt": prompt})

    @llm_completion_callback()
    def stream_complete(self, prompt, formatted=False, **kwargs):
        return (CompletionResponse(text=CITING[: i + 1], delta=piece) for i, piece in enumerate(CITING))


@pytest.fixture
def memory(open_memory):
    return open_memory(config=RMMConfig(batch_size=1, attribution="markers"))


@pytest.fixture
def recall(memory, told):
    told("ann", "I am allergic to hazelnuts.")
    return memory.recall("ann", QUESTION, top_m=1)


@pytest.fixture
def asked(recall):
    return asking(recall)


def asking(*recalls):
    return "\n".join([*(r.instructions(named=True) for r in recalls), QUESTION])


def read(memory, text):
    """What was read from an answer: the recall, the numbers and the status."""
    found = memory.recent.take("ann", text)
    return None if found is None else (found[0].id, found[1].numbers, found[1].status)


def text_of(response):
    return response.text if isinstance(response, CompletionResponse) else response.message.content


async def replies(llm, way, prompt):
    """The reply, or the chunks of it; checks that the chunks add up."""
    requests = {"complete": prompt, "tools": (TOOLS, prompt), "chat": [ChatMessage(prompt)]}
    request = next(r for kind, r in requests.items() if way.endswith(kind))
    found = getattr(llm, way)(*request) if isinstance(request, tuple) else getattr(llm, way)(request)
    if way.startswith("a"):
        found = await found
    if "stream" not in way:
        return [found]
    chunks = [c async for c in found] if way.startswith("a") else list(found)
    for end, chunk in enumerate(chunks, start=1):
        assert text_of(chunk) == "".join(c.delta for c in chunks[:end])
    return chunks


# -- what is hidden ------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
async def test_every_way_to_call_it(memory, model, recall, asked, way):
    chunks = await replies(hide_markers(model.enqueue(CITING), memory), way, asked)
    assert text_of(chunks[-1]) == CLEAN
    assert (len(chunks) > 10) == ("stream" in way)
    assert read(memory, CLEAN) == (recall.id, (1,), "cited")


@pytest.mark.parametrize("way", [w for w in WAYS if "tools" not in w] + ["astream_complete"])
async def test_every_way_to_call_a_model_without_functions(memory, recall, asked, way):
    chunks = await replies(hide_markers(Plain(), memory), way, asked)
    assert text_of(chunks[-1]) == CLEAN
    assert read(memory, CLEAN) == (recall.id, (1,), "cited")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "prompt", ["What does the paper say?", '<memories>\n(no memories were found)\n</memories> "x"']
)
async def test_a_request_that_shows_no_memory_passes_through(memory, model, way, prompt):
    model.enqueue("That it works, see [1].")
    chunks = await replies(hide_markers(model, memory), way, prompt)
    assert text_of(chunks[-1]) == "That it works, see [1]."
    assert read(memory, "That it works, see [1].") is None


@pytest.mark.parametrize("way", [w for w in WAYS if "tools" in w])
async def test_memories_in_the_history_of_a_tool_loop(memory, model, recall, asked, way):
    model.enqueue(CITING)
    history = [ChatMessage(asked), calling("weather", city="Graz"), ChatMessage("It rains.", role="tool")]
    found = getattr(hide_markers(model, memory), way)(tools=TOOLS, chat_history=history)
    found = await found if way.startswith("a") else found
    if "stream" in way:
        *_, found = [c async for c in found] if way.startswith("a") else list(found)
    assert found.message.content == CLEAN
    assert model.history[-1] == history
    assert read(memory, CLEAN) == (recall.id, (1,), "cited")


@pytest.mark.parametrize(
    ("reply", "shown", "answer", "cites"),
    [
        (CITING, CLEAN, CLEAN, ((1,), "cited")),
        ("Thought: From [1].\nAnswer: 4. [NO_CITE]", "Thought: From.\nAnswer: 4.", "4.", ((), "none")),
        (f"Thought: I look [1].\n{ACTION}", f"Thought: I look.\n{ACTION}", None, None),
        (f"{ACTION} [1]", f"{ACTION} [1]", None, None),
        ("None of them [7], [", "None of them, [", "None of them, [", ((), "malformed")),
    ],
)
@given(ends=st.sets(st.integers(1, 80)))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_cut_of_a_stream_gives_the_same(memory, recall, asked, reply, shown, answer, cites, ends):
    model = Cut().cut(*ends).enqueue(reply, reply)
    quiet = hide_markers(model, memory)
    assert quiet.chat([ChatMessage(asked)]).message.content == shown
    chunks = list(quiet.stream_chat([ChatMessage(asked)]))
    assert "".join(c.delta for c in chunks) == chunks[-1].message.content == shown
    if answer is not None:
        assert read(memory, answer) == (recall.id, *cites)


@pytest.mark.parametrize("reply", ["Go [1Action Input: x [1]", "tea[1]Action Input: [1]", "Action [1] Action Inp"])
@given(ends=st.sets(st.integers(1, 30)))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_cut_beside_what_a_tool_gets_gives_the_same(memory, asked, reply, ends):
    model = Cut().cut(*ends).enqueue(reply, reply)
    whole = hide_markers(model, memory).chat([ChatMessage(asked)]).message.content
    chunks = list(hide_markers(model, memory).stream_chat([ChatMessage(asked)]))
    assert "".join(c.delta for c in chunks) == chunks[-1].message.content == whole


def test_half_a_marker_is_never_seen(memory, asked):
    model = Cut().cut(12, 14, 15).enqueue("No hazelnuts [1].")
    chunks = list(hide_markers(model, memory).stream_chat([ChatMessage(asked)]))
    assert not any("[" in c.message.content for c in chunks)
    assert chunks[-1].message.content == "No hazelnuts."


def test_numbers_of_two_recalls_are_hidden_and_mean_nothing(memory, model, recall):
    other = memory.recall("ann", "Which nuts?", top_m=1)
    assert hide_markers(model.enqueue(CITING), memory).complete(asking(recall, other)).text == CLEAN
    assert read(memory, CLEAN) is None


def test_numbers_of_a_recall_that_is_not_known_here_mean_nothing(memory, open_memory, model, asked):
    other = open_memory(place=":memory:")
    assert hide_markers(model.enqueue(CITING), other).complete(asked).text == CLEAN
    assert read(other, CLEAN) is None
    assert read(memory, CLEAN) is None


def test_a_forgotten_users_answer_is_read_by_nobody(memory, model, asked):
    memory.forget_user("ann")
    assert hide_markers(model.enqueue(CITING), memory).complete(asked).text == CLEAN
    assert read(memory, CLEAN) is None


async def test_predictions_are_answers_too(memory, model, asked):
    quiet, template = hide_markers(model.enqueue(*[CITING] * 3), memory), PromptTemplate("{asked}")
    assert quiet.predict(template, asked=asked) == CLEAN
    assert await quiet.apredict(template, asked=asked) == CLEAN
    assert "".join(quiet.stream(template, asked=asked)) == CLEAN


# -- what stays ----------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["achat_with_tools", "stream_chat_with_tools"])
async def test_tool_calls_and_thoughts_survive(memory, model, asked, way):
    thought = ThinkingBlock(content="Memory [1] says so.")
    call = ToolCallBlock(tool_call_id="1", tool_name="weather", tool_kwargs={"city": "Graz [1]"})
    blocks = [thought, TextBlock(text="Let me look [1]."), call]
    model.enqueue(ChatMessage(role="assistant", blocks=blocks, additional_kwargs={"id": "m1"}))
    found = (await replies(hide_markers(model, memory), way, asked))[-1]
    assert found.message.blocks == [thought, TextBlock(text="Let me look."), call]
    assert found.message.additional_kwargs == {"id": "m1"}
    (selected,) = hide_markers(model, memory).get_tool_calls_from_response(found)
    assert (selected.tool_name, selected.tool_kwargs) == ("weather", {"city": "Graz [1]"})


def test_a_call_without_words_stays_as_it_is(memory, model, asked):
    model.enqueue(calling("weather", days="[1]"))
    found = hide_markers(model, memory).chat_with_tools(TOOLS, asked)
    assert found.message == calling("weather", days="[1]")


class Meal(BaseModel):
    """A meal."""

    dish: str


@pytest.mark.parametrize("calls_functions", [True, False])
async def test_structured_output_is_the_models(memory, asked, calls_functions):
    soup = Meal(dish="soup [1]")
    model = ScriptedIndexLLM(calls_functions=calls_functions)
    model.enqueue(*[calling("Meal", dish=soup.dish) if calls_functions else soup.model_dump_json()] * 6)
    quiet, template = hide_markers(model, memory), PromptTemplate("{asked}")
    assert quiet.structured_predict(Meal, template, asked=asked) == soup
    assert await quiet.astructured_predict(Meal, template, asked=asked) == soup
    structured = quiet.as_structured_llm(Meal)
    assert structured.llm is model
    assert hide_markers(structured, memory) is structured
    assert structured.chat([ChatMessage(asked)]).raw == soup


@pytest.mark.parametrize("calls_functions", [True, False])
async def test_structured_output_that_streams_is_the_models(memory, asked, calls_functions):
    model, soup = ScriptedIndexLLM(calls_functions=calls_functions), Meal(dish="soup [1]")
    model.enqueue(*[calling("Meal", dish=soup.dish) if calls_functions else soup.model_dump_json()] * 3)
    quiet, template = hide_markers(model, memory), PromptTemplate("{asked}")
    try:
        streams = [list(llm.stream_structured_predict(Meal, template, asked=asked)) for llm in (model, quiet)]
    except NotImplementedError:
        pytest.skip("this LlamaIndex streams structured output of models that call functions alone")
    streams.append([m async for m in await quiet.astream_structured_predict(Meal, template, asked=asked)])
    first, *others = [[meal.model_dump() for meal in stream] for stream in streams]
    assert others == [first, first]


def test_it_is_a_model_of_its_kind(memory, model):
    assert isinstance(hide_markers(model, memory), FunctionCallingLLM)
    for plain in (Plain(), MockLLM()):
        assert not isinstance(hide_markers(plain, memory), FunctionCallingLLM)
    assert hide_markers(ScriptedIndexLLM(calls_functions=False), memory).metadata.is_function_calling_model is False


def test_what_an_app_asks_a_model_for_is_the_models_own(memory):
    callbacks = CallbackManager([])
    plain = Plain(temperature=0.7, system_prompt="Be brief.", callback_manager=callbacks)
    quiet = hide_markers(plain, memory)
    assert (quiet.temperature, quiet.system_prompt, quiet.metadata) == (0.7, "Be brief.", plain.metadata)
    assert quiet.callback_manager is callbacks
    assert quiet.messages_to_prompt is plain.messages_to_prompt
    with pytest.raises(AttributeError, match="no_such_thing"):
        quiet.no_such_thing  # noqa: B018  # asking is what is tested
    assert "ReflectiveMemory" not in repr(quiet)
    assert "memory" not in quiet.to_dict()


def test_the_system_prompt_is_sent_once(memory, model):
    model = ScriptedIndexLLM(system_prompt="Be brief.").enqueue("Yes, I will.")
    hide_markers(model, memory).predict(PromptTemplate("Sure?"))
    assert [m.content for m in model.history[0]] == ["Be brief.", "Sure?"]


def test_wrapping_twice_is_wrapping_once(memory, open_memory, model):
    quiet = hide_markers(model, memory)
    assert hide_markers(quiet, memory) is quiet
    assert hide_markers(quiet, open_memory(place=":memory:")) is not quiet


def test_what_is_no_model_or_no_memory_is_refused(memory, model):
    with pytest.raises(ConfigError, match="markers are hidden in a LlamaIndex LLM; got str"):
        hide_markers("gpt-4o", memory)
    with pytest.raises(ConfigError, match=r"open_memory returns; got str"):
        hide_markers(model, "memory.db")


@pytest.mark.parametrize("way", ["chat", "stream_chat"])
def test_a_failure_and_silence_are_the_models(memory, model, asked, way):
    quiet = hide_markers(model.enqueue(ConnectionError("down"), ""), memory)
    with pytest.raises(ConnectionError, match="down"):
        getattr(quiet, way)([ChatMessage(asked)])
    silence = getattr(quiet, way)([ChatMessage(asked)])
    assert (silence.message.content == "") if way == "chat" else (list(silence) == [])


@pytest.mark.parametrize("way", ["chat", "achat", "stream_chat", "astream_chat"])
async def test_one_answer_is_one_event(memory, asked, way):
    class Events(BaseEventHandler):
        seen: list = Field(default_factory=list)

        def handle(self, event, **kwargs):
            self.seen.append(event.class_name())

    root = get_dispatcher()
    counted = []
    for llm in (Plain(), hide_markers(Plain(), memory)):
        events = Events()
        root.add_event_handler(events)
        try:
            await replies(llm, way, asked)
        finally:
            root.event_handlers.remove(events)
        counted.append([events.seen.count(kind) for kind in ("LLMChatStartEvent", "LLMChatEndEvent")])
    assert counted[0] == counted[1]
    assert min(counted[0]) >= 1


# -- what is no marker -----------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [1, 3, 100])
@pytest.mark.parametrize(
    "reply",
    [
        '{"ids": [1], "list": [[1]]}',
        ' [{"id": [1]}]',
        '["a", [1]]',
        "[[1], [1]]",
        "Let me see.<execute>\nx = [1]\n</execute>",
    ],
)
def test_data_and_programs_are_left_alone(memory, asked, reply, cut):
    model = Cut().cut(*range(cut, len(reply), cut)).enqueue(reply, reply)
    quiet = hide_markers(model, memory)
    assert quiet.chat([ChatMessage(asked)]).message.content == reply
    assert "".join(c.delta for c in quiet.stream_chat([ChatMessage(asked)])) == reply


@pytest.mark.parametrize(
    ("role", "text"),
    [
        ("user", "[1] fish or [2] meat?"),
        ("user", "Tom ran [12], Rex slept [13]. Which source says that Tom ran?"),
        ("system", "Cite the documents.\n[1] The manual\n[2] The almanac"),
        ("tool", "Results:\n[1] a page\n[2] another"),
        ("user", "Observation: Results:\n[1] a page"),
    ],
)
def test_where_a_request_has_numbers_of_its_own_none_are_ours(memory, model, recall, asked, role, text):
    quiet = hide_markers(model.enqueue(CITING), memory)
    request = [ChatMessage(asked), ChatMessage(text, role=role)]
    assert quiet.chat(request).message.content == CITING
    assert read(memory, CITING) == (recall.id, (), "silent")
    model.enqueue("Nothing helps [1]. [NO_CITE]")
    assert quiet.chat(request).message.content == "Nothing helps [1]."
    model.enqueue(CITING)
    harmless = [
        ChatMessage("Reply like this: Paris is nice [1].", role="system"),
        ChatMessage(text, role="assistant"),
        ChatMessage('{"ids": [1, 2], "of": [\n1\n]}', role="tool"),
    ]
    earlier = [] if role == "system" else [ChatMessage(text)]
    assert quiet.chat([*earlier, ChatMessage(asked), *harmless]).message.content == CLEAN


@pytest.mark.parametrize("cut", [1, 2, 100])
@pytest.mark.parametrize(
    ("reply", "clean"),
    [
        ("[[1]] No hazelnuts.", "No hazelnuts."),
        ("{name} stands for hazelnuts [1].", "{name} stands for hazelnuts."),
        ("[[Hazelnuts]] are out [1].", "[[Hazelnuts]] are out."),
        ("[Note] No hazelnuts [1].", "[Note] No hazelnuts."),
        ("[a list](https://a.example) [1]", "[a list](https://a.example)"),
    ],
)
def test_prose_that_begins_like_data_is_prose(memory, recall, asked, reply, clean, cut):
    quiet = hide_markers(Cut().cut(*range(cut, len(reply), cut)).enqueue(reply, reply), memory)
    assert quiet.chat([ChatMessage(asked)]).message.content == clean
    assert "".join(c.delta for c in quiet.stream_chat([ChatMessage(asked)])) == clean
    assert read(memory, clean) == (recall.id, (1,), "cited")


def test_a_stream_that_tells_no_deltas(memory, asked):
    class NoDelta(ScriptedIndexLLM):
        @staticmethod
        def chunks(message):
            return (ChatResponse(message=c.message) for c in ScriptedIndexLLM.chunks(message))

    chunks = list(hide_markers(NoDelta().enqueue(CITING), memory).stream_chat([ChatMessage(asked)]))
    assert "".join(c.delta for c in chunks) == chunks[-1].message.content == CLEAN


def test_what_is_set_on_the_wrapped_model_is_set_on_the_model(memory):
    plain = Plain()
    quiet = hide_markers(plain, memory)
    quiet.temperature, quiet.callback_manager = 0.9, CallbackManager([])
    assert plain.temperature == quiet.temperature == 0.9
    assert plain.callback_manager is quiet.callback_manager
    assert copy.deepcopy(quiet).inner is plain


def test_a_model_wrapped_for_another_memory_is_wrapped_anew(memory, open_memory, model, recall, asked):
    other = open_memory(place=":memory:")
    quiet = hide_markers(hide_markers(model.enqueue(CITING), other), memory)
    assert quiet.inner is model
    assert quiet.complete(asked).text == CLEAN
    assert read(memory, CLEAN)[0] == recall.id


def test_memories_of_another_memory_are_told_of(memory, open_memory, model, asked, caplog):
    hide_markers(model.enqueue(CITING), open_memory(place=":memory:")).complete(asked)
    assert "memories of another memory" in caplog.text
