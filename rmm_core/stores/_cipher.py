"""Encryption at rest: SQLCipher in the place of SQLite, and what is said when a key does not fit.

A key is handed to SQLCipher and to nothing else: no message, log or ``repr`` holds it, and no object of ours keeps it
once a file is open.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmm_core.errors import ConfigError, MissingDependencyError, WrongKeyError

KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class Key:
    """A key that was checked, as a literal of SQL: pragmas take no bound values.

    ``PRAGMA hexkey``, which needs no quoting, is no way around that: it drops what comes after 40 bytes.
    """

    literal: str = field(repr=False)


def checked_key(key: Any) -> Key:
    """A passphrase, or 32 bytes that are the key themselves, which open at once: nothing is derived from them.

    Raises:
        ConfigError: When it is something else.
    """
    if isinstance(key, bytes):
        if len(key) != KEY_BYTES:
            raise ConfigError(
                f"a key of bytes is {KEY_BYTES} random ones, for example secrets.token_bytes({KEY_BYTES}); "
                f"got {len(key)}. A passphrase is a str"
            )
        return Key(f"\"x'{key.hex()}'\"")  # SQLCipher's sign for a key that is taken as it is
    if not isinstance(key, str):
        raise ConfigError(f"a key is a passphrase (str) or {KEY_BYTES} bytes; got {type(key).__name__}")
    if not key.strip():
        raise ConfigError("the key is blank; give a passphrase, or leave key out for a file that is not encrypted")
    if any("\ud800" <= character <= "\udfff" for character in key):
        raise ConfigError("the key holds half a character; read it as UTF-8, or give 32 bytes")
    if "\x00" in key:
        raise ConfigError("the key holds a NUL character; leave it out, or give 32 bytes")
    quoted = key.replace("'", "''")
    return Key(f"'{quoted}'")


def driver(key: Key | None) -> Any:
    """The DB-API module that opens a file: the standard library's for one without a key.

    Raises:
        MissingDependencyError: When there is a key, and SQLCipher is not installed.
    """
    if key is None:
        return sqlite3
    try:
        from sqlcipher3 import dbapi2  # type: ignore[import-untyped]  # it brings no types
    except ImportError as error:
        raise MissingDependencyError("a memory that is opened with a key", "encryption") from error
    return dbapi2


def unlock(db: sqlite3.Connection, key: Key | None) -> None:
    """Give a fresh connection its key, if any; whether it fits, the first statement that reads tells."""
    if key is not None:
        db.execute("PRAGMA cipher_log_level = NONE")  # it would write to stderr what is raised anyway
        db.execute(f"PRAGMA key = {key.literal}")
        db.execute("PRAGMA cipher_compatibility = 4")  # later versions keep to the format of the files there are


def change_key(db: sqlite3.Connection, key: Key) -> None:
    """Encrypt every page anew, inside of a transaction; SQLCipher commits it by itself.

    Where this fails the connection is of no use any more: it may go on to write with the one key and read with the
    other.
    """
    db.execute(f"PRAGMA rekey = {key.literal}")


def is_unreadable(error: Exception) -> bool:
    """Whether a file was no database to SQLite, or none under this key."""
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB


def check(sql: Any, path: str, key: Key | None) -> None:
    """Try a key on what a crash or another process left beside the file, before anything can be written.

    A connection that ends as the last one tidies the log into the file, whether its key fits or not: this one only
    reads. Without a log there is nothing to tidy.

    Raises:
        WrongKeyError: When the key does not fit.
    """
    try:
        log = Path(f"{Path(path).resolve()}-wal").exists()
    except (OSError, RuntimeError):  # no permission, a name too long, a loop of links: opening will tell
        return
    if log and not reads(sql, path, key, "ro"):
        raise mismatch(sql, path, key)


def reads(sql: Any, path: str, key: Key | None, mode: str) -> bool:
    """Whether a file is a database under this key; in doubt it is, and opening it will tell."""
    try:
        db = sql.connect(f"{Path(path).absolute().as_uri()}?mode={mode}", uri=True)
    except sql.Error:
        return True
    try:
        unlock(db, key)
        db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except sql.Error as error:
        return not is_unreadable(error)
    finally:
        db.close()
    return True


def mismatch(sql: Any, path: str, key: Key | None, *, plain: bool | None = None) -> WrongKeyError:
    """What to say of a file that a key, or none, does not open; ``plain`` when it is known whether it needs none."""
    if key is None:
        return WrongKeyError(
            f"cannot use {path!r} as a memory: it is encrypted, or no SQLite file at all. "
            "An encrypted memory is opened with its key: key=..."
        )
    if reads(sql, path, None, "ro&immutable=1") if plain is None else plain:
        return WrongKeyError(f"cannot use {path!r} as an encrypted memory: it is not encrypted. {TO_ENCRYPT}")
    return WrongKeyError(
        f"cannot open {path!r} with this key: it has another one, or is no encrypted memory. "
        "Nothing was changed; open it with the key that it was given last"
    )


TO_ENCRYPT = (
    "Open it without a key; to encrypt what it holds, open a new file with one, import_user there what export_user "
    "gives here, and delete the old file"
)
