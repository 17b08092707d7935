"""What importing ``langchain_rmm`` costs beside LangChain's own retrievers, measured in turn.

    python -m benchmarks.langchain_import [--repeat 9] [--json FILE]

CPU seconds of fresh processes; compare the ratios, machines differ.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

STATEMENTS = {
    "baseline": "import langchain_core.retrievers",
    "package": "import langchain_rmm",
    "retriever": "from langchain_rmm import RMMRetriever",
    "agents": "import langchain.agents.middleware",
    "middleware": "from langchain_rmm import RMMMiddleware",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and write JSON when asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--json", metavar="FILE", help="write the figures here as well")
    options = parser.parse_args(arguments)
    seconds: dict[str, list[float]] = {name: [] for name in STATEMENTS}
    for _ in range(options.repeat):
        for name, statement in STATEMENTS.items():
            seconds[name].append(cpu_seconds(statement))
    figures: dict[str, Any] = {name: statistics.median(taken) for name, taken in seconds.items()}
    figures["versions"] = {p: version(p) for p in ("langchain-core", "langchain")}
    table = Table("", "CPU s", "against", "ratio")
    for name, against in (
        ("package", "baseline"),
        ("retriever", "baseline"),
        ("middleware", "agents"),
    ):
        ratio = figures[name] / figures[against]
        table.add_row(STATEMENTS[name], f"{figures[name]:.2f}", STATEMENTS[against], f"{ratio:.2f}")
    Console().print(table)
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=1) + "\n")


def cpu_seconds(statement: str) -> float:
    """CPU seconds of one statement in a process of its own."""
    code = f"import time; start = time.process_time(); {statement}; print(time.process_time() - start)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)


if __name__ == "__main__":
    main()
