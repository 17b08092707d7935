"""A dictionary for threads that forgets what was put into it longest ago."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Bounded(Generic[K, V]):
    """Holds the entries put last.

    Args:
        held: How many.
    """

    def __init__(self, held: int) -> None:
        self.held = held
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        """The entry, if it is still held."""
        with self._lock:
            return self._entries.get(key)

    def put(self, key: K, value: V) -> None:
        """Put an entry in, as the newest."""
        with self._lock:
            self._entries[key] = value
            self._entries.move_to_end(key)
            while len(self._entries) > self.held:
                self._entries.popitem(last=False)

    def pop(self, key: K) -> V | None:
        """Take an entry out."""
        with self._lock:
            return self._entries.pop(key, None)

    def newest_first(self) -> list[tuple[K, V]]:
        """All entries."""
        with self._lock:
            return list(reversed(self._entries.items()))
