"""The page as one document: style, data and script inside, and a policy that lets nothing else in."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib.resources import files
from typing import Any

_SCRIPTS = ("dom", "source", "memories", "detail", "talk", "learning", "ask", "page")


def head(policy: str = "") -> str:
    """The document up to where its data stand.

    Args:
        policy: What it may load, when no header says so.
    """
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">' if policy else ""
    return _template()[0].replace("<!--policy-->", meta)


def tail() -> str:
    """The document from behind its data on."""
    return _template()[1]


def data(name: str, value: Any) -> str:
    """A value for the script to read: no browser takes any of it for markup, whatever is in it."""
    text = json.dumps(value, separators=(",", ":"))  # ASCII alone, so U+2028 stands as an escape
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json" id="{name}">{text}</script>\n'


@cache
def policy(*more: str) -> str:
    """A Content-Security-Policy: our own script and style, by their hashes, and no markup made of strings."""
    rules = [
        "default-src 'none'",
        f"script-src {_hash(_script())}",
        f"style-src {_hash(_style())}",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
    return "; ".join([*rules, *more])


@cache
def _template() -> tuple[str, str]:
    page = _read("page.html").replace("<!--style-->", f"<style>{_style()}</style>")
    before, _, after = page.partition("<!--data-->")
    return before, after.replace("<!--script-->", f'<script type="module">{_script()}</script>')


@cache
def _script() -> str:
    return "\n".join(_read(f"{name}.js") for name in _SCRIPTS)


@cache
def _style() -> str:
    return _read("style.css")


def _read(name: str) -> str:
    return files(__package__).joinpath("page", name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
