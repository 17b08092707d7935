"""stats and doctor: how a memory stands, and what is wrong with it."""

import json
import sqlite3
from pathlib import Path

import pytest

from rmm_cli.care import _summary
from rmm_core import LearningStep
from rmm_core.stores import shown

EVERY_ANSWER = ("--set", "batch_size=1")  # as the bank was made


def test_stats_count_what_is_kept(rmm, bank):
    found = json.loads(rmm("stats", bank, "--json", *EVERY_ANSWER).stdout)
    learners = found.pop("learners")
    size = found.pop("bytes")
    assert found.pop("store") == shown(bank)
    assert found == {"users": 2, "sessions": 3, "pending": 1, "turns": 6, "topics": 1, "unfiled": 2, "declined": 0}
    assert size is None if "://" in bank else size >= Path(bank).stat().st_size
    (learner,) = learners
    assert (learner["user_id"], learner["updates"], learner["ranking"]) == (None, 1, "prior")
    assert learner["curve"]["answers"] == 1
    assert learner["curve"]["served"][0]["reason"]
    assert learner["weights"]["own"] > 0
    text = rmm("stats", bank, *EVERY_ANSWER).stdout
    assert "The learner of all users: 1 update\n" in text
    assert f"the prior ranking serves: {learner['reason']}\n" in text
    assert "learned from 1 answer\n" in text
    assert ("on disk" in text) == ("://" not in bank)


def test_stats_of_learners_that_users_have_of_their_own(rmm, db):
    learners = json.loads(rmm("stats", db, "--json", "--set", "learner_scope=user").stdout)["learners"]
    assert [(learner["user_id"], learner["updates"]) for learner in learners] == [("ann", 0), ("bob", 0)]
    assert "The learner of user 'bob': 0 updates" in rmm("stats", db, "--set", "learner_scope=user").stdout


def test_stats_of_an_empty_memory(rmm, tmp_path, open_memory):
    open_memory()
    found = json.loads(rmm("stats", tmp_path / "memory.db", "--json").stdout)
    assert (found["users"], found["learners"]) == (0, [])
    assert "learner" not in rmm("stats", tmp_path / "memory.db").stdout


def test_what_all_taught_is_told_when_they_are_gone(rmm, bank):
    before = json.loads(rmm("stats", bank, "--json", *EVERY_ANSWER).stdout)["learners"][0]
    for user in ("ann", "bob"):
        rmm("forget", bank, user, "--yes")
    found = json.loads(rmm("stats", bank, "--json", *EVERY_ANSWER).stdout)
    assert found["users"] == 0
    (learner,) = found["learners"]
    assert (learner["user_id"], learner["updates"]) == (None, before["updates"])


def test_a_learning_curve_in_short():
    def step(number, cited, ranking):
        return LearningStep(4 * number, cited, ranking, f"since {number}", {})

    cited = [0.2, 0.2, 0.3, 0.3, 0.4, 0.4, 0.5, 0.7]
    rankings = ["prior"] * 3 + ["learned"] * 4 + ["prior"]
    found = _summary([step(i + 1, *row) for i, row in enumerate(zip(cited, rankings, strict=True))])
    assert found["answers"] == 32
    assert (found["cited_first_quarter"], found["cited_last_quarter"]) == (pytest.approx(0.2), pytest.approx(0.6))
    assert [(s["answers"], s["ranking"]) for s in found["served"]] == [(4, "prior"), (16, "learned"), (32, "prior")]
    assert _summary([]) is None
    assert _summary([step(1, 0.5, "prior")])["cited_last_quarter"] == 0.5


def test_the_doctor_finds_nothing_wrong_with_a_sound_memory(rmm, bank):
    rmm("reflect", bank)
    assert rmm("doctor", bank).stdout.startswith("nothing is wrong with ")
    assert json.loads(rmm("doctor", bank, "--json").stdout) == {"mended": [], "findings": []}


def test_the_doctor_mends_what_can_be_mended(rmm, db):
    rmm("reflect", db)
    with sqlite3.connect(db) as file:
        file.execute("UPDATE sessions SET reflected = 9 WHERE id = 'first'")
    file.close()
    done = rmm("doctor", db, code=1)
    head, *rows = done.stdout.splitlines()
    assert head.split()[:3] == ["kind", "user", "what"]
    assert any(row.split()[:2] == ["turns", "ann"] and "rmm doctor --repair" in row for row in rows)
    assert "can be mended: --repair" in done.stderr
    assert rmm("doctor", db, code=1).stdout == done.stdout  # looking changes nothing
    found = json.loads(rmm("doctor", db, "--repair", "--json").stdout)
    assert {m["kind"] for m in found["mended"]} == {"turns"}
    assert found["findings"] == []
    assert rmm("doctor", db).exit_code == 0


def test_what_the_doctor_cannot_mend_stays_and_makes_the_exit_code_1(rmm, db):
    rmm("reflect", db, "--llm", "tests.cli.models:unreachable", code=1)
    done = rmm("doctor", db, "--repair", code=1)
    (row,) = done.stdout.splitlines()[1:]
    assert (row.split()[:2], row.endswith("(rmm reflect)")) == (["pending", "bob"], True)
