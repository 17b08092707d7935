"""A memory in use for long: what it holds on to, and how its file grows.

    python -m benchmarks.soak [--turns 100000] [--users 200] [--results FILE]

Many users take turns on one file. A model that follows rules extracts topics from what they say, merges what concerns
the same thing, and answers with citations, so that the reranker learns all the while. Sessions are ended, questions
asked in between. Resident memory, the size of the file with its log, open files and threads are sampled; four checks
are made on the samples, and the command fails when one does. A session of 100,000 turns, added and reflected at once,
runs in a process of its own. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.core_latency import resident_mb
from benchmarks.options import counted
from benchmarks.records import made, write_whole
from rmm_core import Message, ReflectiveMemory, RMMConfig
from rmm_core.testing import HashEmbedder

SESSION = 20  # turns
ASKED = 2  # questions a session, two turns each
CACHE_MB = 16  # of search indexes: less than all users' together, so that it is full before the end
SAMPLES = 50
WARM = 0.5  # share of the samples until which memory may grow: banks, the last recalls and the cache fill up
THINGS = ("bees", "goats", "clocks", "stamps", "roses", "boats", "chess", "maps", "kites", "tea", "ferns", "coins")
PLACES = ("Graz", "Linz", "Bern", "Oslo", "Cork", "Lyon", "Porto", "Bath", "Turin", "Ghent", "Krems", "Brno")


class RuleLLM:
    """Replies by rule, in the formats that are asked for."""

    _SAID = re.compile(r"^\[(\d+)\] User: (I keep (\w+) number \d+ in \w+)", re.MULTILINE)
    _SHOWN = re.compile(r'<memory number="(\d+)">\n(.*?)\n</memory>', re.DOTALL)

    def complete(self, prompt: str, *, schema: Mapping[str, Any] | None = None) -> str:
        """The reply to any of the three prompts."""
        asked = prompt.rpartition("Now the real one.")[2]
        if "history_summaries:" in asked:
            return self._decided(asked)
        return self._answered(asked) if "\nQuestion: " in asked else self._extracted(asked)

    async def acomplete(self, prompt: str, *, schema: Mapping[str, Any] | None = None) -> str:
        """The same."""
        return self.complete(prompt)

    def _extracted(self, asked: str) -> str:
        if "memories of User are wanted" not in asked:
            return "NO_TRAIT"
        said = self._SAID.findall(asked)[::2]  # every other one: the rest stays unfiled
        memories = [{"summary": f"User said: {words}.", "reference": [int(turn)]} for turn, words, _ in said]
        return json.dumps({"extracted_memories": memories}) if memories else "NO_TRAIT"

    def _decided(self, asked: str) -> str:
        history = json.loads(asked.split("history_summaries: ")[1].split("\n")[0])
        new = json.loads(asked.split("new_summary: ")[1].split("\n")[0])
        thing = new.split(" keep ")[1].split()[0]
        merging = f" keep {thing} " in history[0] and len(history[0]) < 200
        return f"Merge(0, {history[0].partition(': ')[2]} {new})" if merging else "Add()"

    def _answered(self, asked: str) -> str:
        question = asked.rpartition("\nQuestion: ")[2]
        thing = question.split(" keep ")[-1].split()[0] if " keep " in question else ""
        cited = [number for number, text in self._SHOWN.findall(asked) if thing and f"keep {thing} " in text]
        return f"You keep {thing} [{', '.join(cited)}]." if cited else "I do not know. [NO_CITE]"


@dataclass(frozen=True)
class Sample:
    """What the process holds after so many turns."""

    turns: int
    seconds: float
    resident_mb: float
    file_mb: float
    files: int
    threads: int
    recall_ms: float


class Clock:
    """A clock that moves on by a minute with every look."""

    def __init__(self) -> None:
        self.now = datetime(2024, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        """The time."""
        self.now += timedelta(minutes=1)
        return self.now


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print, and write JSON when asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=counted, default=100_000)
    parser.add_argument("--users", type=counted, default=200)
    parser.add_argument(
        "--long", type=int, default=100_000, metavar="TURNS", help="of the one long session; 0 for none"
    )
    parser.add_argument("--results", type=Path, metavar="FILE", help="write the figures here as well")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        figures = soaked(Path(folder) / "memory.db", options.turns, options.users)
        if options.long:
            figures["long_session"] = long_session_apart(Path(folder) / "long.db", options.long)
    show(figures)
    if options.results:
        write_whole(options.results, json.dumps(figures | {"made": made()}, indent=1) + "\n")
    if not all(check["holds"] for check in figures["checks"].values()):
        sys.exit("a check failed")


def soaked(path: Path, turns: int, users: int) -> dict[str, Any]:
    """So many turns of so many users on one file: samples, checks, and what is there in the end."""
    config = RMMConfig(cache_bytes=int(CACHE_MB * 1024 * 1024))
    sessions = -(-turns // SESSION)
    every = max(sessions // SAMPLES, 1)
    rng = np.random.default_rng(0)
    samples: list[Sample] = []
    began = time.perf_counter()
    memory = ReflectiveMemory.open(path, llm=RuleLLM(), embedder=HashEmbedder(384), config=config, clock=Clock())
    taken: list[float] = []
    for number in range(sessions):
        taken += sitting(memory, f"user{number % users:04}", number, rng)
        if (number + 1) % every == 0:
            said = (number + 1) * SESSION
            samples.append(sampled(path, said, time.perf_counter() - began, statistics.median(taken)))
            taken.clear()
    figures = {
        "turns": sessions * SESSION,
        "users": min(users, sessions),
        "sessions": sessions,
        "minutes": round((time.perf_counter() - began) / 60, 2),
        "checks": checked(samples),
        "end": ended(memory),
        "samples": [asdict(s) for s in samples],
    }
    memory.close()
    return figures


def sitting(memory: ReflectiveMemory, user: str, number: int, rng: np.random.Generator) -> list[float]:
    """One session: things are told, questions asked and answered from memory, and it ends; seconds of the recalls."""
    taken = []
    with memory.chat(user, session_id=f"s{number}") as chat:
        for exchange in range(SESSION // 2 - ASKED):
            thing, place = rng.choice(THINGS), rng.choice(PLACES)
            chat.record(f"I keep {thing} number {number * SESSION + exchange} in {place}.", f"How nice, {thing}.")
        for _ in range(ASKED):
            question = f"In which town do I keep {rng.choice(THINGS)} now?"
            started = time.perf_counter()
            memory.recall(user, question)
            taken.append(time.perf_counter() - started)
            chat.ask(question)
    return taken


def sampled(path: Path, turns: int, seconds: float, recall: float) -> Sample:
    """What this process holds now."""
    files = [f.stat().st_size for f in path.parent.glob(f"{path.name}*")]
    threads = re.search(r"Threads:\s+(\d+)", Path("/proc/self/status").read_text())
    return Sample(
        turns=turns,
        seconds=round(seconds, 1),
        resident_mb=round(resident_mb(), 1),
        file_mb=round(sum(files) / 1e6, 2),
        files=len(os.listdir("/proc/self/fd")),  # noqa: PTH208  # a folder that changes while it is read
        threads=int(threads[1]) if threads else 0,
        recall_ms=round(1000 * recall, 2),
    )


def checked(samples: Sequence[Sample]) -> dict[str, dict[str, Any]]:
    """What has to hold: memory flat once it is warm, a file that grows in a line, as many files and threads as ever."""
    warm = samples[int(len(samples) * WARM) :]
    turns = np.asarray([s.turns for s in samples], dtype=float)
    sizes = np.asarray([s.file_mb for s in samples])
    slope, start = np.polyfit(turns, sizes, 1) if len(samples) > 1 else (0.0, 0.0)
    spread = float(((sizes - sizes.mean()) ** 2).sum())
    r2 = 1.0 - float(((sizes - slope * turns - start) ** 2).sum()) / spread if spread else 1.0
    grown = warm[-1].resident_mb - warm[0].resident_mb
    return {
        "memory is flat once it is warm": {
            "holds": grown <= 0.05 * warm[0].resident_mb,
            "from_mb": warm[0].resident_mb,
            "to_mb": warm[-1].resident_mb,
        },
        "the file grows in a line": {
            "holds": r2 > 0.99,
            "r2": round(r2, 5),
            "bytes_per_turn": round(float(slope) * 1e6),
        },
        "open files are constant": _constant([s.files for s in warm]),
        "threads are constant": _constant([s.threads for s in warm]),
    }


def _constant(counts: Sequence[int]) -> dict[str, Any]:
    return {"holds": len(set(counts)) == 1, "least": min(counts), "most": max(counts)}


def ended(memory: ReflectiveMemory) -> dict[str, Any]:
    """What the memory holds, and that nothing is wrong with it."""
    states = [memory.status(user) for user in memory.users()]
    learner = states[0].learner
    return {
        "findings": [finding.what for finding in memory.check()],
        "turns": sum(s.turns for s in states),
        "topics": sum(s.topics for s in states),
        "unfiled": sum(s.unfiled for s in states),
        "pending": sum(len(s.pending) for s in states),
        "updates": learner.updates,
        "ranking": learner.ranking,
    }


def long_session_apart(path: Path, turns: int) -> dict[str, float]:
    """:func:`long_session` in a process of its own, whose memory is nobody else's."""
    code = (
        f"import json; from benchmarks.soak import long_session as run; print(json.dumps(run({str(path)!r}, {turns})))"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout))


def long_session(path: str, turns: int) -> dict[str, float]:
    """One session of so many turns, added and reflected at once without a model; seconds, and megabytes it took."""
    rng = np.random.default_rng(0)
    words = np.asarray([f"w{i}x" for i in range(5_000)])
    texts = [" ".join(rng.choice(words, 12)) + f" number{n}." for n in range(turns)]
    before = resident_mb()
    marks = [time.perf_counter()]
    with ReflectiveMemory.open(path, embedder=HashEmbedder(64)) as memory:
        chat = memory.chat("ann", session_id="long")
        memory.run(chat.adding([Message("user", text) for text in texts], reflect=False))
        marks.append(time.perf_counter())
        report = chat.end()
        marks.append(time.perf_counter())
        first = memory.recall("ann", f"number{turns // 2}")
        marks.append(time.perf_counter())
        memory.recall("ann", f"number{turns // 3}")
        marks.append(time.perf_counter())
        if report.status != "reflected" or f"number{turns // 2}." not in first.prompt():
            raise RuntimeError(f"the long session was not reflected: {report}")
        grown = resident_mb() - before
    add, reflect, cold, warm = (round(b - a, 3) for a, b in pairwise(marks))
    return {
        "turns": turns,
        "add_s": add,
        "reflect_s": reflect,
        "first_recall_s": cold,
        "recall_s": warm,
        "grown_mb": round(grown, 1),
        "topics": report.added,
    }


def show(figures: Mapping[str, Any]) -> None:
    """Print samples and checks."""
    table = Table(title=f"{figures['turns']:,} turns of {figures['users']} users in {figures['minutes']} minutes")
    columns = ("turns", "resident_mb", "file_mb", "files", "threads", "recall_ms")
    for column in columns:
        table.add_column(column.replace("_", " "), justify="right")
    for sample in figures["samples"][:: max(len(figures["samples"]) // 10, 1)]:
        table.add_row(*(f"{sample[column]:,}" for column in columns))
    console = Console(highlight=False)
    console.print(table)
    for name, check in figures["checks"].items():
        rest = ", ".join(f"{key} {value:,}" for key, value in check.items() if key != "holds")
        console.print(f"{'ok  ' if check['holds'] else 'FAIL'} {name}: {rest}")
    console.print(figures["end"], figures.get("long_session", ""))


if __name__ == "__main__":
    main()
