"""The two databases side by side, on a bank small enough for a test."""

import json

from benchmarks import databases


def test_both_are_measured(tmp_path, capsys):
    databases.main(["--sizes", "40", "--repeat", "3", "--json", str(tmp_path / "figures.json")])
    figures = json.loads((tmp_path / "figures.json").read_text())["sizes"]["40"]
    assert figures.keys() == {"sqlite", "postgres"}
    for measured in figures.values():
        assert measured["memories_per_second"] > 0
        assert 0 < measured["recall_p50_ms"] <= measured["recall_p95_ms"]
        assert measured["bytes_per_memory"] > 384 * 4
    assert "PostgreSQL / SQLite" in capsys.readouterr().out
