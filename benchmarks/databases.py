"""The two databases on the same banks in one run: how fast memories go in and come up, and what they weigh.

    python -m benchmarks.databases [--sizes 1000,10000,100000] [--json FILE]

One user's bank of single-turn memories, as in ``benchmarks.core_latency``. PostgreSQL is a server on this machine,
reached by a socket, and waits for its disk as SQLite does; a network adds its own time to each statement, of which a
recall takes about eight.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import postgres_server
from benchmarks.core_latency import USER, GivenEmbeddings, fill, sentence, unit
from rmm_core import ReflectiveMemory

_COLD = """
import sys, time
from benchmarks.core_latency import USER, resident_mb
from rmm_core import ReflectiveMemory
from rmm_core.testing import HashEmbedder
began, before = time.perf_counter(), resident_mb()
with ReflectiveMemory.open(sys.argv[1], embedder=HashEmbedder(384)) as memory:
    memory.recall(USER, sys.argv[2])
    print(time.perf_counter() - began, resident_mb() - before)
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and write JSON when asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1000,10000,100000", help="memories of the bank")
    parser.add_argument("--repeat", type=int, default=41, help="recalls of each database, in turn")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here as well")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, postgres_server.running() as server:
        found = {size: measured(int(size), Path(folder), server, options.repeat) for size in options.sizes.split(",")}
    machine = {"python": platform.python_version(), "cores": os.cpu_count()}
    show(found)
    if options.json:
        options.json.write_text(json.dumps({"machine": machine, "sizes": found}, indent=1) + "\n")


def measured(size: int, folder: Path, server: str, repeat: int) -> dict[str, dict[str, float]]:
    """Both databases with a bank of this size."""
    places = {
        "sqlite": str(folder / f"{size}.db"),
        "postgres": f"{server}{'&' if '?' in server else '?'}options=-csearch_path%3Dbank_{size},public",
    }
    rng = np.random.default_rng(0)
    queries = [sentence(rng, 10) for _ in range(repeat)]
    embedder = GivenEmbeddings()
    embedder.known = dict(zip(queries, unit(rng, repeat), strict=True))
    memories, figures = {}, {}
    for name, place in places.items():
        memories[name] = ReflectiveMemory.open(place, embedder=embedder)
        began = time.perf_counter()
        fill(memories[name], np.random.default_rng(1), size)
        figures[name] = {"memories_per_second": round(size / (time.perf_counter() - began))}
    for memory in memories.values():
        memory.recall(USER, queries[0])
    taken = in_turn(repeat, {n: lambda i, m=m: m.recall(USER, queries[i]) for n, m in memories.items()})
    for name, memory in memories.items():
        memory.close()
        cold, grown = subprocess.run(
            [sys.executable, "-c", _COLD, places[name], queries[0]], capture_output=True, text=True, check=True
        ).stdout.split()
        figures[name] |= {
            "recall_p50_ms": round(1000 * statistics.median(taken[name]), 2),
            "recall_p95_ms": round(1000 * float(np.quantile(taken[name], 0.95)), 2),
            "cold_open_and_recall_ms": round(1000 * float(cold), 1),
            "worker_grows_mb": round(float(grown), 1),
            "bytes_per_memory": round(weight(places[name]) / size),
        }
    return figures


def in_turn(repeat: int, steps: dict[str, Callable[..., object]]) -> dict[str, list[float]]:
    """Seconds of each step, the steps taking turns."""
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for i in range(repeat):
        for name, step in steps.items():
            began = time.perf_counter()
            step(i)
            taken[name].append(time.perf_counter() - began)
    return taken


def weight(place: str) -> int:
    """Bytes on disk, indexes included."""
    if "://" not in place:
        return sum(f.stat().st_size for f in Path(place).parent.glob(f"{Path(place).name}*"))
    import psycopg

    with psycopg.connect(place) as connection:
        row = connection.execute(
            "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace"
            " WHERE nspname = current_schema() AND relkind = 'r'"
        ).fetchone()
    return int(row[0]) if row else 0


def show(found: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Print the figures."""
    for size, figures in found.items():
        table = Table(title=f"{int(size):,} memories")
        for column in ("", *figures, "PostgreSQL / SQLite"):
            table.add_column(column, justify="right")
        for name in figures["sqlite"]:
            one, other = figures["sqlite"][name], figures["postgres"][name]
            table.add_row(name.replace("_", " "), str(one), str(other), f"{other / max(one, 1e-9):.2f}")
        Console().print(table)


if __name__ == "__main__":
    main()
