"""What all peers are given: turns in sessions, questions, and an embedding of every text.

Turns are real ones, of LoCoMo, of MSC and of the user's side of LongMemEval, session by session in a shuffled order, so
that every size is of the same mixture. Where there are not enough, all of them come again under other names of the
speakers. They are kept in blocks, whose last session is cut: a history is some blocks in a row.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import rmm_core
from benchmarks.datasets import Conversation, Sitting
from benchmarks.peers.workers import worker
from benchmarks.peers.workers.worker import key
from rmm_core import Embedder, Message, ReflectiveMemory
from rmm_core.drivers import Services, run
from rmm_core.flow import embed
from rmm_core.types import Matrix

Track: TypeAlias = Callable[[Sequence["Talk"], str], Iterable["Talk"]]
Place: TypeAlias = tuple[int, int]
"""The byte where sessions begin in their file, and how many there are."""

STEP = 1000  # texts embedded at once


@dataclass(frozen=True)
class Talk:
    """A session, and what its speakers are called."""

    name: str
    speakers: tuple[str, str]
    sitting: Sitting

    def lines(self) -> list[str]:
        """Its turns as peers are given them: with the speaker and the captions of pictures."""
        whole = Conversation("", (), (), self.speakers)
        return [whole.line(m) for m in self.sitting.messages]

    def row(self) -> str:
        """The same as a line of a file; ``worker.histories`` reads it."""
        turns = [
            (line, m.role, self.speakers[m.role != "user"] if not m.speaker else m.speaker, m.text, caption(m))
            for line, m in zip(self.lines(), self.sitting.messages, strict=True)
        ]
        return json.dumps([self.name, self.sitting.at.isoformat(), self.speakers, turns])


@dataclass(frozen=True)
class Material:
    """Files that all peers read.

    Attributes:
        folder: Where they are.
        blocks: Where each block of turns is in ``turns.jsonl``.
        size: Turns of a block.
        talks: Where each conversation of LoCoMo is in ``talks.jsonl``.
        about: What it was made of.
    """

    folder: Path
    blocks: list[Place]
    size: int
    talks: dict[str, Place]
    about: dict[str, Any]

    def history(self, first: int, turns: int) -> Place:
        """A user's sessions: so many turns from a block on, and from the first block when the last is over."""
        count = turns // self.size
        start = first * count % max(len(self.blocks) - count + 1, 1)
        part = self.blocks[start : start + count]
        return part[0][0], sum(sessions for _, sessions in part)


def prepared(
    folder: Path, corpora: dict[str, list[Conversation]], embedder: Embedder, turns: int, block: int, track: Track
) -> Material:
    """The material in a folder of its own, made when it is not there.

    Args:
        folder: Of all materials.
        corpora: Conversations by data set; LoCoMo's are what quality is measured on, too.
        embedder: Of everything.
        turns: How many there have to be.
        block: How many make a block.
        track: Wraps sessions, for a progress bar.
    """
    place = folder / _key(corpora, embedder, turns, block)
    about = place / "about.json"
    if not about.exists():
        place.mkdir(parents=True, exist_ok=True)
        about.write_text(json.dumps(_made(place, corpora, embedder, turns, block, track)) + "\n", encoding="utf-8")
    found = json.loads(about.read_text(encoding="utf-8"))
    blocks = [(start, count) for start, count in found.pop("blocks")]
    talks = {name: (start, count) for name, (start, count) in found.pop("talks").items()}
    return Material(place, blocks, block, talks, found)


def _key(corpora: dict[str, list[Conversation]], embedder: Embedder, turns: int, block: int) -> str:
    """All that the material depends on, the code included."""
    made_by = [*Path(rmm_core.__file__).parent.rglob("*.py"), Path(__file__), Path(worker.__file__)]
    hashed = hashlib.blake2b(b"".join(path.read_bytes() for path in sorted(made_by)), digest_size=8)
    asked = [q.text for found in corpora.values() for c in found for q in c.questions]
    hashed.update(json.dumps([turns, block, list(corpora), asked]).encode())
    hashed.update(np.round(embedder.embed(["Who has bees?"]), 2).astype(np.float16).tobytes())
    return hashed.hexdigest()


def _made(
    place: Path, corpora: dict[str, list[Conversation]], embedder: Embedder, turns: int, block: int, track: Track
) -> dict[str, Any]:
    known = Embedded(embedder)
    asked = [(c.name, q.text) for c in corpora["locomo"] for q in c.questions if q.evidence]
    known.whole([text for _, text in asked])
    (place / "asked.jsonl").write_text("".join(f"{json.dumps(pair)}\n" for pair in asked), encoding="utf-8")
    held = {c.name: [Talk(s.id, c.speakers, s) for s in c.sittings] for c in corpora["locomo"]}
    talks = _written(place / "talks.jsonl", held.values())
    pool = blocks(corpora, turns, block)
    places = _written(place / "turns.jsonl", pool)
    every = [talk for part in (*held.values(), *pool) for talk in part]
    known.whole(list(dict.fromkeys(line for talk in every for line in talk.lines())))
    known.reflected(held, [talk for part in pool for talk in part], track)
    known.save(place)
    return {
        "blocks": places,
        "talks": dict(zip(held, talks, strict=True)),
        "conversations": {name: len(found) for name, found in corpora.items()},
        "turns": sum(len(t.sitting.messages) for part in pool for t in part),
        "distinct": len({line for part in pool for t in part for line in t.lines()}),
        "words": float(np.median([len(line.split()) for part in pool for t in part for line in t.lines()])),
    }


def blocks(corpora: dict[str, list[Conversation]], turns: int, size: int) -> list[list[Talk]]:
    """Sessions in blocks of so many turns each, ``turns`` in all at least."""
    found: list[list[Talk]] = [[]]
    room = size
    for number, talk in enumerate(_endless(corpora)):
        messages = talk.sitting.messages[:room]
        found[-1].append(replace(talk, name=f"s{number}", sitting=replace(talk.sitting, messages=messages)))
        room -= len(messages)
        if not room:
            if len(found) * size >= turns:
                return found
            found.append([])
            room = size
    raise ValueError("there is no turn in these data")


def _endless(corpora: dict[str, list[Conversation]]) -> Iterator[Talk]:
    """All sessions, each once, shuffled; then again, the speakers numbered."""
    kept: dict[tuple[str, ...], Talk] = {}
    for conversation in itertools.chain.from_iterable(corpora.values()):
        for sitting in conversation.sittings:
            if sitting.messages:
                said = tuple(m.text for m in sitting.messages)
                kept.setdefault(said, Talk("", conversation.speakers, sitting))
    talks = list(kept.values())
    order = np.random.default_rng(0).permutation(len(talks))
    for again in itertools.count(1) if talks else ():
        yield from (talks[i] if again == 1 else _renamed(talks[i], again) for i in order)


def _renamed(talk: Talk, number: int) -> Talk:
    user, agent = (f"{name} {number}" for name in talk.speakers)
    messages = tuple(replace(m, speaker=user if m.role == "user" else agent) for m in talk.sitting.messages)
    return replace(talk, speakers=(user, agent), sitting=replace(talk.sitting, messages=messages))


def caption(message: Message) -> str:
    """What a picture shows."""
    return " ".join(a.caption for a in message.attachments if a.caption)


def _written(path: Path, parts: Iterable[Sequence[Talk]]) -> list[Place]:
    """Write sessions, one a line; where each part is."""
    places = []
    with path.open("wb") as out:
        for part in parts:
            places.append((out.tell(), len(part)))
            out.writelines(f"{talk.row()}\n".encode() for talk in part)
    return places


class Embedded:
    """An embedder that keeps all it was asked for.

    What this memory embeds beside the turns, sentences and topics, is learned by letting it do so: on LoCoMo as it will
    be asked, elsewhere session by session, so that topics which are merged across sessions are not among it.
    """

    def __init__(self, inner: Embedder) -> None:
        self._inner = inner
        self._rows: dict[int, Matrix] = {}
        self._memory = ReflectiveMemory.open(":memory:", embedder=self)

    def embed(self, texts: Sequence[str]) -> Matrix:
        """See :class:`rmm_core.Embedder`."""
        rows = self._inner.embed(texts)
        for text, row in zip(texts, rows, strict=True):
            self._rows.setdefault(int(key(text)), row)
        return rows

    async def aembed(self, texts: Sequence[str]) -> Matrix:
        """The same."""
        return self.embed(texts)

    def whole(self, texts: Sequence[str]) -> None:
        """Embed texts as this memory does, long ones in parts, and keep each whole one too."""
        for start in range(0, len(texts), STEP):
            part = texts[start : start + STEP]
            rows = run(embed(part), Services(None, self))
            self._rows |= {int(key(text)): row for text, row in zip(part, rows, strict=True)}

    def reflected(self, held: dict[str, list[Talk]], others: Sequence[Talk], track: Track) -> None:
        """Let this memory embed what it will."""
        for name, talks in held.items():
            for talk in talks:
                self._hold(name, talk)
        for talk in track(others, "Embedding"):
            self._hold(talk.name, talk)

    def _hold(self, user: str, talk: Talk) -> None:
        first, second = talk.speakers
        chat = self._memory.chat(user, session_id=talk.name, user_name=first, agent_name=second, at=talk.sitting.at)
        chat.add(*talk.sitting.messages)
        report = chat.end()
        if report.status == "pending":
            raise ValueError(f"{talk.name} was not reflected: {report.error}")

    def save(self, folder: Path) -> None:
        """Write all of it, as ``worker.Vectors`` reads it."""
        self._memory.close()
        keys = np.array(sorted(self._rows), dtype=np.uint64)
        np.save(folder / "keys.npy", keys)
        np.stack([self._rows[int(k)] for k in keys]).astype(np.float32).tofile(folder / "rows.f32")
