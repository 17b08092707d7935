"""What commands say while they run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

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
        self._out.print(f"[dim]{text}[/dim]", soft_wrap=True)

    def before(self, name: str, made: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        """That something was run before, and with which code."""
        other = made["commit"] != now["commit"] or made["changed"] or now["changed"]
        self.say(f"{name}: run before" + (f", at commit {made['commit']}; --again runs it anew" if other else ""))

    def ran(self, name: str, run: Run) -> None:
        """What came out, in short."""
        rows = [r.at(5).coverage for r in run.first if r.evidence and not r.abstains]
        mean = f"{sum(rows) / len(rows):.3f}" if rows else "no evidence"
        how = ", learning from simulated citations" if run.again else ""
        self._out.print(
            f"{name}: R@5 {mean} over {len(rows)} questions{how}, {run.made['seconds']:.0f} s", soft_wrap=True
        )

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
