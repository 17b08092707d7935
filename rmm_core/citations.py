r"""What an answer cites: markers read and removed, whole or while the answer streams in.

=====================================================  ==========================================
in the answer                                          what it is (``count`` memories were shown)
=====================================================  ==========================================
``[1]`` ``[1, 2]`` ``[1;2]`` ``[1 and 2]`` ``[1-3]``   a marker; ``#`` before a number is fine
``[Memory 2]`` ``[memories 1, 2]``                     a marker, in any case
``[1][2]`` ``[[1]]`` ``【1】`` ``［1］``               markers too
``[NO_CITE]`` ``[no cite]``                            the marker for "none of them"
``[2023]``                                             text: four digits or more
``[link](url)`` ``[1](url)`` ``[^1]`` ``[x]`` ``(1)``  text
``[1]: https://..`` first on its line                  text: a reference definition
``\[1]``, ``[note][1]``, ``m[0][1]``                     text: after a backslash or a shown ``]``
``tea[1].`` (digits right after an ASCII letter,       a marker if all numbers are in range, the word
digit, ``_`` or ``)``)                                 is no code, and prose goes on behind it
``x[1]`` ``my_list[1]`` ``a.items[1]`` ``v2[1]``       text: such words are code
``data[1] = 2`` ``data[1].name`` ``data[12]``          text: no prose behind it, or out of range
in backticks                                           code: to the same run of backticks, or to the
                                                       end of the line, whichever comes first
from a line of three or more backticks or tildes       code: to such a line, or to the end of the text
``[1, 2`` at the very end                              half a marker: hidden, malformed
=====================================================  ==========================================

Blanks right before a marker leave with it, newlines never do; a marker that is first on its line
takes one space after it along. A marker is malformed when a number is not in ``1..count``, when a
range runs backwards, or when ``[NO_CITE]`` stands beside numbers; it is removed like any other.
A comma or semicolon with nothing but two markers around it (``[1], [2]``) leaves with them.
"""

# ruff: noqa: RUF001, RUF002 -- brackets, commas and quotes of other scripts are the subject here

from __future__ import annotations

import re

from rmm_core.types import Citations, CitationStatus

MOST = 999
"""As many memories as markers can name: the count where nobody knows how many were shown."""

_LONGEST = 64  # characters inside a bracket, and blanks before it, that are ever held back
_AHEAD = 16  # characters behind a bracket that are looked at, at most
_BLANKS = " \t\u00a0\u2009\u202f\u3000"
_CLOSING = {"[": "]", "【": "】", "［": "］"}

# No two neighbouring parts can match the same character in two ways: matching stays linear.
_S = r"[ \t\u00a0\u3000]{0,3}"
_ITEM = rf"(?:no[ _-]?cite|(?:mem(?:ory|ories)?{_S})?#?\d{{1,3}}(?:{_S}[-–—]{_S}#?\d{{1,3}})?)"
_SEPARATOR = rf"{_S}(?:[,;&，；、](?:{_S}and)?|and){_S}"
_BODY = re.compile(rf"{_S}{_ITEM}(?:{_SEPARATOR}{_ITEM})*{_S}", re.IGNORECASE)
_PIECE = re.compile(rf"(no[ _-]?cite)|(\d{{1,3}})(?:{_S}[-–—]{_S}#?(\d{{1,3}}))?", re.IGNORECASE)
_WORDS = ("memory 1", "memories 1", "mem 1", "no_cite", "and 1")
_ENDINGS = ("", *sorted({word[i:] for word in _WORDS for i in range(len(word))}))

_SPECIAL = re.compile(r"[\[【［`~]")
_CODE_STOPS = {"`": re.compile(r"[`\n]"), "~": re.compile(r"[~\n]")}
_JOINT = re.compile(r"[ \t]{0,4}[,;]?[ \t]{0,4}")
_INSIDE = re.compile(rf"[^\[\]【】［］(){{}}.:!?`\n]{{0,{_LONGEST + 1}}}")
_BRACKETS = re.compile(r"\[*")
_HALF = re.compile(r"\d|[a-z]{2}", re.IGNORECASE)
_TARGETS = ("http://", "https://", "ftp://", "www.", "mailto:", "<", "/", "#", "./")
_LABELLED = re.compile("[mo]", re.IGNORECASE)  # "memory" and "no_cite" hold one, "and" does not
_ATTRIBUTE = re.compile(r"\w\.\w+\Z")
_WORD = re.compile(r"\w+\Z")
_UNDECIDED = re.compile(r"[ \t]{1,4}[-+*/%|&]?|[.,;:!?)]")
_ASSIGNED = re.compile(r"[ \t]{0,4}[-+*/%|&]?=")
_PROSE = re.compile(r"\Z|[\s\[。，！？；：、…”’\"']|[.,;:!?)](?!\w)")


def parse_citations(text: str, count: int) -> Citations:
    """Read the citations of a whole answer.

    Args:
        text: The answer as the model wrote it.
        count: How many memories it was shown.
    """
    stream = CitationStream(count)
    stream.feed(text)
    return stream.close()[1]


def _completable(body: str) -> bool:
    """Whether what a bracket holds so far can still become a marker."""
    return len(body) <= _LONGEST and any(_BODY.fullmatch(body + ending) for ending in _ENDINGS)


def _read(text: str, start: int) -> tuple[str | None, int]:
    """Read the bracket at ``start``: what it holds and where it ends.

    Returns:
        None and 0 when it is no marker whatever follows; the end is -1 when the text ends too early to tell.
    """
    depth = 2 if text.startswith(text[start] * 2, start) else 1
    inside = _INSIDE.match(text, start + depth)
    body, end = (inside[0], inside.end()) if inside else ("", start + depth)
    closing = _CLOSING[text[start]] * depth
    found = text[end : end + depth]
    if found == closing:
        return (body, end + depth) if len(body) <= _LONGEST and _BODY.fullmatch(body) else (None, 0)
    if end + len(found) == len(text) and closing.startswith(found) and _completable(body):
        return body, -1
    return None, 0


def _defines(rest: str, last: bool) -> bool | None:
    """Whether ``rest``, behind a bracket that is first on its line, makes it a reference definition."""
    target = rest[1:].lstrip(" \t").lower()
    if target.startswith(_TARGETS):
        return True
    undecided = not last and len(rest) < _AHEAD and any(known.startswith(target) for known in _TARGETS)
    return None if undecided else False


def _cites_attached(before: str, rest: str, last: bool) -> bool | None:
    """Whether digits in a bracket directly behind ``before`` cite, and do not index; None: not to be told yet."""
    word = _WORD.search(before)
    if word and not word[0].isdigit() and (len(word[0]) == 1 or not word[0].isalpha() or _ATTRIBUTE.search(before)):
        return False
    if not last and len(rest) < _AHEAD and _UNDECIDED.fullmatch(rest):
        return None
    return bool(_PROSE.match(rest)) and not _ASSIGNED.match(rest)


class CitationStream:
    """Takes an answer in chunks and lets through what is certain to be shown.

    However a text is cut, the same is shown and the same is cited.

    Args:
        count: How many memories the model was shown.
        bare: Whether numbers alone cite. Without, ``[1]`` is text, and ``[Memory 1]`` and ``[NO_CITE]`` are markers.
    """

    def __init__(self, count: int, *, bare: bool = True) -> None:
        self._count = count
        self._bare = bare
        self._numbers: set[int] = set()
        self._none = self._numeric = self._bad = False
        self._held = ""  # not decided yet: blanks, a bracket, and a little behind it
        self._shown: list[str] = []
        self._taken = 0  # how many pieces of it were handed out
        self._before = ""  # the last characters shown since the last marker
        self._fresh = True  # nothing but blanks shown on this line yet
        self._swallow = False  # the next character, if it is a space
        self._joined = False  # nothing shown since the last marker
        self._mode = "prose"  # or "span", "info" (the line that opens a fence), "fence"
        self._mark, self._size = "`", 0  # what opened the code
        self._run, self._run_fresh = 0, False  # an unfinished run of marks

    def feed(self, chunk: str) -> str:
        """Take the next chunk and return the visible text that is certain now."""
        self._advance(chunk, last=False)
        return self._take()

    def close(self) -> tuple[str, Citations]:
        """End the answer: its last visible text, and what all of it cites."""
        self._advance("", last=True)
        tail = self._take()
        return tail, Citations("".join(self._shown), tuple(sorted(self._numbers)), self._status())

    def _take(self) -> str:
        fresh = "".join(self._shown[self._taken :])
        self._taken = len(self._shown)
        return fresh

    def _status(self) -> CitationStatus:
        if self._bad or (self._none and self._numeric):
            return "malformed"
        if self._numbers:
            return "cited"
        return "none" if self._none else "silent"

    def _advance(self, chunk: str, last: bool) -> None:
        text, at = self._held + chunk, 0
        self._held = ""
        while at < len(text):
            if self._run:
                at = self._marks(text, at)
            elif self._swallow:
                self._swallow = False
                at += text[at] == " "
            elif self._mode == "prose":
                at = self._prose(text, at, last)
            else:
                at = self._code(text, at)

    def _show(self, piece: str) -> None:
        if piece:
            self._joined = False
            self._shown.append(piece)
            self._before = (self._before + piece[-40:])[-40:]
            line = piece.rpartition("\n")
            self._fresh = (self._fresh or bool(line[1])) and not line[2].strip()

    def _start_run(self, mark: str) -> None:
        self._run, self._run_fresh = 1, self._fresh
        if self._mode == "prose":
            self._mark = mark
        self._show(mark)

    def _marks(self, text: str, at: int) -> int:
        """Show the rest of a run of backticks or tildes; what ends it tells what the run was."""
        end = at
        while end < len(text) and text[end] == self._mark:
            end += 1
        self._show(text[at:end])
        self._run += end - at
        if end < len(text):
            self._settle(text[end])
        return end

    def _settle(self, follower: str) -> None:
        run, self._run = self._run, 0
        block = self._run_fresh and run >= 3
        if self._mode == "prose":
            if block or self._mark == "`":
                self._mode, self._size = ("info" if block else "span"), run
        elif self._mode == "fence":
            # A word right behind the marks would open another fence; anything else closes this one.
            closes = self._run_fresh and run >= self._size and follower in " \t\r\n[【［"
            self._mode = "prose" if closes else "fence"
        elif run == self._size and self._mark == "`":
            self._mode = "prose"

    def _code(self, text: str, at: int) -> int:
        """Show code up to the next mark that may end it, or the end of its line."""
        found = _CODE_STOPS[self._mark].search(text, at)
        if found is None:
            self._show(text[at:])
            return len(text)
        if found[0] == self._mark:
            self._show(text[at : found.start()])
            self._start_run(self._mark)
        else:
            self._show(text[at : found.end()])
            self._mode = "prose" if self._mode == "span" else "fence"
        return found.end()

    def _prose(self, text: str, at: int, last: bool) -> int:
        """Show prose up to the next bracket or mark, and deal with that."""
        special = _SPECIAL.search(text, at)
        stop = special.start() if special else len(text)
        # Blanks may have to leave with a marker behind them.
        cut = max(at + len(text[at:stop].rstrip(_BLANKS)), stop - _LONGEST)
        if self._joined and (joint := _JOINT.match(text, at)) and joint.end() == stop:
            cut = at  # and so must what only keeps two markers apart
        if special is None:
            self._show(text[at:] if last else text[at:cut])
            self._held = "" if last else text[cut:]
            return len(text)
        self._show(text[at:cut])
        if special[0] in "`~":
            self._show(text[cut:stop])
            self._start_run(special[0])
            return stop + 1
        return self._bracket(text, cut, stop, last)

    def _bracket(self, text: str, cut: int, start: int, last: bool) -> int:
        """Deal with the bracket at ``start``; the blanks before it reach back to ``cut``."""
        body, end = _read(text, start)
        before = " " if cut < start else self._before
        literal = before.endswith(("\\", "]")) or not (self._bare or body is None or _LABELLED.search(body))
        if body is None or (last and end < 0 and (literal or not _HALF.search(body))):
            # Of a long row of brackets only the last two can open a marker.
            run = _BRACKETS.match(text, start)
            shown = start + max(1, (run.end() - start if run else 1) - 2)
            self._show(text[cut:shown])
            return shown
        cites: bool | None = None
        if end >= 0:
            cites = not literal and self._cites(body, before, text[start : start + 2], text[end : end + _AHEAD], last)
        if cites is False:
            self._show(text[cut:end])
            return end
        if cites:
            self._note(body)
            self._before, self._swallow, self._joined = "", self._fresh, True
            return end
        self._bad, self._held = self._bad or last, "" if last else text[cut:]
        return len(text)

    def _cites(self, body: str, before: str, opening: str, rest: str, last: bool) -> bool | None:
        """Whether a bracket of the right form is a marker where it stands; None when more text must tell."""
        if not rest and not last:
            return None
        if rest.startswith("("):
            return False
        if self._fresh and rest.startswith(":"):
            defines = _defines(rest, last)
            return None if defines is None else not defines
        attached = before[-1:].isascii() and (before[-1:].isalnum() or before[-1:] in ("_", ")"))
        if not attached or opening[0] != "[" or opening == "[[" or _LABELLED.search(body):
            return True
        in_range = all(1 <= int(n) <= self._count for n in re.findall(r"\d+", body))
        return in_range and _cites_attached(before, rest, last)

    def _note(self, body: str) -> None:
        for none, first, second in _PIECE.findall(body):
            if none:
                self._none = True
                continue
            low, high = int(first), int(second or first)
            self._numeric = True
            self._bad = self._bad or not 1 <= low <= high <= self._count
            self._numbers.update(range(max(low, 1), min(high, self._count) + 1))
