"""What the examples of each framework print."""

from __future__ import annotations

import textwrap
from collections.abc import AsyncIterable, Iterable
from typing import Protocol, TypeVar

from rmm_core import ReflectiveMemory

_WIDTH = 112


class Piece(Protocol):
    """A part of an answer: LangChain's message chunks, and ours; LlamaIndex's are plain words."""

    @property
    def text(self) -> str: ...


Chunk = TypeVar("Chunk", bound=Piece | str)


def session(title: str) -> None:
    """The heading of a session."""
    print(f"\n{title}\n{'-' * len(title)}")


def says(name: str, text: str) -> None:
    """One line of the talk."""
    print(textwrap.fill(text, _WIDTH, initial_indent=f"{name + ':':<7}", subsequent_indent=" " * 7))


def streams(name: str, chunks: Iterable[Chunk]) -> list[Chunk]:
    """One line of the talk, while it is said; what was said piece by piece, afterwards."""
    print(f"{name + ':':<7}", end="", flush=True)
    shown = []
    for chunk in chunks:
        print(chunk if isinstance(chunk, str) else chunk.text, end="", flush=True)
        shown.append(chunk)
    print()
    return shown


async def astreams(name: str, words: AsyncIterable[str]) -> None:
    """The same for event loops."""
    print(f"{name + ':':<7}", end="", flush=True)
    async for word in words:
        print(word, end="", flush=True)
    print()


def cites(memory: ReflectiveMemory, user_id: str, memory_ids: Iterable[str]) -> None:
    """The memories that the last line rests on, those aside that a tool deleted meanwhile."""
    held = {kept.id: kept.summary for kept in memory.memories(user_id)}
    rests_on(held[memory_id] for memory_id in memory_ids if memory_id in held)


def rests_on(texts: Iterable[str]) -> None:
    """What the last line rests on."""
    for text in texts:
        print(f"       <- {textwrap.shorten(text, _WIDTH - 10, placeholder=' ...')}")


def bank(memory: ReflectiveMemory, user_id: str) -> None:
    """What is kept of a user in the end, and what was learned."""
    session(f"What the memory holds of {user_id}")
    for kept in memory.memories(user_id):
        print(textwrap.fill(kept.summary, _WIDTH, initial_indent="  - ", subsequent_indent="    "))
    status = memory.status(user_id)
    print(f"\n  sessions: {len(status.sessions)}, turns: {status.turns}, ", end="")
    print(f"updates of the reranker by citations, of all users together: {status.learner.updates}")
