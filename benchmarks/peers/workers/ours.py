"""This memory on one SQLite file, as it is by default: sessions are stored as they are said, and reflected as they end.

``default`` extracts topics from the users' own sentences; ``turns`` extracts nothing, so that each turn is one memory,
as with the peers. Both take the public way: ``chat``, ``add``, ``end``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from worker import WIDTH, Session, Turn, Vectors, main

from rmm_core import Attachment, Message, ReflectiveMemory
from rmm_core.extractive import split_sentences
from rmm_core.flow import Flow
from rmm_core.protocols import Extraction


class Lookup:
    """Looks embeddings up. What two topics became when they were merged is seldom known: it gets its parts' mean.

    Of long ones no part may be left whole; they get a direction of their own, made of their words. ``made_up`` counts
    both, and what is asked for quality may hold none.
    """

    def __init__(self, vectors: Vectors) -> None:
        self.vectors = vectors
        self.speakers: tuple[str, ...] = ()
        self.made_up = 0

    def embed(self, texts: Sequence[str]) -> np.ndarray[Any, Any]:
        """See :class:`rmm_core.Embedder`."""
        return np.stack([self._row(text) for text in texts]) if texts else np.zeros((0, 0), dtype=np.float32)

    async def aembed(self, texts: Sequence[str]) -> np.ndarray[Any, Any]:
        """The same."""
        return self.embed(texts)

    def _row(self, text: str) -> np.ndarray[Any, Any]:
        try:
            return self.vectors.row(text)
        except KeyError:
            self.made_up += 1
            rows = [self.vectors.row(part) for part in self._known(text)]
            made = np.mean(rows, axis=0) if rows else np.random.default_rng(crc32(text.encode())).normal(size=WIDTH)
            return np.asarray(made / np.linalg.norm(made), dtype=np.float32)

    def _known(self, text: str) -> list[str]:
        """The sentences of a merged summary, each as it was embedded: with its speaker, who is named once."""
        found = []
        for name in self.speakers:  # a turn need not end in a full stop
            text = text.replace(f" {name}: ", f"\n{name}: ")
        for sentence in (s for line in text.splitlines() for s in split_sentences(line)):
            for line in (sentence, *(f"{name}: {sentence}" for name in self.speakers)):
                try:
                    self.vectors.row(line)
                except KeyError:
                    continue
                found.append(line)
                break
        return found


class Nothing:
    """The reflector that extracts nothing: every turn stays a memory of its own."""

    def extract(self, session: Any, turns: Any) -> Flow[Extraction]:
        """See :class:`rmm_core.Reflector`."""
        yield from ()
        return Extraction(())

    def decide(self, new: Any, turns: Any, similar: Any) -> Flow[Any]:
        """See :class:`rmm_core.Reflector`; never asked."""
        raise NotImplementedError


class Ours:
    """:class:`rmm_core.ReflectiveMemory` with ``RMMConfig()``."""

    persists = True

    def __init__(self, vectors: Vectors, variant: str) -> None:
        self.embedder = Lookup(vectors)
        self.reflector = {"default": None, "turns": Nothing()}[variant]

    def open(self, path: str, users: Sequence[str]) -> None:
        """See :class:`worker.Peer`."""
        self.held = 0
        self.memory = ReflectiveMemory.open(Path(path) / "memory.db", embedder=self.embedder, reflector=self.reflector)

    def ingest(self, user: str, session: Session) -> None:
        """A session that is held and ended."""
        first, second = self.embedder.speakers = session.speakers
        at = datetime.fromisoformat(session.at)
        chat = self.memory.chat(user, session_id=session.name, user_name=first, agent_name=second, at=at)
        chat.add(*map(message, session.turns))
        report = chat.end()
        if report.status not in ("reflected", "nothing"):
            raise RuntimeError(f"session {session.name}: {report.status}, {report.error}")
        self.held += report.added + report.unfiled

    def recall(self, user: str, query: str) -> list[list[str]]:
        """See :class:`worker.Peer`."""
        return [lines(shown.turns) for shown in self.memory.recall(user, query).shown]

    def close(self) -> dict[str, Any]:
        """See :class:`worker.Peer`; how many memories were made, and how many vectors with them."""
        self.memory.close()
        return {"memories": self.held, "made_up": self.embedder.made_up}


def message(turn: Turn) -> Message:
    """A turn as it is stored."""
    photos = (Attachment("image", "", turn.note),) if turn.note else ()
    return Message("user" if turn.role == "user" else "agent", turn.text, turn.speaker, attachments=photos)


def lines(turns: Iterable[Any]) -> list[str]:
    """What stored turns are searched by."""
    return [turn.line for turn in turns]


if __name__ == "__main__":
    main(Ours)
