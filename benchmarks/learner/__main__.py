"""Experiments on what learns; one JSON file each.

    python -m benchmarks.learner                              all of them, some hours on one core
    python -m benchmarks.learner --only unseen-facts,harm

Data lie beside the checkout, or in the folder that RMM_DATA names. Citations are simulated, with the paper's error
rates. What is done already is not done again; python -m benchmarks.report writes the page.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from benchmarks import run
from benchmarks.learner.experiments import Corpus, harm, recurring, transfer, unseen, variants
from benchmarks.learner.labelled import labelled
from benchmarks.learner.pools import BEFORE, POOLS
from benchmarks.options import CACHE, OWN_RESULTS, told
from benchmarks.records import made, write_whole
from benchmarks.screen import Screen
from rmm_core import RMMConfig


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the experiments that the options name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(NAMES), metavar="NAME,...", help="of: %(default)s")
    parser.add_argument("--again", action="store_true", help="run what was run before, as after a change of the code")
    parser.add_argument("--results", type=Path, default=OWN_RESULTS, metavar="FOLDER")
    parser.add_argument("--cache", type=Path, default=CACHE, metavar="FOLDER")
    options = parser.parse_args(arguments)
    names = options.only.split(",")
    if unknown := set(names) - set(NAMES):
        parser.error(f"there is no experiment {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    screen = Screen()

    @cache
    def corpus(dataset: str) -> Corpus:
        opened = run.Bench.open(run.parse(["--dataset", dataset, "--cache", str(options.cache)]), screen, None)
        return Corpus(opened.conversations, opened.banks)

    with told():
        about = made()
        for name in names:
            path = options.results / "learner" / f"{name}.json"
            if path.exists() and not options.again:
                screen.say(f"{name}: run before; --again runs it anew")
                continue
            started = time.monotonic()
            found = experiments(corpus, screen.say)[name]()
            seconds = {"seconds": round(time.monotonic() - started, 1)}
            content = {"experiment": name, "made": about | seconds, "defaults": RMMConfig().to_dict()} | found
            write_whole(path, json.dumps(content, indent=1) + "\n")


def experiments(corpus: Callable[[str], Corpus], say: Callable[[str], None]) -> dict[str, Callable[[], dict[str, Any]]]:
    """Every experiment by name."""
    found: dict[str, Callable[[], dict[str, Any]]] = {}
    for name, pool in POOLS.items():
        found[f"unseen-{name}"] = partial(lambda p: unseen(corpus(p.dataset), p, RMMConfig(), say), pool)
        found[f"fresh-{name}"] = partial(lambda p: unseen(corpus(p.dataset), p, RMMConfig(prior=BEFORE), say), pool)
        found[f"recurring-{name}"] = partial(lambda p: recurring(corpus(p.dataset), p, RMMConfig(), say), pool)
    turns, other = POOLS["turns"], POOLS["longmemeval"]
    for a, b in ((turns, other), (other, turns)):
        found[f"transfer-to-{b.dataset}"] = partial(
            lambda a, b: transfer(corpus(a.dataset), a, corpus(b.dataset), b, say), a, b
        )
    for name in ("mixed", "longmemeval"):
        found[f"variants-{name}"] = partial(lambda p: variants(corpus(p.dataset), p, say), POOLS[name])
        found[f"labelled-{name}"] = partial(lambda p: labelled(corpus(p.dataset), p, say), POOLS[name])
    found["harm"] = lambda: harm(corpus("locomo"), POOLS["mixed"], say)
    return found


NAMES = tuple(experiments(lambda dataset: Corpus((), NotImplemented), lambda text: None))

if __name__ == "__main__":
    main()
