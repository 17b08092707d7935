"""inspect and mcp: that they are handed what the options say; what they do is tested beside them."""

import json

import pytest

from rmm_core.stores import shown


@pytest.fixture
def served(monkeypatch):
    """What the page or the server was started with, and with whose users."""
    calls = []

    def note(memory, **given):
        calls.append((memory.users(), type(memory._services.llm).__name__, given))

    monkeypatch.setattr("rmm_cli.inspector.serve", note)
    monkeypatch.setattr("rmm_cli.mcp_server.serve", note)
    return calls


def test_the_page_is_served_as_the_options_say(rmm, bank, served):
    rmm("inspect", bank)
    rmm("inspect", bank, "--port", 8080, "--write", "--no-browser")
    name = shown(bank)
    assert [given for _, _, given in served] == [
        {"port": 0, "write": False, "browser": True, "store_name": name},
        {"port": 8080, "write": True, "browser": False, "store_name": name},
    ]
    assert served[0][0] == ["ann", "bob"]


def test_the_page_is_written_into_a_file(rmm, db, tmp_path):
    page = tmp_path / "page.html"
    done = rmm("inspect", db, "--html", page, "--json")
    assert json.loads(done.stdout) == {"file": str(page), "bytes": page.stat().st_size}
    assert "Vienna" in page.read_text(encoding="utf-8")
    assert rmm("inspect", db, "--html", page).stdout.startswith(f"{page}: ")


def test_options_of_the_page_that_contradict_each_other_are_usage_errors(rmm, db, served):
    assert "--json goes with --html" in rmm("inspect", db, "--json", code=2).stderr
    assert "--write goes without --html" in rmm("inspect", db, "--html", "page.html", "--write", code=2).stderr
    done = rmm("inspect", db, "--html", "page.html", "--port", 0, code=2)
    assert "--port goes without --html" in done.stderr
    assert rmm("inspect", db, "--port", 65536, code=2).stderr
    assert served == []


@pytest.mark.parametrize("option", [("--port", 8765), ("--host", "127.0.0.1")])
def test_where_to_listen_is_said_of_http_alone(rmm, tmp_path, served, option):
    assert f"{option[0]} goes with --http" in rmm("mcp", tmp_path / "new.db", *option, code=2).stderr
    assert (served, list(tmp_path.iterdir())) == ([], [])


def test_the_server_is_started_as_the_options_say(rmm, bank, served):
    rmm("mcp", bank)
    rmm("mcp", bank, "--http", "--host", "::1", "--port", 0, "--user", "ann", "--llm", "tests.cli.models:thinks")
    assert [given for _, _, given in served] == [
        {"user_id": None, "transport": "stdio", "host": "127.0.0.1", "port": 8765},
        {"user_id": "ann", "transport": "http", "host": "::1", "port": 0},
    ]
    assert [llm for _, llm, _ in served] == ["NoneType", "ScriptedLLM"]


def test_the_server_makes_the_memory_that_it_serves(rmm, tmp_path, served):
    assert rmm("mcp", tmp_path / "new.db").stdout == ""
    assert served[0][0] == []
    assert rmm("users", tmp_path / "new.db").exit_code == 0
