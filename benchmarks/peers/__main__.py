"""A race of this memory against others: one machine, one run, the same embeddings, no language model.

    python -m benchmarks.peers                                      all of it; hours
    python -m benchmarks.peers --sizes 1000 --rounds 1 --minutes 2  a look
    python -m benchmarks.peers --sizes 1000,1000x1000 --name many --no-quality
                                                                    a run of its own, beside the one that is there

Each peer gets an environment of its own in the cache, with pinned versions; the package index is asked for them once.
What cannot be installed, or does not run without a key, is reported with its reason. Nothing else should run meanwhile.
With --results benchmarks/results, python -m benchmarks.report writes PEERS.md from it and from runs beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.datasets import Conversation
from benchmarks.datasets.sources import SOURCES
from benchmarks.embeddings import CachedEmbedder
from benchmarks.options import CACHE, DATA, OWN_RESULTS, counted, told
from benchmarks.peers.catalogue import CATALOGUE
from benchmarks.peers.environments import UnavailableError, environment
from benchmarks.peers.material import Material, prepared
from benchmarks.peers.quality import compared, scored
from benchmarks.peers.race import Race, Stage, blocks_of
from benchmarks.peers.running import Racer, WorkerError
from benchmarks.records import made, write_whole
from benchmarks.screen import Screen

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from _models import bundled_embedder

OURS = "ours"
SIZES = "1000,10000,100000,1000x1000"
DISTINCT = 100  # histories; of more users, some hold the same


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the race and write what came out."""
    options = parse(arguments)
    screen = Screen()
    with told():
        corpora = read(options.data)
        material = make(corpora, options, screen)
        found: dict[str, Any] = {"made": about(options), "material": material.about, "peers": {}}
        racers = lined_up(options, found["peers"], screen)
        folder = Path(tempfile.mkdtemp(prefix="peers-", dir=options.cache / "peers"))
        race = Race(
            racers, material, folder / "memories", questions(corpora, options.queries), options.rounds, screen.say
        )
        try:
            run(race, corpora["locomo"], options, found, screen)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default=SIZES, metavar="N,UxN,...", help="turns, or users x turns: %(default)s")
    parser.add_argument(
        "--minutes", type=float, default=10.0, help="of each peer, and as many again for quality: %(default)s"
    )
    parser.add_argument("--rounds", type=counted, default=3, metavar="N", help="of each size: %(default)s")
    parser.add_argument("--queries", type=counted, default=200, metavar="N", help="asked in a round: %(default)s")
    parser.add_argument("--beside", default="", metavar="TEXT", help="what else the machine did, for the page")
    parser.add_argument("--only", default=",".join(CATALOGUE), metavar="NAME,...", help="of: %(default)s")
    parser.add_argument("--no-quality", action="store_true", help="time alone: what comes up was measured before")
    parser.add_argument("--name", default="", metavar="NAME", help="a run beside the first, written to peers-NAME.json")
    parser.add_argument("--data", type=Path, default=DATA, metavar="FOLDER", help="of the data sets")
    parser.add_argument("--results", type=Path, default=OWN_RESULTS, metavar="FOLDER", help="where the file goes")
    parser.add_argument(
        "--cache", type=Path, default=CACHE, metavar="FOLDER", help="environments, embeddings, memories"
    )
    options = parser.parse_args(arguments)
    options.cache = options.cache.resolve()  # workers have a folder of their own
    options.names = options.only.split(",")
    if unknown := set(options.names) - set(CATALOGUE):
        parser.error(f"there is no peer {', '.join(sorted(unknown))}; there are {', '.join(CATALOGUE)}")
    try:
        options.stages = sorted(map(Stage.parse, options.sizes.split(",")), key=lambda stage: stage.total)
    except ValueError as error:
        parser.error(str(error))
    return options


def read(folder: Path) -> dict[str, list[Conversation]]:
    """The conversations of every data set that is there; LoCoMo has to be.

    Raises:
        ValueError: When it is not.
    """
    found = {"locomo": SOURCES["locomo"].load(folder / str(SOURCES["locomo"].file))}
    for name in ("msc", "longmemeval"):
        path = folder / str(SOURCES[name].file)
        if path.exists():
            found[name] = SOURCES[name].load(path)
    return found


def make(corpora: dict[str, list[Conversation]], options: argparse.Namespace, screen: Screen) -> Material:
    """The turns and their embeddings."""
    embedder = CachedEmbedder(bundled_embedder(), options.cache / "embeddings.db", screen.embedding)
    turns, block = blocks_of(options.stages, DISTINCT)
    screen.say(f"preparing {turns:,} turns and their embeddings")
    return prepared(options.cache / "peers" / "material", corpora, embedder, turns, block, screen.track)


def lined_up(options: argparse.Namespace, found: dict[str, Any], screen: Screen) -> list[Racer]:
    """Those who can race; of every peer it is noted what it is, and why it cannot."""
    racers = []
    for name in options.names:
        entry = CATALOGUE[name]
        found[name] = {
            "label": entry.label,
            "worker": f"peers/workers/{entry.path.name}",
            "lines": entry.lines,
            "durable": entry.durable,
            "stages": {},
        }
        try:
            here = environment(entry, options.cache / "peers" / "environments")
        except UnavailableError as error:
            found[name]["failed"] = str(error)
            screen.say(f"{name}: {error}")
            continue
        found[name]["versions"] = here.versions or made()["versions"]
        racers.append(Racer(name, entry, here, options.minutes * 60))
    return racers


def questions(corpora: dict[str, list[Conversation]], count: int) -> list[str]:
    """So many of LoCoMo's questions, spread over all of them."""
    texts = [q.text for c in corpora["locomo"] for q in c.questions if q.evidence]
    return texts[:: max(len(texts) // count, 1)][:count]


def about(options: argparse.Namespace) -> dict[str, Any]:
    """What the run was made with, and on what: no more of the machine than its cores and its Python."""
    now = made()
    return {
        "commit": now["commit"],
        "changed": now["changed"],
        "python": now["python"],
        "cores": os.cpu_count(),
        "used": len(os.sched_getaffinity(0)),
        "beside": options.beside,
        "threads": os.environ.get("OMP_NUM_THREADS", "all"),
        "minutes": options.minutes,
        "rounds": options.rounds,
        "queries": options.queries,
        "sizes": [stage.name for stage in options.stages],
        "ours": OURS,
    }


def run(
    race: Race, locomo: list[Conversation], options: argparse.Namespace, found: dict[str, Any], screen: Screen
) -> None:
    """Quality first, then size by size; the file is written after each."""

    def write() -> None:
        write_whole(options.results / file, json.dumps(found, indent=1) + "\n")

    file = f"peers-{options.name}.json" if options.name else "peers.json"
    scores = {}
    for racer in () if options.no_quality else race.racers:
        try:
            scores[racer.name] = scored(locomo, race.quality(racer))
            screen.say(f"quality: {racer.name} asked, {options.minutes * 60 - racer.seconds:.0f} s")
        except WorkerError as error:
            found["peers"][racer.name]["quality"] = {"note": str(error)}
            screen.say(f"quality: {racer.name}: {error}")
        racer.seconds = options.minutes * 60  # it has a time of its own
    for name, figures in compared(scores, OURS, screen.say).items():
        found["peers"][name]["quality"] = figures
    write()
    for stage in options.stages:
        for name, figures in race.stage(stage).items():
            found["peers"][name]["stages"][stage.name] = figures
        write()


if __name__ == "__main__":
    main()
