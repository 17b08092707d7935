"""An environment of its own for each peer, made once: what is pinned in the catalogue, and what that asks for."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.catalogue import Entry

INSTALL_SECONDS = 1200
_KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_QUIET = {
    "MEM0_TELEMETRY": "False",
    "ANONYMIZED_TELEMETRY": "False",
    "LANGSMITH_TRACING": "false",
    "HF_HUB_OFFLINE": "1",
}


class UnavailableError(Exception):
    """A peer that cannot be installed; says why."""


@dataclass(frozen=True)
class Environment:
    """What a peer is run with.

    Attributes:
        python: Its interpreter.
        versions: What is installed there of what was asked for.
    """

    python: Path
    versions: dict[str, str]

    def variables(self, home: Path) -> dict[str, str]:
        """The variables of a worker: no keys, no telemetry, a home of its own."""
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        own = {"HOME": str(home), "MEM0_DIR": str(home / "mem0")}
        if self.python == Path(sys.executable):
            own["PYTHONPATH"] = str(Path(__file__).parents[2])
        return kept | _QUIET | own


def environment(entry: Entry, folder: Path) -> Environment:
    """The environment of a peer, installed when it is not there yet.

    Raises:
        UnavailableError: When that fails.
    """
    if not entry.environment:
        return Environment(Path(sys.executable), {})
    place = folder / entry.environment
    python = place / "bin" / "python"
    stamp = place / "installed.json"
    if not stamp.exists() or json.loads(stamp.read_text(encoding="utf-8"))["asked"] != list(entry.requirements):
        shutil.rmtree(place, ignore_errors=True)
        _called([sys.executable, "-m", "venv", str(place)])
        _called([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *entry.requirements])
        versions = _versions(python, entry.requirements)
        stamp.write_text(json.dumps({"asked": entry.requirements, "versions": versions}), encoding="utf-8")
    return Environment(python, json.loads(stamp.read_text(encoding="utf-8"))["versions"])


def _versions(python: Path, requirements: Sequence[str]) -> dict[str, str]:
    names = [requirement.partition("==")[0] for requirement in requirements]
    code = f"import json, importlib.metadata as m; print(json.dumps({{n: m.version(n) for n in {names!r}}}))"
    found: dict[str, str] = json.loads(_called([str(python), "-c", code]))
    return found


def _called(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"not installed within {INSTALL_SECONDS} s") from None
    except (OSError, subprocess.CalledProcessError) as error:
        raise UnavailableError(f"cannot be installed: {reason(getattr(error, 'stderr', '') or str(error))}") from None
    return done.stdout


def reason(said: str) -> str:
    """The last line of what a program complained of, without places on this machine."""
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["it said nothing"]
    return re.sub(r"(?<![\w.])/[\w./-]+", "...", lines[-1])[:200]
