"""What commands say while they run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks.records import Run

T = TypeVar("T")


class Screen:
    """Progress, and a line per run."""

    def __init__(self) -> None:
        self._out = Console(highlight=False, stderr=True)

    def say(self, text: str) -> None:
        """A line."""
        self._out.print(f"[dim]{text}[/dim]")

    def ran(self, name: str, run: Run) -> None:
        """What came out, in short."""
        rows = [r.at(5).coverage for r in run.first if r.evidence and not r.abstains]
        mean = f"{sum(rows) / len(rows):.3f}" if rows else "no evidence"
        self._out.print(f"{name}: R@5 {mean} over {len(rows)} questions, {run.made['seconds']:.0f} s")

    def track(self, items: Sequence[T], what: str) -> Iterable[T]:
        """Go through items behind a progress bar."""
        columns = (TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        bar = Progress(
            *columns, TimeRemainingColumn(), console=self._out, transient=True, disable=not self._out.is_terminal
        )
        with bar:
            yield from bar.track(items, description=what)

    def embedding(self, done: int, total: int) -> None:
        """How far the embedder is."""
        end = "\n" if done == total else ""
        if self._out.is_terminal:
            self._out.print(f"\r  Embedding {done:,} of {total:,}", end=end)
