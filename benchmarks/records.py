"""One run as one JSON file: what was run, on what, and what came out for every question."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, TypeAlias

from benchmarks.metrics import Measures, measures

Level: TypeAlias = Literal["turn", "session"]
Phase: TypeAlias = Literal["first", "again"]


@dataclass(frozen=True, slots=True)
class Row:
    """What a method brought up for one question.

    Attributes:
        question: Its id.
        kind: Its type.
        abstains: Whether the conversation does not tell.
        evidence: Turns that the answer rests on.
        reachable: How many of these the method could bring up at all.
        gains: New evidence turns covered, by place.
        sessions: Sessions that the answer rests on.
        session_gains: New evidence sessions covered, by place, a session counted where it first comes up.
        turns: Turns that the M things shown hold together.
        words: Words of these turns.
        shown: How many things were shown: M, or as many as there are.
        useful: How many of them cover evidence.
        cited: How many of them were cited; 0 where nothing was learned.
    """

    question: str
    kind: str
    abstains: bool
    evidence: int
    reachable: int
    gains: tuple[int, ...]
    sessions: int
    session_gains: tuple[int, ...]
    turns: int
    words: int
    shown: int
    useful: int
    cited: int

    def at(self, k: int, level: Level = "turn") -> Measures:
        """The measures at k."""
        if level == "turn":
            return measures(self.gains, self.evidence, k)
        return measures(self.session_gains, self.sessions, k)


@dataclass(frozen=True)
class Run:
    """A method on a data set.

    Attributes:
        method: Its name in the catalogue.
        about: All that the outcome depends on: data, embedder, settings, feedback, seed.
        first: A row per question, in the order asked; of a method that learns, taken before it learned from it.
        again: The same questions asked once more after all of them were learned from.
        made: When, where and how long; does not tell runs apart.
    """

    method: str
    about: dict[str, Any]
    first: tuple[Row, ...]
    again: tuple[Row, ...] = ()
    made: dict[str, Any] = field(default_factory=dict)

    def rows(self, phase: Phase = "first") -> tuple[Row, ...]:
        """The rows of a phase."""
        return self.first if phase == "first" else self.again

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all; a row a line."""
        head = {"method": self.method, "about": self.about, "made": self.made, "columns": [f.name for f in fields(Row)]}
        lines = [json.dumps(head, indent=1, sort_keys=True)[:-2]]
        for phase in ("first", "again"):
            rows = ",\n".join(f"  {json.dumps(_packed(row))}" for row in self.rows(phase))
            lines.append(f' "{phase}": [\n{rows}\n ]' if rows else f' "{phase}": []')
        write_whole(path, ",\n".join(lines) + "\n}\n")

    @classmethod
    def load(cls, path: Path) -> Run:
        """The run of a file.

        Raises:
            ValueError: When the file is something else, or of another version of this program.
        """
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            names = content["columns"]
            if names != [f.name for f in fields(Row)]:
                raise ValueError(f"its columns are {names}")
            first, again = (tuple(_unpacked(row) for row in content[phase]) for phase in ("first", "again"))
            return cls(content["method"], content["about"], first, again, content["made"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is no run of this benchmark ({error}); delete it and run again") from error


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}.tmp")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def _packed(row: Row) -> list[Any]:
    """A row as JSON: gains as one digit a place, trailing zeros left out; as a list where a digit does not do."""
    values = [getattr(row, f.name) for f in fields(Row)]
    return [_digits(v) if isinstance(v, tuple) and max(v, default=0) < 10 else v for v in values]


def _unpacked(values: list[Any]) -> Row:
    named = dict(zip((f.name for f in fields(Row)), values, strict=True))
    for name in ("gains", "session_gains"):
        named[name] = tuple(map(int, named[name]))
    return Row(**named)


def _digits(gains: Sequence[int]) -> str:
    return "".join(map(str, gains)).rstrip("0")


def made() -> dict[str, Any]:
    """The commit, versions and machine that a run is made with."""
    packages = ("reflective-memory", "torch", "faiss-cpu", "numpy", "sentence-transformers", "bm25s")
    return {
        "commit": _git("rev-parse", "--short=12", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--untracked-files=no", "--", "rmm_core", "benchmarks/*.py")),
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in packages},
        "machine": {"system": platform.system(), "processor": platform.machine(), "cores": os.cpu_count()},
    }


def _git(*arguments: str) -> str:
    try:
        here = Path(__file__).parents[1]
        done = subprocess.run(("git", *arguments), capture_output=True, text=True, check=True, cwd=here)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
