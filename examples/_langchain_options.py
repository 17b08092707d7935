"""What the LangChain examples share: their options, and the models these choose."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from _models import bundled_embedder, llama_server
from _offline_chat import OfflineChatModel
from langchain_core.language_models import BaseChatModel

from rmm_core import Embedder, RMMConfig, RMMError


@dataclass(frozen=True)
class Choice:
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

    model: BaseChatModel
    reflects: BaseChatModel | None
    embeddings: Embedder
    db: str
    config: RMMConfig
    tools: bool


@contextmanager
def choice(story: str | None, *, agent: bool = False) -> Iterator[Choice]:
    """Read the options; what goes wrong inside of the block because of them ends the program with one line.

    Args:
        story: What the example is about, for ``--help``.
        agent: Whether it has tools to leave out.
    """
    options = _parse(story, agent)
    with ExitStack() as stack:
        try:
            model = _real_model(options, stack)
            embeddings = bundled_embedder()
            talks = OfflineChatModel(embedder=embeddings) if model is None else model
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


def _parse(story: str | None, agent: bool) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=story, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--model",
        metavar="provider:name|local",
        help="a chat model that init_chat_model knows, such as openai:gpt-4o-mini; or a GGUF file, run in this "
        "process; an offline stand-in when left out",
    )
    parser.add_argument("--gguf", default=os.environ.get("RMM_GGUF"), metavar="FILE", help="the model of --model local")
    parser.add_argument("--db", metavar="FILE", help="keep the memory in this file, and go on with it next time")
    if agent:
        parser.add_argument(
            "--no-tools", action="store_true", help="for small models, which take every line for a tool to be called"
        )
    return parser.parse_args()


def _real_model(options: argparse.Namespace, stack: ExitStack) -> BaseChatModel | None:
    if options.model is None:
        return None
    if options.model != "local":
        from langchain.chat_models import init_chat_model

        return init_chat_model(options.model)
    try:
        from langchain_openai import ChatOpenAI
    except ImportError:
        sys.exit("--model local needs LangChain's client for its server: pip install langchain-openai")
    url = stack.enter_context(llama_server(options.gguf, option="--model"))
    return ChatOpenAI(
        base_url=url, api_key="not-needed", model="local", temperature=0, max_tokens=400, timeout=900, max_retries=0
    )
