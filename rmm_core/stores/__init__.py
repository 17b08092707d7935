"""Databases that hold a memory: see :class:`rmm_core.protocols.MemoryStore` for what they promise."""

from __future__ import annotations

from os import PathLike, fsencode, fspath
from pathlib import Path
from urllib.parse import urlsplit

from rmm_core.config import RMMConfig
from rmm_core.errors import ConfigError
from rmm_core.protocols import MemoryStore


def open_store(place: str | PathLike[str], config: RMMConfig, key: str | bytes | None = None) -> MemoryStore:
    """The store at a path, at a ``postgresql://`` URL, or in memory for ``":memory:"``; a key encrypts a file.

    Raises:
        ConfigError: For the URL of a database that is not supported, and for a key that cannot be one.
        MissingDependencyError: When there is a key, and the extra ``encryption`` is not installed.
        StoreError: When the file cannot be opened, not with this key, or is something else.
    """
    try:
        place = fspath(place)
        fsencode(place)
    except (TypeError, UnicodeEncodeError) as error:
        raise ConfigError(f"a memory is opened at a path; got {place!r}") from error
    if not isinstance(place, str) or not place.strip() or "\x00" in place:
        raise ConfigError(f"a memory is opened at the path of a file, or ':memory:'; got {place!r}")
    if "://" in place:
        if key is not None:
            raise ConfigError("a key encrypts the file of a memory; a database server encrypts itself: leave key out")
        scheme = place.split("://", 1)[0]
        if scheme not in ("postgresql", "postgres"):
            raise ConfigError(f"no store for {scheme!r} URLs; give the path of a file, or a postgresql:// URL")
        from rmm_core.stores.postgres import PostgresStore

        return PostgresStore(place)
    from rmm_core.stores.sqlite import SQLiteStore

    return SQLiteStore(place, cache_bytes=config.cache_bytes, key=key)


def shown(place: str | PathLike[str]) -> str:
    """A place as it may be written down: an absolute path, or a URL without its passwords."""
    place = fspath(place)
    if "://" not in place:
        return str(Path(place).absolute())
    url = urlsplit(place)
    who, at, host = url.netloc.rpartition("@")
    query = "&".join(part for part in url.query.split("&") if "password" not in part.partition("=")[0])
    return f"{url.scheme}://{who.partition(':')[0]}{at}{host}{url.path}{'?' if query else ''}{query}"
