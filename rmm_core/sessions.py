"""When sessions are reflected: at their end, after silence, when they grow without end, at the next visit."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta

from rmm_core.bounded import Bounded
from rmm_core.config import RMMConfig
from rmm_core.errors import LeaseError, NotFoundError, RMMError, StoreClosedError
from rmm_core.flow import Complete, Flow, before_each, call, spanned
from rmm_core.inputs import checked_id, fresh_id, whole
from rmm_core.prompts import shortened
from rmm_core.prospective import reflect
from rmm_core.protocols import MemoryStore, Reflector
from rmm_core.tracing import Attributes, content
from rmm_core.types import ReflectionReport, Session

logger = logging.getLogger(__name__)

_LONGEST_ERROR = 2_000  # characters of what a provider says: some send back all they were asked


class Sessions:
    """The sessions of one memory: those open in this process, and those that wait to be reflected.

    Everything here is a flow, driven by :meth:`rmm_core.ReflectiveMemory.run` or ``arun``.

    Args:
        store: Where they are kept.
        reflector: How they become memories.
        config: Settings.
        clock: Tells the time.
        on_reflection: Called with the report of every reflection.
    """

    def __init__(
        self,
        store: MemoryStore,
        reflector: Reflector,
        config: RMMConfig,
        clock: Callable[[], datetime],
        on_reflection: Callable[[ReflectionReport], None] | None,
    ) -> None:
        self._store = store
        self._reflector = reflector
        self._config = config
        self._clock = clock
        self._on_reflection = on_reflection
        self._open: Bounded[tuple[str, str], None] = Bounded(4096)  # one that is pushed out falls silent instead
        self._looked: Bounded[str, datetime] = Bounded(4096)

    def opening(self, session: Session) -> Flow[Session]:
        """Make sure that a session is there and open."""
        opened = yield from call(self._store.open_session, session)
        self._open.put((session.user_id, session.id), None)
        return opened

    def visiting(self, user_id: str) -> Flow[list[ReflectionReport]]:
        """What a host without an end of session does at the start of a turn: reflect what has fallen silent.

        Looks at a user's first turn in this process, and again after the length of a silence at the earliest, so that
        a session whose reflection fails again and again does not slow down every turn.
        """
        now, looked = self._clock(), self._looked.get(user_id)
        idle = timedelta(minutes=self._config.idle_minutes)
        if looked is not None and abs(now - looked) <= idle:  # clocks are set back
            return []
        self._looked.put(user_id, now)
        return (yield from self.reflecting_pending(user_id))

    def reflecting(self, user_id: str, session_id: str) -> Flow[ReflectionReport]:
        """Reflect one session; a failure leaves it pending and is reported, not raised."""
        about = {"rmm.session": session_id, **content(self._config, user=user_id)}
        return (yield from spanned("rmm.reflect", about, self._reflecting(user_id, session_id), _told))

    def _reflecting(self, user_id: str, session_id: str) -> Flow[ReflectionReport]:
        try:
            if (yield from call(self._store.declined, user_id)):
                return ReflectionReport(user_id, session_id, "declined")
            report = yield from self._alone(user_id, session_id)
        except StoreClosedError:
            raise
        except LeaseError:
            report = ReflectionReport(user_id, session_id, "elsewhere")
        except RMMError as error:
            report = yield from call(self._failed, user_id, session_id, error)
        if self._on_reflection is not None:
            try:
                self._on_reflection(report)
            except Exception:  # the app's own code: whatever it raises, the user's turn goes on
                logger.exception("on_reflection raised")
        return report

    def reflecting_pending(self, user_id: str | None) -> Flow[list[ReflectionReport]]:
        """Reflect every session that ended or fell silent and that the bank does not know yet."""
        user_id = None if user_id is None else checked_id(user_id, "user_id")
        idle_since = self._clock() - timedelta(minutes=self._config.idle_minutes)
        waiting = yield from call(self._store.pending, idle_since=idle_since, user_id=user_id)
        reports = []
        for session in waiting:
            report = yield from self.reflecting(session.user_id, session.id)
            reports.append(report)
        return reports

    def ending(self, user_id: str, session_id: str) -> Flow[ReflectionReport]:
        """End one session and reflect it and the user's other pending ones."""
        self._open.pop((user_id, session_id))
        yield from call(self._store.end_session, user_id, session_id)
        report = yield from self.reflecting(user_id, session_id)
        if report.status != "pending":
            yield from self.reflecting_pending(user_id)
        return report

    def closing(self) -> Flow[None]:
        """Reflect the sessions that are open here; nobody said that they are over, and they may go on elsewhere.

        One whose reflection fails is ended: it is taken up at the next opportunity then, and not after a silence.
        """
        for (user_id, session_id), _ in sorted(self._open.newest_first()):
            try:
                session = yield from call(self._store.session, user_id, session_id)
                if session.ended:  # by another process, which reflects it
                    continue
                report = yield from self.reflecting(user_id, session_id)
                if report.status == "pending":
                    yield from call(self._store.end_session, user_id, session_id)
                else:
                    yield from self.reflecting_pending(user_id)
            except StoreClosedError:
                return
            except NotFoundError:  # forgotten by another process
                continue

    def forget(self, user_id: str) -> None:
        """Let go of what is held of a user."""
        for session, _ in self._open.newest_first():
            if session[0] == user_id:
                self._open.pop(session)
        self._looked.pop(user_id)

    def _alone(self, user_id: str, session_id: str) -> Flow[ReflectionReport]:
        """Reflect a session that no other worker is at.

        The lease is renewed before each time a model is asked, and given back whatever happens.

        Raises (inside the flow):
            LeaseError: When another worker has the session, or took it because this one was silent for too long.
        """
        holder, seconds = fresh_id(), 60.0 * self._config.lease_minutes
        alone, over = threading.Lock(), threading.Event()  # cancelled on an event loop, a thread may still be taking it

        def hold() -> None:
            with alone:
                if over.is_set() or not self._store.lease(user_id, session_id, holder=holder, seconds=seconds):
                    raise LeaseError("another worker reflects this session")

        def give_back() -> None:
            over.set()
            with alone, suppress(RMMError):  # it lapses by itself
                self._store.release(user_id, session_id, holder=holder)

        try:
            yield from call(hold)
            reflecting = reflect(self._store, self._reflector, self._config, user_id, session_id)
            report = yield from before_each(reflecting, Complete, hold)
        except GeneratorExit:  # nobody is left to ask
            give_back()
            raise
        except BaseException:
            yield from call(give_back)
            raise
        yield from call(give_back)
        return report

    def _failed(self, user_id: str, session_id: str, error: RMMError) -> ReflectionReport:
        """Note a failed reflection, unless there is nothing left to reflect: done or forgotten by somebody else."""
        try:
            session = self._store.session(user_id, session_id)
        except NotFoundError:
            return ReflectionReport(user_id, session_id, "already")
        if session.reflected >= session.turns:
            return ReflectionReport(user_id, session_id, "already")
        said = shortened(whole(str(error)), _LONGEST_ERROR)
        self._store.fail_session(user_id, session_id, f"{type(error).__name__}: {said}")
        logger.warning("a session stays pending: %s", said)
        return ReflectionReport(user_id, session_id, "pending", error=said)


def _told(report: ReflectionReport) -> Attributes:
    counts = {name: getattr(report, name) for name in ("added", "merged", "unfiled", "dropped")}
    return {"rmm.status": report.status, **{f"rmm.{name}": count for name, count in counts.items()}}
