"""Commands that look: who is remembered, with what, and what the memory's log of answers holds."""

from __future__ import annotations

import os
from dataclasses import asdict
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from rmm_cli.counts import UserCounts, counted
from rmm_cli.finding import known_memory, known_user
from rmm_cli.opening import Opening, writable
from rmm_cli.output import Column, Output
from rmm_cli.text import day, minute, plural
from rmm_core import InputError, Memory, ReflectiveMemory, Turn

User = Annotated[str, typer.Argument(metavar="USER", help="Whose memory.")]


class KindOption(StrEnum):
    """What ``--kind`` takes."""

    TOPIC = "topic"
    UNFILED = "unfiled"


def users(at: Opening, out: Output) -> None:
    """Who is remembered: topics, unfiled turns, turns said, sessions that wait to be reflected, consent, last seen."""
    with at.memory() as memory:
        found = [counted(memory, user_id) for user_id in memory.users()]
    if out.json:
        return out.document(found)
    if not found:
        return out.note(f"no users yet in {at.shown}")
    figures = [Column(name, number=True) for name in ("topics", "unfiled", "turns", "pending")]
    columns = [Column("user", whole=True), *figures, Column("consent"), Column("last seen (UTC)", whole=True)]
    return out.table(columns, [_row(counts) for counts in found])


def _row(c: UserCounts) -> list[str]:
    seen = "-" if c.last_seen is None else minute(c.last_seen)
    figures = [f"{count:,}" for count in (c.topics, c.unfiled, c.turns, c.pending)]
    return [c.user_id, *figures, "yes" if c.consents else "no", seen]


def show(
    at: Opening,
    out: Output,
    user: User,
    turns: Annotated[bool, typer.Option("--turns", help="With the turns that each memory rests on.")] = False,
    kind: Annotated[KindOption | None, typer.Option(help="Only memories of this kind.")] = None,
) -> None:
    """A user's memories, oldest first."""
    with at.memory() as memory:
        found = memory.memories(known_user(memory, user), kind=None if kind is None else kind.value)
        said = [rests_on(memory, m) if turns else [] for m in found]
    if out.json:
        rows = [{**asdict(m), "turns": s} if turns else asdict(m) for m, s in zip(found, said, strict=True)]
        return out.document(rows)
    if not found:
        return out.note(f"user {user!r} has no memories{'' if kind is None else f' of kind {kind.value}'}")

    def below(number: int) -> None:
        for turn in said[number]:
            out.turn(turn, 4)

    return out.entries(ENTRY, [entry(m) for m in found], below if turns else None)


ENTRY = (
    Column("memory"),
    Column("kind"),
    Column("created"),
    Column("updated"),
    Column("turns", number=True),
    Column("summary"),
)


def entry(memory: Memory) -> list[str]:
    """A memory as a row of :data:`ENTRY`."""
    count = len(memory.evidence)
    return [memory.id, memory.kind, day(memory.created_at), day(memory.updated_at), str(count), memory.summary]


def rests_on(memory: ReflectiveMemory, found: Memory) -> list[Turn]:
    """The turns that a memory rests on, in the order they were said in."""
    turns = memory.store.turns_at(found.user_id, found.evidence).values()
    return sorted(turns, key=lambda turn: (turn.at, turn.ref))


def history(
    at: Opening,
    out: Output,
    user: User,
    memory_id: Annotated[str, typer.Argument(metavar="MEMORY", help="Its id, or how that begins.")],
) -> None:
    """How one memory came to say what it says: its earlier versions, and the turns it rests on."""
    with at.memory() as memory:
        found = memory.get(user, known_memory(memory, user, memory_id))
        turns = rests_on(memory, found)
    if out.json:
        return out.document({**asdict(found), "turns": turns})
    out.line(f"{found.id}  {found.kind} of {found.user_id}", style="cyan")
    cited = "never cited" if found.cited_at is None else f"last cited {minute(found.cited_at)}"
    out.line(f"created {minute(found.created_at)}, updated {minute(found.updated_at)}, {cited} (UTC)")
    out.line()
    for revision in found.history:
        out.line(f"until {minute(revision.replaced_at)}", style="dim")
        out.line(revision.summary, indent=2)
    out.line("now", style="dim")
    out.line(found.summary, indent=2)
    out.line()
    out.line(f"It rests on {plural(len(turns), 'turn')}:")
    for turn in turns:
        out.turn(turn, 2)
    return None


def export(
    at: Opening,
    out: Output,
    user: User,
    to: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where it goes; stdout when left out.")
    ] = None,
) -> None:
    """All sessions, turns and memories of a user, as JSON lines that 'rmm import' reads."""
    file = None if to is None or str(to) == "-" else writable(to, at.place)
    with at.memory() as memory:
        lines = memory.export_user(known_user(memory, user))
        if file is None:
            for line in lines:
                out.raw(line)
            return
        whole = list(lines)  # before an earlier file is lost for a half of one
    _write(file, whole)
    if out.json:
        out.document({"user_id": user, "file": str(file), "lines": len(whole)})
    else:
        out.note(f"{plural(len(whole), 'line')} in {file}")


def _write(file: Path, lines: list[str]) -> None:
    """Write lines into a file; a new one nobody but its owner can read.

    Raises:
        InputError: When it cannot be written.
    """
    try:
        with open(file, "w", encoding="utf-8", newline="\n", opener=partial(os.open, mode=0o600)) as writing:
            writing.writelines(f"{line}\n" for line in lines)
    except OSError as error:
        raise InputError(f"cannot write {str(file)!r}: {error.strerror or error}") from error
