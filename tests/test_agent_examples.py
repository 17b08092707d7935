"""The cookbooks of agents that the core alone gives a memory: each against its real framework, offline."""

import asyncio
import json
import re
import sys
from importlib import import_module
from importlib.util import find_spec

import pytest
from _agents import cited_now
from _offline import OfflineRules, Reply
from _options import Choice

from rmm_core import Message, RMMConfig
from rmm_core.testing import HashEmbedder
from tests.example_endpoint import Endpoint
from tests.example_runs import check_complaint, check_story, example, here, sessions
from tests.heartbeat import Sleepy, heartbeat
from tests.local_server import serving

pytestmark = pytest.mark.timeout(300)
STORIES = {  # what each remembers: (in which session, what is said, what the answer holds)
    "pydantic_ai_agent.py": (
        ("Ines, Monday", "Which way must my seat face?", "I do not know that yet."),
        ("Ines, Thursday", "What are the departures of Graz?", "07:26 to Vienna"),
        ("Ines, Thursday", "Which way must my seat face?", "so my seat must face forwards"),
        ("Ines, Thursday", "When does my boss pay first class?", "for trips of more than three hours"),
        ("Ines, Thursday", "What do I take with me on every trip?", "folding bike"),
        ("Ines, Thursday", "Please search memory for my bike.", "I take a folding bike"),
        ("Ines, Thursday", "What is my shoe size?", "I do not know that yet."),
        ("Otto, Thursday", "What do I take with me on every trip?", "I do not know that yet."),
    ),
    "smolagents_agent.py": (
        ("Vera, March", "What eats my lettuce?", "I do not know that yet."),
        ("Vera, April", "What is the sowing time of carrots?", "March to June"),
        ("Vera, April", "What eats my lettuce?", "Slugs eat my lettuce"),
        ("Vera, April", "Which bed gets no sun before noon?", "The bed behind the shed"),
        ("Vera, April", "What is the name of my yellow tomato?", "Dottie"),
        ("Vera, April", "Please forget about the accordion.", "It is forgotten."),
        ("Vera, April", "On which days do I play the accordion?", "I do not know that yet."),
        ("Nils, April", "What eats my lettuce?", "I do not know that yet."),
    ),
    "autogen_agent.py": (
        ("Leo, Autumn", "What do I bake for the market?", "I do not know that yet."),
        ("Leo, Winter", "What is the price of rye?", "Today rye is 0.92 a kilo."),
        ("Leo, Winter", "What do I bake for the market?", "I bake rye bread"),
        ("Leo, Winter", "What do I call my starter?", "I call it Hugo"),
        ("Leo, Winter", "How long does the oven take to get hot?", "two hours"),
        ("Leo, Winter", "Who is my dentist?", "I do not know that yet."),
        ("Mia, Winter", "What do I call my starter?", "I do not know that yet."),
    ),
    "openai_agents_agent.py": (
        ("Rosa, Spring", "Which saddle hurts my back?", "I do not know that yet."),
        ("Rosa, Winter", "What is the stock of chains?", "There are 14 chains here."),
        ("Rosa, Winter", "Which saddle hurts my back?", "The narrow saddle hurts my back."),
        ("Rosa, Winter", "How far do I ride to work?", "eleven kilometres each way"),
        ("Rosa, Winter", "Why does my chain break every winter?", "because of the road salt"),
        ("Rosa, Winter", "Please forget about the choir.", "It is forgotten."),
        ("Rosa, Winter", "On which day do I sing in a choir?", "I do not know that yet."),
        ("Kim, Winter", "Which saddle hurts my back?", "I do not know that yet."),
    ),
}
APART = {  # whose memory, what is theirs, what is somebody else's
    "pydantic_ai_agent.py": ("otto", "window", "bike"),
    "smolagents_agent.py": ("nils", "roses", "Slugs"),
    "autogen_agent.py": ("mia", "spelt", "Hugo"),
    "openai_agents_agent.py": ("kim", "cargo bike", "saddle hurts my back."),
}


def needing_agents(name):
    """OpenAI's SDK pins a package that others here want newer."""
    missing = name.startswith("openai") and find_spec("agents") is None
    return pytest.param(name, marks=pytest.mark.skipif(missing, reason="pip install openai-agents"))


NAMES = [needing_agents(name) for name in STORIES]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs an example here, once; and where it kept its memory."""
    folder, done = tmp_path_factory.mktemp("kept"), {}

    def once(name):
        place = str(folder / f"{name}.db")
        if name not in done:
            done[name] = here(name, "--db", place)
        return done[name], place

    return once


@pytest.mark.parametrize("name", NAMES)
def test_a_cookbook_tells_its_story(name, run):
    check_story(run(name)[0], STORIES[name])


@pytest.mark.parametrize("name", NAMES)
def test_one_user_never_gets_what_another_said(name, run):
    user, own, others = APART[name]
    parts = sessions(run(name)[0].stdout)
    held = parts[f"What the memory holds of {user}"]
    assert own in held
    assert others not in held
    talk = next(part for heading, part in parts.items() if heading.startswith(user.title()))
    assert others not in talk.replace("hurts my back?", "").replace("with me on every trip?", "")


@pytest.mark.parametrize("name", NAMES)
def test_the_next_process_remembers(name, run):
    _, place = run(name)
    (
        (session, question, unknown),
        *_,
    ) = STORIES[name]
    again = example(name, "--db", place)
    wanted = next(answer for other, asked, answer in STORIES[name] if asked == question and other != session)
    assert unknown != wanted
    check_story(again, [(session, question, wanted)])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--modle", "x"), "unrecognized arguments: --modle x"),
        (("--model", "local", "--gguf", "nowhere.gguf"), "--model local needs --gguf FILE"),
        (("--db", "nowhere/at/all.db"), "is its folder there"),
    ],
)
def test_what_is_mistyped_is_named(name, arguments, complaint):
    check_complaint(here(name, *arguments), complaint)


def test_a_model_that_needs_more_is_named():
    done = here("autogen_agent.py", "--model", "gpt-4o-mini")
    if find_spec("autogen_ext") is None:
        check_complaint(done, "pip install 'autogen-ext[openai]'")
    else:
        check_complaint(done, "--model gpt-4o-mini: ")


def test_a_framework_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "_openai_agents_models", raising=False)
    monkeypatch.setitem(sys.modules, "agents", None)
    check_complaint(here("openai_agents_agent.py"), "pip install openai-agents")


class Rules(OfflineRules):
    """Reflects, too."""

    def reply(self, prompt, asked, tools=(), found=None):
        if "extracted_memories" in prompt:
            return Reply('{"extracted_memories": [{"summary": "Somebody keeps bees.", "reference": [0]}]}')
        return super().reply(prompt, asked, tools, found)


MODELS = {  # an example's models, the stand-in, what reflects
    "pydantic_ai_agent.py": ("_pydantic_ai_models", "offline", "AgentLLM"),
    "autogen_agent.py": ("_autogen_models", "OfflineClient", "ClientLLM"),
    "openai_agents_agent.py": ("_openai_agents_models", "OfflineModel", "ModelLLM"),
    "smolagents_agent.py": ("_smolagents_models", "OfflineModel", "ModelLLM"),
}


def stand_in(name):
    models, offline, llm = MODELS[name]
    home = import_module(models)
    return getattr(home, offline)(Rules(HashEmbedder())), getattr(home, llm)


@pytest.mark.parametrize("name", [needing_agents(name) for name in STORIES if name != "smolagents_agent.py"])
async def test_an_agent_on_an_event_loop_does_not_stop_it(name, tmp_path, monkeypatch, capsys):
    module, (model, _) = import_module(name.removesuffix(".py")), stand_in(name)
    monkeypatch.setattr(module, "TALKS", [("ann", day, ("I keep bees.", "Do I keep bees?")) for day in ("May", "June")])
    chosen = Choice(model, model, Sleepy(), str(tmp_path / "memory.db"), RMMConfig(), tools=True)
    async with heartbeat():
        await module.serve(chosen)
    june = sessions(capsys.readouterr().out)["Ann, June"]
    assert 'You said: "I keep bees."\n       <- Somebody keeps bees.' in june


@pytest.mark.parametrize("name", NAMES)
async def test_what_answers_can_reflect(name):
    model, llm = stand_in(name)
    prompt = "Reply with JSON: extracted_memories"
    assert "Somebody keeps bees." in await llm(model).acomplete(prompt)
    assert "Somebody keeps bees." in await asyncio.to_thread(llm(model).complete, prompt)


class Told(Endpoint):
    """The endpoint of OpenAI's kind for what these frameworks send: texts in parts, and a tool for the answer."""

    def answer(self, messages, tools):
        said = [{"role": m["role"], "content": self.text(m.get("content"))} for m in messages]
        said = [m | {"role": "tool"} if m["content"].startswith("Observation:") else m for m in said]
        said = [m | {"content": re.sub(r"^(New task|Observation):\n", "", m["content"])} for m in said]
        text, call = super().answer(said, [t for t in tools if t["function"]["name"] != "final_answer"])
        if call is None and any(t["function"]["name"] == "final_answer" for t in tools):
            function = {"name": "final_answer", "arguments": json.dumps({"answer": text})}
            return "", {"id": "call-1", "type": "function", "function": function}
        return text, call

    @staticmethod
    def body(kind, text, calls=None):
        counted = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        return Endpoint.body(kind, text, calls) | {"usage": counted}

    @staticmethod
    def text(content):
        return content if isinstance(content, str) else "\n".join(part["text"] for part in content or ())


@pytest.fixture
def endpoint():
    from _models import bundled_embedder

    with serving(Told, seen=[], rules=OfflineRules(bundled_embedder())) as server:
        yield server


@pytest.mark.enable_socket
@pytest.mark.parametrize("name", [needing_agents(name) for name in STORIES if name != "autogen_agent.py"])
def test_a_story_is_told_with_a_model_behind_an_endpoint(name, endpoint):
    model = "openai-chat:m" if name == "pydantic_ai_agent.py" else "m"
    done = here(name, "--model", model, OPENAI_BASE_URL=endpoint.url, OPENAI_API_KEY="none")
    check_story(done, STORIES[name])
    assert {request["model"] for request in endpoint.seen} == {"m"}
    assert any("extracted_memories" in str(request["messages"]) for request in endpoint.seen)


async def test_a_memory_of_autogens_kind_does_what_its_methods_say(open_memory):
    from autogen_agent import RMMMemory
    from autogen_core.memory import MemoryContent, MemoryMimeType

    memory = open_memory()
    own = RMMMemory(memory, "ann", "Ann")
    await own.add(MemoryContent(content="I keep bees in Graz.", mime_type=MemoryMimeType.TEXT))
    await own.close()
    (kept,) = memory.memories("ann")
    for query in ("bees", MemoryContent(content="bees", mime_type=MemoryMimeType.TEXT)):
        (found,) = (await own.query(query)).results
        assert found.metadata == {"memory_id": kept.id}
        assert "I keep bees in Graz." in found.content
    await own.clear()
    assert memory.users() == []


def test_an_earlier_answer_has_the_numbers_of_now(open_memory):
    memory = open_memory()
    for text in ("I keep bees in Graz.", "My sister plays the cello."):
        with memory.chat("ann") as chat:
            chat.add(Message("user", text))
    with memory.chat("ann") as chat:
        first, second = chat.recall("Where are my bees?"), chat.recall("Who plays the cello?")
        assert [s.memory.id for s in first.shown] == [s.memory.id for s in reversed(second.shown)]
        answer = chat.record(first.query, "In Graz [1].", first)
        none = chat.record("Who am I?", "No idea. [NO_CITE]", first)
    assert cited_now(answer, second) == "In Graz. [2]"
    assert cited_now(none, second) == "No idea. [NO_CITE]"
