"""Embeddings that are made once: kept on disk under a hash of the model and the text."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from rmm_core import Embedder
from rmm_core.types import Matrix


class CachedEmbedder:
    """An embedder that asks another one only for texts it has not met yet, on this machine, ever.

    What was embedded is written in steps, so that an interruption costs one step.

    Args:
        inner: The model. It is known by what it says of one sentence, not by its name: a cache never mixes two.
        path: The file, made when it is not there.
        progress: Called with (done, of how many) while many texts are embedded.
    """

    def __init__(self, inner: Embedder, path: Path, progress: Callable[[int, int], None] | None = None) -> None:
        self.inner = inner
        self.progress = progress
        path.parent.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=60)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("CREATE TABLE IF NOT EXISTS rows (key BLOB PRIMARY KEY, row BLOB NOT NULL) WITHOUT ROWID")
        self._lock = threading.Lock()
        self.fingerprint = hashlib.blake2b(
            np.round(inner.embed([_PROBE])[0], 2).astype(np.float16).tobytes(), digest_size=8
        ).hexdigest()

    def embed(self, texts: Sequence[str]) -> Matrix:
        """See :class:`rmm_core.Embedder`."""
        if not texts:
            return np.zeros((0, 0), dtype=np.float32)
        keys = [self._key(text) for text in texts]
        with self._lock:
            known = self._known(set(keys))
            new = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
            pending = sorted(new.items(), key=lambda pair: len(pair[1]))
            for start in range(0, len(pending), _STEP):
                part = pending[start : start + _STEP]
                rows = self.inner.embed([text for _, text in part])
                made = {key: row for (key, _), row in zip(part, rows, strict=True)}
                known |= made
                self._db.execute("BEGIN")
                self._db.executemany(
                    "INSERT OR REPLACE INTO rows VALUES (?, ?)",
                    ((key, np.asarray(row, dtype=np.float32).tobytes()) for key, row in made.items()),
                )
                self._db.execute("COMMIT")
                if self.progress is not None and len(pending) > _STEP:
                    self.progress(start + len(part), len(pending))
        return np.stack([known[key] for key in keys])

    async def aembed(self, texts: Sequence[str]) -> Matrix:
        """The same, in a thread of its own."""
        return await asyncio.to_thread(self.embed, texts)

    def _key(self, text: str) -> bytes:
        return hashlib.blake2b(f"{self.fingerprint}\0{text}".encode(), digest_size=16).digest()

    def _known(self, keys: set[bytes]) -> dict[bytes, np.ndarray[tuple[int], np.dtype[np.float32]]]:
        found = {}
        ordered = sorted(keys)
        for start in range(0, len(ordered), _ASKED):
            part = ordered[start : start + _ASKED]
            marks = ",".join("?" * len(part))
            for key, row in self._db.execute(f"SELECT key, row FROM rows WHERE key IN ({marks})", part):
                found[key] = np.frombuffer(row, dtype=np.float32)
        return found


_PROBE = "The quick brown fox jumps over the lazy dog."
_STEP = 512  # texts written at once
_ASKED = 500  # keys of one query: SQLite's oldest bound on its variables is 999
