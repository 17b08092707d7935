"""A model's reply without its markers, where brackets may be markers at all."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rmm_core.citations import CitationStream, parse_citations
from rmm_core.prompts import beside_memories
from rmm_core.types import Citations

_HANDED_ON = ("Action Input:", "<execute>")  # what follows is a tool's or a program's, in agents that reply in text
_DATA = re.compile(r"\s*(?:\{|\[\s*[\[{\"])")  # what begins like this is JSON
_SOURCE = re.compile(r"^[ \t]*\[\d{1,3}\](?!\s*\Z)", re.MULTILINE)
_OPENING = re.compile(r"\s*\[?\s*\Z")  # what may yet begin like this


def brackets_are_ours(request: Iterable[str], found: Iterable[str], count: int) -> bool:
    """Whether bracketed numbers in a reply can only be markers.

    They cannot be told from others where the request has such numbers itself, beside the memories: a text with
    footnotes, pages that a tool found, documents that are to be cited.

    Args:
        request: What the system and the user say in it; not what the model said before.
        found: What tools returned; of their brackets only those count that begin a line, as sources do and data do not.
        count: How many memories it shows.
    """
    if any(_SOURCE.search(text) for text in found):
        return False
    return not parse_citations(beside_memories("\n".join(request)), count).numbers


class ReplyReader:
    """Takes the markers out of one reply, whole or in pieces; JSON and what is handed to a tool stay as they are.

    Args:
        count: How many memories the model was shown.
        ours: Whether brackets are markers: :func:`brackets_are_ours`.
    """

    def __init__(self, count: int, *, ours: bool = True) -> None:
        self._stream: CitationStream | None = CitationStream(count) if ours else None
        self._read = Citations("", (), "silent")
        self._tail = ""  # not certain yet to be read
        self._begun = False
        self.shown = ""

    def feed(self, piece: str) -> str:
        """What of the next piece is certain to be shown."""
        if self._stream is None:
            return self._show(piece)
        text, self._tail = self._tail + piece, ""
        if not self._begun and _OPENING.match(text):
            self._tail = text
            return ""
        if not self._begun and _DATA.match(text):
            self._stream = None
            return self._show(text)
        self._begun = True
        for mark in _HANDED_ON:
            before, found, rest = text.partition(mark)
            if found:
                return self._show(self._stream.feed(before) + self._end(self._stream) + found + rest)
        held = max(n for mark in _HANDED_ON for n in range(len(mark)) if text.endswith(mark[:n]))
        self._tail = text[len(text) - held :]
        return self._show(self._stream.feed(text[: len(text) - held]))

    def close(self) -> tuple[str, Citations]:
        """End the reply: its last visible text, and what all of it cites."""
        tail = ""
        if self._stream is not None:
            tail = self._show(self._stream.feed(self._tail) + self._end(self._stream))
        return tail, Citations(self.shown, self._read.numbers, self._read.status)

    def _end(self, stream: CitationStream) -> str:
        tail, self._read = stream.close()
        self._stream = None
        return tail

    def _show(self, text: str) -> str:
        self.shown += text
        return text
