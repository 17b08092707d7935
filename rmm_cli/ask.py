"""The command that asks: what would be brought up for a question, and why."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from rmm_cli.finding import known_user
from rmm_cli.look import User
from rmm_cli.opening import Opening
from rmm_cli.output import Column, Output
from rmm_core import Explanation, Reason


def ask(
    at: Opening,
    out: Output,
    user: User,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What the user would say.")],
    explain: Annotated[bool, typer.Option("--explain", help="Every candidate, with what speaks for it.")] = False,
) -> None:
    """What would be brought up for a question; stores nothing."""
    if not query.strip():
        raise typer.BadParameter("an empty question finds nothing: say what the user would say", param_hint="QUERY")
    with at.memory() as memory:
        found = memory.explain(known_user(memory, user), query)
    shown = sorted((c for c in found.candidates if c.shown is not None), key=_number)
    if out.json:
        return out.document(found if explain else {**_head(found), "shown": [_short(c) for c in shown]})
    if explain:
        return _explain(found, out)
    if not shown:
        return out.note("nothing would be brought up")
    columns = [Column("#", number=True), Column("score", number=True), Column("memory"), Column("summary")]
    return out.entries(
        columns, [[str(c.shown), f"{_serving(found, c):.2f}", c.memory.id, c.memory.summary] for c in shown]
    )


def _head(found: Explanation) -> dict[str, Any]:
    return {"user_id": found.user_id, "query": found.query, "ranking": found.ranking, "reason": found.reason}


def _short(candidate: Reason) -> dict[str, Any]:
    scores = {"learned": candidate.learned, "prior": candidate.prior, "similarity": candidate.similarity}
    return {"number": candidate.shown, **scores, "memory": asdict(candidate.memory)}


def _number(candidate: Reason) -> int:
    return candidate.shown or 0


def _serving(found: Explanation, candidate: Reason) -> float:
    return candidate.learned if found.ranking == "learned" else candidate.prior


def _explain(found: Explanation, out: Output) -> None:
    out.line(f"The {found.ranking} ranking serves: {found.reason}")
    prior = [c for c in found.candidates if c.prior_shown is not None]
    names = [c.memory.id for c in sorted(prior, key=lambda c: c.prior_shown or 0)]
    out.line(f"The prior would show: {', '.join(names) or 'nothing'}")
    for candidate in found.candidates:
        out.line()
        place = "  -" if candidate.shown is None else f"{candidate.shown:3}"
        scores = f"learned {candidate.learned:.2f} (#{candidate.learned_rank})"
        scores += f"  prior {candidate.prior:.2f} (#{candidate.prior_rank})"
        out.line(f"{place}  {candidate.memory.id}  {scores}", style="cyan")
        words = "  ".join(f"{name} {candidate.features[name]:.2f}" for name in ("own", "window", "session"))
        out.line(f"dense {candidate.similarity:.2f}  words: {words}", indent=5)
        out.line(candidate.memory.summary, indent=5)
        out.line(f"because: {terms(candidate)}", indent=5, style="dim")


def terms(candidate: Reason) -> str:
    """What adds to a score, the most first; what adds nothing is left out."""
    parts = sorted(candidate.terms.items(), key=lambda term: -abs(term[1]))
    return "  ".join(f"{name}={value:+.2f}" for name, value in parts if abs(value) >= _SEEN) or "0"


_SEEN = 0.005
