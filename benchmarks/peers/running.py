"""A worker called: one process, one request as a file, one answer."""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.peers.catalogue import Entry
from benchmarks.peers.environments import Environment, reason

Answer: TypeAlias = dict[str, Any]
GRACE = 60  # seconds that a worker may be over its time before it is ended


class WorkerError(Exception):
    """A worker that failed, or did not come to an end; says why."""


@dataclass
class Racer:
    """A peer on its way.

    Attributes:
        seconds: What is left of its time.
        paces: Seconds a turn that storing took, by the turns that each user had; the last one stands last.
        stopped: Why it does not go on; empty while it does.
    """

    name: str
    entry: Entry
    environment: Environment
    seconds: float
    paces: dict[int, float] = field(default_factory=dict)
    stopped: str = ""

    @property
    def persists(self) -> bool:
        """Whether another process finds what was stored."""
        return self.entry.durable != "never"

    def pace(self, turns: int) -> float:
        """Seconds a turn for users of so many turns: as measured, or the last that was; 0.0 when none was."""
        return self.paces.get(turns, next(reversed(self.paces.values()), 0.0))

    def call(self, home: Path, request: Answer, seconds: float) -> Answer:
        """Run the worker, at the expense of its time.

        Args:
            home: A folder of its own, made when it is not there; the memory is in it.
            request: What :mod:`benchmarks.peers.workers.worker` says, without what is told here.
            seconds: When it is to stop.

        Raises:
            WorkerError: When it fails, or does not stop.
        """
        (home / "memory").mkdir(parents=True, exist_ok=True)
        told = {"path": str(home / "memory"), "variant": self.entry.variant, "seconds": seconds, "megabytes": half()}
        began = time.time()
        path = home / "request.json"
        path.write_text(json.dumps(told | request | {"started": began}), encoding="utf-8")
        try:
            done = subprocess.run(
                [str(self.environment.python), str(self.entry.path), str(path)],
                capture_output=True,
                text=True,
                timeout=seconds + GRACE,
                env=self.environment.variables(home),
                cwd=home,
            )
        except subprocess.TimeoutExpired:
            raise WorkerError(f"it did not stop within {seconds + GRACE:.0f} s") from None
        finally:
            self.seconds -= time.time() - began
        if done.returncode:
            raise WorkerError(reason(done.stderr))
        answer: Answer = json.loads(done.stdout)
        return answer | {"disk_mb": held(home / "memory") / 1e6}


def half() -> float:
    """Half of this machine's memory, in MB."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE") / 2e6


def held(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
