"""Whose memory, and which: names as they are typed."""

from __future__ import annotations

from rmm_cli.text import near
from rmm_core import InputError, NotFoundError, ReflectiveMemory


def known_user(memory: ReflectiveMemory, user_id: str) -> str:
    """``user_id``, when the memory knows it.

    Raises:
        NotFoundError: When it does not.
    """
    if memory.store.sessions(user_id):
        return user_id
    users = memory.users()
    if user_id not in users:
        hint = near(user_id, users) or ("; there are no users at all" if not users else "; 'rmm users' lists them")
        raise NotFoundError(f"there is no user {user_id!r}{hint}")
    return user_id


def known_memory(memory: ReflectiveMemory, user_id: str, memory_id: str) -> str:
    """The id of a user's memory that is, or alone begins with, ``memory_id``.

    Raises:
        NotFoundError: When there is none.
        InputError: When several begin so.
    """
    ids = [m.id for m in memory.memories(known_user(memory, user_id))]
    found = [i for i in ids if i == memory_id] or [i for i in ids if memory_id and i.startswith(memory_id)]
    if not found:
        hint = near(memory_id, ids) or "; 'rmm show' lists them"
        raise NotFoundError(f"user {user_id!r} has no memory {memory_id!r}{hint}")
    if len(found) > 1:
        some = ", ".join(map(repr, found[:4])) + (", ..." if len(found) > 4 else "")
        raise InputError(f"{len(found)} memories of user {user_id!r} begin with {memory_id!r}: {some}")
    return found[0]
