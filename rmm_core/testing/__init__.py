"""For the tests of apps, models and stores that use this package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmm_core.testing.fakes import HashEmbedder, ScriptedLLM

if TYPE_CHECKING:
    from rmm_core.testing.contract import MemoryStoreContract

__all__ = ["HashEmbedder", "MemoryStoreContract", "ScriptedLLM"]


def __getattr__(name: str) -> Any:
    """Load the contract when it is asked for: it needs pytest, the fakes do not."""
    if name == "MemoryStoreContract":
        from rmm_core.testing.contract import MemoryStoreContract

        return MemoryStoreContract
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
