"""What a host's documents or nodes carry in their metadata, so that an answer that cites them can be learned from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rmm_core.errors import InputError
from rmm_core.prompts import NO_CITE
from rmm_core.recall import Recall
from rmm_core.types import CitationStatus, Shown


def citable(recall: Recall, number: int) -> dict[str, Any]:
    """The number that a text is cited by, and the recall it was ranked in."""
    return {"index": number, "recall_id": recall.id, "user_id": recall.user_id}


def described(recall: Recall, shown: Shown) -> dict[str, Any]:
    """:func:`citable`, and what there is to know of a memory: plain data."""
    memory = shown.memory
    return {
        **citable(recall, shown.number),
        "memory_id": memory.id,
        "kind": memory.kind,
        "summary": memory.summary,
        "created_at": memory.created_at.isoformat(),
        "updated_at": memory.updated_at.isoformat(),
        "evidence": [{"session_id": ref.session_id, "index": ref.index} for ref in memory.evidence],
    }


def marker(recall: Recall, memory_ids: Sequence[str], status: CitationStatus) -> str:
    """The marker that an earlier answer has in the numbers of this recall; empty when it has none there."""
    numbers = {shown.memory.id: shown.number for shown in recall.shown}
    found = sorted(numbers[i] for i in memory_ids if i in numbers)
    if found:
        return f"[{', '.join(map(str, found))}]"
    return NO_CITE if status == "none" and recall.shown else ""


def recalls_of(metadata: Iterable[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """The users and the ids of the recalls that texts come from."""
    return {(m["user_id"], m["recall_id"]) for m in metadata if "recall_id" in m}


def only_recall(metadata: Iterable[Mapping[str, Any]], called: str) -> tuple[str, str] | None:
    """The user and the id of the recall that texts come from; None when they are of none.

    Args:
        metadata: Theirs.
        called: What the host calls such texts.

    Raises:
        InputError: When they are of several: numbers would not tell which.
    """
    keys = recalls_of(metadata)
    if len(keys) > 1:
        raise InputError(f"these {called} come from several recalls: an answer is learned from with those of one")
    return next(iter(keys), None)


def distinct(names: Iterable[str]) -> list[str]:
    """Names, one that came before with its place added."""
    found: dict[str, None] = {}
    for place, given in enumerate(names):
        name = given
        while name in found:
            name = f"{name} ({place})"
        found[name] = None
    return list(found)
