"""The soak, for a few turns: what it measures, what it calls flat and linear, and that its model teaches."""

import json
from contextlib import suppress

import pytest

from benchmarks import soak


def sample(number, **changes):
    values = {"resident_mb": 100.0, "file_mb": 1.0 + number, "files": 9, "threads": 1, "recall_ms": 1.0}
    return soak.Sample(turns=1_000 * number, seconds=number, **values | changes)


def test_a_few_turns_are_soaked(tmp_path, capsys):
    file = tmp_path / "soak.json"
    with suppress(SystemExit):  # so few turns are all warming up: a check may fail
        soak.main(["--turns", "240", "--users", "3", "--long", "300", "--results", str(file)])
    figures = json.loads(file.read_text())
    end = figures["end"]
    assert figures["turns"] == end["turns"] == 240
    assert figures["users"] == 3
    assert end["findings"] == []
    assert end["pending"] == 0
    assert end["topics"] > 10
    assert end["unfiled"] > 10
    assert end["updates"] > 0
    assert {s["files"] > 0 and s["threads"] > 0 and s["file_mb"] > 0 for s in figures["samples"]} == {True}
    assert figures["checks"]["open files are constant"]["holds"]
    assert figures["long_session"]["turns"] == 300
    assert figures["long_session"]["topics"] > 0
    assert "240 turns of 3 users" in capsys.readouterr().out


def test_what_holds():
    assert all(check["holds"] for check in soak.checked([sample(n) for n in range(1, 21)]).values())


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("memory is flat once it is warm", lambda n: {"resident_mb": 100.0 + n}),
        ("the file grows in a line", lambda n: {"file_mb": float(n**2)}),
        ("open files are constant", lambda n: {"files": 9 + n}),
        ("threads are constant", lambda n: {"threads": 1 + n}),
    ],
)
def test_what_does_not_hold_is_told(name, changes):
    checks = soak.checked([sample(n, **changes(n)) for n in range(1, 21)])
    assert [n for n, check in checks.items() if not check["holds"]] == [name]


def test_memory_may_grow_while_it_gets_warm():
    samples = [sample(n, resident_mb=min(50.0 + 10 * n, 100.0)) for n in range(1, 21)]
    assert soak.checked(samples)["memory is flat once it is warm"]["holds"]
