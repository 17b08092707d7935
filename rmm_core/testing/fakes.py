"""A language model that follows a script, and an embedder that needs no weights."""

from __future__ import annotations

import asyncio
import hashlib
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from rmm_core.errors import LLMError
from rmm_core.types import Matrix

Reply: TypeAlias = str | Exception | Callable[[str], str]


class ScriptedLLM:
    """Replies what it was told to, in order, and remembers what it was asked.

    Args:
        *replies: What to reply: a text, an exception to raise, or a function of the prompt.
        seconds: How long each reply takes.

    Attributes:
        history: The prompts it was given, in order.
        schemas: The schema that came with each.
    """

    def __init__(self, *replies: Reply, seconds: float = 0.0) -> None:
        self.history: list[str] = []
        self.schemas: list[Mapping[str, Any] | None] = []
        self._replies: deque[Reply] = deque(replies)
        self._seconds = seconds
        self._lock = threading.Lock()

    def enqueue(self, *replies: Reply) -> ScriptedLLM:
        """Add to the script; returns itself."""
        self._replies.extend(replies)
        return self

    @property
    def left(self) -> int:
        """How many replies of the script were not asked for yet."""
        return len(self._replies)

    def complete(self, prompt: str, *, schema: Mapping[str, Any] | None = None) -> str:
        """The next reply.

        Raises:
            LLMError: When the script is over.
        """
        time.sleep(self._seconds)
        return self._next(prompt, schema)

    async def acomplete(self, prompt: str, *, schema: Mapping[str, Any] | None = None) -> str:
        """The next reply, without blocking the event loop."""
        await asyncio.sleep(self._seconds)
        return self._next(prompt, schema)

    def _next(self, prompt: str, schema: Mapping[str, Any] | None) -> str:
        with self._lock:
            self.history.append(prompt)
            self.schemas.append(schema)
            if not self._replies:
                raise LLMError(f"the script is over; prompt {len(self.history)} begins {prompt[:80]!r}")
            reply = self._replies.popleft()
        if isinstance(reply, Exception):
            raise reply
        return reply if isinstance(reply, str) else reply(prompt)


class HashEmbedder:
    """Bags of hashed words: texts that share words are similar, the same everywhere and at no cost.

    Args:
        width: Of the embeddings; more makes chance collisions rarer.
    """

    def __init__(self, width: int = 64) -> None:
        self.width = width
        self.calls = 0

    def embed(self, texts: Sequence[str]) -> Matrix:
        """Rows of length 1, shape ``(len(texts), width)``; all equal for texts without words."""
        self.calls += 1
        rows = np.full((len(texts), self.width), 1e-6, dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in re.findall(r"\w+", text.casefold()):
                digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
                place = int.from_bytes(digest[:4], "little") % self.width
                row[place] += 1.0 if digest[4] % 2 else -1.0
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)

    async def aembed(self, texts: Sequence[str]) -> Matrix:
        """The same, for event loops."""
        return self.embed(texts)
