"""What an installation brings along, and under which licences.

python -m tests.dependencies > docs/dependencies.md
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

NAME = "reflective-memory"
EXTRAS = ("", "local", "openai", "langchain", "llamaindex", "cli", "mcp", "telemetry", "encryption", "postgres")
FREE = (
    *("MIT", "BSD", "Apache", "Python Software Foundation", "PSF", "ISC", "Mozilla Public License 2.0", "MPL-2.0"),
    *("Zlib", "zlib", "CC0", "Unlicense", "0BSD", "Public Domain", "HPND", "LGPL", "Lesser General Public License"),
)
"""Licences, or families of them, that a program under any licence may be used with."""

UNNAMED = {"sqlcipher3": "zlib, as its LICENSE says; SQLCipher in it: BSD-3-Clause"}
"""Those whose metadata say nothing."""

HEAD = """# What comes along

`pip install 'reflective-memory[EXTRA]'` brings these packages (Python 3.11 on Linux). Which versions those may have
that this project asks for itself stands in `pyproject.toml`: `make lowest` runs the lowest, but for torch's and
sentence-transformers', and all other tests the newest, pinned in `constraints.txt`. Nothing of them is copied into this
repository; those under the LGPL (psycopg) are used as they are, and can be replaced.

Written by `python -m tests.dependencies`; a test holds it to what is installed. Back to the [README](../README.md).
"""


def closure(extra: str) -> set[str]:
    """The packages that an extra brings, ours aside; without an extra, those that all bring."""
    found: set[str] = set()
    waiting = [Requirement(f"{NAME}[{extra}]" if extra else NAME)]
    while waiting:
        needed = waiting.pop()
        for own in {"", *needed.extras}:
            for text in distribution(needed.name).requires or ():
                new = Requirement(text)
                wanted = new.marker is None or new.marker.evaluate({"extra": own})
                key = f"{canonicalize_name(new.name)}{sorted(new.extras)}"
                if wanted and key not in found and installed(new.name):
                    found.add(key)
                    waiting.append(new)
    return {key.partition("[")[0] for key in found} - {NAME}


def installed(name: str) -> bool:
    """Whether a package is there."""
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def licences(names: set[str]) -> dict[str, str]:
    """Licences of packages by name."""
    command = [
        sys.executable,
        "-m",
        "piplicenses",
        "--format=json",
        "--from=mixed",
        "--with-system",
        "--packages",
        *sorted(names),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    named = {canonicalize_name(row["Name"]): row["License"].split("\n")[0] for row in json.loads(done.stdout)}
    return named | {name: licence for name, licence in UNNAMED.items() if named.get(name) == "UNKNOWN"}


def unfree(named: Iterable[str]) -> list[str]:
    """Of these licences, those of which no part is known to be free."""
    return [licence for licence in named if not any(family in licence for family in FREE)]


def page() -> str:
    """The page."""
    base = closure("")
    sets = {extra: closure(extra) - (base if extra else set()) for extra in EXTRAS}
    known = licences(set().union(*sets.values()))
    lines = [HEAD]
    for extra, names in sets.items():
        lines += [f"## {f'`{extra}`, beside the base' if extra else 'The base'}", ""]
        by: dict[str, list[str]] = {}
        for name in sorted(names):
            by.setdefault(known[name], []).append(name)
        lines += ["| licence | packages |", "| --- | --- |"]
        lines += [f"| {licence} | {', '.join(by[licence])} |" for licence in sorted(by)]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
