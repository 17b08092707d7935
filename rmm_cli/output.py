"""What commands say: tables and text for people, JSON for programs; what is no result goes to stderr."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.prompt import Confirm
from rich.table import Table
from rich.text import Text

from rmm_cli.text import as_json, harmless_json, lines, minute, printable
from rmm_core import Turn


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        number: Whether it holds figures.
        whole: Whether its cells are not to be cut in two where the terminal is narrow: names, dates.
    """

    name: str
    number: bool = False
    whole: bool = False


class Output:
    """Where a command writes.

    On a terminal, text is wrapped and tables adapt to its width; elsewhere a row is a line, however long.

    Args:
        json: Whether stdout gets JSON, and nothing else.

    Attributes:
        terminal: Whether somebody looks at stdout.
        told: The logger whose warnings a command tells in its own words.
    """

    def __init__(self, *, json: bool) -> None:
        self.json = json
        self.told = ""
        for stream in (sys.stdout, sys.stderr):
            if reconfigure := getattr(stream, "reconfigure", None):
                reconfigure(errors="backslashreplace")  # a terminal that cannot show a letter is no reason to fail
        self._out = Console(markup=False, highlight=False, emoji=False)
        self._err = Console(stderr=True, markup=False, highlight=False, emoji=False)
        self.terminal = self._out.is_terminal

    # -- for programs --------------------------------------------------------------------

    def document(self, value: Any) -> None:
        """A result as one JSON document."""
        self._write(as_json(value, indent=2, ascii_only=not self._speaks_utf8()))

    def record(self, value: Any) -> None:
        """One of many results, as a line of JSON."""
        self._write(as_json(value, ascii_only=not self._speaks_utf8()))
        sys.stdout.flush()

    def raw(self, line: str) -> None:
        """A line that is JSON already."""
        if not self._speaks_utf8():
            line = "".join(c if c.isascii() else as_json(c, ascii_only=True)[1:-1] for c in line)
        self._write(harmless_json(line) if self.terminal else line)

    # -- for people ----------------------------------------------------------------------

    def line(self, text: str = "", *, indent: int = 0, style: str = "") -> None:
        """A line of text, wrapped where it is too long for a terminal."""
        room, words = " " * indent, printable(text)
        if not self.terminal:
            return self._write(f"{room}{words}")
        for part in Text(words).wrap(self._out, max(self._out.width - indent, 20)) or [Text()]:
            self._out.print(Text(room + part.plain.rstrip(), style=style), soft_wrap=True)
        return None

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
        """A table."""
        if not self.terminal:
            return self._rows(columns, rows)
        table = Table(box=None, pad_edge=False, padding=(0, 1), collapse_padding=False, header_style="bold")
        for i, column in enumerate(columns):
            longest = max(cell_len(printable(row[i])) for row in rows)
            least = min(longest, 36) if column.whole or column.number else None
            table.add_column(
                column.name, justify="right" if column.number else "left", overflow="fold", min_width=least
            )
        for row in rows:
            table.add_row(*(Text(printable(cell)) for cell in row))
        return self._out.print(table)

    def entries(
        self,
        columns: Sequence[Column],
        rows: Sequence[Sequence[str]],
        below: Callable[[int], None] | None = None,
    ) -> None:
        """A table whose last column is a text, which stands below the rest of its row where there is little room.

        Args:
            columns: Of the table.
            rows: Their cells.
            below: Writes what stands below a row, given its number; there is no line for each row then.
        """
        if not self.terminal and below is None:
            return self._rows(columns, rows)
        head = columns[:-1]
        widths = self._widths(head, rows)
        self.line(_aligned(head, [c.name for c in head], widths), style="bold")
        for i, row in enumerate(rows):
            self.line(_aligned(head, row[:-1], widths), style="cyan")
            self.line(row[-1], indent=2)
            if below is not None:
                below(i)
        return None

    def turn(self, turn: Turn, indent: int) -> None:
        """A turn as it was said, with its place; further lines of it stand below it, so that none looks like ours."""
        first, *more = lines(turn.line)
        place = f"{turn.session_id}:{turn.index}"
        self.line(f"{place}  {minute(turn.at)}  {first}", indent=indent)
        for line in more:
            self.line(line, indent=indent + 2)

    def _rows(self, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
        widths = self._widths(columns, rows)
        self._write(_aligned(columns, [c.name for c in columns], widths))
        for row in rows:
            self._write(_aligned(columns, row, widths))

    @staticmethod
    def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
        cells = [[c.name, *(printable(row[i]) for row in rows)] for i, c in enumerate(columns)]
        return [max(map(cell_len, column)) for column in cells]

    def _speaks_utf8(self) -> bool:
        return (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "") == "utf8"

    @staticmethod
    def _write(text: str) -> None:
        sys.stdout.write(f"{text}\n")

    # -- aside ---------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """Something to know that is no result."""
        self._err.print(Text(printable(text)), soft_wrap=True)

    @contextmanager
    def progress(self, what: str, total: int) -> Iterator[Progress]:
        """A progress bar; its one task has the number 0."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=self._err, transient=True, disable=not self._err.is_terminal) as bar:
            bar.add_task(what, total=total)
            yield bar

    def waiting(self, why: str) -> AbstractContextManager[object]:
        """Say why it takes a while, as long as it does."""
        return self._err.status(Text(why)) if self._err.is_terminal else nullcontext()

    def confirms(self, question: str) -> bool:
        """Whether the person at the terminal agrees."""
        try:
            return Confirm.ask(Text(printable(question)), default=False, console=self._err)
        except EOFError:
            return False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Have warnings of the library stand here as lines, without the traces that a log would have."""
        logger, notes = logging.getLogger("rmm_core"), _Notes(self)
        propagate, logger.propagate = logger.propagate, False
        logger.addHandler(notes)
        try:
            yield
        finally:
            logger.removeHandler(notes)
            logger.propagate = propagate


class _Notes(logging.Handler):
    """Log entries as notes."""

    def __init__(self, output: Output) -> None:
        super().__init__(logging.WARNING)
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        if record.name != self._output.told:
            self._output.note(f"{record.levelname.lower()}: {record.getMessage()}")


def _aligned(columns: Sequence[Column], cells: Iterable[str], widths: Sequence[int]) -> str:
    """Cells side by side; the last is as long as it is."""
    parts = []
    for column, cell, width in zip(columns, map(printable, cells), widths, strict=True):
        room = " " * (width - cell_len(cell))
        parts.append(room + cell if column.number else cell + room)
    return "  ".join(parts).rstrip()
