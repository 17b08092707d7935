"""Databases that hold a memory: see :class:`rmm_core.protocols.MemoryStore` for what they promise."""

from __future__ import annotations

from os import PathLike, fspath

from rmm_core.config import RMMConfig
from rmm_core.errors import ConfigError
from rmm_core.protocols import MemoryStore


def open_store(place: str | PathLike[str], config: RMMConfig) -> MemoryStore:
    """The store at a path, or in memory for ``":memory:"``.

    Raises:
        ConfigError: For the URL of a database that is not supported.
        StoreError: When the file cannot be opened or is something else.
    """
    try:
        place = fspath(place)
    except TypeError as error:
        raise ConfigError(f"a memory is opened at a path; got {place!r}") from error
    if not isinstance(place, str) or not place.strip() or "\x00" in place:
        raise ConfigError(f"a memory is opened at the path of a file, or ':memory:'; got {place!r}")
    if "://" in place:
        raise ConfigError(f"no store for {place.split('://', 1)[0]!r} URLs; give the path of a file")
    from rmm_core.stores.sqlite import SQLiteStore

    return SQLiteStore(place, cache_bytes=config.cache_bytes)
