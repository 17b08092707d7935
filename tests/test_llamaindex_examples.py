"""The LlamaIndex cookbooks tell their stories offline, what is mistyped is named, and their models are LlamaIndex's."""

import asyncio
import io
import json
import re
import runpy
import subprocess
import sys
import threading
from contextlib import redirect_stderr, redirect_stdout
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.tools import FunctionTool

from tests.example_runs import ROOT, check_complaint, check_story, examples, sessions

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


def here(name, *arguments, **settings):
    """Runs an example in this process, which spares it the imports."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", [name, *arguments])
        patch.chdir(ROOT)
        for setting in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "RMM_GGUF"):
            patch.delenv(setting, raising=False)
        for setting, value in settings.items():
            patch.setenv(setting, value)
        try:
            runpy.run_path(f"examples/{name}", run_name="__main__")
        except SystemExit as ended:
            code = ended.code
    said = f"{code}\n" if isinstance(code, str) else ""  # as the interpreter does it
    return subprocess.CompletedProcess(name, 1 if said else code, out.getvalue(), err.getvalue() + said)


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


class Endpoint(BaseHTTPRequestHandler):
    """An endpoint of OpenAI's kind that follows the offline rules, and reflects by repeating what was said."""

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append(request)
        text, call = self.answer(request["messages"], request.get("tools", ()))
        if not request.get("stream"):
            return self.reply("application/json", json.dumps(self.body("message", text, [call] if call else None)))
        chunks = [self.body("delta", text[i : i + 3]) for i in range(0, len(text), 3)]
        if call:
            arguments = call["function"]["arguments"]
            named = {**call, "index": 0, "function": {**call["function"], "arguments": arguments[:4]}}
            rest = {"index": 0, "function": {"arguments": arguments[4:]}}
            chunks += [self.body("delta", None, [named]), self.body("delta", None, [rest])]
        chunks.append({**self.body("delta", None), "choices": []})  # as endpoints end that count tokens
        lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
        return self.reply("text/event-stream", "".join([*lines, "data: [DONE]\n\n"]))

    def answer(self, messages, tools):
        prompt = "\n".join(m["content"] for m in messages if m["role"] in ("system", "user"))
        asked = next(m["content"] for m in reversed(messages) if m["role"] == "user")
        if "extracted_memories" in prompt:
            said = re.findall(r"^\[(\d+)\] (.*[^?])$", prompt.rpartition("Now the real one.")[2], re.MULTILINE)
            found = [{"summary": text, "reference": [int(n)]} for n, text in said if "Assistant:" not in text]
            return json.dumps({"extracted_memories": found}), None
        if "history_summaries" in prompt:
            return "Add()", None
        found = messages[-1]["content"] if messages[-1]["role"] == "tool" else None
        reply = self.server.rules.reply(prompt, asked.rpartition("</memories>")[2].strip(), tools, found)
        if not reply.tool:
            return reply.text, None
        function = {"name": reply.tool, "arguments": json.dumps(reply.arguments)}
        return "", {"id": "call-1", "type": "function", "function": function}

    @staticmethod
    def body(kind, text, calls=None):
        said = {"role": "assistant", "content": text} | ({"tool_calls": calls} if calls else {})
        choice = {"index": 0, "finish_reason": None if kind == "delta" else "stop", kind: said}
        return {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}

    def reply(self, kind, text):
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def rules():
    from _models import bundled_embedder
    from _offline import OfflineRules

    return OfflineRules(bundled_embedder())


@pytest.fixture
def endpoint(rules):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    server.daemon_threads = True
    server.seen, server.rules = [], rules
    server.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


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
