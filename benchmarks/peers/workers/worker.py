"""What the peers' scripts share: embeddings looked up, steps timed, one JSON object as the answer.

It runs in the peer's own environment and needs numpy and the standard library alone. A request is a JSON file::

    path, users     where to store, and how many users there will be
    variant         which of several kinds the script is to be
    vectors         the folder of the embeddings
    sessions        a file with a session a line
    histories       [user, byte in that file, sessions] for each user
    queries         a file with [user, text] a line
    steps           of "ingest", "recall" (with times) and "answer" (with what came up)
    seconds         when to stop, counted from the first step
    megabytes       how big the process may become before storing stops
    passes          how often the queries are asked
    started         when the process was started

Nobody may open a connection meanwhile: what needs one is told so.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

WIDTH, TOP = 384, 5


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a session.

    Attributes:
        line: The words with who said them and the captions of what came with them: what a memory is made of.
        role: ``"user"`` or ``"agent"``.
        note: The caption of a picture.
    """

    line: str
    role: str
    speaker: str
    text: str
    note: str


@dataclass(frozen=True, slots=True)
class Session:
    """One session; ``at`` is an ISO date."""

    name: str
    at: str
    speakers: tuple[str, str]
    turns: tuple[Turn, ...]


class Peer(Protocol):
    """A memory in the race; made anew in every process.

    Attributes:
        persists: Whether another process finds what was stored.
    """

    persists: bool

    def open(self, path: str, users: Sequence[str]) -> None:
        """Open the memory at a folder; only these users will come."""

    def ingest(self, user: str, session: Session) -> None:
        """Store a session, each of its turns so that it can be found."""

    def recall(self, user: str, query: str) -> list[list[str]]:
        """What comes up first for a query, TOP things at most, each as the lines of the turns that it holds."""

    def close(self) -> dict[str, Any]:
        """Let go of everything, with all of it stored where that is possible; what is to be noted of it."""


class Vectors:
    """Embeddings by text. They are read from the file when asked for, so that none is held before a peer holds it."""

    def __init__(self, folder: str) -> None:
        self._keys = np.load(Path(folder) / "keys.npy")
        self._rows = os.open(Path(folder) / "rows.f32", os.O_RDONLY)

    def row(self, text: str) -> np.ndarray[Any, Any]:
        """The embedding of a text.

        Raises:
            KeyError: When it was not embedded.
        """
        wanted = key(text)
        place = int(np.searchsorted(self._keys, wanted))
        if place == len(self._keys) or self._keys[place] != wanted:
            raise KeyError(f"no embedding of {text!r}")
        return np.frombuffer(os.pread(self._rows, WIDTH * 4, place * WIDTH * 4), dtype=np.float32)

    def values(self, text: str) -> list[float]:
        """The same as a list, for those who want one."""
        return self.row(text).tolist()


def key(text: str) -> np.uint64:
    """What a text's embedding is filed under, whatever memories do to its spaces."""
    return np.frombuffer(hashlib.blake2b(plain(text).encode(), digest_size=8).digest(), dtype=np.uint64)[0]


def plain(text: str) -> str:
    """A text with single spaces: some memories take some away."""
    return " ".join(text.split())


def main(make: Callable[[Vectors, str], Peer]) -> None:
    """Do what the request asks; the answer is all that goes to the standard output, what else is said goes to errors.

    Args:
        make: A peer from the embeddings and the variant, with all that it imports: this counts as starting.
    """
    out = os.dup(1)
    os.dup2(2, 1)
    request = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    socket.socket.connect = _refused  # type: ignore[method-assign]  # no peer calls home while it is timed
    peer = make(Vectors(request["vectors"]), request["variant"])
    started = time.time() - request["started"]
    answer = {"start_s": started, "persists": peer.persists} | run(peer, request)
    with os.fdopen(out, "w", encoding="utf-8") as stream:
        stream.write(json.dumps(answer) + "\n")


def run(peer: Peer, request: dict[str, Any]) -> dict[str, Any]:
    """Every step, with the time and the memory it took."""
    until = time.perf_counter() + request["seconds"]
    before = resident_mb()
    begun = time.perf_counter()
    peer.open(request["path"], [name for name, _, _ in request["histories"]])
    found: dict[str, Any] = {"open_s": time.perf_counter() - begun}
    for step in request["steps"]:
        if found.get("over_budget"):
            break
        found |= STEPS[step](peer, request, until)
    found["growth_mb"] = resident_mb() - before
    begun = time.perf_counter()
    found["notes"] = peer.close()
    return found | {"close_s": time.perf_counter() - begun}


def ingest(peer: Peer, request: dict[str, Any], until: float) -> dict[str, Any]:
    """Store everybody's sessions; reading them is not timed."""
    turns, taken = 0, 0.0
    for user, session in histories(request):
        begun = time.perf_counter()
        peer.ingest(user, session)
        now = time.perf_counter()
        taken += now - begun
        turns += len(session.turns)
        if now > until or resident_mb() > request["megabytes"]:
            over = f"no time left at {turns:,} turns" if now > until else f"{resident_mb():,.0f} MB at {turns:,} turns"
            return {"ingest_s": taken, "turns": turns, "over_budget": over}
    return {"ingest_s": taken, "turns": turns}


def recall(peer: Peer, request: dict[str, Any], until: float) -> dict[str, Any]:
    """Ask everything; times in milliseconds, those of a pass together, the very first one by itself."""
    passes: list[list[float]] = []
    first, things = None, 0
    for _ in range(request["passes"]):
        times: list[float] = []
        for user, text in queries(request):
            begun = time.perf_counter()
            things += len(peer.recall(user, text))
            now = time.perf_counter()
            if first is None:
                first = now - begun
            else:
                times.append((now - begun) * 1e3)
            if now > until:
                break
        passes.append(times)
    if not things:
        raise RuntimeError("nothing comes up")
    return {"first_s": first, "recall_ms": passes, "things": things / (1 + sum(map(len, passes)))}


def answer(peer: Peer, request: dict[str, Any], until: float) -> dict[str, Any]:
    """Ask everything, and keep what comes up."""
    found = []
    for user, text in queries(request):
        found.append(peer.recall(user, text))
        if time.perf_counter() > until:
            return {"answers": found, "over_budget": f"no time left at {len(found):,} questions"}
    return {"answers": found}


STEPS = {"ingest": ingest, "recall": recall, "answer": answer}


def histories(request: dict[str, Any]) -> Iterator[tuple[str, Session]]:
    """Everybody's sessions one by one; none is held here."""
    with Path(request["sessions"]).open("rb") as lines:
        for user, place, count in request["histories"]:
            lines.seek(place)
            for _ in range(count):
                name, at, speakers, turns = json.loads(lines.readline())
                yield user, Session(name, at, tuple(speakers), tuple(Turn(*turn) for turn in turns))


def queries(request: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Who asks what."""
    with Path(request["queries"]).open(encoding="utf-8") as lines:
        for line in lines:
            user, text = json.loads(line)
            yield user, text


def resident_mb() -> float:
    """Resident memory of this process in MB; Linux only."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


def _refused(self: socket.socket, address: Any) -> None:
    raise OSError("this benchmark has no network: a connection was asked for")
