"""What callers pass in, checked where it comes in."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from rmm_core.config import RMMConfig
from rmm_core.errors import ConfigError, InputError
from rmm_core.protocols import LLM, Embedder
from rmm_core.types import Attachment, Message

_LONGEST_ID = 512  # bytes: a user, a session and a key must fit into one row of an index of PostgreSQL's


def checked_id(value: str, name: str) -> str:
    """``value`` when it can name a user or a session.

    Raises:
        InputError: When it is no string, blank, too long, or holds what no database can keep.
    """
    if not isinstance(value, str):
        raise InputError(f"{name} is a string; got {type(value).__name__}")
    if not value.strip():
        raise InputError(f"{name} is blank; there is no default one")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise InputError(f"{name} holds half a character: {error}") from error
    if "\x00" in value:
        raise InputError(f"{name} holds a NUL character")
    if size > _LONGEST_ID:
        raise InputError(f"{name} is {size} bytes long, and {_LONGEST_ID} is the most: use a hash of it")
    return value


def sought_id(value: str, name: str) -> str:
    """``value`` as the id of something that may not be there: what no database can hold is the id of nothing.

    Raises:
        InputError: When it is no string.
    """
    return checked_text(value, name).replace("\x00", "\ufffd")


def checked_m(top_m: int | None) -> int | None:
    """``top_m``, or None for the configured one.

    Raises:
        InputError: When it is no whole number of at least 0.
    """
    return None if top_m is None else checked_count(top_m, "top_m")


def checked_count(value: int, name: str) -> int:
    """``value`` when it is a whole number of at least 0.

    Raises:
        InputError: When it is something else.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InputError(f"{name} is a whole number of at least 0; got {value!r}")
    return value


def fresh_id() -> str:
    """An id that was never given before."""
    return os.urandom(16).hex()


def checked_text(value: Any, name: str) -> str:
    """``value`` as text that every database and model takes: half characters are replaced.

    Raises:
        InputError: When it is no string.
    """
    if not isinstance(value, str):
        raise InputError(f"{name} is a string; got {type(value).__name__}")
    return whole(value)


def whole(text: str) -> str:
    """``text`` with lone surrogates, such as half an emoji, replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def checked_message(message: Any) -> Message:
    """``message`` with its parts checked, and its text and time brought into form.

    Raises:
        InputError: When it is no message, or says it is from somebody other than user or agent.
    """
    if not isinstance(message, Message):
        raise InputError(f"a message is a rmm_core.Message; got {type(message).__name__}")
    if message.role not in ("user", "agent"):
        raise InputError(
            f"a message is of the 'user' or the 'agent'; got {message.role!r}. "
            "System and tool messages are not part of what is remembered"
        )
    if not all(isinstance(a, Attachment) for a in message.attachments):
        raise InputError("attachments are rmm_core.Attachment values")
    return replace(
        message,
        text=checked_text(message.text, "a message's text"),
        speaker=checked_text(message.speaker, "a speaker"),
        key=checked_id(message.key, "a message's key") if message.key else "",
        attachments=tuple(_checked_attachment(a) for a in message.attachments),
        at=None if message.at is None else aware(message.at),
    )


def _checked_attachment(attachment: Attachment) -> Attachment:
    texts = {name: checked_text(getattr(attachment, name), f"an attachment's {name}") for name in _ATTACHED}
    return replace(attachment, **texts)


_ATTACHED = ("kind", "uri", "caption")


def aware(at: Any) -> datetime:
    """``at`` with a timezone; a naive time is taken as UTC.

    Raises:
        InputError: When it is no time, or one that UTC has not.
    """
    if not isinstance(at, datetime):
        raise InputError(f"a time is a datetime; got {type(at).__name__}")
    if at.tzinfo is None:
        return at.replace(tzinfo=UTC)
    try:
        at.astimezone(UTC)
    except OverflowError as error:
        raise InputError(f"the time {at} lies outside of the years 1 to 9999 of UTC") from error
    return at


def now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)


def checked_config(config: Any) -> RMMConfig:
    """The settings, the default ones for None.

    Raises:
        ConfigError: When ``config`` is something else.
    """
    if config is None:
        return RMMConfig()
    if not isinstance(config, RMMConfig):
        raise ConfigError(f"config is an RMMConfig; got {type(config).__name__}: write RMMConfig(**settings)")
    return config


def checked_models(llm: Any, embedder: Any) -> Embedder:
    """The embedder, when it and the language model, if any, offer what is asked of them.

    Raises:
        ConfigError: When one of them does not, or there is no embedder.
    """
    if embedder is None:
        raise ConfigError(
            "a memory needs an embedder: pass embedder=..., for example "
            "rmm_core.models.SentenceTransformerEmbedder('all-MiniLM-L6-v2')"
        )
    if not isinstance(embedder, Embedder):
        raise ConfigError(f"an embedder has the methods embed and aembed; {type(embedder).__name__} has not")
    if llm is not None and not isinstance(llm, LLM):
        raise ConfigError(f"a language model has the methods complete and acomplete; {type(llm).__name__} has not")
    return embedder
