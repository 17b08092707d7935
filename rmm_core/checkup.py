"""What is wrong with a store, and what can be done about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Literal, Protocol, TypeAlias, cast

from rmm_core.config import RMMConfig
from rmm_core.errors import ConfigError, InputError
from rmm_core.learned import Learned
from rmm_core.protocols import MemoryStore

FindingKind: TypeAlias = Literal["file", "schema", "evidence", "width", "turns", "index", "pending", "lease", "learner"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be.

    Attributes:
        kind: What is concerned: the ``"file"`` itself; its ``"schema"``; the ``"evidence"`` of memories; the
            ``"width"`` of embeddings; how many ``"turns"`` sessions have; the ``"index"`` that searches read; sessions
            whose reflection is ``"pending"``; the ``"lease"`` of a worker that died; what a ``"learner"`` saved.
        user_id: Whose it is; None when it is nobody's alone.
        what: What is wrong, in one sentence, with nothing in it that a user said.
        remedy: What to do about it, or what a repair did; empty when nothing can be done.
        repairable: Whether :meth:`rmm_core.ReflectiveMemory.repair` mends it.
    """

    kind: FindingKind
    user_id: str | None
    what: str
    remedy: str
    repairable: bool


class SelfChecking(Protocol):
    """What a :class:`~rmm_core.protocols.MemoryStore` may offer on top; both databases of this package do."""

    def check(self, *, idle_since: datetime, reads: Callable[[bytes], bool]) -> Sequence[Finding]:
        """Everything that is not as it should be; changes nothing.

        Args:
            idle_since: A session that nobody wrote to since then waits for its reflection.
            reads: Whether what a learner saved can be read.
        """
        ...

    def repair(self, *, reads: Callable[[bytes], bool]) -> Sequence[Finding]:
        """Mend what can be mended; what that was, with what was done about it."""
        ...


def check(store: MemoryStore, config: RMMConfig, now: datetime) -> tuple[Finding, ...]:
    """What is wrong with a store.

    Raises:
        ConfigError: When the store cannot tell.
    """
    idle_since = now - timedelta(minutes=config.idle_minutes)
    return tuple(_checking(store).check(idle_since=idle_since, reads=partial(_reads, config)))


def repair(store: MemoryStore, config: RMMConfig) -> tuple[Finding, ...]:
    """Mend what can be mended of a store; what that was.

    Raises:
        ConfigError: When the store cannot tell.
    """
    return tuple(_checking(store).repair(reads=partial(_reads, config)))


def _checking(store: MemoryStore) -> SelfChecking:
    if not hasattr(store, "check") or not hasattr(store, "repair"):
        raise ConfigError(
            f"{type(store).__name__} cannot be checked: give it the two methods of rmm_core.checkup.SelfChecking"
        )
    return cast(SelfChecking, store)


def _reads(config: RMMConfig, content: bytes) -> bool:
    try:
        Learned.unpack(content, config, version=0)
    except InputError:
        return False
    return True
