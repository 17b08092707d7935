"""ask: what would be brought up and why, with nothing stored and no chance in it."""

import json

import pytest

from rmm_cli.ask import terms
from rmm_core.explain import Reason
from tests.cli.conftest import EMBEDDER

QUESTION = "Where does Ann live now, Graz or Vienna?"


def test_ask_shows_what_would_be_brought_up_in_order(rmm, bank):
    head, *rows = rmm("ask", bank, "ann", QUESTION).stdout.splitlines()
    assert head.split() == ["#", "score", "memory", "summary"]
    assert [row.split()[0] for row in rows] == ["1", "2", "3"][: len(rows)]
    scores = [float(row.split()[1]) for row in rows]
    assert scores == sorted(scores, reverse=True)
    found = json.loads(rmm("ask", bank, "ann", QUESTION, "--json").stdout)
    assert (found["user_id"], found["query"], found["ranking"]) == ("ann", QUESTION, "prior")
    assert "answers" in found["reason"]
    assert [row.split()[2] for row in rows] == [s["memory"]["id"] for s in found["shown"]]
    assert [s["number"] for s in found["shown"]] == list(range(1, len(rows) + 1))


def test_an_explanation_holds_every_candidate_with_what_speaks_for_it(rmm, bank):
    found = json.loads(rmm("ask", bank, "ann", QUESTION, "--explain", "--json").stdout)
    assert len(found["candidates"]) == 3
    for candidate in found["candidates"]:
        assert {"own", "window", "session"} <= candidate["features"].keys()
        assert sum(candidate["terms"].values()) == pytest.approx(candidate["prior"], abs=1e-4)
    text = rmm("ask", bank, "ann", QUESTION, "--explain").stdout
    assert text.startswith(f"The prior ranking serves: {found['reason']}\nThe prior would show: ")
    for candidate in found["candidates"]:
        f = candidate["features"]
        assert (
            f"{candidate['memory']['id']}  learned {candidate['learned']:.2f} (#{candidate['learned_rank']})"
            f"  prior {candidate['prior']:.2f} (#{candidate['prior_rank']})\n"
            f"     dense {candidate['similarity']:.2f}  words: own {f['own']:.2f}  window {f['window']:.2f}"
            f"  session {f['session']:.2f}\n"
            f"     {candidate['memory']['summary']}\n"
        ) in text


def test_terms_begin_with_what_counts_most_and_leave_out_what_adds_nothing():
    def reason(**terms):
        return Reason(None, 0.0, {}, 0.0, 0.0, 1, 1, terms, None, None)

    assert terms(reason(own=0.3, early=0.001, length=-0.45)) == "length=-0.45  own=+0.30"
    assert terms(reason(own=0.0)) == "0"


def test_asking_stores_nothing(rmm, db, at):
    before = ([*at().export_user("ann")], len(at().answers()))
    rmm("ask", db, "ann", QUESTION, "--set", "duels=1.0")
    assert ([*at().export_user("ann")], len(at().answers())) == before


def test_a_setting_changes_what_is_shown(rmm, db):
    assert len(rmm("ask", db, "ann", QUESTION, "--set", "top_m=1").stdout.splitlines()) == 2
    done = rmm("ask", db, "ann", QUESTION, "--set", "floor=99")
    assert (done.stdout, done.stderr) == ("", "nothing would be brought up\n")


def test_another_embedder_than_the_banks_is_refused_in_the_librarys_words(rmm, db, monkeypatch):
    monkeypatch.setenv("RMM_EMBED", "tests.cli.models:wide")
    done = rmm("ask", db, "ann", QUESTION, code=1)
    assert done.stderr.startswith("error: this bank holds embeddings of width 64, the embedder returns width 96")
    assert rmm("ask", db, "ann", QUESTION, "--embed", EMBEDDER).stdout


def test_a_user_without_memories_is_answered_with_nothing(rmm, db):
    assert rmm("ask", db, "bob", "Bees?").stderr == "nothing would be brought up\n"
    assert "0 candidates" not in rmm("ask", db, "bob", "Bees?", "--explain").stdout
    assert json.loads(rmm("ask", db, "bob", "Bees?", "--json").stdout)["shown"] == []
