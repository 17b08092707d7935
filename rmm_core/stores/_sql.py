"""What the statements of :mod:`rmm_core.stores._talk` and :mod:`rmm_core.stores._bank` need of a database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol


class Rows(Protocol):
    """What a statement gave."""

    @property
    def rowcount(self) -> int:
        """How many rows it wrote."""
        ...

    def fetchone(self) -> Any:
        """The next row; None after the last."""
        ...

    def fetchall(self) -> list[Any]:
        """The rows that are left."""
        ...

    def __iter__(self) -> Iterator[Any]: ...


class Sql(Protocol):
    """A connection inside a transaction; values stand as ``?`` in statements."""

    def execute(self, statement: str, values: Sequence[Any] = ..., /) -> Rows:
        """Run a statement."""
        ...

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> Any:
        """Run a statement once for each row of values."""
        ...
