"""Models behind an OpenAI-compatible endpoint, a server of the test's own."""

import asyncio
import json
from http.server import BaseHTTPRequestHandler

import pytest

from rmm_core import EmbedderError, LLMError
from rmm_core.models import OpenAIEmbedder, OpenAILLM
from tests.local_server import serving

pytestmark = pytest.mark.enable_socket


class Endpoint(BaseHTTPRequestHandler):
    """Echoes prompts, refuses what its server was told to refuse."""

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append((self.path, request, self.headers.get("Authorization")))
        if "response_format" in request and self.server.refuses_schema:
            return self.reply(400, {"error": {"message": "response_format is not supported"}})
        if request["model"] == "broken":
            return self.reply(400, {"error": {"message": "no such model"}})
        if request["model"] == "silent":
            return self.reply(200, {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": []})
        if self.path.endswith("/embeddings"):
            data = [
                {"object": "embedding", "index": i, "embedding": [float(len(t)), 1.0]}
                for i, t in reversed(list(enumerate(request["input"])))
            ]
            usage = {"prompt_tokens": 1, "total_tokens": 1}
            return self.reply(200, {"object": "list", "data": data, "model": "m", "usage": usage})
        message = {"role": "assistant", "content": "echo: " + request["messages"][0]["content"]}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        return self.reply(
            200, {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        )

    def reply(self, status, content):
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@pytest.fixture
def endpoint():
    with serving(Endpoint, seen=[], refuses_schema=False) as server:
        yield server


SCHEMA = {"type": "object"}


def test_an_endpoint_completes(endpoint, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret-of-another-service")
    llm = OpenAILLM("m", base_url=endpoint.url, max_tokens=5)
    assert llm.complete("hello", schema=SCHEMA) == "echo: hello"
    _, request, key = endpoint.seen[0]
    assert (request["temperature"], request["max_tokens"]) == (0.0, 5)
    assert request["response_format"]["json_schema"]["schema"] == SCHEMA
    assert "secret" not in key


async def test_an_endpoint_completes_on_an_event_loop(endpoint):
    llm = OpenAILLM("m", base_url=endpoint.url)
    assert await llm.acomplete("hello") == "echo: hello"


def test_an_endpoint_outlives_an_event_loop(endpoint):
    llm = OpenAILLM("m", base_url=endpoint.url)
    assert [asyncio.run(llm.acomplete(str(i))) for i in range(3)] == ["echo: 0", "echo: 1", "echo: 2"]


async def test_an_endpoint_that_refuses_schemas_is_asked_without(endpoint):
    endpoint.refuses_schema = True
    llm = OpenAILLM("m", base_url=endpoint.url)
    assert llm.complete("a", schema=SCHEMA) == "echo: a"
    assert llm.complete("b", schema=SCHEMA) == "echo: b"
    assert len(endpoint.seen) == 3  # the schema was tried once
    fresh = OpenAILLM("m", base_url=endpoint.url)
    assert await fresh.acomplete("c", schema=SCHEMA) == "echo: c"


async def test_an_endpoints_errors_are_ours(endpoint):
    for name, complaint in (("broken", "no such model"), ("silent", "no text")):
        llm = OpenAILLM(name, base_url=endpoint.url)
        with pytest.raises(LLMError, match=complaint):
            llm.complete("x", schema=SCHEMA if name == "silent" else None)
        with pytest.raises(LLMError, match=complaint):
            await llm.acomplete("x")
    embedder = OpenAIEmbedder("broken", base_url=endpoint.url)
    with pytest.raises(EmbedderError, match="no such model"):
        embedder.embed(["x"])
    with pytest.raises(EmbedderError, match="no such model"):
        await embedder.aembed(["x"])


def test_a_missing_key_is_ours_too(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(LLMError, match="cannot use the endpoint"):
        OpenAILLM("m")


async def test_an_endpoint_embeds_in_batches_and_order(endpoint):
    embedder = OpenAIEmbedder("m", base_url=endpoint.url, batch_size=2)
    assert embedder.embed(["a", "bbb", ""]).tolist() == [[1.0, 1.0], [3.0, 1.0], [1.0, 1.0]]
    assert [len(r["input"]) for _, r, _ in endpoint.seen] == [2, 1]
    assert (await embedder.aembed(["aa"])).tolist() == [[2.0, 1.0]]
