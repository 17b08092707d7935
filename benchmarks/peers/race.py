"""The race: who runs when and until when, and what came out, summed up.

One worker runs at a time. In a round every peer takes its turn with the same work, so that noise hits all alike. A
worker stores in one process and is asked in another; what does not outlive its process does both in one. A peer has so
many minutes for all of its rounds together: what does not fit is said, and so is what its pace foretells.
"""

from __future__ import annotations

import json
import shutil
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.peers.material import Material
from benchmarks.peers.running import Answer, Racer, WorkerError

ASKING = 120  # seconds of one process that asks
AGAIN = 10_000  # so many turns are stored anew in each round; more of them once
ASKERS = 200  # users who ask, of many
SAME = (
    *("ingest_s", "turns", "stored_close_s", "stored_growth_mb", "memories", "made_up"),
    *("start_s", "open_s", "first_s", "growth_mb", "disk_mb", "things"),
)
"""What is summed up as it was measured."""


@dataclass(frozen=True)
class Stage:
    """So many users with so many turns each."""

    users: int
    turns: int

    @classmethod
    def parse(cls, text: str) -> Stage:
        """A stage as the option has it: ``10000``, or ``1000x1000``, users first.

        Raises:
            ValueError: When it is neither.
        """
        users, by, turns = text.rpartition("x")
        if not turns.isdecimal() or (by and not users.isdecimal()) or not int(turns) * int(users or 1):
            raise ValueError(f"a size is a number of turns, or users x turns, as in 1000x1000; got {text!r}")
        return cls(int(users or 1), int(turns))

    @property
    def name(self) -> str:
        """What it is called in files."""
        return f"{self.users}x{self.turns}" if self.users > 1 else str(self.turns)

    @property
    def total(self) -> int:
        """Turns of all users."""
        return self.users * self.turns


@dataclass(frozen=True)
class Race:
    """Those who race, and what they are given.

    Attributes:
        folder: Of the memories; each is deleted when its stage is over.
        questions: What is asked.
        rounds: How often each stage is run.
        say: Where progress goes.
    """

    racers: Sequence[Racer]
    material: Material
    folder: Path
    questions: Sequence[str]
    rounds: int
    say: Callable[[str], None]

    def stage(self, stage: Stage) -> dict[str, Answer]:
        """A stage, all its rounds; figures by the name of the racer."""
        request = self._request(stage)
        rounds: dict[str, list[Answer]] = {racer.name: [] for racer in self.racers}
        notes = {racer.name: foretold(racer, stage) for racer in self.racers}
        for number in range(self.rounds):
            for racer in self.racers:
                if not notes[racer.name] and self._again(racer, stage, number):
                    notes[racer.name] = self._round(racer, stage, request, rounds[racer.name], number)
                    self.say(f"{stage.name}, round {number + 1}: {racer.name} {notes[racer.name] or 'done'}")
        shutil.rmtree(self.folder, ignore_errors=True)
        return {name: summed(rounds[name]) | ({"note": note} if note else {}) for name, note in notes.items()}

    def quality(self, racer: Racer) -> list[list[list[str]]]:
        """What comes up for every question of LoCoMo, each of its conversations a user.

        Raises:
            WorkerError: When it fails, or its time is over.
        """
        request = self._files("talks.jsonl", self.material.folder / "asked.jsonl") | {
            "histories": [(name, *place) for name, place in self.material.talks.items()],
            "steps": ["ingest", "answer"],
        }
        answer = racer.call(self._home(racer), request, racer.seconds)
        shutil.rmtree(self.folder, ignore_errors=True)
        if answer.get("over_budget"):
            raise WorkerError(f"over budget: {answer['over_budget']}")
        if made_up := answer["notes"].get("made_up"):
            raise WorkerError(f"{made_up} embeddings were not the model's own")
        found: list[list[list[str]]] = answer["answers"]
        return found

    def _again(self, racer: Racer, stage: Stage, number: int) -> bool:
        """Whether a round would add something, and there is time for it; the first is always run."""
        if not number:
            return True
        anew = stage.total <= AGAIN
        return (
            not racer.stopped
            and (anew or racer.persists)
            and racer.seconds > racer.pace(stage.turns) * stage.total * anew
        )

    def _round(self, racer: Racer, stage: Stage, request: Answer, rounds: list[Answer], number: int) -> str:
        """One racer's turn, what it measured added to its rounds; why there is none, if there is none."""
        anew = not number or stage.total <= AGAIN
        try:
            found = self._stored(racer, stage, request) if anew else {}
            if racer.persists and not found.get("over_budget"):
                seconds = min(max(racer.seconds, 1), ASKING)
                found |= racer.call(self._home(racer), request | {"steps": ["recall"]}, seconds) | {"notes": {}}
        except WorkerError as error:
            racer.stopped = f"failed at {stage.name}: {error}"
            return "" if rounds else racer.stopped
        if found.get("over_budget"):
            return "" if rounds else f"over budget: {found['over_budget']}"
        rounds.append(found)
        return ""

    def _stored(self, racer: Racer, stage: Stage, request: Answer) -> Answer:
        """What storing took; where that does not last, asking too."""
        shutil.rmtree(self._home(racer), ignore_errors=True)
        steps = ["ingest"] if racer.persists else ["ingest", "recall"]
        found = racer.call(self._home(racer), request | {"steps": steps}, racer.seconds)
        racer.paces.pop(stage.turns, None)
        racer.paces[stage.turns] = found["ingest_s"] / found["turns"]
        return found | found["notes"] | {"stored_growth_mb": found["growth_mb"], "stored_close_s": found["close_s"]}

    def _home(self, racer: Racer) -> Path:
        return self.folder / racer.name

    def _request(self, stage: Stage) -> Answer:
        names = [f"user{number:06}" for number in range(stage.users)]
        histories = [(name, *self.material.history(number, stage.turns)) for number, name in enumerate(names)]
        asking = names[:: max(stage.users // ASKERS, 1)][:ASKERS] if stage.users > 1 else names * len(self.questions)
        path = self.material.folder / f"ask-{stage.name}.jsonl"
        pairs = zip(asking, (self.questions * len(asking))[: len(asking)], strict=True)
        path.write_text("".join(f"{json.dumps(pair)}\n" for pair in pairs), encoding="utf-8")
        return self._files("turns.jsonl", path) | {"histories": histories, "passes": 1 + (stage.users > 1)}

    def _files(self, sessions: str, queries: Path) -> Answer:
        folder = self.material.folder
        return {"vectors": str(folder), "sessions": str(folder / sessions), "queries": str(queries)}


def foretold(racer: Racer, stage: Stage) -> str:
    """Why a racer does not begin a stage: it failed before, or its pace says that its time will not do."""
    if racer.stopped:
        return racer.stopped
    needed = racer.pace(stage.turns) * stage.total
    if racer.seconds <= 0 or needed > racer.seconds:
        pace = f": {stage.total:,} turns at its last pace are {needed:,.0f} s" if needed else ""
        return f"over budget{pace}; {max(racer.seconds, 0):,.0f} s were left"
    return ""


def summed(rounds: Sequence[Answer]) -> Answer:
    """The medians of the rounds."""
    figures: dict[str, list[float]] = {}
    for found in rounds:
        for name, value in measured(found).items():
            figures.setdefault(name, []).append(value)
    return {name: round(statistics.median(values), 4) for name, values in figures.items()} | {"rounds": len(rounds)}


def measured(found: Answer) -> dict[str, float]:
    """What one round measured, times of questions as quantiles."""
    figures = {name: found[name] for name in SAME if found.get(name) is not None}
    for prefix, times in zip(("", "again_"), found.get("recall_ms", ()), strict=False):
        if times:
            low, high = np.quantile(times, (0.5, 0.95))
            figures |= {f"{prefix}p50_ms": float(low), f"{prefix}p95_ms": float(high), f"{prefix}asked": len(times)}
    return figures


def blocks_of(stages: Iterable[Stage], distinct: int) -> tuple[int, int]:
    """How many turns there must be for all stages, and in blocks of how many; of many users so many differ."""
    stages = list(stages)
    return max(min(s.users, distinct) * s.turns for s in stages), int(np.gcd.reduce([s.turns for s in stages]))
