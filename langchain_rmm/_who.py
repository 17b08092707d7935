"""Whose turn it is, and in which session: read from wherever a LangChain app keeps it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from langchain_core.runnables import RunnableConfig

from rmm_core import InputError
from rmm_core.bounded import Bounded
from rmm_core.inputs import checked_id, fresh_id

_WHERE = (
    "give user_id=... to the constructor; or with each call config={'configurable': {'user_id': ...}} to a chain or an "
    "agent, config={'metadata': {'user_id': ...}} to a retriever called by itself; or an agent a context with a user_id"
)


@dataclass(frozen=True, slots=True)
class Who:
    """A user, what the app calls the user, and the session it names; None when it names none."""

    user_id: str
    session_id: str | None
    user_name: str | None = None


def who(
    config: RunnableConfig | None,
    context: Any = None,
    *,
    metadata: Mapping[str, Any] | None = None,
    user_id: str | None = None,
    session_id: str | None = None,
) -> Who:
    """The user and the session that a call is about.

    Args:
        config: The call's; its ``configurable`` may name ``user_id``, ``user_name``, ``session_id`` and ``thread_id``,
            and its ``metadata``, which LangChain hands down, where that does not.
        context: An agent's, a mapping or an object, which may name the same.
        metadata: More of them, as a retriever's run has.
        user_id: The constructor's own.
        session_id: The constructor's own, which goes before all others.

    Raises:
        InputError: When no user is named, or two different ones: whose memory would be shown is not a matter of luck.
    """
    config = config or {}
    sources = (context, config.get("configurable"))
    handed_down = (config.get("metadata"), metadata)
    users = [user_id, *(_all(sources, "user_id") or _all(handed_down, "user_id"))]
    distinct = list(dict.fromkeys(checked_id(u, "user_id") for u in users if u is not None))
    if not distinct:
        raise InputError(f"no user is named and there is no default one: {_WHERE}")
    if len(distinct) > 1:
        raise InputError(
            f"this call names {len(distinct)} users, {distinct[0]!r} and {distinct[1]!r}; name one of them"
        )
    everywhere = (*sources, *handed_down)
    sessions = [session_id, *_all(everywhere, "session_id"), *_all(everywhere, "thread_id")]
    session = next((s for s in sessions if s is not None), None)
    names = [n for n in _all(everywhere, "user_name") if isinstance(n, str) and n.strip()]
    named = None if session is None else checked_id(str(session), "session_id")
    return Who(distinct[0], named, names[0] if names else None)


def _all(sources: Sequence[Any], name: str) -> list[Any]:
    """What sources, mappings or objects, give under a name."""
    given = [s.get(name) if isinstance(s, Mapping) else getattr(s, name, None) for s in sources]
    return [value for value in given if value is not None]


def agent_context() -> Any:
    """The context of the agent that calls, when one does."""
    if "langgraph.runtime" not in sys.modules:
        return None
    from langgraph.runtime import get_runtime

    try:
        runtime = get_runtime()
    except RuntimeError:  # called outside of a graph
        return None
    return None if runtime is None else runtime.context


def checked_user(user_id: str | None) -> str | None:
    """A constructor's user, if it names one.

    Raises:
        InputError: When it cannot name anybody.
    """
    return None if user_id is None else checked_id(user_id, "user_id")


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
