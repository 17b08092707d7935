"""Replies that are made once: kept on disk under a hash of the model's name, the prompt and the schema."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rmm_core import LLM, ConfigError


class CachedLLM:
    """A language model that asks another one only what it was never asked before; see :class:`rmm_core.LLM`.

    Safe for threads. Where two ask the same at the same time, both get the reply that was written first.

    Args:
        inner: The model; None when what is on disk must do.
        path: The file, made when it is not there.
        name: What the model is known by: say in it whatever changes replies, such as size and temperature. Replies
            under one name are never given under another.

    Attributes:
        asked: How many prompts came.
        answered_from_cache: How many of them the file answered.
    """

    def __init__(self, inner: LLM | None, path: Path, name: str) -> None:
        self.inner = inner
        self.path = path
        self.name = name
        self.asked = 0
        self.answered_from_cache = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=60)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("CREATE TABLE IF NOT EXISTS replies (key BLOB PRIMARY KEY, reply TEXT NOT NULL) WITHOUT ROWID")
        self._lock = threading.Lock()

    def complete(self, prompt: str, *, schema: Mapping[str, Any] | None = None) -> str:
        """The reply of the file, else of the model.

        Raises:
            ConfigError: When the file has none and there is no model.
        """
        key = self._key(prompt, schema)
        known = self._looked_up(key)
        return self._kept(key, self._need_inner().complete(prompt, schema=schema)) if known is None else known

    async def acomplete(self, prompt: str, *, schema: Mapping[str, Any] | None = None) -> str:
        """The same, for event loops."""
        key = self._key(prompt, schema)
        known = self._looked_up(key)
        return self._kept(key, await self._need_inner().acomplete(prompt, schema=schema)) if known is None else known

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def _key(self, prompt: str, schema: Mapping[str, Any] | None) -> bytes:
        return hashlib.blake2b(
            json.dumps([self.name, prompt, schema], sort_keys=True).encode(), digest_size=16
        ).digest()

    def _looked_up(self, key: bytes) -> str | None:
        with self._lock:
            row = self._db.execute("SELECT reply FROM replies WHERE key = ?", (key,)).fetchone()
            self.asked += 1
            self.answered_from_cache += row is not None
        return None if row is None else str(row[0])

    def _kept(self, key: bytes, reply: str) -> str:
        keep = "INSERT INTO replies VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET reply = reply RETURNING reply"
        with self._lock:
            return str(self._db.execute(keep, (key, reply)).fetchone()[0])

    def _need_inner(self) -> LLM:
        if self.inner is None:
            raise ConfigError(
                f"{self.path} holds no reply of {self.name!r} to this prompt, and no model was given to ask: "
                "name one with --llm, or the file of an earlier run that asked the same"
            )
        return self.inner
