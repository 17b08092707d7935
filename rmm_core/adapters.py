"""What adapters of frameworks check."""

from __future__ import annotations

from typing import Any

from rmm_core.errors import ConfigError
from rmm_core.memory import ReflectiveMemory


def checked_memory(memory: Any, made_by: str) -> ReflectiveMemory:
    """A memory, as adapters take one.

    Args:
        memory: What should be one.
        made_by: The function that makes one there.

    Raises:
        ConfigError: When it is something else, such as the path of one.
    """
    if not isinstance(memory, ReflectiveMemory):
        raise ConfigError(f"memory is what {made_by} returns; got {type(memory).__name__}")
    return memory
