"""Commands that change a memory: import, forget, reflect, embed anew, let expire."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rmm_cli.counts import counted
from rmm_cli.finding import known_memory, known_user
from rmm_cli.look import User
from rmm_cli.models import NoEmbedder, Watched
from rmm_cli.opening import Opening, expanded, is_there, near_path
from rmm_cli.output import Column, Output
from rmm_cli.text import minute, plural
from rmm_core import ConfigError, InputError, NotFoundError, ReflectionReport, ReflectiveMemory
from rmm_core.transfer import parse_lines
from rmm_core.types import Erasure

AnyUser = Annotated[str | None, typer.Argument(metavar="USER", help="Whose; everybody's when left out.")]

_RECEIPT = {"sessions": "session", "turns": "turn", "memories": "memory", "answers": "answer", "learners": "learner"}


def import_(
    at: Opening,
    out: Output,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What 'rmm export' wrote; - for stdin.")],
    name: Annotated[str | None, typer.Option("--as", metavar="USER", help="Another id to restore under.")] = None,
) -> None:
    """Restore a user from an export; makes the memory where there is none."""
    lines = _read(expanded(file))
    parse_lines(lines)  # before a memory is made for nothing
    embedder = at.embedder()
    if isinstance(embedder, NoEmbedder):
        embedder.embed([])
    known = "://" in at.place or is_there(Path(at.place))
    with at.memory(embedder=embedder) as memory:
        user_id = memory.import_user(lines, user_id=name)
        counts = counted(memory, user_id)
    if out.json:
        return out.document(counts)
    return out.line(f"user {user_id!r}: {counts.held}, in {'' if known else 'the new memory '}{at.shown}")


def _read(file: Path) -> list[str]:
    try:
        content = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        return content.decode().split("\n")
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no file {str(file)!r}{near_path(file)}") from error
    except OSError as error:
        raise InputError(f"cannot read {str(file)!r}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{str(file)!r} is no export: it is not UTF-8 text") from error


def forget(
    at: Opening,
    out: Output,
    user: User,
    memory_id: Annotated[
        str | None, typer.Option("--memory", metavar="ID", help="Only this memory, and what was said for it alone.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete everything of a user, or one memory, for good; with a receipt."""
    with at.memory() as memory:
        if memory_id is not None:
            return _forget_one(memory, out, user, known_memory(memory, user, memory_id), yes)
        held = counted(memory, known_user(memory, user)).held
        _confirm(out, f"Delete {held} of user {user!r} in {at.shown}, for good?", yes)
        receipt = memory.forget_user(user)
    return out.document(receipt) if out.json else _receipt(out, receipt)


def _forget_one(memory: ReflectiveMemory, out: Output, user: str, memory_id: str, yes: bool) -> None:
    summary = memory.get(user, memory_id).summary
    _confirm(out, f"Delete memory {memory_id} of user {user!r} ({summary}), for good?", yes)
    deleted = memory.delete(user, memory_id)
    if out.json:
        return out.document({"user_id": user, "memory_id": memory_id, "deleted": deleted})
    return out.line(f"memory {memory_id} of user {user!r} is {'deleted' if deleted else 'gone already'}")


def _confirm(out: Output, question: str, yes: bool) -> None:
    """Ask, unless told not to.

    Raises:
        InputError: When the answer is no, or there is nobody to ask.
    """
    if not yes and (sys.stdin is None or not sys.stdin.isatty()):
        raise InputError("nothing was deleted: there is nobody to ask; say --yes")
    if not yes and not out.confirms(question):
        raise InputError("nothing was deleted")


def _receipt(out: Output, receipt: Erasure) -> None:
    counts = ", ".join(plural(getattr(receipt, many), one, many) for many, one in _RECEIPT.items())
    out.line(f"deleted of user {receipt.user_id!r} at {minute(receipt.at)} UTC: {counts}")


def reflect(at: Opening, out: Output, user: AnyUser = None) -> None:
    """Make memories of the sessions that have ended or fallen silent; exit code 1 when one stays pending."""

    def tell(report: ReflectionReport) -> None:
        out.record(report) if out.json else out.line(_reflected(report))

    out.told = "rmm_core.sessions"  # what stays pending
    with at.memory(on_reflection=tell) as memory:
        wanted = None if user is None else known_user(memory, user)
        reports = memory.reflect_pending(wanted)
        minutes = memory.config.idle_minutes
        users = () if reports else memory.users() if wanted is None else (wanted,)
        still_open = sum(counted(memory, user_id).pending for user_id in users)
    pending = sum(r.status == "pending" for r in reports)
    if not reports:
        going_on = f" ({plural(still_open, 'session')} still going on)" if still_open else ""
        out.note(f"nothing waits{going_on}: a session does once it has ended, or was silent for {minutes:g} minutes")
    elif pending:
        out.note(f"{pending} of {plural(len(reports), 'session')} left pending")
        raise typer.Exit(1)


def _reflected(report: ReflectionReport) -> str:
    said = {
        "reflected": f"{report.added} added, {report.merged} merged, {report.unfiled} unfiled",
        "nothing": "nothing worth a memory",
        "already": "done by somebody else",
        "elsewhere": "another worker is at it",
        "declined": "the user wants nothing stored",
        "pending": f"stays pending: {report.error}",
    }[report.status]
    dropped = f", {plural(report.dropped, 'part')} of replies unusable" if report.dropped else ""
    return f"{report.user_id}  {report.session_id}  {said}{dropped}"


def reembed(at: Opening, out: Output) -> None:
    """Embed every memory anew, for another embedder; the learning log starts anew."""
    with at.memory() as memory:
        total = sum(len(memory.memories(user_id)) for user_id in memory.users())
    with out.progress("Embedding", total) as bar:
        watched = Watched(at.embedder(), lambda count: bar.advance(bar.task_ids[0], count))
        with at.memory(embedder=watched) as memory:
            count, width = memory.reembed(), memory.store.width()
    if out.json:
        return out.document({"memories": count, "width": width})
    return out.line(f"{plural(count, 'memory', 'memories')} embedded anew, {width or 0} numbers each")


def purge(at: Opening, out: Output, user: AnyUser = None) -> None:
    """Delete what has expired: --set expire_days=365, or expire_uncited_days."""
    with at.memory() as memory:
        config = memory.config
        if config.expire_days is None and config.expire_uncited_days is None:
            raise ConfigError("nothing expires: say when, with --set expire_days=365 or --set expire_uncited_days=90")
        receipts = memory.purge(None if user is None else known_user(memory, user))
    if out.json:
        return out.document(receipts)
    if not receipts:
        return out.note("nothing has expired")
    columns = [Column("user", whole=True), *(Column(name, number=True) for name in _RECEIPT)]
    return out.table(columns, [[r.user_id, *(f"{getattr(r, name):,}" for name in _RECEIPT)] for r in receipts])
