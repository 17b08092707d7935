"""What the examples of agents share that the core alone gives a memory: two small steps around each answer."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Sequence

from rmm_core import Answer, CitationStream, Recall
from rmm_core.citable import marker

Turns = Sequence[tuple[str, Answer]]
"""What a user said in a session, and how it was answered."""


async def visible(pieces: AsyncIterable[str], stream: CitationStream) -> AsyncIterator[str]:
    """An answer without its markers, as it comes; ``stream.close()`` says afterwards what it cites."""
    async for piece in pieces:
        yield stream.feed(piece)
    yield stream.close()[0]


def cited_now(answer: Answer, recall: Recall) -> str:
    """An earlier answer as the model may see it: what it cited has the numbers of the present recall.

    A small model cites as it sees itself cite; the numbers of earlier recalls would mean something else by now.
    """
    known = marker(recall, [memory.id for memory in answer.cited], answer.citations.status)
    return f"{answer.text} {known}".rstrip()
