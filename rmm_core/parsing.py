"""Replies of the language model, read: extracted memories, and the actions of an update.

Nothing good is lost for something bad beside it. What cannot be used is left out and counted; a
reply with nothing usable in it raises :class:`~rmm_core.errors.ReplyError` and nothing else.

*Extraction.* Every JSON object or list of the reply that holds entries counts, wherever it stands.
What is no strict JSON is cut at the beginning of each object and repaired piece by piece, so a
broken entry costs itself alone. ``NO_TRAIT`` or an empty list means there was nothing to keep; so
does ``NO_TRAIT`` for a summary. An entry without a valid turn is left out: that is also how one that
was cut off in mid-sentence looks after a repair.

*Actions.* An action begins a line, behind at most a bullet, a number, a quote mark of Markdown or
backticks. A quoted text reaches to its quote and ``)``; any other to the first line that ends in
``)`` with no parenthesis open. Of two merges into one entry the first counts. A merge that cannot be
followed is counted, and becomes an ``Add`` if nothing else is left to do.
"""

# ruff: noqa: RUF001 -- quotes, dashes and commas of other scripts are part of the replies

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from typing import Any

from rmm_core.errors import ReplyError
from rmm_core.inputs import whole
from rmm_core.types import Action, Add, Decision, Extracted, Extraction, Merge

_LONGEST_REPLY = 400_000  # characters; more is a model gone astray
_LONGEST_REPAIR = 200_000  # all that is handed to the repairer, whose time grows with the square of a piece
_LONGEST_PIECE = 8_000
_MOST_BRACKETS = 20  # in a piece; an entry has two or three
_WORK = 5_000_000  # characters that strict parsing may look at, over all places it is tried
_ATTEMPT = 500  # what every try costs of it at least
_LONGEST_RANGE = 1_000

_THOUGHT = re.compile(r"\s*<(think|thinking|reasoning)>", re.IGNORECASE)
_THOUGHT_END = re.compile(r"</(?:think|thinking|reasoning)>", re.IGNORECASE)
_ANSWERS = re.compile(r"\s*(?:[{\[`]|(?:add|merge)\s?\()", re.IGNORECASE)
_NOTHING = re.compile(r"(?i:(?<!\w)NO_TRAIT)(?!\w)|\bNO TRAIT\b")
_EMPTY = re.compile(r"extracted_memories[\"'”’]?\s{0,20}:\s{0,20}\[\s{0,20}\]", re.IGNORECASE)
_JSON = re.compile(r"\{(?=\s*\")|\[(?=\s*[{\"])")
_PIECE = re.compile(r"\{(?=\s{0,20}[\"'“‘]?[A-Za-z_]{1,40}[\"'”’]?\s{0,20}:)")
_FIELDS = re.compile(r"summary|reference", re.IGNORECASE)
_TURNS = re.compile(
    r"(?<![\d.\-])(\d{1,9})(?!\d)(?:\s{0,3}(?:[-–—]|to)\s{0,3}(?:turns?\s)?(\d{1,9})(?!\d))?(?!\.\d)", re.I
)
_EDGES = " .,;:!?\"'`()[]*-…。，！？“”‘’"

_HEAD = re.compile(r"^[ \t>*•`-]{0,16}(?:\(?\d{1,3}[.):][ \t]{0,4})?[`*_]{0,4}(add|merge)[ \t]?\(", re.I | re.M)
_INDEX = re.compile(r"\s{0,9}(?:index\s{0,3}=\s{0,3})?[\[\"'#]{0,2}(\d{1,9})[\]\"']{0,2}\s{0,9}[,，]\s{0,9}", re.I)
_ARGUMENT = re.compile(r"[^,，\n]{0,60}[,，]")
_KEYWORD = re.compile(r"\s{0,9}(?:(?:merged_|new_)?summary\s{0,3}=\s{0,3})?", re.I)
_QUOTES = {'"': '"', "'": "'", "`": "`", "“": "”", "‘": "’"}
_LINE_END = re.compile(r"\)[ \t`*.;,]*$", re.M)
_REMARK = re.compile(r"\)(?=[ \t]{1,4}(?:#|//|[-–—(]|because\b))", re.I)
_TRIES = 20  # closing quotes that are tried for one opening one

# A number too long to be a turn costs its entry at most, never the document or the time to read it.
_DECODER = json.JSONDecoder(parse_int=lambda n: int(n) if len(n) < 10 else None, parse_constant=str, strict=False)


def parse_extraction(reply: str, turns: Container[int]) -> Extraction:
    """Read the memories that an extraction reply holds.

    Args:
        reply: The reply, whatever it looks like.
        turns: The turn numbers that may be referred to.

    Raises:
        ReplyError: When it holds neither a usable entry nor the statement that there is none.
    """
    text, unfinished = _after_thinking(reply)
    entries, empty = _entries(text)
    # In thoughts that never ended the token counts as the last word only.
    nothing = _NOTHING.search(text.rstrip(_EDGES)[-8:] if unfinished else text)
    if not entries:
        if empty or nothing:
            return Extraction(())
        raise ReplyError("no memories and no NO_TRAIT were found", reply)
    told = [entry for entry in entries if not _says_nothing(entry)]
    good = [memory for entry in told if (memory := _memory(entry, turns)) is not None]
    if told and not good:
        raise ReplyError(f"none of {len(told)} memories has a summary and a turn that exists", reply)
    return Extraction(merge_repeats(good), len(told) - len(good))


def parse_actions(reply: str, count: int) -> Decision:
    """Read what an update reply wants done.

    Args:
        reply: The reply, whatever it looks like.
        count: How many summaries were shown; ``Merge`` counts them from 0.

    Raises:
        ReplyError: When it holds no action.
    """
    text = _after_thinking(reply)[0][:_LONGEST_REPAIR].replace("\r\n", "\n").replace("\r", "\n")
    found = list(_actions(text))
    if not found:
        raise ReplyError("no Add() and no Merge(index, summary) were found", reply)
    kept: dict[int, Action] = {}  # -1 stands for the Add
    dropped = 0
    for action in found:
        if isinstance(action, Add):
            kept.setdefault(-1, action)
        elif action is None or action.index >= count or kept.setdefault(action.index, action) != action:
            dropped += 1
    return Decision(tuple(kept.values()) or (Add(),), dropped)


def merge_repeats(memories: Sequence[Extracted]) -> tuple[Extracted, ...]:
    """Make one memory, with the turns of all, of those that say the same.

    The same are summaries that differ in case, in spaces, or in the punctuation around them. The
    first wording stays, where it first stood.
    """
    united: dict[str, Extracted] = {}
    for memory in memories:
        plain = " ".join(memory.summary.casefold().split())
        key = plain.strip(_EDGES) or plain
        first = united.get(key, memory)
        united[key] = Extracted(first.summary, tuple(sorted({*first.reference, *memory.reference})))
    return tuple(united.values())


def _after_thinking(reply: str) -> tuple[str, bool]:
    """The reply without the thoughts in front of it, and whether those never ended."""
    start = _THOUGHT.match(reply)
    end = _THOUGHT_END.search(reply)
    if start and not end:
        return reply[start.end() :], True
    # Some servers keep the opening tag to themselves; a closing one inside a summary is not theirs.
    if end and (start or not _ANSWERS.match(reply)):
        return reply[end.end() :], False
    return reply, False


def _clean(text: str) -> str:
    """One line that any database takes: no lone surrogates, no NUL, single spaces."""
    return " ".join(whole(text).replace("\0", " ").split())


# -- extraction --------------------------------------------------------------------------------


def _entries(text: str) -> tuple[list[Any], bool]:
    """Everything in the reply that means to be a memory, and whether it says that there is none."""
    first = re.search(r"[{\[]", text)
    if first is None:
        return [], False
    text = text[first.start() : first.start() + _LONGEST_REPLY]
    found = list(_strict(text))
    empty = any(not items for _, _, items, _ in found) or bool(_EMPTY.search(text))
    if not any(whole for _, _, _, whole in found):
        found.extend(_repaired(text, [(start, end) for start, end, _, _ in found]))
    found.sort(key=lambda piece: piece[0])
    return [item for _, _, items, _ in found for item in items], empty


def _strict(text: str) -> Iterator[tuple[int, int, list[Any], bool]]:
    """Strict JSON with entries in it: where it stands, the entries, and whether it is a whole reply."""
    at, work = 0, 0
    while (start := _JSON.search(text, at)) and work < _WORK:
        at = start.end()
        try:
            value, end = _DECODER.raw_decode(text, start.start())
        except json.JSONDecodeError as error:
            work += _ATTEMPT + error.pos - start.start()
            continue
        except RecursionError:
            work += 100 * _ATTEMPT
            continue
        items, whole = _items(value)
        work += _ATTEMPT + end - start.start()
        if items is not None:
            yield start.start(), end, items, whole
            at = end


def _items(value: Any) -> tuple[list[Any] | None, bool]:
    """The entries of a parsed value; None when it is something else altogether."""
    if isinstance(value, dict):
        fields = _fields(value)
        if "extracted_memories" in fields:
            inside = fields["extracted_memories"]
            if isinstance(inside, dict | str):
                inside = [inside] if inside else None
            return (inside, True) if isinstance(inside, list) else (None, False)
        return ([value], False) if "summary" in fields or "reference" in fields else (None, False)
    if isinstance(value, list):
        nested = [_items(item)[0] if isinstance(item, dict) else None for item in value]
        if any(items is not None for items in nested):
            return [
                x for v, items in zip(value, nested, strict=True) for x in (items if items is not None else [v])
            ], False
        if value and all(isinstance(v, str) and _NOTHING.search(v) for v in value):
            return value, False
    return None, False


def _fields(entry: dict[str, Any]) -> dict[str, Any]:
    names = {"references": "reference", "memories": "extracted_memories"}
    plain = ((key.strip().casefold().replace(" ", "_"), value) for key, value in entry.items())
    return {names.get(key, key): value for key, value in plain}


def _repaired(text: str, done: list[tuple[int, int]]) -> Iterator[tuple[int, int, list[Any], bool]]:
    """Entries from what is no strict JSON, piece by piece; ``done`` is what strict parsing took."""
    ends = [end for _, end in done]
    starts = [m.start() for m in _PIECE.finditer(text)]
    stops = sorted([*starts, *(start for start, _ in done), len(text)])
    handed = 0
    for start in starts:
        span = bisect.bisect_right(ends, start)
        if span < len(done) and done[span][0] <= start:
            continue
        stop = min(stops[bisect.bisect_right(stops, start)], start + _LONGEST_PIECE)
        # The last number of a reply that was cut off may have lost digits.
        piece = text[start:stop].rstrip("0123456789") if stop == len(text) else text[start:stop]
        nested = piece.count("{") + piece.count("[") > _MOST_BRACKETS
        if nested or handed + len(piece) > _LONGEST_REPAIR or not _FIELDS.search(piece):
            continue
        handed += len(piece)
        items = _items(_repair(piece))[0]
        if items:
            yield start, stop, items, False


def _repair(piece: str) -> Any:
    from json_repair import loads

    for ending in ("}", "]}"):  # cut off behind its last word: no guesses are needed, which do not know every escape
        with suppress(json.JSONDecodeError):
            return _DECODER.decode(piece.rstrip(" \t\r\n,") + ending)
    try:
        return loads(piece, skip_json_loads=True)
    except Exception:  # a heuristic parser met garbage: whatever it says, there is no entry here
        return None


def _says_nothing(entry: Any) -> bool:
    said = _fields(entry).get("summary") if isinstance(entry, dict) else entry
    return isinstance(said, str) and len(said) < 40 and bool(_NOTHING.search(said))


def _memory(entry: Any, turns: Container[int]) -> Extracted | None:
    """An entry as a memory; None when it lacks a summary or a turn that exists."""
    fields = _fields(entry) if isinstance(entry, dict) else {}
    summary = fields.get("summary")
    summary = _clean(summary) if isinstance(summary, str) else ""
    reference = {n for n in _numbers(fields.get("reference")) if n in turns}
    return Extracted(summary, tuple(sorted(reference))) if summary and reference else None


def _numbers(value: Any) -> Iterator[int]:
    """The turn numbers that a reference means, however it is written."""
    if isinstance(value, bool):
        return
    if isinstance(value, int):
        yield value
    elif isinstance(value, float) and value.is_integer() and abs(value) < 1e9:
        yield int(value)
    elif isinstance(value, str):
        for first, last in _TURNS.findall(value):
            low, high = int(first), int(last or first)
            if high - low <= _LONGEST_RANGE:
                yield from range(low, high + 1)
    elif isinstance(value, list):
        for item in value:
            if not isinstance(item, list):
                yield from _numbers(item)


# -- actions -----------------------------------------------------------------------------------


def _actions(text: str) -> Iterator[Add | Merge | None]:
    """The actions in order; None is a merge that cannot be followed."""
    heads = list(_HEAD.finditer(text))
    closers = {quote: _closers(text, quote) for quote in set(_QUOTES.values())}
    done = 0
    stops = [*(head.start() for head in heads), len(text)]
    for head, following in zip(heads, stops[1:], strict=True):
        if head.start() < done:
            continue
        merges = head[1].lower() == "merge"
        index = _INDEX.match(text, head.end(), following) if merges else None
        first = index or (_ARGUMENT.match(text, head.end(), following) if merges else head)
        keyword = _KEYWORD.match(text, first.end() if first else head.end(), following)
        start = keyword.end() if keyword else head.end()
        quoted = _quoted(text, start, closers)
        if quoted is not None:
            done = start + len(quoted) + 2
        if not merges:
            yield Add()
            continue
        said = _unescaped(quoted) if quoted is not None else _unquoted(text[start:following])
        summary = _clean(said)
        usable = index and summary and summary.casefold() not in ("merged_summary", "<merged_summary>")
        yield Merge(int(index[1]), summary) if index and usable else None


def _closers(text: str, quote: str) -> list[int]:
    """Where ``quote`` stands in front of a closing parenthesis."""
    return [m.start() for m in re.finditer(re.escape(quote) + r"(?=\s{0,8}\))", text)]


def _quoted(text: str, start: int, closers: dict[str, list[int]]) -> str | None:
    """The text between the quote at ``start`` and its partner before a ``)``; None when there is no such pair."""
    closing = _QUOTES.get(text[start : start + 1])
    if closing is None:
        return None
    places = closers[closing]
    first = bisect.bisect_right(places, start)
    for place in places[first : first + _TRIES]:
        inside = text[start + 1 : place]
        if _pairs(inside, text[start], closing):
            return inside
    return None


def _pairs(inside: str, opening: str, closing: str) -> bool:
    """Whether the quotes around ``inside`` belong together, and not to quotations within it."""
    plain = re.sub(r"\\.", "", inside, flags=re.DOTALL)
    if plain.endswith("\\"):
        return False  # the closing quote is escaped
    if opening != closing:
        return plain.count(opening) == plain.count(closing) and plain.find(closing) >= plain.find(opening)
    if opening != "'" and plain.count(opening) % 2:
        return False
    quote = re.escape(opening)
    # "Dune" and "Emma": what follows the first inner quote, and precedes the last, is outside of quotations.
    ends_first = re.match(rf"[^{quote}]*(?<=[^\s(]){quote}(?!\w)", plain)
    begins_last = re.search(rf"(?:^|[\s(]){quote}(?=\S)[^{quote}]*\Z", plain)
    return not (ends_first and begins_last)


def _unescaped(inside: str) -> str:
    try:
        return str(json.loads(f'"{inside}"', strict=False))
    except ValueError:
        return re.sub(r"\\([\"'`])", r"\1", inside)


def _unquoted(segment: str) -> str:
    """A merged text without quotes around it; empty when it never ends."""
    depth, at, last = 0, 0, None
    for last in _LINE_END.finditer(segment):
        depth += segment.count("(", at, last.start()) - segment.count(")", at, last.start())
        at = last.start()
        if depth <= 0:
            return _bare(segment[:at])
    if last and not segment[last.end() :].strip(" \t\n`"):
        return _bare(segment[: last.start()])
    remark = _REMARK.search(segment)
    return _bare(segment[: remark.start()]) if remark else ""


def _bare(said: str) -> str:
    """The text without one pair of quotes that encloses all of it."""
    said = said.strip()
    if len(said) < 2 or _QUOTES.get(said[0]) != said[-1]:
        return said
    inner = said[1:-1]
    stray = said[0] == said[-1] and inner.count(said[0]) == 1  # an inch mark, an apostrophe
    return inner if stray or _pairs(inner, said[0], said[-1]) else said
