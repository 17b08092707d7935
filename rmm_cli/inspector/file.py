"""The page as one file, which opens from disk."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import suppress
from os import PathLike
from pathlib import Path

from rmm_cli.inspector import data, document
from rmm_cli.text import size
from rmm_core import ReflectiveMemory, StoreError


def write(memory: ReflectiveMemory, path: str | PathLike[str], store_name: str) -> int:
    """See :func:`rmm_cli.inspector.write_html`."""
    target = Path(path)
    try:
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".inspect-", delete=False) as draft:  # 0600
            try:
                written = sum(draft.write(part.encode()) for part in _parts(memory, store_name))
                draft.close()
                Path(draft.name).replace(target)
            except BaseException:
                with suppress(OSError):
                    Path(draft.name).unlink()
                raise
    except OSError as error:
        raise StoreError(f"cannot write {str(target)!r}: {error.strerror or error}") from error
    return written


def _parts(memory: ReflectiveMemory, store_name: str) -> Iterator[str]:
    """The document in parts, a user at a time."""
    listed, total = data.users(memory), 0
    yield document.head(document.policy())
    for number, row in enumerate(listed["rows"]):
        blocks = [document.data(f"user-{number}", data.user(memory, row["id"]))]
        if memory.config.learner_scope == "user" or not number:  # else all users share one learner
            blocks.append(document.data(f"learning-{number}", data.learning(memory, row["id"])))
        for block in blocks:
            total += len(block)
            yield block
    about = {
        "store": store_name,
        "written": memory.clock().isoformat(timespec="seconds"),
        "size": size(total),
        "users": listed["rows"],
        "shared": memory.config.learner_scope == "store",
    }
    yield document.data("page", about)
    yield document.tail()
