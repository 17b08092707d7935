"""What the core costs in time and memory, against the bare cost of its parts, measured in the same run.

    python -m benchmarks.core_latency [--memories 10000] [--json FILE]

Embeddings are given (384-d), so no model is timed. Texts are drawn from a long-tailed vocabulary. Every
figure is a median over interleaved repetitions; ratios are what to quote, machines differ.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from rich.console import Console
from rich.table import Table

from rmm_core import FeatureWeights, Memory, Message, ReflectiveMemory, RMMConfig, Session, TurnRef
from rmm_core.features import FEATURES
from rmm_core.protocols import BankChange, Entry
from rmm_core.reranker import Reranker, Weights
from rmm_core.stopwords import STOP_WORDS
from rmm_core.stores._words import TOKENIZER, match_expression

WIDTH, TURNS, USER = 384, 20, "bench"
Views: TypeAlias = dict[str, list[str]]
T0 = datetime(2024, 1, 1, tzinfo=UTC)


class GivenEmbeddings:
    """An embedder that looks its answers up."""

    def __init__(self) -> None:
        self.known: dict[str, np.ndarray[Any, Any]] = {}

    def embed(self, texts: Sequence[str]) -> np.ndarray[Any, Any]:
        """The rows that were given."""
        return np.stack([self.known[t] for t in texts])

    async def aembed(self, texts: Sequence[str]) -> np.ndarray[Any, Any]:
        """The same."""
        return self.embed(texts)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and write JSON when asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memories", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=41)
    parser.add_argument("--json", metavar="FILE", help="write the figures here as well")
    options = parser.parse_args(arguments)
    imported = import_cost()
    rng = np.random.default_rng(0)
    figures: dict[str, Any] = {"import": imported, "rerank": rerank(rng, options.repeat * 20)}
    with tempfile.TemporaryDirectory() as folder:
        figures |= bank(rng, Path(folder) / "memory.db", options.memories, options.repeat)
    figures["machine"] = {"python": platform.python_version(), "cpu": platform.machine(), "numpy": np.__version__}
    figures["memories"] = options.memories
    show(figures)
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=1) + "\n")


def medians(repeat: int, *steps: Callable[[], object]) -> list[float]:
    """Median seconds of each step, the steps taking turns."""
    times: list[list[float]] = [[] for _ in steps]
    gc.disable()
    try:
        for _ in range(repeat):
            for step, taken in zip(steps, times, strict=True):
                started = time.perf_counter()
                step()
                taken.append(time.perf_counter() - started)
    finally:
        gc.enable()
    return [statistics.median(t) for t in times]


def import_cost() -> dict[str, Any]:
    """CPU seconds of ``import rmm_core`` in a fresh process, and what it brought in."""
    code = (
        "import time, sys; a = time.process_time(); import numpy; b = time.process_time(); import rmm_core;"
        "c = time.process_time(); heavy = [m for m in ('torch', 'faiss', 'transformers') if m in sys.modules];"
        "print(c - a, b - a, *heavy)"
    )
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(9)]
    seconds, numpy = (statistics.median(float(r.stdout.split()[i]) for r in runs) for i in (0, 1))
    return {"cpu_seconds": seconds, "numpy_cpu_seconds": numpy, "heavy_modules": runs[0].stdout.split()[2:]}


def rerank(rng: np.random.Generator, repeat: int) -> dict[str, float]:
    """Ranking 50 candidates, against a matrix-vector product and the 50 dot products alone."""
    small = rng.normal(size=(2, WIDTH, WIDTH)).astype(np.float32) * 0.01
    reranker = Reranker(Weights(small[0], small[1], FeatureWeights().row()), 10.0)
    query, rows = unit(rng, 1)[0], unit(rng, 50)
    features = rng.random((50, len(FEATURES))).astype(np.float32)
    bare, ours = medians(repeat, lambda: rows @ (small[0] @ query), lambda: reranker.rank(query, rows, features))
    return {"bare_us": bare * 1e6, "ours_us": ours * 1e6, "ratio": ours / bare}


def bank(rng: np.random.Generator, path: Path, memories: int, repeat: int) -> dict[str, Any]:
    """Recall and learning on a large bank, and the memory that serving it takes."""
    embedder = GivenEmbeddings()
    memory = ReflectiveMemory.open(path, embedder=embedder, config=RMMConfig())
    views, vectors = fill(memory, rng, memories)
    queries = [sentence(rng, 10) for _ in range(repeat)]
    embedder.known = dict(zip(queries, unit(rng, repeat), strict=True))
    gc.collect()
    before = resident_mb()
    started = time.perf_counter()
    memory.recall(USER, queries[0])
    first = time.perf_counter() - started
    growth = resident_mb() - before
    figures: dict[str, Any] = {
        "resident_growth_mb": growth,
        "first_recall_s": first,
        "recall": recall(memory, views, vectors, queries),
        "update": learning(memory, queries),
    }
    memory.close()
    return figures


def fill(memory: ReflectiveMemory, rng: np.random.Generator, count: int) -> tuple[Views, np.ndarray[Any, Any]]:
    """A bank of single-turn topics in sessions of 20 turns; the texts of its three views, and its embeddings."""
    vectors = unit(rng, count)
    views: Views = {"own": [], "window": [], "session": []}
    for start in range(0, count, TURNS):
        name = f"s{start}"
        memory.store.open_session(Session(USER, name, "User", "Assistant", T0, T0))
        texts = [sentence(rng, 25) for _ in range(min(TURNS, count - start))]
        memory.store.append(USER, name, [Message("user", t) for t in texts], at=T0)
        entries = tuple(
            Entry(
                Memory(f"m{start + i:06}", USER, "topic", sentence(rng, 12), (TurnRef(name, i),), T0, T0),
                vectors[start + i],
            )
            for i in range(len(texts))
        )
        version = memory.store.bank_version(USER)
        memory.store.commit(
            USER, BankChange(version, entries, (), name, memory.store.session(USER, name).born, 0, len(texts))
        )
        said = [f"User: {t}" for t in texts]
        views["own"] += [f"{e.memory.summary}\n{t}" for e, t in zip(entries, said, strict=True)]
        views["window"] += ["\n".join(said[max(i - 2, 0) : i + 3]) for i in range(len(said))]
        views["session"].append("\n".join(said))
    return views, vectors


def recall(
    memory: ReflectiveMemory, views: Views, vectors: np.ndarray[Any, Any], queries: list[str]
) -> dict[str, float]:
    """A whole recall against FAISS's flat search and FTS5's queries alone, over the same bank."""
    import faiss

    flat = faiss.IndexFlatIP(WIDTH)
    flat.add(vectors)
    db = sqlite3.connect(":memory:")
    for view, texts in views.items():
        db.execute(f"CREATE VIRTUAL TABLE {view} USING fts5(words, tokenize='{TOKENIZER}')")
        db.executemany(f"INSERT INTO {view} (rowid, words) VALUES (?, ?)", enumerate(texts, 1))
    embedded = memory._services.embedder.embed(queries)
    turn = iter(range(10**9))

    def fts(*names: str) -> None:
        expression = match_expression(queries[next(turn) % len(queries)])
        for view in names:
            ask = f"SELECT rowid, bm25({view}) FROM {view} WHERE {view} MATCH ? ORDER BY rank LIMIT 20"
            db.execute(ask, (expression,)).fetchall()

    dense, one, three, whole = medians(
        len(queries),
        lambda: flat.search(embedded[next(turn) % len(queries)][None, :], 20),
        lambda: fts("own"),
        lambda: fts(*views),
        lambda: memory.recall(USER, queries[next(turn) % len(queries)]),
    )
    return {
        "faiss_ms": dense * 1e3,
        "fts5_own_ms": one * 1e3,
        "fts5_three_ms": three * 1e3,
        "ours_ms": whole * 1e3,
        "ratio_to_faiss_and_one_query": whole / (dense + one),
        "ratio_to_faiss_and_three_queries": whole / (dense + three),
    }


def learning(memory: ReflectiveMemory, queries: list[str]) -> dict[str, float]:
    """One update of four answers; nothing of it happens during recall, all of it after the answer."""
    size = memory.config.batch_size
    memory.feedback(memory.recall(USER, queries[0]), "[1]")
    for query in queries[1:size]:
        memory.feedback(memory.recall(USER, query), "[1]")
    taken = []
    for i in range(8 * size):
        shown = memory.recall(USER, queries[i % len(queries)])
        started = time.perf_counter()
        memory.feedback(shown, "[2]")
        taken.append(time.perf_counter() - started)
    logged = statistics.median(t for i, t in enumerate(taken, 1) if i % size)
    updated = statistics.median(t for i, t in enumerate(taken, 1) if not i % size)
    return {"log_ms": logged * 1e3, "update_ms": (updated - logged) * 1e3}


def unit(rng: np.random.Generator, count: int) -> np.ndarray[Any, Any]:
    """Random rows of length 1."""
    rows = rng.normal(size=(count, WIDTH))
    return np.ascontiguousarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


VOCABULARY = np.asarray([f"w{i}x" for i in range(20_000)])
RARITY = 1.0 / (np.arange(20_000) + 20.0)  # Zipf-Mandelbrot: the commonest content word is 1 in 140
FUNCTION_WORDS = np.asarray(sorted(STOP_WORDS))


def sentence(rng: np.random.Generator, words: int) -> str:
    """Text as people write it: every other word a function word, the rest from a long-tailed vocabulary."""
    content = rng.choice(VOCABULARY, size=-(-words // 2), p=RARITY / RARITY.sum())
    between = rng.choice(FUNCTION_WORDS, size=len(content))
    return " ".join(word for pair in zip(between, content, strict=True) for word in pair)


def resident_mb() -> float:
    """Resident memory of this process in MB; Linux only."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def show(figures: dict[str, Any]) -> None:
    """The table, with the targets beside the figures."""
    table = Table(title=f"Core, {figures['memories']:,} memories of width {WIDTH}", title_justify="left", box=None)
    for name in ("what", "measured", "target"):
        table.add_column(name)
    r, c, u, i = figures["rerank"], figures["recall"], figures["update"], figures["import"]
    table.add_row(
        "rerank 50 candidates", f"{r['ours_us']:.0f} us, {r['ratio']:.1f}x of {r['bare_us']:.0f} us bare", "5x"
    )
    table.add_row(
        "recall",
        f"{c['ours_ms']:.1f} ms, {c['ratio_to_faiss_and_three_queries']:.1f}x of FAISS {c['faiss_ms']:.1f} "
        f"+ FTS5 on its three views {c['fts5_three_ms']:.1f} ms",
        "3x",
    )
    table.add_row(
        "",
        f"{c['ratio_to_faiss_and_one_query']:.1f}x of FAISS + FTS5 on one view {c['fts5_own_ms']:.1f} ms",
        "",
    )
    table.add_row("one update (batch 4), after the answer", f"{u['update_ms']:.1f} ms", "not in recall")
    table.add_row("logging feedback, durable", f"{u['log_ms']:.1f} ms", "")
    table.add_row("first recall, index built from the database", f"{figures['first_recall_s']:.2f} s", "")
    table.add_row("resident growth of that", f"{figures['resident_growth_mb']:.0f} MB", "100 MB")
    heavy = ", ".join(i["heavy_modules"]) or "none of torch, faiss, transformers"
    own = f"{i['cpu_seconds']:.2f} CPU s, {i['numpy_cpu_seconds']:.2f} of it numpy's; loads {heavy}"
    table.add_row("import rmm_core", own, "0.3 CPU s, none")
    Console(highlight=False).print(table)


if __name__ == "__main__":
    main()
