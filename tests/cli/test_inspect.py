"""The page that shows a memory, without a browser: its data, its routes, its file."""

import base64
import hashlib
import http.client
import json
import logging
import re
import signal
import sys
import threading
import urllib.request
from html.parser import HTMLParser
from importlib.resources import files

import pytest

from rmm_cli import inspector
from rmm_cli.decisions import changes, decision
from rmm_cli.inspector import data, document
from rmm_cli.inspector.server import Inspector, listening
from rmm_core import (
    ConfigError,
    LearningStep,
    MissingDependencyError,
    NotFoundError,
    ReflectiveMemory,
    RMMConfig,
    StoreError,
)
from rmm_core.testing import HashEmbedder
from tests.cli.conftest import process
from tests.cli.inspect_world import HOSTILE, HOSTILE_IDS, PORT, Client, hostile_bank

READS = [("/", {}), ("/api/users", {"start": 0}), ("/api/user", {"user": "ann"}), ("/api/learning", {"user": "ann"})]
WRITES = [("/api/memory", {"user": "ann", "memory": "m"}), ("/api/user", {"user": "ann"})]


@pytest.fixture
def memory(at):
    return at()


@pytest.fixture
def client(memory):
    return Client(Inspector(memory, store_name="memory.db", write=False))


@pytest.fixture
def writing(memory):
    return Client(Inspector(memory, store_name="memory.db", write=True))


@pytest.fixture
def hostile(tmp_path):
    memory = hostile_bank(tmp_path / "hostile.db")
    yield memory
    memory.store.close()


# -- data --------------------------------------------------------------------------------


def test_a_user_is_told_with_turns_versions_and_answers(memory):
    told = data.user(memory, "ann")
    (moved,) = [m for m in told["memories"] if m["kind"] == "topic"]
    assert moved["summary"] == "Ann lives in Vienna, before in Graz."
    assert [text for text, _ in moved["history"]] == ["Ann lives in Graz."]
    assert moved["evidence"] == [["first", 0], ["second", 0]]
    assert moved["updated"] == "2024-03-31T09:00:00+00:00"
    first = told["held"][0]["turns"][0]
    assert (first["speaker"], first["text"]) == ("Ann", "I live in Graz with two cats.")
    (answer,) = told["answers"]
    assert answer["query"] is None
    assert [moved["id"], 1] in answer["shown"]
    assert (told["topics"], told["turns"], told["sessions"], told["pending"]) == (1, 4, 2, 0)


def test_nothing_of_a_user_is_an_error(memory):
    with pytest.raises(NotFoundError, match="'nobody'"):
        data.user(memory, "nobody")


def test_a_pending_session_says_why(memory):
    assert "it is open" in data.user(memory, "bob")["held"][0]["pending"]
    memory.store.end_session("bob", "only")
    assert data.user(memory, "bob")["held"][0]["pending"] == "it has ended and waits for its reflection"
    memory.store.fail_session("bob", "only", "LLMError: no network")
    assert "failed once, last with: LLMError: no network" in data.user(memory, "bob")["held"][0]["pending"]
    memory.store.fail_session("bob", "only", "LLMError: no network")
    assert "failed 2 times" in data.user(memory, "bob")["held"][0]["pending"]
    assert data.user(memory, "ann")["held"][0]["pending"] == ""


def test_users_are_found_by_a_part_of_their_id_and_told_in_pages(memory):
    assert [row["id"] for row in data.users(memory, find="N")["rows"]] == ["ann"]
    second = data.users(memory, start=1, limit=1)
    assert [row["id"] for row in second["rows"]] == ["bob"]
    assert (second["total"], second["matching"]) == (2, 2)


def test_decisions_are_the_steps_at_which_another_ranking_begins_to_serve():
    served = ["prior", "learned", "learned", "prior", "prior"]
    steps = [LearningStep(4 * i, 0.5, ranking, f"reason {i}", {}) for i, ranking in enumerate(served, start=1)]
    assert [decision(step) for step in changes(steps)] == [
        {"answers": 8, "ranking": "learned", "reason": "reason 2"},
        {"answers": 16, "ranking": "prior", "reason": "reason 4"},
    ]
    assert changes([]) == []


def test_learning_is_told_with_weights_at_the_start_and_now(at, db):
    with ReflectiveMemory.open(db, embedder=HashEmbedder(), config=RMMConfig(batch_size=1)) as memory:
        told = data.learning(memory, "ann")
    assert [step[0] for step in told["steps"]] == [1]
    assert told["ranking"] == "prior"
    assert told["weights"][0][:2] == ["similarity", 1.0]
    assert told["shared"]


# -- the document ------------------------------------------------------------------------


class Scripts(HTMLParser):
    """The scripts and styles of a document, as a browser finds them, and whatever it would load."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.found, self.loads, self._open = [], [], None
        self.policy = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.loads += [v for k, v in attrs if k in ("src", "href", "srcset") and not v.startswith(("#", "data:"))]
        if tag == "meta" and given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"]
        if tag in ("script", "style"):
            self._open = (tag, given, [])

    def handle_data(self, text):
        if self._open:
            self._open[2].append(text)

    def handle_endtag(self, tag):
        if self._open and tag == self._open[0]:
            self.found.append((*self._open[:2], "".join(self._open[2])))
            self._open = None

    def block(self, name):
        (text,) = [text for _, given, text in self.found if given.get("id") == name]
        return json.loads(text)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_data_in_the_document_stay_data(text):
    block = document.data("page", {text: [text]})
    assert block.isascii()
    assert not set("<>&") & set(
        block.removeprefix('<script type="application/json" id="page">').removesuffix("</script>\n")
    )
    parsed = Scripts(block)
    assert len(parsed.found) == 1
    assert parsed.block("page") == {text: [text]}


def test_the_policy_names_the_script_and_the_style_that_are_there_and_nothing_else():
    parsed = Scripts(document.head(document.policy()) + document.tail())
    run = [(tag, text) for tag, given, text in parsed.found if given.get("type") != "application/json"]
    assert [tag for tag, _ in run] == ["style", "script"]
    for tag, text in run:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}';" in parsed.policy
    assert "unsafe" not in parsed.policy
    assert parsed.policy.startswith("default-src 'none'")
    assert parsed.loads == []


def test_every_file_of_the_page_is_in_the_document():
    text = document.head() + document.tail()
    parts = [f for f in files("rmm_cli.inspector").joinpath("page").iterdir() if f.name.endswith((".js", ".css"))]
    assert parts
    for part in parts:
        assert part.read_text("utf-8") in text, part.name


def test_no_markup_is_made_of_strings():
    text = document.tail()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|DOMParser|srcdoc", text)


# -- the file ----------------------------------------------------------------------------


def test_a_file_holds_everything_and_loads_nothing(memory, tmp_path):
    place = tmp_path / "page.html"
    written = inspector.write_html(memory, place, store_name="memory.db")
    text = place.read_text("utf-8")
    assert written == place.stat().st_size
    assert place.stat().st_mode & 0o777 == 0o600
    parsed = Scripts(text)
    assert parsed.loads == []
    assert set(re.findall(r"https?://[^\s\"'`]+", text)) == {"http://www.w3.org/2000/svg"}
    about = parsed.block("page")
    assert [row["id"] for row in about["users"]] == ["ann", "bob"]
    assert (about["store"], "token" in about, "write" in about) == ("memory.db", False, False)
    assert re.fullmatch(r"[\d.]+ kB", about["size"])
    assert parsed.block("user-0") == json.loads(json.dumps(data.user(memory, "ann")))
    assert parsed.block("user-1")["pending"] == 1


@pytest.mark.parametrize(("scope", "count"), [("store", 1), ("user", 2)])
def test_a_learner_that_all_share_is_in_the_file_once(db, tmp_path, scope, count):
    with ReflectiveMemory.open(db, embedder=HashEmbedder(), config=RMMConfig(learner_scope=scope)) as memory:
        inspector.write_html(memory, tmp_path / "page.html", store_name="memory.db")
    text = (tmp_path / "page.html").read_text("utf-8")
    assert len(re.findall(r'id="learning-\d+"', text)) == count


def test_an_empty_store_is_a_file_too(tmp_path):
    with ReflectiveMemory.open(":memory:", embedder=HashEmbedder()) as memory:
        inspector.write_html(memory, tmp_path / "page.html", store_name="empty")
    assert Scripts((tmp_path / "page.html").read_text("utf-8")).block("page")["users"] == []


def test_a_file_that_cannot_be_finished_leaves_the_earlier_one_alone(memory, tmp_path, monkeypatch):
    place = tmp_path / "page.html"
    place.write_text("earlier")
    monkeypatch.setattr(memory.store, "turns", lambda *_: (_ for _ in ()).throw(StoreError("the disk is gone")))
    with pytest.raises(StoreError, match="the disk is gone"):
        inspector.write_html(memory, place, store_name="memory.db")
    assert place.read_text() == "earlier"
    assert [p.name for p in tmp_path.glob("*inspect*")] == []
    with pytest.raises(StoreError, match=r"^cannot write '.*/no/page.html': No such file or directory$"):
        inspector.write_html(memory, tmp_path / "no" / "page.html", store_name="memory.db")


def test_a_hostile_bank_is_a_file_of_data(hostile, tmp_path):
    place = tmp_path / "page.html"
    inspector.write_html(hostile, place, store_name=HOSTILE["end of script"])
    parsed = Scripts(place.read_text("utf-8"))
    users = parsed.block("page")["users"]
    number = [row["id"] for row in users].index(HOSTILE["markup"])
    assert {m["summary"] for m in parsed.block(f"user-{number}")["memories"]} >= set(HOSTILE.values())
    assert [tag for tag, given, _ in parsed.found if given.get("type") != "application/json"] == ["style", "script"]


# -- routes: what is answered ------------------------------------------------------------


def test_the_page_and_its_data_are_answered(client):
    status, _, text = client("GET", "/")
    assert status == 200
    about = Scripts(text).block("page")
    assert about == {"store": "memory.db", "write": False, "token": client.inspector.token}
    for values in ({"start": 0, "find": ""}, {}):
        status, _, listed = client("GET", "/api/users", values)
        assert (status, [row["id"] for row in listed["rows"]]) == (200, ["ann", "bob"])
    status, _, told = client("GET", "/api/user", {"user": "ann"})
    assert (status, told["id"], len(told["held"])) == (200, "ann", 2)
    status, _, learned = client("GET", "/api/learning", {"user": "ann"})
    assert (status, learned["ranking"]) == (200, "prior")


def test_a_query_gets_both_orders_and_stores_nothing(client, memory):
    before = [*memory.export_user("ann"), *memory.store.feedback()[0][1].memory_ids]
    status, _, told = client("POST", "/api/explain", body={"user": "ann", "query": "Where does Ann live?"})
    assert status == 200
    assert told["ranking"] == "prior"
    best = told["candidates"][0]
    assert "Vienna" in best["summary"]
    assert sum(value for _, value in best["terms"]) == pytest.approx(best["prior"]["score"], abs=1e-4)
    assert sorted(c["learned"]["rank"] for c in told["candidates"]) == list(range(1, len(told["candidates"]) + 1))
    assert [*memory.export_user("ann"), *memory.store.feedback()[0][1].memory_ids] == before


def test_any_user_id_can_be_asked_for(hostile):
    client = Client(Inspector(hostile, store_name="hostile", write=True))
    _, _, listed = client("GET", "/api/users", {"start": 0})
    assert {row["id"] for row in listed["rows"]} >= set(HOSTILE_IDS)
    for row in listed["rows"]:
        status, _, told = client("GET", "/api/user", {"user": row["id"]})
        assert (status, told["id"]) == (200, row["id"])
        status, _, _ = client("DELETE", "/api/user", {"user": row["id"]})
        assert status == 200
    assert hostile.users() == []


def test_memories_are_deleted_where_that_was_asked_for(writing, memory):
    (topic,) = memory.memories("ann", kind="topic")
    wanted = {"user": "ann", "memory": topic.id}
    assert writing("DELETE", "/api/memory", wanted)[0] == 200
    assert memory.memories("ann", kind="topic") == ()
    status, _, told = writing("DELETE", "/api/memory", wanted)
    assert (status, told["error"]) == (404, "there is no such memory any more")
    status, _, erased = writing("DELETE", "/api/user", {"user": "bob"})
    assert (status, erased["turns"]) == (200, 2)
    assert memory.users() == ["ann"]
    for values in ({"user": "bob"}, {}):
        status, _, told = writing("DELETE", "/api/user", values)
        assert (status, told["error"]) == (404, "there is no such user any more")
    assert writing("DELETE", "/api/memory", {"user": "bob", "memory": "m"})[0] == 404


def test_the_address_without_its_last_slash_leads_to_the_page(client):
    status, headers, _ = client("GET", "")
    assert (status, dict(headers)["Location"]) == (302, f"/{client.inspector.token}/")


# -- routes: what is refused -------------------------------------------------------------


@pytest.mark.parametrize(("path", "values"), WRITES)
def test_nothing_is_deleted_unless_that_was_asked_for(client, memory, path, values):
    before = list(memory.export_user("ann"))
    status, _, told = client("DELETE", path, values)
    assert (status, "--write" in told["error"]) == (403, True)
    assert list(memory.export_user("ann")) == before


@pytest.mark.parametrize(
    "host", ["", "evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:1", f"localhost.evil.example:{PORT}"]
)
def test_another_host_is_refused(client, host):
    for path, values in READS:
        assert client("GET", path, values, host=host)[0] == 403
    assert client("GET", "/", host=f"localhost:{PORT}")[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": f"https://127.0.0.1:{PORT}"},
    ],
)
def test_another_page_is_refused(writing, memory, headers):
    for path, values in READS:
        assert writing("GET", path, values, **headers)[0] == 403
    for path, values in WRITES:
        assert writing("DELETE", path, values, **headers)[0] == 403
    assert memory.users() == ["ann", "bob"]


def test_our_own_page_may_ask(writing):
    assert writing("GET", "/api/user", {"user": "ann"}, origin=f"http://127.0.0.1:{PORT}")[0] == 200
    assert writing("GET", "/", sec_fetch_site="none")[0] == 200


@pytest.mark.parametrize("prefix", ["", "/", "//", "/token", "/t\u00f6ken", "/x" * 3])
def test_without_the_key_in_the_address_nothing_is_there(client, prefix):
    for path, values in READS:
        status, _, told = client("GET", path, values, prefix=prefix)
        assert (status, "rmm inspect" in told["error"]) == (404, True)


@pytest.mark.parametrize("sent", ["", "token", "t\u00f6ken"])
def test_what_is_more_than_reading_brings_the_token(writing, memory, sent):
    for path, values in WRITES:
        assert writing("DELETE", path, values, x_inspector_token=sent)[0] == 403
    assert writing("POST", "/api/explain", body={"user": "ann", "query": "x"}, x_inspector_token=sent)[0] == 403
    assert memory.users() == ["ann", "bob"]


def test_every_run_has_a_token_of_its_own(memory):
    tokens = {Inspector(memory, store_name="s", write=False).token for _ in range(5)}
    assert len(tokens) == 5
    assert all(len(t) >= 32 for t in tokens)


def test_every_answer_has_the_headers_that_keep_others_out(client):
    answers = [client("GET", path, values) for path, values in READS]
    answers += [client("GET", "/", host="evil.example"), client("GET", "/nothing"), client("DELETE", *WRITES[0])]
    for _, headers, _ in answers:
        told = dict(headers)
        assert len(told) == len(headers), "a header twice"
        assert told["Content-Security-Policy"].startswith("default-src 'none'; script-src 'sha256-")
        assert "connect-src 'self'; frame-ancestors 'none'" in told["Content-Security-Policy"]
        assert told["Cache-Control"] == "no-store"
        assert told["X-Content-Type-Options"] == "nosniff"
        assert told["Referrer-Policy"] == "no-referrer"
        assert not [name for name in told if name.lower().startswith("access-control")]


@pytest.mark.parametrize(
    ("method", "path", "values", "body", "status", "words"),
    [
        ("GET", "/nothing", {}, None, 404, "Not found"),
        ("PUT", "/api/user", {}, None, 405, "not allowed"),
        ("GET", "/api/user", {"user": "nobody"}, None, 404, "nothing is stored of a user 'nobody'"),
        ("GET", "/api/user", {}, None, 400, "user_id is blank"),
        ("GET", "/api/user", {"user": "a\0b"}, None, 400, "NUL"),
        ("GET", "/api/users", {"start": "-1"}, None, 400, "start is a whole number"),
        ("GET", "/api/users", {"start": "one"}, None, 400, "start is a whole number"),
        ("POST", "/api/explain", {}, b"{", 400, "JSON"),
        ("POST", "/api/explain", {}, [], 400, "JSON"),
        ("POST", "/api/explain", {}, {"user": 3, "query": "x"}, 400, "user_id is a string"),
        ("POST", "/api/explain", {}, {"user": "ann", "query": None}, 400, "query is a string"),
        ("POST", "/api/explain", {}, {"user": "ann", "query": "x" * 200_000}, 413, "large"),
    ],
)
def test_what_cannot_be_answered_is_told_in_json(client, method, path, values, body, status, words):
    got, _, told = client(method, path, values, body=body)
    assert got == status
    assert words.casefold() in told["error"].casefold()


def test_what_the_memory_raises_is_told_without_a_trace(memory, monkeypatch, caplog):
    class Broken(HashEmbedder):
        def embed(self, texts):
            raise OSError("no weights")

    client = Client(Inspector(memory, store_name="s", write=False))
    monkeypatch.setattr(memory, "_services", type(memory._services)(None, Broken()))
    status, _, told = client("POST", "/api/explain", body={"user": "ann", "query": "x"})
    assert (status, told["error"]) == (502, "OSError: no weights")
    monkeypatch.setattr(memory, "explain", lambda *_: 1 / 0)
    with caplog.at_level(logging.ERROR, logger="rmm_cli"):
        status, _, told = client("POST", "/api/explain", body={"user": "ann", "query": "x"})
    assert (status, "ZeroDivision" in json.dumps(told)) == (500, False)
    assert "ZeroDivisionError" in caplog.text
    memory.store.close()
    assert client("GET", "/api/user", {"user": "ann"})[0] == 503


# -- serving -----------------------------------------------------------------------------


@pytest.mark.enable_socket
def test_it_is_served_on_loopback_at_an_address_with_a_key(memory):
    with listening(memory, port=0, write=False, store_name="memory.db") as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            assert server.server_address[0] == "127.0.0.1"
            connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
            connection.request("GET", server.url.removeprefix(f"http://127.0.0.1:{server.server_port}"))
            answer = connection.getresponse()
            assert (answer.status, b"memory.db" in answer.read()) == (200, True)
            connection.request("GET", "/")
            assert connection.getresponse().status == 404
            connection.close()
            with pytest.raises(ConfigError, match=f"port {server.server_port} of 127.0.0.1 cannot be had"):
                inspector.serve(memory, port=server.server_port, store_name="memory.db")
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.enable_socket
def test_serving_prints_the_address_opens_it_and_ends_when_interrupted(memory, monkeypatch, capfd):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)

    def interrupted(self, poll_interval=0.5):
        raise KeyboardInterrupt

    monkeypatch.setattr("rmm_cli.inspector.server.Server.serve_forever", interrupted)
    inspector.serve(memory, browser=True, store_name="memory.db")
    (url,) = opened
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32,}/", url)
    assert f"memory.db is shown at {url}\n" in capfd.readouterr().out
    inspector.serve(memory, browser=False, store_name="memory.db")
    assert len(opened) == 1


@pytest.mark.enable_socket
def test_a_process_serves_until_it_is_interrupted_and_ends_in_peace(db):
    running = process("inspect", db, "--no-browser")
    url = running.stdout.readline().split()[-1]
    with urllib.request.urlopen(f"{url}api/user?user=ann", timeout=30) as answer:
        assert json.load(answer)["id"] == "ann"
    running.send_signal(signal.SIGINT)
    _, complaints = running.communicate(timeout=30)
    assert (running.returncode, complaints) == (0, "")


def test_without_its_extra_it_says_what_to_install(memory, monkeypatch):
    monkeypatch.setitem(sys.modules, "bottle", None)
    monkeypatch.delitem(sys.modules, "rmm_cli.inspector.server", raising=False)
    with pytest.raises(MissingDependencyError, match=r"reflective-memory\[cli\]"):
        inspector.serve(memory, store_name="memory.db")
