"""Models of one's own: embeddings on this machine, and endpoints that speak OpenAI's protocol."""

import asyncio
import builtins
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from rmm_core import EmbedderError, LLMError, MissingDependencyError
from rmm_core.models import OpenAIEmbedder, OpenAILLM, SentenceTransformerEmbedder

pytestmark = pytest.mark.enable_socket


@pytest.fixture(scope="module")
def minilm():
    from _models import bundled_embedder

    return bundled_embedder()


def test_sentences_that_mean_the_same_are_near(minilm):
    rows = minilm.embed(["I own a dog", "a puppy lives with me", "the stock market fell"])
    assert rows.shape == (3, 384)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, rtol=1e-5)
    assert rows[0] @ rows[1] > rows[0] @ rows[2] + 0.2
    np.testing.assert_allclose(asyncio.run(minilm.aembed(["I own a dog"])), rows[:1], atol=1e-5)


def test_the_end_of_a_long_text_is_found(minilm):
    long = "We talked about the weather and the traffic. " * 60 + "My grandmother collects antique typewriters."
    other = "We talked about the weather and the traffic. " * 61
    query, with_end, without = minilm.embed(["antique typewriters", long, other])
    assert query @ with_end > query @ without + 0.05
    assert minilm.embed([""]).shape == (1, 384)
    assert minilm.embed(["x" * 5000]).shape == (1, 384)


@pytest.mark.parametrize("filler", ["今天天气很好我们去公园散步", "วันนี้อากาศดีมากเราไปเดินเล่น"], ids=["zh", "th"])
def test_the_end_of_a_text_without_spaces_counts(minilm, filler):
    first, second = minilm.embed([filler * 60 + "我对花生过敏。", filler * 60 + "我的猫叫汤姆。"])
    assert first @ second < 0.9999
    assert minilm.embed([]).shape[0] == 0


def test_a_model_that_is_not_there(tmp_path):
    (tmp_path / "model").mkdir()
    with pytest.raises(EmbedderError, match="cannot load the embedding model"):
        SentenceTransformerEmbedder(tmp_path / "model").embed(["x"])


@pytest.mark.parametrize(
    ("package", "use", "extra"),
    [
        ("sentence_transformers", lambda: SentenceTransformerEmbedder("x").embed(["x"]), "local"),
        ("openai", lambda: OpenAILLM("x"), "openai"),
        ("openai", lambda: OpenAIEmbedder("x"), "openai"),
    ],
)
def test_a_missing_extra_is_named(monkeypatch, package, use, extra):
    real = builtins.__import__

    def without(name, *rest):
        if name == package:
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingDependencyError, match=rf"pip install 'reflective-memory\[{extra}\]'"):
        use()


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
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    server.daemon_threads = True
    server.seen, server.refuses_schema = [], False
    server.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


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
