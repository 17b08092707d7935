"""The command: a user's own data, what is kept, what is said of mistakes."""

import json

import pytest

from benchmarks import report, run
from benchmarks.records import Run
from rmm_core.testing import HashEmbedder
from tests.benchmarks.test_jsonl import LINE


@pytest.fixture(autouse=True)
def _no_model(monkeypatch):
    monkeypatch.setattr(run, "bundled_embedder", HashEmbedder)


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "my.jsonl"
    more = {"conversation": "m", "question": "How many bees?", "evidence": [[1, 0], [0, 0]], "kind": "number"}
    path.write_text("".join(json.dumps(row) + "\n" for row in (LINE | {"evidence": [[0, 0]]}, more)))
    return path


@pytest.fixture
def command(tmp_path, own):
    def call(*more):
        folders = ("--results", str(tmp_path / "results"), "--cache", str(tmp_path / "cache"))
        run.main(["--dataset", "jsonl", "--data", str(own), *folders, *more])
        return {p.name: Run.load(p) for p in sorted((tmp_path / "results" / "jsonl").glob("*.json"))}

    return call


def test_a_users_own_data(command, tmp_path, capsys):
    runs = command("--methods", "rag-turn,rmm", "--seeds", "0,1")
    assert list(runs) == ["rag-turn.json", "rmm.extractive.seed0.json", "rmm.extractive.seed1.json"]
    found = runs["rag-turn.json"]
    assert [(r.question, r.kind, r.evidence) for r in found.first] == [("m 1", "question", 1), ("m 2", "number", 2)]
    assert found.about["citations"] == {"simulated": True, "recall": 0.911, "false": 0.05}
    assert found.made["versions"]["torch"]
    assert len(runs["rmm.extractive.seed0.json"].again) == 2
    capsys.readouterr()
    report.main(["--results", str(tmp_path / "results")])
    assert "| RAG: turns, dense | 1.000 |" in capsys.readouterr().out


def test_what_was_run_is_not_run_again_and_other_settings_are(command, tmp_path, capsys):
    command("--methods", "rr", "--seeds", "0")
    kept = (tmp_path / "results" / "jsonl" / "rr.seed0.json").read_text()
    command("--methods", "rr", "--seeds", "0")
    assert "run before" in capsys.readouterr().err
    assert (tmp_path / "results" / "jsonl" / "rr.seed0.json").read_text() == kept
    command("--methods", "rr", "--seeds", "0", "--false-citations", "0.5")
    assert "run before" not in capsys.readouterr().err
    assert (tmp_path / "results" / "jsonl" / "rr.seed0.json").read_text() != kept


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--dataset", "jsonl"], "--dataset jsonl needs --data FILE"),
        (["--dataset", "locomo", "--methods", "ragturn"], "there is no method 'ragturn'; there are no-history"),
        (["--dataset", "locomo", "--seeds", "a"], "--seeds is numbers with commas between them"),
        (["--dataset", "locomo", "--conversations", "0"], "a number from 1; got 0"),
        (["--dataset", "locomo", "--citation-recall", "5"], "a number from 0 to 1; got 5"),
        (["--dataset", "locomo", "--topics", "llm"], "--topics llm needs --llm URL"),
    ],
)
def test_mistakes_in_options_are_told(options, complaint, capsys):
    with pytest.raises(SystemExit, match="2"):
        run.main(options)
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("name", ["locomo", "longmemeval", "msc"])
def test_a_missing_data_set_says_where_it_is_had(name, tmp_path):
    with pytest.raises(SystemExit, match=r"(?s)cannot read .* is had at https://"):
        run.main(["--dataset", name, "--data", str(tmp_path / "none"), "--cache", str(tmp_path)])


def test_topics_that_nobody_recorded_are_refused_in_one_sentence(command):
    with pytest.raises(SystemExit, match="no recorded facts; take --topics extractive"):
        command("--methods", "pr", "--topics", "recorded")


def test_what_cannot_be_written_is_told_before_anything_runs(command, tmp_path):
    (tmp_path / "results").write_text("a file")
    with pytest.raises(SystemExit, match="Not a directory"):
        command("--methods", "rag-turn")


def test_again_runs_what_was_run(command, tmp_path, capsys):
    command("--methods", "rag-turn")
    command("--methods", "rag-turn", "--again")
    assert "run before" not in capsys.readouterr().err


@pytest.mark.parametrize("lines", [[LINE], [LINE | {"evidence": [[0, 0]]}]])
def test_a_single_question(command, own, tmp_path, lines, capsys):
    own.write_text("".join(json.dumps(line) + "\n" for line in lines))
    if "evidence" not in lines[0]:
        with pytest.raises(SystemExit, match="no question here names its evidence"):
            command("--seeds", "0")
        return
    runs = command("--seeds", "0")
    assert [r.question for r in runs["pretrained-turn.seed0.json"].first] == ["m 1"]
    capsys.readouterr()
    report.main(["--results", str(tmp_path / "results")])
    assert "| Turns, pretrained | 1 |" in capsys.readouterr().out


def test_runs_of_other_data_stand_in_tables_of_their_own(command, own, tmp_path, capsys):
    command("--methods", "rag-turn")
    own.write_text(json.dumps(LINE | {"evidence": [[1, 0]]}) + "\n")
    command("--methods", "bm25-turn")
    capsys.readouterr()
    report.main(["--results", str(tmp_path / "results")])
    assert capsys.readouterr().out.count("1. Main table") == 2


def test_conversations_are_spread_over_the_file():
    assert run.spread(list(range(10)), 3) == [0, 3, 6]
    assert run.spread([1, 2], None) == run.spread([1, 2], 9) == [1, 2]
