"""What callers pass in, checked where it comes in."""

from __future__ import annotations

from datetime import UTC, datetime

from rmm_core.errors import InputError


def checked_id(value: str, name: str) -> str:
    """``value`` when it can name a user or a session.

    Raises:
        InputError: When it is no string, blank, or holds what no database can keep.
    """
    if not isinstance(value, str):
        raise InputError(f"{name} is a string; got {type(value).__name__}")
    if not value.strip():
        raise InputError(f"{name} is blank; every call names its user, there is no default one")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{name} holds half a character: {error}") from error
    if "\x00" in value:
        raise InputError(f"{name} holds a NUL character")
    return value


def aware(at: datetime) -> datetime:
    """``at`` with a timezone; a naive time is taken as UTC."""
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at


def now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)
