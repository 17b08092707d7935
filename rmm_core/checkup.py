"""What is wrong with a store, and what can be done about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

FindingKind: TypeAlias = Literal["file", "schema", "evidence", "width", "turns", "index", "pending", "lease", "learner"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be.

    Attributes:
        kind: What is concerned.
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
