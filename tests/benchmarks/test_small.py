"""A small version of everything: what is missing is said, what is there is run."""

import pytest

from benchmarks import answering, run, small
from rmm_core.testing import HashEmbedder
from tests.benchmarks.test_datasets import locomo_entry, msc_folder, written


@pytest.fixture
def command(tmp_path, monkeypatch):
    """The command where no data are yet."""
    monkeypatch.setattr(small, "DATA", tmp_path / "data")
    monkeypatch.setattr(run, "bundled_embedder", HashEmbedder)
    monkeypatch.setattr(answering, "bert_scores", lambda answers, golds, *model: [0.5] * len(golds))
    return lambda: small.main(["--results", str(tmp_path / "results"), "--cache", str(tmp_path / "cache")])


def test_each_missing_data_set_is_one_sentence(command, capsys):
    command()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    for line, name in zip(lines, ("LoCoMo", "LongMemEval", "Multi-Session Chat"), strict=True):
        assert line.startswith(name)
        assert "is left out, since there is no " in line
        assert "is had at https://" in line
        assert line.endswith(").")


def test_what_is_there_is_run_and_its_tables_are_printed(command, tmp_path, capsys):
    asked = {"question": "What does Ann keep?", "answer": "bees", "evidence": ["D2:1"]}
    talks = [locomo_entry(*[asked] * 3) | {"sample_id": name} for name in ("one", "two")]
    written(tmp_path / "data" / "locomo10.json", talks)
    msc_folder(tmp_path / "data" / "msc")
    command()
    out = capsys.readouterr().out
    assert out.startswith("LongMemEval-S, the user's side is left out")
    assert "| RAG: turns, dense |" in out
    names = {p.relative_to(tmp_path / "results").as_posix() for p in (tmp_path / "results").rglob("*.json")}
    assert {"locomo/rag-turn.json", "locomo/rmm.recorded.seed0.json", "locomo/answers/rmm.recorded.json"} <= names
    assert {name for name in names if name.startswith("msc/")} == {
        f"msc/answers/{name}.json" for name in ("no-history", "long-context", "rag-turn", "pr.recorded", "rmm.recorded")
    }
