"""import, forget, reflect, reembed, purge: what changes, what is asked before, what is reported after."""

import json

import pytest

from rmm_core import Message, ReflectiveMemory
from rmm_core.testing import HashEmbedder


def listed(rmm, place):
    return [u["user_id"] for u in json.loads(rmm("users", place, "--json").stdout)]


def known(rmm, place):
    return json.loads(rmm("show", place, "ann", "--json").stdout)[0]["id"]


# -- import ------------------------------------------------------------------------------


def test_an_export_is_imported_into_a_memory_that_is_made_for_it(rmm, bank, tmp_path):
    rmm("export", bank, "ann", "-o", tmp_path / "ann.jsonl")
    done = rmm("import", tmp_path / "new.db", tmp_path / "ann.jsonl")
    assert done.stdout == f"user 'ann': 3 memories and 4 turns, in the new memory {tmp_path / 'new.db'}\n"
    for command in (("show", "ann", "--turns"), ("history", "ann", known(rmm, bank))):
        here, there = (rmm(command[0], place, *command[1:], "--json").stdout for place in (bank, tmp_path / "new.db"))
        assert here == there


def test_an_import_comes_from_stdin_and_under_another_id(rmm, bank):
    lines = rmm("export", bank, "ann").stdout
    done = rmm("import", bank, "-", "--as", "anna", "--json", input=lines)
    counts = json.loads(done.stdout)
    assert counts == json.loads(rmm("users", bank, "--json").stdout)[1]
    assert (counts["user_id"], counts["topics"], counts["unfiled"], counts["turns"]) == ("anna", 1, 2, 4)
    assert listed(rmm, bank) == ["ann", "anna", "bob"]
    assert "user 'ann' has something stored" in rmm("import", bank, "-", input=lines, code=1).stderr


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "this is no export"),
        (b'{"format": "else"}', "line 1 is not of an export"),
        (b"\xff\xfe", "is no export: it is not UTF-8 text"),
    ],
)
def test_what_is_no_export_makes_no_memory(rmm, tmp_path, content, complaint):
    (tmp_path / "ann.jsonl").write_bytes(content)
    assert complaint in rmm("import", tmp_path / "new.db", tmp_path / "ann.jsonl", code=1).stderr
    missing = rmm("import", tmp_path / "new.db", tmp_path / "an.jsonl", code=1)
    assert missing.stderr.endswith("an.jsonl'; beside it there is 'ann.jsonl'\n")
    assert "cannot read" in rmm("import", tmp_path / "new.db", tmp_path, code=1).stderr
    assert not (tmp_path / "new.db").exists()


def test_an_export_in_the_home_folder_is_found(rmm, db, tmp_path, monkeypatch):
    rmm("export", db, "ann", "-o", tmp_path / "ann.jsonl")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "3 memories" in rmm("import", tmp_path / "new.db", "~/ann.jsonl").stdout
    assert "there is no file '~nobody-of-that-name/a'" in rmm("import", db, "~nobody-of-that-name/a", code=1).stderr


# -- forget ------------------------------------------------------------------------------


def test_forgetting_gives_a_receipt(rmm, bank):
    done = rmm("forget", bank, "ann", "--yes")
    assert done.stdout.startswith("deleted of user 'ann' at ")
    assert done.stdout.endswith(" UTC: 2 sessions, 4 turns, 3 memories, 1 answer, 0 learners\n")
    receipt = json.loads(rmm("forget", bank, "bob", "--yes", "--json").stdout)
    assert (receipt["user_id"], receipt["sessions"], receipt["turns"]) == ("bob", 1, 2)
    assert listed(rmm, bank) == []


def test_one_memory_is_forgotten_by_the_beginning_of_its_id(rmm, bank):
    memories = json.loads(rmm("show", bank, "ann", "--json").stdout)
    first, second, third = (m["id"] for m in memories)
    assert rmm("forget", bank, "ann", "--memory", first[:8], "--yes").stdout == (
        f"memory {first} of user 'ann' is deleted\n"
    )
    done = rmm("forget", bank, "ann", "--memory", second, "--yes", "--json")
    assert json.loads(done.stdout) == {"user_id": "ann", "memory_id": second, "deleted": True}
    assert [m["id"] for m in json.loads(rmm("show", bank, "ann", "--json").stdout)] == [third]
    assert "has no memory" in rmm("forget", bank, "ann", "--memory", first, "--yes", code=1).stderr


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_nothing_is_forgotten_where_there_is_nobody_to_ask(rmm, db, more):
    done = rmm("forget", db, "ann", *more, input="y\n", code=1)
    assert (done.stdout, done.stderr) == ("", "error: nothing was deleted: there is nobody to ask; say --yes\n")
    assert listed(rmm, db) == ["ann", "bob"]


# -- reflect -----------------------------------------------------------------------------


def test_reflecting_takes_up_what_waits(rmm, bank):
    assert rmm("reflect", bank).stdout == "bob  only  1 added, 0 merged, 0 unfiled\n"
    done = rmm("reflect", bank)
    assert (done.stdout, "nothing waits: " in done.stderr) == ("", True)
    assert rmm("reflect", bank, "bob", "--json").stdout == ""


def test_a_session_that_goes_on_is_told_of(rmm, tmp_path):
    place = tmp_path / "killed.db"
    memory = ReflectiveMemory.open(place, embedder=HashEmbedder())
    memory.chat("ann").add(Message("user", "I keep bees in Graz."))
    memory.store.close()  # as a process that is killed
    assert "nothing waits (1 session still going on): " in rmm("reflect", place).stderr


def test_reflecting_asks_the_language_model_that_is_named(rmm, bank):
    (report,) = map(
        json.loads, rmm("reflect", bank, "bob", "--json", "--llm", "tests.cli.models:thinks").stdout.splitlines()
    )
    assert (report["user_id"], report["session_id"], report["status"], report["added"]) == (
        "bob",
        "only",
        "reflected",
        1,
    )
    assert any(m["summary"] == "Bob keeps bees." for m in json.loads(rmm("show", bank, "bob", "--json").stdout))


def test_a_session_that_stays_pending_is_reported_and_makes_the_exit_code_1(rmm, bank):
    failing = ("reflect", bank, "--llm", "tests.cli.models:unreachable")
    done = rmm(*failing, code=1)
    assert done.stdout == r"bob  only  stays pending: no route to host\x1b[31m" + "\n"
    assert done.stderr == "1 of 1 session left pending\n"
    assert json.loads(rmm(*failing, "--json", code=1).stdout)["status"] == "pending"
    assert rmm("reflect", bank).exit_code == 0


# -- reembed -----------------------------------------------------------------------------


def test_reembedding_moves_the_bank_to_another_embedder(rmm, bank):
    wide = ("--embed", "tests.cli.models:wide")
    rmm("ask", bank, "ann", "Vienna?", *wide, code=1)
    assert rmm("reembed", bank, *wide).stdout == "3 memories embedded anew, 96 numbers each\n"
    assert "Vienna" in rmm("ask", bank, "ann", "Vienna?", *wide).stdout
    assert json.loads(rmm("reembed", bank, "--json").stdout) == {"memories": 3, "width": 64}


# -- purge -------------------------------------------------------------------------------


def test_purging_deletes_what_expired(rmm, bank):
    done = rmm("purge", bank, "ann", "--set", "expire_days=1")
    head, row = done.stdout.splitlines()
    assert head.split() == "user sessions turns memories answers learners".split()
    assert row.split() == "ann 2 4 3 1 0".split()
    (receipt,) = json.loads(rmm("purge", bank, "--set", "expire_days=1", "--json").stdout)
    assert (receipt["user_id"], receipt["turns"]) == ("bob", 2)
    assert rmm("purge", bank, "--set", "expire_days=1").stderr == "nothing has expired\n"
    assert json.loads(rmm("purge", bank, "--set", "expire_days=1", "--json").stdout) == []


def test_nothing_expires_unless_it_is_said_when(rmm, db):
    assert "--set expire_days=365" in rmm("purge", db, code=1).stderr
    assert rmm("purge", db, "--set", "expire_days=36500").stderr == "nothing has expired\n"
