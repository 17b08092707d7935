"""What the commands on a data set have in common: their options, the language model these name, and how they end."""

from __future__ import annotations

import argparse
import os
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from benchmarks.datasets.sources import SOURCES
from benchmarks.methods.catalogue import CATALOGUE
from benchmarks.replies import CachedLLM
from rmm_core import RMMError

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from _models import language_model

ROOT = Path(__file__).parents[1]
DATA = Path(os.environ.get("RMM_DATA", ROOT.parent / "shared" / "data"))
CACHE = ROOT / ".cache" / "benchmarks"
OWN_RESULTS = CACHE / "results"
PUBLISHED = Path(__file__).parent / "results"
"""The runs that the pages are written from; nothing is written here unless --results says so."""
TOPICS = ("recorded", "extractive", "llm")


def parser_with(about: str | None, *, methods: str, llm: str) -> argparse.ArgumentParser:
    """A parser with the options that all commands on a data set have; :func:`checked` goes with it.

    Args:
        about: What the command does.
        methods: Which methods it runs when none are named.
        llm: What a language model is for.
    """
    width = max(map(len, CATALOGUE))
    names = "\n".join(f"  {name:{width}}  {entry.label}" for name, entry in CATALOGUE.items())
    parser = argparse.ArgumentParser(
        description=about, epilog=f"methods:\n{names}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", required=True, choices=sorted(SOURCES))
    parser.add_argument("--data", type=Path, metavar="PATH", help="the file or folder of the data set")
    parser.add_argument(
        "--methods", default=methods, metavar="NAME,...|all", help="of those below; default: %(default)s"
    )
    parser.add_argument(
        "--topics",
        choices=TOPICS,
        help="who extracts: llm is --llm; recorded where the data have facts, else extractive",
    )
    parser.add_argument("--llm", default="none", metavar="none|local|URL", help=llm)
    parser.add_argument("--model", metavar="NAME", help="the model's name behind the URL; the key is RMM_API_KEY")
    parser.add_argument("--gguf", default=os.environ.get("RMM_GGUF"), metavar="FILE", help="the model of --llm local")
    parser.add_argument("--conversations", type=counted, metavar="N", help="only so many, spread evenly over the file")
    parser.add_argument("--embedder", metavar="MODEL", help="a sentence-transformers model, by name or folder")
    parser.add_argument("--again", action="store_true", help="run what was run before, as after a change of the code")
    parser.add_argument(
        "--results",
        type=Path,
        default=OWN_RESULTS,
        metavar="FOLDER",
        help="where runs are written; default: %(default)s",
    )
    parser.add_argument("--cache", type=Path, default=CACHE, metavar="FOLDER", help="what is made once and kept")
    return parser


def counted(text: str) -> int:
    """A number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a number from 1; got {text}")
    return int(text)


def share(text: str) -> float:
    """A number from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"a number from 0 to 1; got {text}")
    return value


def checked(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options, with the path of the data and the names of the methods; a mistake ends the program."""
    options = parser.parse_args(arguments)
    source = SOURCES[options.dataset]
    if options.data is None and source.file is None:
        parser.error(f"--dataset {options.dataset} needs --data FILE")
    options.data = options.data or DATA / str(source.file)
    options.methods = list(CATALOGUE) if options.methods == "all" else options.methods.split(",")
    for name in options.methods:
        if name not in CATALOGUE:
            parser.error(f"there is no method {name!r}; there are {', '.join(CATALOGUE)}")
    if "://" in options.llm and not options.model:
        parser.error("--llm URL needs --model NAME")
    if options.topics == "llm" and options.llm == "none":
        parser.error("--topics llm needs --llm URL, or --llm local with --gguf FILE")
    return options


@contextmanager
def told() -> Iterator[None]:
    """Ends the program with one sentence when something goes wrong."""
    try:
        yield
    except (ValueError, RMMError, OSError, sqlite3.Error) as error:
        sys.exit(f"{error}")
    except KeyboardInterrupt:
        sys.exit("interrupted; the same command goes on from here")


@contextmanager
def opened(options: argparse.Namespace) -> Iterator[CachedLLM | None]:
    """The language model that the options name, its replies kept under what they depend on; None without one."""
    with language_model(options.llm, model=options.model, gguf=options.gguf) as llm:
        if llm is None:
            yield None
            return
        model = options.model if "://" in options.llm else f"{Path(options.gguf).stem}, in this process"
        with closing(CachedLLM(llm, options.cache / "replies.db", f"{model}, temperature 0")) as cached:
            yield cached
