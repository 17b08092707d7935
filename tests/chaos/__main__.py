"""The test at any place, and its figures: ``python -m tests.chaos --place PLACE --json FILE``."""

import argparse
import json
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from tests.chaos import checks
from tests.chaos.balancer import Balancer
from tests.chaos.scenario import Clock, opened


def main():
    options = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    options.add_argument("--place", help="the path or the URL of an empty store; a file of its own when left out")
    options.add_argument("--json", type=Path, help="where the figures go, beside the screen")
    options.add_argument("--seed", type=int, default=0, help="of who is killed")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = given.place or str(Path(folder) / "memory.db")
        run = Balancer(place, seed=given.seed).play()
        with closing(opened(place, Clock())) as memory, closing(checks.alone()) as other:
            run.reflections += checks.settle(memory)
            checks.everything(run, memory, other)
            told = json.dumps(checks.figures(run, memory), indent=2)
    sys.stdout.write(f"{told}\n")
    if given.json:
        given.json.write_text(f"{told}\n")


if __name__ == "__main__":
    main()
