"""The data sets there are readers for, by name."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.datasets import Conversation, jsonl, locomo, longmemeval, msc, users_side


@dataclass(frozen=True, slots=True)
class Source:
    """A data set.

    Attributes:
        name: What it is called.
        file: The file or folder of it that is looked for when none is named; None for a user's own data.
        where: A sentence that says where it is had.
        load: Reads it by path; raises ValueError with a sentence when it is not there or something else.
    """

    name: str
    file: str | None
    where: str
    load: Callable[[str | Path], list[Conversation]]


def fingerprint(path: str | Path) -> str:
    """Tells contents of a file apart, or of a folder with all that is in it."""
    path = Path(path)
    if not path.is_dir():
        return hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()
    files = sorted(file for file in path.rglob("*") if file.is_file())
    listing = "".join(f"{fingerprint(file)} {file.relative_to(path).as_posix()}\n" for file in files)
    return hashlib.blake2b(listing.encode(), digest_size=8).hexdigest()


def _longmemeval(path: str | Path) -> list[Conversation]:
    """The user's messages alone, which are all that LongMemEval's official protocol searches."""
    return [users_side(conversation) for conversation in longmemeval.load(path)]


SOURCES = {
    "locomo": Source("LoCoMo", "locomo10.json", locomo.WHERE, locomo.load),
    "longmemeval": Source(
        "LongMemEval-S, the user's side", "longmemeval_s_dev.json.xz", longmemeval.WHERE, _longmemeval
    ),
    "msc": Source("Multi-Session Chat", "msc", msc.WHERE, msc.load),
    "jsonl": Source("your own data", None, jsonl.WHERE, jsonl.load),
}
