"""Run methods on a data set; one JSON file per run.

    python -m benchmarks.run --dataset locomo
    python -m benchmarks.run --dataset longmemeval --methods rag-turn,rmm --seeds 0
    python -m benchmarks.run --dataset jsonl --data my.jsonl          the format: benchmarks/datasets/jsonl.py

Data lie beside the checkout, in the folder that RMM_DATA names, or where --data says. What was run before is not run
again, and what was interrupted goes on: embeddings, banks and finished runs are kept.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.banks import Banks, Topics
from benchmarks.datasets import Conversation
from benchmarks.datasets.sources import SOURCES, fingerprint
from benchmarks.embeddings import CachedEmbedder
from benchmarks.evaluation import evaluate
from benchmarks.feedback import SimulatedCitations
from benchmarks.methods import Method
from benchmarks.methods.catalogue import CATALOGUE, Entry, Setting
from benchmarks.options import checked, opened, parser_with, share, told
from benchmarks.records import Run, made
from benchmarks.replies import CachedLLM
from benchmarks.screen import Screen
from rmm_core.models import SentenceTransformerEmbedder

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from _models import bundled_embedder

T = TypeVar("T")
DEFAULT_EMBEDDER = "all-MiniLM-L6-v2"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what the options name."""
    options = parse(arguments)
    odds = {"recall": options.citation_recall, "false": options.false_citations}
    with told(), opened(options) as llm:
        bench = Bench.open(options, Screen(), llm)
        for name in options.methods:
            for seed in options.seeds if CATALOGUE[name].seeded else [0]:
                bench.run(name, seed, odds)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options."""
    parser = parser_with(__doc__, methods="all", llm="who extracts, for --topics llm")
    parser.add_argument("--seeds", default="0,1,2", metavar="N,...", help="for methods in which something is random")
    parser.add_argument("--citation-recall", type=share, default=0.911, metavar="P", help="simulated: useful and cited")
    parser.add_argument("--false-citations", type=share, default=0.05, metavar="P", help="simulated: useless and cited")
    options = checked(parser, arguments)
    try:
        options.seeds = [int(seed) for seed in options.seeds.split(",")]
    except ValueError:
        parser.error(f"--seeds is numbers with commas between them; got {options.seeds!r}")
    return options


@dataclass(frozen=True)
class Bench:
    """A data set, and what methods are made of.

    Attributes:
        about: What all of its runs have in common.
        made: The commit, versions and machine, as this program was started.
        again: Whether what was run before is run all the same.
    """

    conversations: list[Conversation]
    banks: Banks
    topics: Topics
    recorded: bool
    about: dict[str, Any]
    made: dict[str, Any]
    results: Path
    again: bool
    screen: Screen

    @classmethod
    def open(cls, options: argparse.Namespace, screen: Screen, llm: CachedLLM | None) -> Bench:
        """Read the data set and load the embedder.

        Args:
            options: Of :func:`checked`.
            llm: Who extracts the topics of a language model.

        Raises:
            ValueError: When the data set is not there or something else.
        """
        source = SOURCES[options.dataset]
        conversations = spread(source.load(options.data), options.conversations)
        recorded = any(s.facts for c in conversations for s in c.sittings)
        if options.topics == "recorded" and not recorded:
            raise ValueError("this data set has no recorded facts; take --topics extractive, or llm with --llm")
        (options.results / options.dataset).mkdir(parents=True, exist_ok=True)
        inner = SentenceTransformerEmbedder(options.embedder) if options.embedder else bundled_embedder()
        embedder = CachedEmbedder(inner, options.cache / "embeddings.db", screen.embedding)
        embedder.embed([q.text for c in conversations for q in c.questions])
        data = f"{options.dataset}-{fingerprint(options.data)}"
        banks = Banks(options.cache / "banks", data, embedder, embedder.fingerprint, screen.track, llm)
        return cls(
            conversations,
            banks,
            options.topics or ("recorded" if recorded else "extractive"),
            recorded,
            about={
                "dataset": options.dataset,
                "data": fingerprint(options.data),
                "conversations": len(conversations),
                "questions": sum(len(c.questions) for c in conversations),
                "embedder": Path(options.embedder).name if options.embedder else DEFAULT_EMBEDDER,
                "embedder_fingerprint": embedder.fingerprint,
            },
            made=made(),
            results=options.results / options.dataset,
            again=options.again,
            screen=screen,
        )

    def method(self, name: str, seed: int) -> Method | None:
        """A method of the catalogue. None, and a line that says so, where it does not apply."""
        if CATALOGUE[name].recorded and not self.recorded:
            self.screen.say(f"{name}: this data set has no recorded facts")
            return None
        return CATALOGUE[name].make(Setting(self.banks, self.topics, seed))

    def about_run(self, name: str, method: Method, seed: int, **more: Any) -> dict[str, Any]:
        """All that the outcome of a run depends on but the code, as JSON has it."""
        entry = CATALOGUE[name]
        own = {"m": entry.m, "seed": seed, "settings": dict(method.settings), **more}
        if entry.topics:
            own["topics"] = self.topics
            if self.topics == "llm":
                own["extracted_by"] = self.banks.extractor
        found: dict[str, Any] = json.loads(json.dumps(self.about | own))
        return found

    def run(self, name: str, seed: int, odds: Mapping[str, float]) -> Run | None:
        """The run of a method: read when it was run before, else run and written. None where it does not apply.

        Args:
            odds: Of the simulated citations.
        """
        if not any(q.evidence for c in self.conversations for q in c.questions):
            raise ValueError(
                "no question here names its evidence, so nothing found can be measured; benchmarks.answers can"
            )
        entry = CATALOGUE[name]
        method = self.method(name, seed)
        if method is None:
            return None
        try:
            about = self.about_run(name, method, seed, citations={"simulated": True, **odds})
            path = self.results / file_name(name, entry, seed, self.topics, self.about["embedder"])
            if path.exists() and not self.again and (known := Run.load(path)).about == about:
                self.screen.before(path.stem, known.made, self.made)
                return known
            started = time.monotonic()
            simulated = partial(SimulatedCitations, **odds)
            first, again = evaluate(
                method, self.conversations, m=entry.m, seed=seed, citations=simulated, track=self.screen.track
            )
        finally:
            method.close()
        run = Run(
            name, about, tuple(first), tuple(again), self.made | {"seconds": round(time.monotonic() - started, 1)}
        )
        run.save(path)
        self.screen.ran(path.stem, run)
        return run


def spread(items: list[T], count: int | None) -> list[T]:
    """``count`` of the items, evenly spread: files are sorted by kind of question."""
    if count is None or count >= len(items):
        return items
    return [items[i * len(items) // count] for i in range(count)]


def file_name(name: str, entry: Entry, seed: int | None, topics: Topics, embedder: str) -> str:
    """What the file of a run is called; None is the seed of a run that is the only one."""
    other = [embedder] * (embedder != DEFAULT_EMBEDDER)
    seeds = [f"seed{seed}"] * (entry.seeded and seed is not None)
    return ".".join([name, *[topics] * entry.topics, *other, *seeds, "json"])


if __name__ == "__main__":
    main()
