"""What the examples of each framework share: their options, and the models these choose."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from _models import bundled_embedder
from _offline import OfflineRules

from rmm_core import Embedder, RMMConfig, RMMError

M = TypeVar("M")


@dataclass(frozen=True)
class Choice(Generic[M]):
    """What the options chose.

    Attributes:
        model: The app's own chat model.
        reflects: The model that reflects on sessions; None (memories are then made of the user's own sentences) for the
            offline stand-in, which can answer but not summarise.
        embeddings: The embedder.
        db: Where the memory is kept.
        config: Settings that suit the model.
        tools: Whether an agent should have tools.
    """

    model: M
    reflects: M | None
    embeddings: Embedder
    db: str
    config: RMMConfig
    tools: bool


@dataclass(frozen=True)
class Framework(Generic[M]):
    """How a framework makes its models.

    Attributes:
        offline: The stand-in.
        named: The model of ``--model NAME``.
        local: The model of ``--model local --gguf FILE``, whose server the stack ends.
        names: What names look like, for ``--help``.
        known: Which names there are, as the rest of "a chat model ...".
    """

    offline: Callable[[OfflineRules], M]
    named: Callable[[str], M]
    local: Callable[[ExitStack, str | None], M]
    names: str
    known: str


@contextmanager
def choosing(framework: Framework[M], story: str | None, *, agent: bool = False) -> Iterator[Choice[M]]:
    """Read the options; what goes wrong inside of the block because of them ends the program with one line.

    Args:
        framework: Makes the models.
        story: What the example is about, for ``--help``.
        agent: Whether it has tools to leave out.
    """
    options = _parse(framework, story, agent)
    with ExitStack() as stack:
        try:
            model = _real_model(framework, options, stack)
            embeddings = bundled_embedder()
            talks = framework.offline(OfflineRules(embeddings)) if model is None else model
            db = options.db or str(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "memory.db")
            config = RMMConfig()
            if options.model == "local":  # a small model reads short pieces best, merges whatever it is offered, ...
                config = RMMConfig(piece_turns=10, merge_floor=0.6, speakers=("user",))  # ... and quotes itself
            yield Choice(talks, model, embeddings, db, config, tools=agent and not options.no_tools)
        except RMMError as error:
            sys.exit(f"{type(error).__name__}: {error}")
        except KeyboardInterrupt:
            sys.exit(130)
        except Exception as error:
            if options.model is None:
                raise
            # Whatever a provider raises: no key, no network, no such model, no package.
            said = textwrap.shorten(str(error), 220, placeholder=" ...")
            sys.exit(f"--model {options.model}: {type(error).__name__}: {said}")


def _parse(framework: Framework[M], story: str | None, agent: bool) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=story, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--model",
        metavar=f"{framework.names}|local",
        help=f"a chat model {framework.known}; or a GGUF file, run in this process; an offline stand-in when left out",
    )
    parser.add_argument("--gguf", default=os.environ.get("RMM_GGUF"), metavar="FILE", help="the model of --model local")
    parser.add_argument("--db", metavar="FILE", help="keep the memory in this file, and go on with it next time")
    if agent:
        parser.add_argument(
            "--no-tools", action="store_true", help="for small models, which take every line for a tool to be called"
        )
    return parser.parse_args()


def _real_model(framework: Framework[M], options: argparse.Namespace, stack: ExitStack) -> M | None:
    if options.model is None:
        return None
    if options.model != "local":
        return framework.named(options.model)
    return framework.local(stack, options.gguf)
