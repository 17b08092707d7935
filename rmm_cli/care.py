"""Commands that look after a memory: what is wrong with it, and how it stands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from rmm_cli.counts import counted
from rmm_cli.decisions import changes, decision
from rmm_cli.opening import Opening
from rmm_cli.output import Column, Output
from rmm_cli.text import plural, size
from rmm_core import Finding, LearningStep, ReflectiveMemory

_FINDINGS = (Column("kind"), Column("user"), Column("what is wrong, and what to do about it"))
_COMMANDS = {
    "call repair()": "rmm doctor --repair",
    "call reembed()": "rmm reembed",
    "call reflect_pending()": "rmm reflect",
    "export_user()": "rmm export",
}


def doctor(
    at: Opening,
    out: Output,
    repair: Annotated[bool, typer.Option("--repair", help="Mend what can be mended.")] = False,
) -> None:
    """Look for what is wrong; exit code 1 when something is, and stays so."""
    with at.memory() as memory:
        mended = memory.repair() if repair else ()
        left = memory.check()
    if out.json:
        out.document({"mended": mended, "findings": left})
    else:
        _tell(out, "Mended:", mended)
        _tell(out, "Still there:" if mended else "", left)
        if not left:
            out.line(f"nothing is wrong with {at.shown}")
        elif not repair and any(f.repairable for f in left):
            out.note(f"{plural(sum(f.repairable for f in left), 'finding')} can be mended: --repair")
    if left:
        raise typer.Exit(1)


def _tell(out: Output, title: str, findings: Sequence[Finding]) -> None:
    if findings and title:
        out.line(title)
    if findings:
        out.entries(_FINDINGS, [[f.kind, f.user_id or "-", _told(f)] for f in findings])


def _told(finding: Finding) -> str:
    """What is wrong and the remedy, which the library names by its methods, by our commands."""
    remedy = finding.remedy
    for method, command in _COMMANDS.items():
        remedy = remedy.replace(method, command)
    return f"{finding.what} ({remedy})" if remedy else finding.what


def stats(at: Opening, out: Output) -> None:
    """How the whole memory stands: counts, size, what was learned, and whether it serves."""
    with at.memory() as memory:
        found = _counts(memory) | {"bytes": _bytes(at.place), "store": at.shown}
        with out.waiting("Learning the log anew ..."):
            learners = [_learner(memory, user_id) for user_id in _of_each_learner(memory)]
    if out.json:
        return out.document({**found, "learners": learners})
    out.line(found["store"])
    facts = {name: f"{found[name]:,}" for name in _COUNTED}
    if found["bytes"] is not None:
        facts["on disk"] = size(found["bytes"])
    for name, value in facts.items():
        out.line(f"{name:<9}{value:>12}", indent=2)
    for learner in learners:
        out.line()
        _tell_learner(out, learner)
    return None


_ANYBODY = "anybody"
_COUNTED = ("users", "sessions", "pending", "turns", "topics", "unfiled", "declined")


def _counts(memory: ReflectiveMemory) -> dict[str, Any]:
    users = [counted(memory, user_id) for user_id in memory.users()]
    sums = {
        name: sum(getattr(c, name) for c in users) for name in ("sessions", "pending", "turns", "topics", "unfiled")
    }
    return {"users": len(users), **sums, "declined": sum(not c.consents for c in users)}


def _bytes(place: str) -> int | None:
    """Of the file and its log; None for a database, which tells by itself."""
    files = [Path(place + ending) for ending in ("", "-wal")]
    return None if "://" in place else sum(f.stat().st_size for f in files if f.exists())


def _of_each_learner(memory: ReflectiveMemory) -> Iterable[str]:
    users = memory.users()
    if memory.config.learner_scope == "user":
        return users
    learned = memory.status(_ANYBODY).learner.updates > 0  # what all taught stays when they are gone
    return [_ANYBODY] if users or learned else []


def _learner(memory: ReflectiveMemory, user_id: str) -> dict[str, Any]:
    status, curve = memory.status(user_id).learner, memory.learning_curve(user_id)
    own = memory.config.learner_scope == "user"
    return {"user_id": user_id if own else None, **asdict(status), "curve": _summary(curve)}


def _summary(curve: Sequence[LearningStep]) -> dict[str, Any] | None:
    """The learning curve in short: how much was cited early and late, and from where on which ranking served."""
    if not curve:
        return None
    part = max(len(curve) // 4, 1)
    later = [step for step in changes(curve) if step is not curve[0]]
    return {
        "answers": curve[-1].answers,
        "cited_first_quarter": _mean([s.cited for s in curve[:part]]),
        "cited_last_quarter": _mean([s.cited for s in curve[-part:]]),
        "served": [decision(step) for step in (curve[0], *later)],
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _tell_learner(out: Output, learner: dict[str, Any]) -> None:
    whose = "all users" if learner["user_id"] is None else f"user {learner['user_id']!r}"
    out.line(f"The learner of {whose}: {plural(learner['updates'], 'update')}")
    out.line(f"the {learner['ranking']} ranking serves: {learner['reason']}", indent=2)
    if curve := learner["curve"]:
        out.line(f"learned from {plural(curve['answers'], 'answer')}", indent=2)
        first, last = curve["cited_first_quarter"], curve["cited_last_quarter"]
        out.line(f"cited of what was shown: {first:.0%} in the first quarter, {last:.0%} in the last", indent=2)
        for step in curve["served"][1:]:
            out.line(f"from answer {step['answers']:,} on the {step['ranking']} one served", indent=2)
    out.line("weights: " + "  ".join(f"{name}={value:.2f}" for name, value in learner["weights"].items()), indent=2)
