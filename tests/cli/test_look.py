"""users, show, history, export: what is there, for people and for programs, on both databases."""

import json
import re
from datetime import datetime

import pytest

from tests.cli.conftest import HOSTILE


def summary(rmm, bank, user="ann"):
    return {m["summary"]: m["id"] for m in json.loads(rmm("show", bank, user, "--json").stdout)}


TERMINAL = {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "300"}  # what rich takes for one


def without_styles(text):
    """A terminal's output without what is ours: bold and dim, ``NO_COLOR`` leaves nothing else."""
    return re.sub(r"\x1b\[[012]m", "", text)


MOVED = "Ann lives in Vienna, before in Graz."


def test_users_are_listed_with_what_is_kept_of_them(rmm, bank):
    head, *rows = rmm("users", bank).stdout.splitlines()
    assert head.split() == "user topics unfiled turns pending consent last seen (UTC)".split()
    assert [row.split() for row in rows] == [
        "ann 1 2 4 0 yes 2024-03-31 09:00".split(),
        "bob 0 0 2 1 yes 2024-03-31 09:00".split(),
    ]
    ann, bob = json.loads(rmm("users", bank, "--json").stdout)
    assert ann == {
        "user_id": "ann",
        "topics": 1,
        "unfiled": 2,
        "turns": 4,
        "sessions": 2,
        "pending": 0,
        "consents": True,
        "last_seen": "2024-03-31T09:00:00+00:00",
    }
    assert (bob["user_id"], bob["pending"]) == ("bob", 1)


def test_who_declined_is_listed_so(rmm, db, at):
    at().set_consent("bob", False)
    assert "no" in rmm("users", db).stdout.splitlines()[2].split()


def test_a_terminal_gets_the_summary_below_the_row_and_every_line_in_its_width(rmm, db):
    env = TERMINAL | {"COLUMNS": "60"}
    lines = without_styles(rmm("show", db, "ann", "--kind", "topic", env=env).stdout).splitlines()
    assert lines[0].split() == "memory kind created updated turns".split()
    assert (lines[1].split()[1], lines[2]) == ("topic", f"  {MOVED}")
    for command in (
        ("users", db),
        ("show", db, "ann", "--turns"),
        ("stats", db),
        ("ask", db, "ann", "Graz?", "--explain"),
    ):
        assert max(map(len, without_styles(rmm(*command, env=env).stdout).splitlines())) <= 60


def test_a_users_memories_are_rows(rmm, bank):
    rows = rmm("show", bank, "ann").stdout.splitlines()
    assert rows[0].split() == "memory kind created updated turns summary".split()
    assert len(rows) == 4
    row = next(row for row in rows if row.endswith(MOVED))
    assert row.split()[1:5] == ["topic", "2024-03-01", "2024-03-31", "2"]
    assert all("unfiled" in row for row in rmm("show", bank, "ann", "--kind", "unfiled").stdout.splitlines()[1:])


def test_memories_as_json_are_whole(rmm, bank):
    memories = json.loads(rmm("show", bank, "ann", "--json", "--kind", "topic").stdout)
    (moved,) = memories
    assert moved["evidence"] == [{"session_id": "first", "index": 0}, {"session_id": "second", "index": 0}]
    assert moved["history"][0]["summary"] == "Ann lives in Graz."
    assert datetime.fromisoformat(moved["updated_at"]).utcoffset() is not None
    assert "turns" not in moved


def test_turns_stand_with_the_memories_that_rest_on_them(rmm, bank):
    lines = rmm("show", bank, "ann", "--turns", "--kind", "topic").stdout.splitlines()
    assert lines[1].split()[1:] == ["topic", "2024-03-01", "2024-03-31", "2"]
    assert [line.strip() for line in lines[2:]] == [
        MOVED,
        "first:0  2024-03-01 09:00  Ann: I live in Graz with two cats.",
        "second:0  2024-03-31 09:00  Ann: I moved to Vienna in March.",
    ]
    (moved,) = json.loads(rmm("show", bank, "ann", "--turns", "--kind", "topic", "--json").stdout)
    assert [t["text"] for t in moved["turns"]] == ["I live in Graz with two cats.", "I moved to Vienna in March."]


def test_a_user_without_memories_is_no_error(rmm, bank):
    done = rmm("show", bank, "bob")
    assert (done.stdout, done.stderr) == ("", "user 'bob' has no memories\n")
    assert json.loads(rmm("show", bank, "bob", "--json").stdout) == []


def test_a_bank_without_users_says_so(rmm, tmp_path, open_memory):
    open_memory()
    done = rmm("users", tmp_path / "memory.db")
    assert (done.stdout, done.stderr) == ("", f"no users yet in {tmp_path / 'memory.db'}\n")
    assert json.loads(rmm("users", tmp_path / "memory.db", "--json").stdout) == []
    assert "there are no users at all" in rmm("show", tmp_path / "memory.db", "ann", code=1).stderr


def test_history_tells_the_versions_and_the_turns(rmm, bank):
    lines = rmm("history", bank, "ann", summary(rmm, bank)[MOVED]).stdout.splitlines()
    assert lines[1] == "created 2024-03-01 09:00, updated 2024-03-31 09:00, last cited 2024-03-31 09:00 (UTC)"
    assert lines[3:7] == ["until 2024-03-31 09:00", "  Ann lives in Graz.", "now", f"  {MOVED}"]
    assert lines[8:] == [
        "It rests on 2 turns:",
        "  first:0  2024-03-01 09:00  Ann: I live in Graz with two cats.",
        "  second:0  2024-03-31 09:00  Ann: I moved to Vienna in March.",
    ]


def test_history_takes_the_beginning_of_an_id(rmm, bank):
    whole = summary(rmm, bank)[MOVED]
    found = json.loads(rmm("history", bank, "ann", whole[:6], "--json").stdout)
    assert (found["id"], len(found["turns"]), len(found["history"])) == (whole, 2, 1)


def test_an_id_that_fits_several_memories_or_none_is_an_error(rmm, db, at, monkeypatch):
    ids = summary(rmm, db).values()
    with monkeypatch.context() as patch:
        patch.setattr(
            "rmm_core.ReflectiveMemory.memories", lambda *_, **__: [type("M", (), {"id": f"abc{i}"}) for i in range(6)]
        )
        assert "6 memories of user 'ann' begin with 'abc': 'abc0', 'abc1', 'abc2', 'abc3', ..." in (
            rmm("history", db, "ann", "abc", code=1).stderr
        )
    wrong = min(ids)[:-1] + "z"
    assert f"did you mean '{min(ids)}'?" in rmm("history", db, "ann", wrong, code=1).stderr
    assert "'rmm show' lists them" in rmm("history", db, "ann", "zzz", code=1).stderr
    assert "has no memory ''" in rmm("history", db, "ann", "", code=1).stderr


def test_an_export_is_what_the_memory_exports(rmm, db, at, tmp_path):
    lines = list(at().export_user("ann"))
    assert (
        rmm("export", db, "ann").stdout.splitlines() == rmm("export", db, "ann", "-o", "-").stdout.splitlines() == lines
    )
    done = rmm("export", db, "ann", "-o", tmp_path / "ann.jsonl")
    assert (done.stdout, done.stderr) == ("", f"6 lines in {tmp_path / 'ann.jsonl'}\n")
    assert (tmp_path / "ann.jsonl").read_text(encoding="utf-8").splitlines() == lines
    assert (tmp_path / "ann.jsonl").stat().st_mode & 0o077 == 0
    done = rmm("export", db, "ann", "-o", tmp_path / "ann.jsonl", "--json")
    assert json.loads(done.stdout) == {"user_id": "ann", "file": str(tmp_path / "ann.jsonl"), "lines": 6}


@pytest.mark.parametrize("command", ["show", "export", "forget", "reflect"])
def test_an_unknown_user_is_an_error_that_names_near_ones(rmm, bank, command):
    done = rmm(command, bank, "anne", code=1)
    assert (done.stdout, done.stderr) == ("", "error: there is no user 'anne'; did you mean 'ann'?\n")
    assert "'rmm users' lists them" in rmm(command, bank, "zoe", code=1).stderr


@pytest.mark.parametrize("env", [{}, TERMINAL], ids=["pipe", "terminal"])
def test_hostile_text_prints_as_text(rmm, open_memory, tmp_path, env):
    memory = open_memory()
    with memory.chat(HOSTILE, session_id="s\x1b[0m", user_name="[bold]Eve") as chat:
        chat.record(f"My cat is called {HOSTILE}.", "Noted.")
    db, embeds = tmp_path / "memory.db", ("ask", tmp_path / "memory.db", HOSTILE, "Which cat?")
    (known,) = json.loads(rmm("show", db, HOSTILE, "--json").stdout)[:1]
    for command in (
        ("users", db),
        ("show", db, HOSTILE),
        ("show", db, HOSTILE, "--turns"),
        ("history", db, HOSTILE, known["id"]),
        embeds,
        (*embeds, "--explain"),
    ):
        seen = without_styles(rmm(*command, env=env).stdout)
        assert r"[red]no[/red] \x1b[31mred\x07 \u202egnp.exe\x9b2J" in seen
        assert not {"\x1b", "\x07", "\u202e", "\x9b"} & {*seen}
        assert not any(line.startswith("error:") for line in seen.splitlines())
        as_json = rmm(*command, "--json", env=env).stdout
        assert not {"\x1b", "\x07", "\u202e", "\x9b"} & {*as_json}
        assert json.dumps(HOSTILE, ensure_ascii=True)[1:-1] in json.dumps(json.loads(as_json))
    lines = rmm("export", db, HOSTILE, env=TERMINAL).stdout
    assert not {"\x1b", "\x07", "\u202e", "\x9b"} & {*lines}
    assert [json.loads(line) for line in lines.splitlines()] == [
        json.loads(line) for line in memory.export_user(HOSTILE)
    ]
    assert r"there is no user '\x1b[2J" in rmm("show", db, "\x1b[2J", code=1).stderr
