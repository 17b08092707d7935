"""The race against other memories: its material, its runner with a worker that is made up here, ours, and its page."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.datasets import users_side
from benchmarks.peers import __main__ as command
from benchmarks.peers import catalogue, environments, page
from benchmarks.peers.catalogue import CATALOGUE, Entry, code_lines
from benchmarks.peers.environments import Environment, UnavailableError, environment, reason
from benchmarks.peers.material import blocks, prepared
from benchmarks.peers.quality import asked, compared, scored
from benchmarks.peers.race import Race, Stage, blocks_of, foretold, measured, summed
from benchmarks.peers.running import Racer, WorkerError
from benchmarks.peers.workers import worker
from rmm_core.testing import HashEmbedder
from tests.benchmarks.worlds import conversation

FAKE = '''
"""A memory that finds whatever shares a word with the query; ``broken`` does not open, ``slow`` takes its time."""
import json, sys, time
from pathlib import Path

sys.path.insert(0, {workers!r})
from worker import main


class Fake:
    def __init__(self, vectors, variant):
        self.vectors, self.variant, self.persists = vectors, variant, variant != "forgetful"

    def open(self, path, users):
        if self.variant == "broken":
            raise RuntimeError("it wants a key, see /some/where")
        self.path = Path(path) / "said.json"
        self.said = json.loads(self.path.read_text()) if self.path.exists() else {{}}

    def ingest(self, user, session):
        time.sleep(0.4 * (self.variant == "slow"))
        for turn in session.turns:
            assert self.vectors.row(turn.line).shape == (384,)
            self.said.setdefault(user, []).append(turn.line)

    def recall(self, user, query):
        assert self.vectors.values(query)
        words = set(query.lower().strip("?").split())
        print("noise")
        return [[line] for line in self.said[user] if words & set(line.lower().rstrip(".").split())][:5]

    def close(self):
        if self.persists:
            self.path.write_text(json.dumps(self.said))
        return {{"memories": sum(map(len, self.said.values()))}}


main(Fake)
'''


@pytest.fixture
def corpora():
    talks = [conversation(name) for name in ("ada", "bob")]
    return {"locomo": talks, "msc": [users_side(conversation("cid"))]}


@pytest.fixture
def material(corpora, tmp_path):
    return prepared(tmp_path / "material", corpora, HashEmbedder(384), 40, 20, lambda items, what: items)


@pytest.fixture
def fake(tmp_path):
    """Entries of a worker that is made up."""
    script = tmp_path / "fake.py"
    script.write_text(FAKE.format(workers=str(catalogue.WORKERS)), encoding="utf-8")
    return lambda variant, durable="each turn": Entry(f"fake, {variant}", str(script), variant, "", (), durable)


@pytest.fixture
def race(material, tmp_path):
    """A race of some entries, with a minute each."""

    def made(*entries, rounds=1, seconds=60.0):
        here = Environment(Path(sys.executable), {})
        racers = [Racer(f"{i} {e.variant}", e, here, seconds) for i, e in enumerate(entries)]
        questions = ["Who plays the cello?", "What about the bees?"]
        return Race(racers, material, tmp_path / "memories", questions, rounds, lambda text: None)

    return made


def test_blocks_have_as_many_turns_as_asked_for_and_come_again_under_other_names(corpora):
    found = blocks(corpora, 40, 20)
    assert [sum(len(t.sitting.messages) for t in part) for part in found] == [20, 20]
    lines = [line for part in found for talk in part for line in talk.lines()]
    assert "User: I keep seven bees in Lisbon." in lines
    assert "User 2: I keep seven bees in Lisbon." in lines
    assert len({talk.name for part in found for talk in part}) == sum(map(len, found))


def test_material_holds_an_embedding_of_all_that_is_said_and_asked(material, corpora):
    vectors = worker.Vectors(str(material.folder))
    row = HashEmbedder(384).embed(["Who plays the cello?"])[0]
    assert vectors.row(" Who plays  the cello? ") == pytest.approx(row / np.linalg.norm(row), abs=1e-6)
    told = {"sessions": str(material.folder / "turns.jsonl"), "histories": [("u", *material.history(0, 40))]}
    sessions = [session for _, session in worker.histories(told)]
    assert sum(len(session.turns) for session in sessions) == 40
    assert all(vectors.row(turn.line).shape == (384,) for session in sessions for turn in session.turns)
    with pytest.raises(KeyError, match="no embedding of 'never said'"):
        vectors.row("never said")
    assert material.about["turns"] == 40
    assert [material.history(user, 20)[0] for user in (0, 1, 2)] == [material.blocks[i][0] for i in (0, 1, 0)]


def test_material_is_made_once(material, corpora, tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.peers.material._made", None)
    again = prepared(tmp_path / "material", corpora, HashEmbedder(384), 40, 20, lambda items, what: items)
    assert again == material


def test_a_peer_is_stored_in_one_process_and_asked_in_another(race, fake):
    here = race(fake("steady"), fake("forgetful", "never"), rounds=2)
    found = here.stage(Stage(1, 40))
    steady, forgetful = found.values()
    assert steady["turns"] == forgetful["turns"] == steady["memories"] == 40
    assert steady["rounds"] == forgetful["rounds"] == 2
    assert min(steady[name] for name in ("ingest_s", "start_s", "open_s", "first_s", "p50_ms", "p95_ms")) > 0
    assert 0 < steady["things"] <= 5
    assert steady["disk_mb"] > forgetful["disk_mb"] == 0
    assert not here.folder.exists()


def test_many_users_are_asked_twice(race, fake):
    (found,) = race(fake("steady")).stage(Stage(3, 20)).values()
    assert found["turns"] == 60
    assert (found["asked"], found["again_asked"]) == (2, 3)  # the very first stands by itself


def test_what_fails_is_told_without_places_and_does_not_go_on(race, fake):
    here = race(fake("broken"))
    (found,) = here.stage(Stage(1, 20)).values()
    assert found == {"rounds": 0, "note": "failed at 20: RuntimeError: it wants a key, see ..."}
    assert foretold(here.racers[0], Stage(1, 40)) == found["note"]


def test_many_users_are_foretold_by_one_with_as_many_turns(race, fake):
    racer = replace(race(fake("steady")).racers[0], seconds=100.0, paces={20: 0.001, 400: 2.0})
    assert foretold(racer, Stage(1000, 20)) == ""
    assert foretold(racer, Stage(1, 400)) == "over budget: 400 turns at its last pace are 800 s; 100 s were left"
    assert foretold(racer, Stage(1, 60)) == "over budget: 60 turns at its last pace are 120 s; 100 s were left"


def test_time_that_is_over_is_told(race, fake):
    here = race(fake("slow"), seconds=1.5)
    (found,) = here.stage(Stage(1, 40)).values()
    assert found["note"].startswith("over budget: no time left at ")
    assert foretold(here.racers[0], Stage(1, 4000)).startswith("over budget: 4,000 turns at its last pace are ")


def test_a_process_that_grows_too_big_stops(race, fake, monkeypatch):
    monkeypatch.setattr("benchmarks.peers.running.half", lambda: 1.0)
    (found,) = race(fake("steady")).stage(Stage(1, 40)).values()
    assert " MB at " in found["note"]


def test_a_worker_that_does_not_stop_is_ended(race, fake, monkeypatch):
    monkeypatch.setattr("benchmarks.peers.running.GRACE", -0.9)
    (found,) = race(fake("slow"), seconds=1.0).stage(Stage(1, 40)).values()
    assert "did not stop" in found["note"]


@pytest.mark.parametrize("variant", ["default", "turns"])
def test_ours_races(race, variant):
    here = race(replace(CATALOGUE["ours"], variant=variant), rounds=2)
    (found,) = here.stage(Stage(1, 40)).values()
    assert found["turns"] == 40
    assert 0 < found["memories"] <= 40
    assert found["rounds"] == 2
    assert "note" not in found
    answers = here.quality(here.racers[0])
    scores = scored([conversation("ada"), conversation("bob")], answers)
    assert np.mean(list(scores["any@5, answerable"].values())) == 1.0


def test_quality_counts_the_turns_whose_words_come_up():
    talks = [conversation("ada")]
    assert [q.id for _, q in asked(talks)] == ["q1", "q2", "q3"]
    bees, cello = "User: I keep seven bees in Lisbon.", "User:  My sister Ida plays the cello."
    scores = scored(talks, [[[bees], [cello]], [[cello, bees]], [[cello]]])
    assert scores["any@5"] == {("ada", "q1"): 1.0, ("ada", "q2"): 1.0, ("ada", "q3"): 0.0}
    assert scores["coverage@5, answerable"] == {("ada", "q1"): 1.0, ("ada", "q2"): 0.5}
    assert scores["words"]["ada", "q1"] == 14
    beyond = scored(talks, [[[bees]] * 5 + [[cello]], [], []])
    assert sum(beyond["any@5"].values()) == 0
    both = compared({"ours": scores, "other": beyond}, "ours", lambda text: None)
    assert both["other"]["ours ahead"]["any@5"]["mean"] == pytest.approx(2 / 3, abs=1e-3)
    assert both["ours"]["any@5"]["n"] == 3


@pytest.mark.parametrize("text", ["", "x", "10x", "0", "ax10", "10x0", "-5"])
def test_sizes_are_turns_or_users_and_turns(text):
    assert (Stage.parse("1000x50"), Stage.parse("50")) == (Stage(1000, 50), Stage(1, 50))
    with pytest.raises(ValueError, match="a size is a number of turns"):
        Stage.parse(text)


def test_stages_have_blocks_in_common():
    assert blocks_of([Stage(1, 1000), Stage(1, 10_000), Stage(1000, 500)], 100) == (50_000, 500)


def test_rounds_are_summed_up_by_their_medians():
    rounds = [{"turns": 10, "ingest_s": s, "recall_ms": [[1.0, 2.0, s]]} for s in (1.0, 9.0, 3.0)]
    assert summed(rounds)["ingest_s"] == 3.0
    assert summed(rounds)["p50_ms"] == 2.0
    assert measured({"recall_ms": [[], [4.0]]}) == {"again_p50_ms": 4.0, "again_p95_ms": 4.0, "again_asked": 1}


def test_what_cannot_be_installed_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(environments, "_called", lambda command: (_ for _ in ()).throw(UnavailableError("no such")))
    with pytest.raises(UnavailableError, match="no such"):
        environment(CATALOGUE["langchain"], tmp_path)
    assert reason("a\nand/or: '/tmp/x.y' at=/z\n\n") == "and/or: '...' at=..."
    assert environment(CATALOGUE["ours"], tmp_path).python == Path(sys.executable)


def test_workers_get_no_keys(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    assert "OPENAI_API_KEY" not in Environment(Path(sys.executable), {}).variables(tmp_path)


def test_lines_of_code_are_neither_blank_nor_texts():
    assert (
        code_lines('"""About."""\n\n# a note\nx = """\n"""\n\n\ndef f():\n    """Does."""\n    return 1  # one\n') == 4
    )
    assert all(entry.path.exists() and entry.lines for entry in CATALOGUE.values())
    assert all("==" in r for entry in CATALOGUE.values() for r in entry.requirements)


@pytest.fixture
def ran(corpora, fake, tmp_path, monkeypatch):
    """The file that the whole command writes."""
    broken = replace(fake("steady"), environment="broken", requirements=("none==0",))
    entries = {
        "ours": CATALOGUE["ours"],
        "ours-turns": CATALOGUE["ours-turns"],
        "steady": fake("steady"),
        "not-here": broken,
    }

    def place(entry, folder):
        if entry.environment:
            raise UnavailableError("cannot be installed: no such release")
        return Environment(Path(sys.executable), {"fake": "1.0"})

    monkeypatch.setattr(command, "CATALOGUE", entries)
    monkeypatch.setattr(command, "environment", place)
    monkeypatch.setattr(command, "read", lambda folder: corpora)
    monkeypatch.setattr(command, "bundled_embedder", lambda: HashEmbedder(384))
    arguments = ["--only", ",".join(entries), "--rounds", "1", "--queries", "2", "--minutes", "1"]
    places = ["--cache", str(tmp_path / "cache"), "--results", str(tmp_path)]
    command.main([*arguments, *places, "--sizes", "20,40,3x20"])
    return tmp_path, [*arguments, *places]


def test_a_run_of_its_own_stands_beside_the_first(ran):
    folder, arguments = ran
    before = (folder / "peers.json").read_bytes()
    command.main([*arguments, "--sizes", "2x20", "--name", "many", "--no-quality"])
    assert (folder / "peers.json").read_bytes() == before
    first, many = page.loaded(folder)
    assert "quality" in first["peers"]["steady"]
    assert "quality" not in many["peers"]["steady"]
    text = page.page([first, many])
    _, _, own = text.partition("## In a run of its own: 2 users with 20 turns\n")
    assert "### Many users\n" in own
    assert "### What comes up" not in own
    assert "### Who raced" not in own  # which stands above
    assert page.page([first]) in text


def test_the_command_writes_what_the_page_is_made_of(ran):
    ran, _ = ran
    (found,) = page.loaded(ran)
    assert found["made"]["sizes"] == ["20", "40", "3x20"]
    assert set(found["peers"]["steady"]["stages"]) == {"20", "40", "3x20"}
    assert found["peers"]["not-here"]["failed"] == "cannot be installed: no such release"
    assert str(ran) not in json.dumps(found)
    text = page.page([found])
    for title in ("Where this memory loses", "What comes up", "Storing", "Asking", "Many users", "Who raced"):
        assert f"## {title}\n" in text
    assert "- fake, steady: cannot be installed: no such release." in text
    assert "[ours.py](peers/workers/ours.py)" in text


def figures(p50, **more):
    return {"ingest_s": 1.0, "turns": 10, "p50_ms": p50, "p95_ms": p50, "rounds": 1} | more


@pytest.fixture
def found():
    """A race whose outcome is known."""

    def peer(label, stages):
        return {"label": label, "worker": "peers/workers/x.py", "lines": 9, "durable": "never", "stages": stages}

    peers = {
        "other": peer("Other", {"10": figures(1.0), "100": {"rounds": 0, "note": "over budget; 0 s were left"}}),
        "ours": peer("ours", {"10": figures(4.0), "100": {"rounds": 0, "note": "failed at 100: no"}}),
        "ours-turns": peer("ours, turns", {"10": figures(3.0), "100": figures(6.0)}),
        "third": peer("Third", {"10": figures(48.0), "100": figures(3.0)}),
    }
    made = {
        "sizes": ["10", "100"],
        "ours": "ours",
        "cores": 2,
        "used": 1,
        "beside": "tests ran on the other",
        "python": "3",
        "threads": "1",
        "commit": "c",
        "changed": 1,
    }
    made |= {"minutes": 1, "rounds": 1, "queries": 2}
    material = {"turns": 100, "distinct": 90, "words": 7.0, "conversations": {"locomo": 10}}
    return {"made": made, "material": material, "peers": peers}


def test_ratios_are_to_ours_and_losses_are_named(found):
    lines = page.sized_table(found, page.ASKING).splitlines()
    assert lines[2].startswith("| ours | 4 | 4 | - | - |")
    assert any(line.startswith("| Other | 1 (0.25x) |") for line in lines)
    assert any(line.startswith("| Third | 48 (12x) |") and "| 3 (0.5x) |" in line for line in lines)
    lost = page.losses(found)
    assert "| 10 turns: p50, ms | 4 | Other 1 (0.25x) |" in lost
    assert "| 100 turns: p50, ms | 6 | Third 3 (0.5x) |" in lost  # where ours did not end, our other row stands for it
    assert "storing" not in lost
    found["peers"]["third"]["stages"]["10"]["things"] = 1.25
    assert page.notes(found).splitlines() == [
        "- Other: 100 turns: over budget; 0 s were left.",
        "- ours: 100 turns: failed at 100: no.",
        "- Third: 10 turns: 1.2 things came up, not five, whatever its speed.",
    ]


def test_more_words_and_less_found_are_losses(found):
    def of(share, words):
        return {"words": {"mean": words}} | {name: {"mean": share} for name in page.SHARES}

    for name, quality in {"ours": of(0.8, 400.0), "other": of(0.4, 100.0), "third": of(0.9, 500.0)}.items():
        found["peers"][name]["quality"] = quality
    lost = page.losses(found)
    assert "| words of the five things | 400 | Other 100 (0.25x) |" in lost
    assert "| any@5 | 0.8 | Third 0.9 (1.1x) |" in lost


def test_a_page_without_a_race_says_so(tmp_path):
    assert page.page(page.loaded(tmp_path)) == "Not run yet."


def test_a_worker_has_no_network(monkeypatch):
    with pytest.raises(OSError, match="no network"):
        worker._refused(None, ("127.0.0.1", 1))


def test_a_peer_that_fails_leaves_a_reason(race, fake):
    here = race(fake("broken"))
    with pytest.raises(WorkerError, match="it wants a key"):
        here.quality(here.racers[0])
