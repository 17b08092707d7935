"""Memory banks of whole data sets: built once, kept on disk, gone on with after an interruption."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, TypeAlias

from filelock import FileLock

import rmm_core
from benchmarks.datasets import Conversation
from benchmarks.reflectors import RecordedReflector
from benchmarks.replies import CachedLLM
from rmm_core import Embedder, Memory, ReflectiveMemory, RMMConfig

Topics: TypeAlias = Literal["none", "recorded", "extractive", "llm"]
"""Who extracts: nobody, whoever made the data set, the extractive mode, a language model."""

Track: TypeAlias = Callable[[Sequence[Conversation], str], Iterable[Conversation]]


class Banks:
    """The banks of one data set.

    Args:
        folder: Where they are kept.
        data: What the data set is known by: its name and a hash of its content.
        embedder: Of the summaries.
        fingerprint: What the embedder is known by.
        track: Wraps the conversations of a bank being built, for a progress bar.
        llm: Who extracts for ``"llm"``.
    """

    def __init__(
        self,
        folder: Path,
        data: str,
        embedder: Embedder,
        fingerprint: str,
        track: Track,
        llm: CachedLLM | None = None,
    ) -> None:
        self.embedder = embedder
        self._folder = folder
        self._data = data
        self._fingerprint = fingerprint
        self._track = track
        self._llm = llm

    @property
    def extractor(self) -> str:
        """What the language model that extracts is known by, and how it does it."""
        return f"{self._llm.name}, {SMALL_MODEL}" if self._llm is not None else ""

    def copied(self, conversations: Sequence[Conversation], topics: Topics, unfiled: bool, to: Path) -> Path:
        """A bank that holds the conversations, one user each, in a file of the caller's own.

        Raises:
            ValueError: When the topics are to be recorded and the data set has none, or a model's and there is none.
        """
        with (
            closing(sqlite3.connect(self._built(conversations, topics, unfiled))) as whole,
            closing(sqlite3.connect(to)) as own,
        ):
            whole.backup(own)  # what others have written and not yet moved into the file included
        return to

    def topics(self, conversations: Sequence[Conversation], topics: Topics) -> dict[str, tuple[Memory, ...]]:
        """What was extracted from each conversation, by its name."""
        path = self._built(conversations, topics, unfiled=False)
        with ReflectiveMemory.open(path, embedder=self.embedder) as memory:
            return {c.name: memory.memories(c.name, kind="topic") for c in conversations}

    def _built(self, conversations: Sequence[Conversation], topics: Topics, unfiled: bool) -> Path:
        if topics == "recorded" and not any(s.facts for c in conversations for s in c.sittings):
            raise ValueError("this data set has no recorded facts; take --topics extractive, or llm with --llm")
        if topics == "llm" and self._llm is None:
            raise ValueError("topics of a language model need one: --llm URL, or --llm local with --gguf FILE")
        path = self._folder / f"{topics}-{'unfiled-' * unfiled}{self._key(topics, unfiled)}.db"
        self._folder.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock")):  # two that build one bank would hold its sessions twice
            for conversation in self._track(conversations, f"Remembering ({topics})"):
                with ReflectiveMemory.open(
                    path,
                    llm=self._llm if topics == "llm" else None,
                    embedder=self.embedder,
                    config=RMMConfig(unfiled=unfiled, session_turns=None, **(SMALL_MODEL if topics == "llm" else {})),
                    reflector={"none": _NOTHING, "recorded": RecordedReflector(conversation.sittings)}.get(topics),
                ) as memory:
                    _remember(memory, conversation, path)
        return path

    def _key(self, topics: Topics, unfiled: bool) -> str:
        """What a bank depends on, the code that makes banks included."""
        extractor = self.extractor if topics == "llm" else ""
        parts = (self._data, self._fingerprint, topics, str(unfiled), extractor, _code())
        return hashlib.blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()


SMALL_MODEL: dict[str, Any] = {"piece_turns": 10, "merge_floor": 0.6}
"""A small model reads short pieces best, and merges whatever it is offered; a large one does no worse."""

_NOTHING = RecordedReflector(())


def _code() -> str:
    """All that can change what a bank holds, hashed: the core, and how data sets are read and put in."""
    here = Path(__file__).parent
    core = [path for path in Path(rmm_core.__file__).parent.rglob("*.py") if path.stem not in _RANKS]
    sources = [*core, *(here / "datasets").glob("*.py")]
    sources += [here / "banks.py", here / "reflectors.py"]
    return hashlib.blake2b(b"".join(path.read_bytes() for path in sorted(sources))).hexdigest()


_RANKS = frozenset(
    {"_asked", "_index", "_traits", "features", "guard", "learned", "learning", "places", "regression", "reranker"}
    | {"retrospective", "scoring", "trainer"}
)
"""Files of the core that only read what a bank holds."""


def _remember(memory: ReflectiveMemory, conversation: Conversation, path: Path) -> None:
    """Hold the sessions that are not in the bank yet."""
    user_name, agent_name = conversation.speakers
    held = {s.id: s for s in memory.store.sessions(conversation.name)}
    for sitting in conversation.sittings:
        known = held.get(sitting.id)
        if known is not None and known.turns not in (0, len(sitting.messages)):
            raise ValueError(
                f"{path} holds {known.turns} turns of {conversation.name}, {sitting.id}, which has "
                f"{len(sitting.messages)}; delete the file, it is made again"
            )
        if not sitting.messages or (known is not None and known.reflected == len(sitting.messages)):
            continue
        chat = memory.chat(
            conversation.name, session_id=sitting.id, user_name=user_name, agent_name=agent_name, at=sitting.at
        )
        if known is None or not known.turns:
            chat.add(*sitting.messages)
        report = chat.end()
        if report.status == "pending":
            raise ValueError(f"{conversation.name}, {sitting.id}: {report.error}. What is done is kept; run it again")
