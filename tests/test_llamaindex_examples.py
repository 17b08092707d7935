"""The LlamaIndex cookbooks tell their stories offline, what is mistyped is named, and their models are LlamaIndex's."""

import asyncio
import re

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.tools import FunctionTool

from tests.example_endpoint import Endpoint
from tests.example_runs import check_complaint, check_story, examples, here, sessions
from tests.local_server import serving

pytestmark = pytest.mark.timeout(300)
STORIES = {  # what each remembers: (in which session, what is said, what the answer holds)
    "llamaindex_chat_engine.py": (
        ("Noor, April", "What gives me a headache?", "the smell of oil paint"),
        ("Noor, April", "Who is renovating the house with me?", "my brother Sami"),
        ("Noor, June", "What did we find under the carpet?", "a mosaic floor from 1890"),
        ("Noor, June", "When does the kitchen have to be finished?", "20 June"),
        ("Noor, June", "Which car do I drive?", "I do not know that yet."),
        ("Tom, June", "What did we find under the carpet?", "I do not know that yet."),
    ),
    "llamaindex_agent.py": (
        ("Jonas, Friday", "What is the recipe for pho?", "For pho: beef broth, rice noodles"),
        ("Jonas, Friday", "What is the recipe for pho?", "I can't stand fresh coriander"),
        ("Jonas, Friday", "For how many people do I cook on Fridays?", "On Fridays I cook for six"),
        ("Jonas, Friday", "What happened to my oven?", "My oven broke down"),
        ("Jonas, Friday", "What is the name of my neighbour?", "I do not know that yet."),
        ("Ada, Friday", "Which herb can I not stand?", "I do not know that yet."),
    ),
    "llamaindex_memory_block.py": (
        ("Paula, second rehearsal", "When can I practise?", "on Tuesdays and on Sunday evenings"),
        ("Paula, second rehearsal", "Who is my vocal coach?", "Beatrix"),
        ("Paula, third rehearsal", "Which exercise helps me a lot?", "a breathing exercise with a straw"),
        ("Paula, third rehearsal", "What colour is my dress?", "I do not know that yet."),
    ),
    "llamaindex_postprocessor.py": (
        ("Today", "How often must a machine with hard water be descaled?", 'It is written: "With hard water'),
        ("Today", "When did I descale the espresso machine?", "on 2 February"),
        ("Today", "Where do I keep the receipt?", "in the blue folder"),
        ("Today", "How long does the guarantee last?", "three years"),
        ("Today", "Who won the match yesterday?", "I do not know that yet."),
    ),
}


COLD = ("llamaindex_chat_engine.py", "llamaindex_memory_block.py")


@pytest.fixture(scope="module")
def runs():
    """Every story; two as their readers run them, each in a process of its own."""
    started = {name: run for (name,), run in examples([(name,) for name in COLD]).items()}
    return started | {name: here(name) for name in STORIES if name not in COLD}


@pytest.mark.parametrize("name", STORIES)
def test_a_cookbook_tells_its_story(name, runs):
    check_story(runs[name], STORIES[name], cites="block" not in name)


def test_one_user_never_gets_what_another_said(runs):
    for name, heading, user, own, others in (
        ("llamaindex_chat_engine.py", "Tom, June", "tom", "Leeds", ("mosaic", "Sami")),
        ("llamaindex_agent.py", "Ada, Friday", "ada", "bibimbap", ("coriander", "oven")),
    ):
        parts = sessions(runs[name].stdout)
        for part in (heading, f"What the memory holds of {user}"):
            assert own in parts[part]
            assert not any(word in parts[part] for word in others)


def test_a_context_was_saved_and_restored(runs):
    talk = sessions(runs["llamaindex_agent.py"].stdout)["Jonas, Friday"]
    assert re.search(r"-- 8 messages, saved and restored as \d+ letters of JSON", talk)


def test_an_example_goes_on_with_the_memory_it_kept(tmp_path):
    for turns in (18, 36):
        done = here("llamaindex_chat_engine.py", "--db", str(tmp_path / "memory.db"))
        assert f"turns: {turns}" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--modle", "x"), "unrecognized arguments: --modle x"),
        (("--model", "nonsense"), "--model is openai:NAME or local; got 'nonsense'"),
        (("--model", "openai:"), "--model is openai:NAME or local; got 'openai:'"),
        (("--model", "openai:gpt-4o-mini"), "--model openai:gpt-4o-mini: OpenAIError: "),
        (("--model", "local", "--gguf", "nowhere.gguf"), "--model local needs --gguf FILE"),
        (("--db", "nowhere/at/all.db"), "is its folder there"),
    ],
)
@pytest.mark.parametrize("name", STORIES)
def test_what_is_mistyped_is_named(name, arguments, complaint):
    done = here(name, *arguments)
    check_complaint(done, complaint)
    assert done.stderr.count("\n") == 1 or "usage:" in done.stderr


@pytest.fixture(scope="module")
def rules():
    from _models import bundled_embedder
    from _offline import OfflineRules

    return OfflineRules(bundled_embedder())


@pytest.fixture
def endpoint(rules):
    with serving(Endpoint, seen=[], rules=rules) as server:
        yield server


@pytest.mark.enable_socket
def test_a_story_is_told_with_a_model_behind_an_endpoint(endpoint):
    name = "llamaindex_agent.py"
    done = here(name, "--model", "openai:m", OPENAI_BASE_URL=endpoint.url, OPENAI_API_KEY="none")
    check_story(done, STORIES[name])
    assert {request["model"] for request in endpoint.seen} == {"m"}
    results = [m for request in endpoint.seen for m in request["messages"] if m["role"] == "tool"]
    assert {m["tool_call_id"] for m in results} == {"call-1"}


def recipe(dish: str) -> str:
    """What goes into a dish."""
    return dish


async def gathered(streaming):
    return [piece async for piece in await streaming]


@pytest.fixture(params=["offline", "endpoint"])
def llm(request, rules):
    """Each of the examples' two models."""
    from _llamaindex_models import EndpointLLM, OfflineLLM

    if request.param == "offline":
        yield OfflineLLM(rules=rules)
        return
    client = {"base_url": request.getfixturevalue("endpoint").url, "api_key": "none", "max_retries": 0}
    made = EndpointLLM(name="m", client=client)
    yield made
    made._blocking.close()


@pytest.mark.enable_socket
def test_a_model_replies_in_every_way(llm):
    asked = [ChatMessage("Which car do I drive?")]
    wanted = "I do not know that yet."
    chunks = [list(llm.stream_chat(asked)), asyncio.run(gathered(llm.astream_chat(asked)))]
    pieces = [list(llm.stream_complete(asked[0].content)), asyncio.run(gathered(llm.astream_complete("Who?")))]
    for streamed in (*chunks, *pieces):
        assert len(streamed) > 3
        assert "".join(c.delta for c in streamed) == wanted
    for reply in (llm.chat(asked), asyncio.run(llm.achat(asked)), *(c[-1] for c in chunks)):
        assert reply.message.content == wanted
        assert reply.message.role == "assistant"
    for reply in (llm.complete("Who?"), asyncio.run(llm.acomplete("Who?")), *(p[-1] for p in pieces)):
        assert reply.text == wanted


@pytest.mark.enable_socket
def test_a_model_calls_tools_in_every_way(llm):
    tools = [FunctionTool.from_defaults(recipe)]
    asked = "What is the recipe for pho?"
    replies = [
        llm.chat_with_tools(tools, asked),
        asyncio.run(llm.achat_with_tools(tools, chat_history=[ChatMessage(asked)], tool_required=True)),
        list(llm.stream_chat_with_tools(tools, ChatMessage(asked)))[-1],
        asyncio.run(gathered(llm.astream_chat_with_tools(tools, asked)))[-1],
    ]
    for reply in replies:
        (call,) = llm.get_tool_calls_from_response(reply)
        assert (call.tool_name, call.tool_kwargs) == ("recipe", {"dish": "pho"})
        assert call.tool_id
    silent = llm.chat_with_tools([], asked)
    assert llm.get_tool_calls_from_response(silent, error_on_no_tool_call=False) == []
    with pytest.raises(ValueError, match="a tool was to be called"):
        llm.get_tool_calls_from_response(silent)
