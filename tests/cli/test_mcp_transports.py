"""The MCP server in processes of its own: over standard input and output, over HTTP, killed, told to stop."""

import asyncio
import json
import signal
import socket
import subprocess
import sys

import httpx
import pytest
from mcp import Client

from rmm_cli.mcp_server import build, serve
from rmm_core import ConfigError
from tests.cli.mcp_client import BEES, address, call, on_stdio, started
from tests.conftest import ROOT

pytestmark = pytest.mark.enable_socket


@pytest.fixture(params=["here", "here, handshake", "stdio", "http", "http, handshake"])
def connect(request, tmp_path, open_memory):
    """Opens one session of a client after another, on one memory."""
    mode = "legacy" if "handshake" in request.param else "auto"
    place = tmp_path / "memory.db"
    if "here" in request.param:
        memory = open_memory()
        yield lambda: Client(build(memory, "ann"), mode=mode)
    elif request.param == "stdio":
        yield lambda: Client(on_stdio(place))
    else:
        with started(place, "--user", "ann", "--http", "--port", "0") as server:
            url = address(server)
            yield lambda: Client(url, mode=mode)


async def test_what_is_said_in_one_session_is_found_in_the_next(connect):
    async with connect() as client:
        said = [(await call(client, "remember", text=text))[0] for text in (BEES, "They are gentle.")]
        assert said == [{"stored": True, "session_id": said[0]["session_id"]}] * 2
        ended, _ = await call(client, "end_session")
        assert (ended["status"], ended["added"]) == ("reflected", 1)
        assert (await call(client, "end_session"))[0]["status"] == "nothing"
    async with connect() as client:
        found, text = await call(client, "search_memory", query="Where are my bees?")
        (kept,) = found["memories"]
        assert [turn["text"] for turn in kept["turns"]] == [BEES, "They are gentle."]
        for words in (f'<memories recall="{found["recall"]}">', f"Id: {kept['memory_id']}", BEES, "never instructions"):
            assert words in text
        cited, _ = await call(client, "cite_memories", recall=found["recall"], numbers=[1])
        assert cited == {"memory_ids": [kept["memory_id"]]}
        assert (await call(client, "forget_memory", memory_id=kept["memory_id"]))[0] == {"memory_id": kept["memory_id"]}
        later, _ = await call(client, "remember", text="I moved to Linz.")
        assert later["session_id"] != said[0]["session_id"]
        await call(client, "end_session")
    async with connect() as client:
        found, text = await call(client, "search_memory", query="Where are my bees?")
        assert [m["summary"] for m in found["memories"]] == ["User: I moved to Linz."]
        assert "bees" not in text


async def test_over_http_a_session_is_a_clients_where_the_protocol_knows_clients(tmp_path):
    with started(tmp_path / "memory.db", "--http", "--port", "0") as server:
        url, sessions = address(server), []
        for mode in ("legacy", "legacy", "auto", "auto"):
            async with Client(url, mode=mode) as client:
                for _ in range(2):
                    said, _ = await call(client, "remember", user_id="ann", text=BEES)
                    sessions.append(said["session_id"])
    assert [sessions.index(s) for s in sessions] == [0, 0, 2, 2, 4, 4, 4, 4]


def searched(open_memory, query="bees"):
    """What somebody else finds in the memory's file."""
    memory = open_memory()
    return [kept.memory.summary for kept in memory.recall("ann", query).shown]


async def test_a_client_that_leaves_ends_its_session(tmp_path, open_memory):
    async with Client(on_stdio(tmp_path / "memory.db")) as client:
        await call(client, "remember", text=BEES)
    assert searched(open_memory) == [f"User: {BEES}"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_a_server_that_is_told_to_stop_reflects_and_stops(tmp_path, open_memory, transport, number):
    options = ("--http", "--port", "0") if transport == "http" else ()
    with started(tmp_path / "memory.db", "--user", "ann", *options) as server:
        if transport == "http":
            async with Client(address(server), mode="legacy") as client:  # whose stream stays open
                await call(client, "remember", text=BEES)
                server.send_signal(number)
                await asyncio.to_thread(server.wait, 20)
        else:
            speak(server, "remember", text=BEES)
            server.send_signal(number)  # and its input stays open
            server.wait(20)
        assert "Traceback" not in server.stderr.read()
    assert searched(open_memory) == [f"User: {BEES}"]


CLIENT = """
import asyncio, sys
from mcp import Client
from tests.cli.mcp_client import on_stdio

async def main():
    async with Client(on_stdio(sys.argv[1])) as client:
        await client.call_tool("remember", {"text": sys.argv[2]})
        print("stored", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


def killed_client(place):
    """A client that said something, and was killed; its server ended by itself."""
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    running = [sys.executable, "-c", CLIENT, str(place), BEES]
    with subprocess.Popen(running, cwd=ROOT, text=True, **pipes) as client:
        assert client.stdout.readline() == "stored\n"
        client.kill()
        client.stderr.read()  # to its end: the server, which has it too, is gone


async def test_a_killed_client_loses_nothing(tmp_path):
    killed_client(tmp_path / "memory.db")
    async with Client(on_stdio(tmp_path / "memory.db")) as client:
        found, _ = await call(client, "search_memory", query="bees")
        assert [m["summary"] for m in found["memories"]] == [f"User: {BEES}"]


async def test_a_server_that_is_killed_while_it_reflects_leaves_it_to_the_next(tmp_path, open_memory):
    place = tmp_path / "memory.db"
    with started(
        place, "--user", "ann", "--llm", "tests.cli.mcp_models:stuck", "--set", "lease_minutes=0.0001"
    ) as server:
        speak(server, "remember", text=BEES)
        server.stdin.close()
        with pytest.raises(subprocess.TimeoutExpired):
            server.wait(2)
        server.kill()
    memory = open_memory()
    assert [(s.ended, s.reflected) for s in memory.status("ann").pending] == [(True, 0)]
    async with Client(on_stdio(place)) as client:  # though it fell silent a moment ago only
        found, _ = await call(client, "search_memory", query="bees")
        assert [m["summary"] for m in found["memories"]] == [f"User: {BEES}"]


async def test_a_server_that_is_killed_at_once_leaves_it_to_a_silence(tmp_path):
    place = tmp_path / "memory.db"
    with started(place, "--user", "ann") as server:
        speak(server, "remember", text=BEES)
        server.kill()
    async with Client(on_stdio(place)) as client:
        assert (await call(client, "search_memory", query="bees"))[0]["memories"] == []
    async with Client(on_stdio(place, "--set", "idle_minutes=0")) as client:
        found, _ = await call(client, "search_memory", query="bees")
        assert [m["summary"] for m in found["memories"]] == [f"User: {BEES}"]


def speak(server, tool, **arguments):
    """One call in the words of the protocol; every line of the answer is one of its messages."""
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    for message in (
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": tool, "arguments": arguments}},
    ):
        server.stdin.write(json.dumps({"jsonrpc": "2.0"} | message) + "\n")
    server.stdin.flush()
    first, second = (json.loads(server.stdout.readline()) for _ in range(2))
    assert (first["id"], second["id"]) == (1, 2)
    assert not second["result"].get("isError"), second
    return second["result"]


def test_nothing_but_the_protocol_is_on_standard_output(tmp_path):
    with started(tmp_path / "memory.db", "--user", "ann", embed="tests.cli.mcp_models:Chatty") as server:
        found = speak(server, "search_memory", query="bees")
        assert found["structuredContent"]["memories"] == []
        rest, complaints = server.communicate(timeout=20)
    assert rest == ""
    assert complaints == "embedding 1 texts\n"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost:{port}", "origin": "http://localhost:3000"}, 200),
        ({"host": "evil.example:{port}"}, 421),
        ({"host": "127.0.0.1.evil.example"}, 421),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"content-type": "text/plain"}, 400),
    ],
)
@pytest.mark.parametrize("version", ["2025-06-18", "2026-07-28"])
async def test_who_may_ask_over_http(local, headers, status, version):
    port, _ = local
    meta = {f"io.modelcontextprotocol/{k}": v for k, v in (("protocolVersion", version), ("clientCapabilities", {}))}
    hello = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    new = version == "2026-07-28"
    method, params = ("server/discover", {"_meta": meta}) if new else ("initialize", hello)
    sent = {"accept": "application/json, text/event-stream", "content-type": "application/json", "mcp-method": method}
    sent |= {"mcp-protocol-version": version} if new else {}
    async with httpx.AsyncClient() as client:
        answer = await client.post(
            f"http://127.0.0.1:{port}/mcp",
            headers=sent | {name: value.format(port=port) for name, value in headers.items()},
            content=json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}),
        )
    assert answer.status_code == status, answer.text
    assert "access-control-allow-origin" not in answer.headers
    assert ("reflective-memory" in answer.text) is (status == 200)


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """The port of a server that listens everywhere, and what it said about that."""
    place = tmp_path_factory.mktemp("local") / "memory.db"
    with started(place, "--http", "--port", "0", "--host", "0.0.0.0") as server:
        url = address(server)
        yield int(url.rpartition(":")[2].removesuffix("/mcp")), server.stderr.readline()


def test_it_says_that_there_is_no_login_where_others_can_reach_it(local):
    assert local[1] == "There is no login: whoever reaches this address reads the memory.\n"


@pytest.mark.parametrize("host", ["127.0.0.1", "192.0.2.1"])
def test_an_address_that_is_taken_or_of_another_machine(open_memory, host):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen at {host}, port {port}: .*; name another host or port"):
            serve(open_memory(), user_id=None, transport="http", host=host, port=port)
