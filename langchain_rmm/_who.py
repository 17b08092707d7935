"""Whose turn it is, and in which session: read from wherever a LangChain app keeps it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from langchain_core.runnables import RunnableConfig

from rmm_core import InputError, NotFoundError, ReflectiveMemory
from rmm_core.bounded import Bounded
from rmm_core.flow import Flow, call
from rmm_core.inputs import checked_id, fresh_id

_WHERE = (
    "give user_id=... to the constructor, or with each call: config={'configurable': {'user_id': ...}}, "
    "config={'metadata': {'user_id': ...}}, or an agent's context with a user_id"
)


@dataclass(frozen=True, slots=True)
class Who:
    """A user, what the app calls the user, and the session it names; None when it names none."""

    user_id: str
    session_id: str | None
    user_name: str | None = None


def who(*sources: Any, user_id: str | None = None, session_id: str | None = None) -> Who:
    """The user and the session that a call is about.

    Args:
        sources: Configs, metadata, a context: mappings or objects that may name ``user_id``, ``user_name``,
            ``session_id`` and ``thread_id``; None and what names nothing are passed over.
        user_id: The constructor's own.
        session_id: The constructor's own, which goes before all others.

    Raises:
        InputError: When no user is named, or two different ones.
    """
    named = [user_id, *(_named(source, "user_id") for source in sources)]
    users = list(dict.fromkeys(checked_id(n, "user_id") for n in named if n is not None))
    if not users:
        raise InputError(f"no user is named and there is no default one: {_WHERE}")
    if len(users) > 1:
        raise InputError(f"this call names {len(users)} users, {users[0]!r} and {users[1]!r}; one memory is one user's")
    sessions = [session_id, *(_named(s, n) for n in ("session_id", "thread_id") for s in sources)]
    session = next((s for s in sessions if s is not None), None)
    name = next((n for n in (_named(s, "user_name") for s in sources) if isinstance(n, str) and n.strip()), None)
    return Who(users[0], None if session is None else checked_id(str(session), "session_id"), name)


def of_config(config: RunnableConfig | None) -> tuple[Any, ...]:
    """The places of a config that may name somebody."""
    return () if config is None else (config.get("configurable"), config.get("metadata"))


def _named(source: Any, name: str) -> Any:
    if isinstance(source, Mapping):
        return source.get(name)
    return getattr(source, name, None)


class Sittings:
    """Session ids for users of apps that name none: a new one after every silence.

    Args:
        clock: Tells the time.
        minutes: How long a silence is.
    """

    def __init__(self, clock: Callable[[], datetime], minutes: float) -> None:
        self._clock = clock
        self._silence = timedelta(minutes=minutes)
        self._last: Bounded[str, tuple[str, datetime]] = Bounded(10_000)
        self._lock = threading.Lock()  # two turns at the same moment are of one session

    def session(self, who: Who) -> str:
        """The session named, or the one that goes on."""
        if who.session_id is not None:
            return who.session_id
        with self._lock:
            now, last = self._clock(), self._last.get(who.user_id)
            session_id = fresh_id() if last is None or now - last[1] > self._silence else last[0]
            self._last.put(who.user_id, (session_id, now))
            return session_id

    def end(self, who: Who) -> str | None:
        """Let the user's unnamed session end, and return its id; None when there is none."""
        if who.session_id is not None:
            return who.session_id
        last = self._last.pop(who.user_id)
        return None if last is None else last[0]


def going_on(memory: ReflectiveMemory, user_id: str, name: str) -> Flow[str]:
    """The session that goes on under a name the app uses again after clearing it: name, name/2, name/3 ..."""
    number, session_id = 1, name
    while True:
        try:
            session = yield from call(memory.store.session, user_id, session_id)
        except NotFoundError:
            return session_id
        if not session.ended:
            return session_id
        number += 1
        session_id = f"{name}/{number}"
