"""What users said, made harmless: a terminal takes it for text, whatever is in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime
from difflib import get_close_matches
from typing import Any
from unicodedata import category

_RISKY = ("Cc", "Cf", "Cs", "Zl", "Zp")  # control, invisible and direction, half characters, other line breaks
_JOINERS = "\u200c\u200d"  # of Persian, and of emoji
_RISKY_IN_JSON = re.compile("[\x7f-\x9f\u00ad\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def printable(text: str) -> str:
    """``text`` on one line, with control characters and whatever turns a line around written as escapes."""
    if text.isprintable():
        return text
    return "".join(map(_printable, re.sub(r"\s*[\r\n\t]\s*", " ", text)))


def lines(text: str) -> list[str]:
    """The lines of ``text``, each :func:`printable`."""
    return [printable(line.rstrip("\r")) for line in text.split("\n")]


def _printable(character: str) -> str:
    if category(character) in _RISKY and character not in _JOINERS:
        return character.encode("unicode_escape").decode()
    return character


def as_json(value: Any, *, indent: int | None = None, ascii_only: bool = False) -> str:
    """A value of the core as JSON; what a terminal would obey stands as an escape in it."""
    return harmless_json(json.dumps(_plain(value), ensure_ascii=ascii_only, indent=indent))


def harmless_json(text: str) -> str:
    """JSON as it was, for who parses it, and harmless for a terminal: JSON itself escapes only some of it."""
    return _RISKY_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value.isoformat() if isinstance(value, date) else value


def day(at: datetime) -> str:
    """A day, in UTC."""
    return at.astimezone(UTC).strftime("%Y-%m-%d")


def minute(at: datetime) -> str:
    """A time to the minute, in UTC."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M")


def size(count: int) -> str:
    """A number of bytes, for people."""
    amount, units = float(count), ["bytes", "kB", "MB", "GB", "TB"]
    while amount >= 1000 and len(units) > 1:
        amount, units = amount / 1000, units[1:]
    return f"{amount:.3g} {units[0]}" if amount < 1000 else f"{amount:,.0f} {units[0]}"


def plural(count: int, what: str, many: str = "") -> str:
    """``1 turn``, ``2 turns``."""
    return f"{count:,} {what if count == 1 else many or f'{what}s'}"


def near(name: str, known: Iterable[str], how: str = "did you mean {}?", *, cutoff: float = 0.6) -> str:
    """A hint at names like ``name``, to be put after a message; empty when there are none."""
    close = get_close_matches(name, list(known), n=3, cutoff=cutoff)
    return f"; {how.format(' or '.join(map(repr, close)))}" if close else ""
