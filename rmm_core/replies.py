"""A model's reply without its markers, where brackets may be markers at all."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from rmm_core.citations import MOST, CitationStream, parse_citations
from rmm_core.prompts import beside_memories
from rmm_core.types import Citations

_BEFORE = ("Action Input:", "<execute>")  # what follows is a tool's or a program's
_HANDED_ON = re.compile("|".join(map(re.escape, _BEFORE)))
_DATA = re.compile(r"\s*(?:\{\s*[\"}]|\[\s*[{\"]|\[\s*\[(?!\s*\d{1,3}\s*\]\s*\])\s*[\d\[{\"-])")  # begins JSON
_OPENING = re.compile(r"\s*(?:\{\s*|\[\s*(?:\[\s*(?:\d{1,3}\s*(?:\]\s*)?)?)?)?\Z")  # what may yet begin like this
_SOURCE = re.compile(r"^[ \t]*\[\d{1,3}\](?!\s*\Z)", re.MULTILINE)


def brackets_are_ours(asked: str, around: Iterable[str]) -> bool:
    """Whether bracketed numbers in a reply can only be markers.

    They cannot be told from others where the request has such numbers itself, beside the memories: footnotes in what
    the user says now, or a list of sources that a tool found or the app put into its instructions.

    Args:
        asked: What the user says now.
        around: What the system says and tools returned: brackets count there that begin a line, as those of sources do.
    """
    if any(_SOURCE.search(beside_memories(text)) for text in around):
        return False
    return parse_citations(beside_memories(asked), MOST).status == "silent"


def is_data(text: str) -> bool:
    """Whether a whole reply is structured output."""
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return isinstance(value, dict) or (isinstance(value, list) and not all(isinstance(v, int) for v in value))


class ReplyReader:
    """Takes the markers out of one reply, whole or in pieces; JSON and what is handed to a tool stay as they are.

    Args:
        count: How many memories the model was shown.
        ours: Whether bare numbers are markers: :func:`brackets_are_ours`.
    """

    def __init__(self, count: int, *, ours: bool = True) -> None:
        self._stream: CitationStream | None = CitationStream(count, bare=ours)
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
        if handed := _HANDED_ON.search(text):
            before, rest = text[: handed.start()], text[handed.start() :]
            return self._show(self._stream.feed(before) + self._end(self._stream) + rest)
        held = max(n for mark in _BEFORE for n in range(len(mark)) if text.endswith(mark[:n]))
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
