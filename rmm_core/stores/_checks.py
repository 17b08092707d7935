"""What can be wrong with the rows of a memory: how it is found, and how it is mended.

Functions here run inside the caller's transaction. They are written in what SQLite and PostgreSQL have in common.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from rmm_core import errors
from rmm_core.checkup import Finding, FindingKind
from rmm_core.stores._rows import time_text
from rmm_core.stores._sql import Sql


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that can be wrong with rows of one table.

    Attributes:
        kind: See :class:`~rmm_core.checkup.Finding`.
        table: The table.
        where: The condition that its damaged rows meet; ``{width}`` and ``{now}`` are the database's own expressions
            for the width of an embedding and for the time.
        what: What is wrong.
        remedy: What to do about it, or what mending did.
        mend: The statement that mends the rows, up to its condition; empty when there is none.
        reindex: Whether searches have to read the user's bank anew.
    """

    kind: FindingKind
    table: str
    where: str
    what: str
    remedy: str
    mend: str = ""
    reindex: bool = False

    @property
    def repairable(self) -> bool:
        """Whether it can be mended here."""
        return bool(self.mend) or self.reindex

    def finding(self, user_id: str, count: int, *, mended: bool = False) -> Finding:
        """What is told of ``count`` damaged rows of a user."""
        remedy = f"call repair(): {self.remedy}" if self.repairable and not mended else self.remedy
        return Finding(self.kind, user_id, f"{self.what}: {count}", remedy, self.repairable)


_TURNS = (
    "(SELECT coalesce(max(t.position) + 1, 0) FROM turns t"
    " WHERE t.user_id = sessions.user_id AND t.session_id = sessions.id)"
)
_COUNT = f"CASE WHEN sessions.turns < {_TURNS} THEN {_TURNS} ELSE sessions.turns END"

FAULTS = (
    Fault(
        "evidence",
        "evidence",
        "NOT EXISTS (SELECT 1 FROM turns t WHERE t.user_id = evidence.user_id"
        " AND t.session_id = evidence.session_id AND t.position = evidence.position)",
        "pieces of evidence that point to no turn",
        "they are dropped, and the bank is indexed anew",
        "DELETE FROM evidence",
        reindex=True,
    ),
    Fault(
        "evidence",
        "evidence",
        "NOT EXISTS (SELECT 1 FROM memories m WHERE m.user_id = evidence.user_id AND m.id = evidence.memory_id)",
        "pieces of evidence of no memory, which keep their turns from being deleted",
        "they are dropped",
        "DELETE FROM evidence",
    ),
    Fault(
        "evidence",
        "memories",
        "NOT EXISTS (SELECT 1 FROM evidence e JOIN turns t"
        " ON t.user_id = e.user_id AND t.session_id = e.session_id AND t.position = e.position"
        " WHERE e.user_id = memories.user_id AND e.memory_id = memories.id)",
        "memories that rest on no turn any more",
        "their summaries are all that is left: look at those without evidence in memories(), and delete what says"
        " nothing by itself",
    ),
    Fault(
        "width",
        "memories",
        "{width} <> coalesce((SELECT value FROM settings WHERE name = 'width'), 0)",
        "embeddings of another width than the store's",
        "call reembed()",
    ),
    Fault(
        "turns",
        "sessions",
        f"sessions.turns < {_TURNS}",
        "sessions that have more turns than they count",
        "they are counted anew",
        f"UPDATE sessions SET turns = {_TURNS}",
    ),
    Fault(
        "turns",
        "sessions",
        f"reflected < 0 OR reflected > {_COUNT}",
        "sessions of which more is marked as reflected than there is, or less than nothing",
        "the mark is set to what there is: all, or nothing",
        f"UPDATE sessions SET reflected = CASE WHEN reflected < 0 THEN 0 ELSE {_COUNT} END",
    ),
    Fault(
        "lease",
        "sessions",
        "holder <> '' AND held_until < {now}",
        "sessions that a worker took for reflection, and never gave back",
        "they are free",
        "UPDATE sessions SET holder = '', held_until = 0",
    ),
)


def damaged(db: Sql, fault: Fault, own: Mapping[str, str], user_id: str | None = None) -> list[tuple[str, int]]:
    """Whose rows have a fault, and how many; of one user, or of everybody.

    Args:
        db: A transaction.
        fault: What to look for.
        own: The database's own expressions.
        user_id: Whose rows to look at.
    """
    only, values = ("", ()) if user_id is None else (" AND user_id = ?", (user_id,))
    rows = db.execute(
        f"SELECT user_id, count(*) FROM {fault.table} WHERE ({fault.where.format(**own)}){only}"
        " GROUP BY user_id ORDER BY user_id",
        values,
    )
    return [(name, int(count)) for name, count in rows]


def mend(db: Sql, fault: Fault, own: Mapping[str, str], user_id: str) -> None:
    """Mend a user's rows that have a fault."""
    if fault.mend:
        db.execute(f"{fault.mend} WHERE ({fault.where.format(**own)}) AND user_id = ?", (user_id,))


def outdated(place: str, held: int, known: int) -> Iterator[Finding]:
    """What is told of a schema that is not this version's."""
    if held != known:
        remedy = "upgrade reflective-memory" if held > known else "open it again: that brings it up to date"
        yield Finding("schema", None, f"{place} has schema {held}, and this version knows {known}", remedy, False)


def waiting(db: Sql, idle_since: datetime) -> Iterator[Finding]:
    """Sessions with turns the bank does not know that ended, fell silent, or could not be reflected."""
    rows = db.execute(
        "SELECT user_id, id, turns - reflected, attempts, error FROM sessions WHERE reflected < turns"
        " AND (ended OR last_at < ? OR attempts > 0) AND user_id NOT IN (SELECT user_id FROM declined)"
        " ORDER BY user_id, started_at, id",
        (time_text(idle_since),),
    )
    for user_id, session_id, count, attempts, error in rows:
        what = f"turns of session {session_id!r} that were not reflected yet: {count}"
        failed = f"; failed attempts: {attempts}{_kind(error)}" if attempts else ""
        yield Finding("pending", user_id, f"{what}{failed}", "call reflect_pending()", repairable=False)


def _kind(error: str) -> str:
    """With what kind of error a reflection failed; its message may hold what a user or a model said."""
    name = error.partition(":")[0]
    return f", the last time with {name}" if isinstance(getattr(errors, name, None), type) else ""


def learners(db: Sql) -> list[str]:
    """Under what learners saved states."""
    return [scope for (scope,) in db.execute("SELECT scope FROM learners ORDER BY scope")]


def unreadable(scope: str, *, mended: bool = False) -> Finding:
    """What is told of a state that cannot be read."""
    whose = scope.removeprefix("good:").removeprefix("base:")
    user_id = whose.removeprefix("user:") if whose.startswith("user:") else None
    what = "what the reranker learned" if whose == scope else "an earlier state that the reranker may go back to"
    remedy = "it is removed, and learning starts from the log" if whose == scope else "it is removed"
    return Finding("learner", user_id, f"{what} cannot be read", remedy if mended else f"call repair(): {remedy}", True)


def remove_learner(db: Sql, scope: str, version: int) -> bool:
    """Remove a state, unless another was saved meanwhile; whether it was."""
    return bool(db.execute("DELETE FROM learners WHERE scope = ? AND version = ?", (scope, version)).rowcount)
