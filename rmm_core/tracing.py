"""Spans: what a memory does and how long it takes, for whoever watches.

There are four: ``rmm.recall`` with ``rmm.rerank`` in it, ``rmm.learn`` and ``rmm.reflect``. They carry ids of recalls
and sessions, counts, and which ranking served; no words and no user's name, unless ``RMMConfig(trace_content=True)``.

An app that uses OpenTelemetry gets them by itself. A host's adapter adds its own kind with :func:`watch`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, TypeAlias

from rmm_core.config import RMMConfig

logger = logging.getLogger(__name__)

Attributes: TypeAlias = Mapping[str, str | int | float | bool]
Note: TypeAlias = Callable[[Attributes], None]
"""Adds attributes to a span that is open."""

Tracer: TypeAlias = Callable[[str, Attributes], AbstractContextManager[Note]]
"""Opens a span of a name with its first attributes. What is raised inside of the block is the span's failure."""


def content(config: RMMConfig, **texts: str) -> Attributes:
    """Attributes of what users said and who they are: none, unless the settings want them."""
    return {f"rmm.{name}": text for name, text in texts.items()} if config.trace_content else {}


def watch(tracer: Tracer) -> None:
    """Have a tracer told of every span from here on; the same one is told once."""
    if tracer not in _tracers:
        _tracers.append(tracer)


@contextmanager
def span(name: str, attributes: Attributes) -> Iterator[Note]:
    """A span for all who watch. A tracer that fails is logged: what it watches goes on."""
    with ExitStack() as stack:
        notes = [note for tracer in _tracers if (note := _opened(stack, tracer, name, attributes)) is not None]

        def tell(told: Attributes) -> None:
            for note in notes:
                _safely(note, told)

        yield tell


def _opened(stack: ExitStack, tracer: Tracer, name: str, attributes: Attributes) -> Note | None:
    try:
        opened = tracer(name, attributes)
        note = opened.__enter__()
    except Exception:  # a tracer is somebody else's: whatever it raises, the user's turn goes on
        logger.exception("a tracer failed")
        return None

    def close(*failure: Any) -> None:
        try:
            opened.__exit__(*failure)
        except Exception as error:  # likewise
            if error is not failure[1]:
                logger.exception("a tracer failed")

    stack.push(close)
    return note


def _safely(note: Note, told: Attributes) -> None:
    try:
        note(told)
    except Exception:  # likewise
        logger.exception("a tracer failed")


@contextmanager
def _open_telemetry(name: str, attributes: Attributes) -> Iterator[Note]:
    """A span of OpenTelemetry, where the app has imported it: who has not, has nobody to show spans to."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        yield lambda _: None
        return
    with trace.get_tracer("rmm_core").start_as_current_span(
        name, attributes=dict(attributes), record_exception=False, set_status_on_exception=False
    ) as opened:
        try:
            yield lambda told: opened.set_attributes(dict(told))
        except BaseException as error:  # by its kind: what it says may be a user's words
            opened.set_status(trace.StatusCode.ERROR, type(error).__name__)
            raise


_tracers: list[Tracer] = [_open_telemetry]
