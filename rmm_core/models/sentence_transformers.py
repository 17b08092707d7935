"""Embeddings on this machine, with sentence-transformers."""

from __future__ import annotations

import asyncio
import textwrap
import threading
from collections.abc import Sequence
from os import PathLike, fspath
from typing import Any

import numpy as np

from rmm_core.errors import EmbedderError, MissingDependencyError
from rmm_core.types import Matrix


class SentenceTransformerEmbedder:
    """Any sentence-transformers model, by name or by path; loaded when it is first needed.

    A text longer than the model reads is cut into parts that fit, and gets the mean of their embeddings,
    so that the end of a long turn is found as well as its beginning.

    Args:
        model: A model's name or the path of its folder.
        device: ``"cpu"``, ``"cuda"`` ...; chosen by the library when left out.
        batch_size: Texts a batch.
    """

    def __init__(self, model: str | PathLike[str], *, device: str | None = None, batch_size: int = 32) -> None:
        self.model = fspath(model)
        self._device = device
        self._batch_size = batch_size
        self._loaded: Any = None
        self._lock = threading.Lock()

    def embed(self, texts: Sequence[str]) -> Matrix:
        """Rows of length 1, shape ``(len(texts), d)``.

        Raises:
            MissingDependencyError: Without sentence-transformers.
            EmbedderError: When the model cannot be loaded.
        """
        if not texts:
            return np.zeros((0, 0), dtype=np.float32)
        with self._lock:
            model = self._load()
            parts = [self._parts(model, text) for text in texts]
            flat = [part for text in parts for part in text]
            rows = model.encode(flat, batch_size=self._batch_size, show_progress_bar=False, normalize_embeddings=True)
        ends = np.cumsum([len(text) for text in parts])[:-1]
        means = np.stack([part.mean(axis=0) for part in np.split(rows, ends)])
        return np.asarray(means / np.linalg.norm(means, axis=1, keepdims=True), dtype=np.float32)

    async def aembed(self, texts: Sequence[str]) -> Matrix:
        """The same, in a thread of its own."""
        return await asyncio.to_thread(self.embed, texts)

    def _load(self) -> Any:
        if self._loaded is None:
            try:
                from sentence_transformers import SentenceTransformer
            except ImportError as error:
                raise MissingDependencyError("SentenceTransformerEmbedder", "local") from error
            try:
                self._loaded = SentenceTransformer(self.model, device=self._device)
            except Exception as error:
                raise EmbedderError(f"cannot load the embedding model {self.model!r}: {error}") from error
        return self._loaded

    @staticmethod
    def _parts(model: Any, text: str) -> list[str]:
        """``text`` in parts of about equal length that the model reads whole."""
        limit = model.get_max_seq_length() or 512
        if len(text) <= limit // 2:  # not even one token a character would fill it
            return [text]
        tokens = model.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]  # it would warn of length
        count = -(-len(tokens) // int(0.9 * limit))
        return textwrap.wrap(text, width=-(-len(text) // count)) or [text]
