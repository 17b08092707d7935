"""Memories by name: what a LlamaIndex component is saved with is a name, never the bank or its models."""

from __future__ import annotations

import threading
from weakref import WeakValueDictionary

from rmm_core import NotFoundError, ReflectiveMemory
from rmm_core.inputs import fresh_id
from rmm_core.stores import shown

_memories: WeakValueDictionary[str, ReflectiveMemory] = WeakValueDictionary()
_lock = threading.Lock()


def register(memory: ReflectiveMemory, place: str) -> ReflectiveMemory:
    """Know a memory by its place, instead of an older one, as long as the app has it; and return it."""
    if place != ":memory:":  # every one of those is a bank of its own
        with _lock:
            _memories[shown(place)] = memory
    return memory


def name_of(memory: ReflectiveMemory) -> str:
    """The name of a memory; one that nobody named gets one, which no other process knows."""
    with _lock:
        known = next((name for name, m in list(_memories.items()) if m is memory), None)
        name = known or f"memory-{fresh_id()}"
        _memories[name] = memory
        return name


def memory_of(name: str) -> ReflectiveMemory:
    """The memory of this name.

    Raises:
        NotFoundError: When it is not open in this process.
    """
    memory = _memories.get(name)
    if memory is None:
        raise NotFoundError(
            f"the memory {name!r} is not open in this process: call llamaindex_rmm.open_memory({name!r}, ...) "
            "before what was saved is restored, with its key if it is encrypted (keys are not saved); "
            f"open are {sorted(_memories) or 'none'}"
        )
    return memory
