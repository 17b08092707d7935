"""The memory's spans as LlamaIndex's: children of the span that it is asked in."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.span import active_span_id

from rmm_core.tracing import Attributes, Note

_dispatcher = get_dispatcher(__name__)


@contextmanager
def as_span(name: str, attributes: Attributes) -> Iterator[Note]:
    """See :data:`rmm_core.tracing.Tracer`."""
    own, about = f"{name}-{uuid4()}", inspect.signature(_names).bind(**attributes)
    parent = active_span_id.get()
    within = active_span_id.set(own)
    told: dict[str, str | int | float | bool] = {}
    _dispatcher.span_enter(id_=own, bound_args=about, parent_id=parent)
    try:
        yield told.update
    except BaseException as error:
        _dispatcher.span_drop(id_=own, bound_args=about, err=error)
        raise
    else:
        _dispatcher.span_exit(id_=own, bound_args=about, result=told)
    finally:
        active_span_id.reset(within)


def _names(**attributes: str | float | bool) -> None:
    """What a span's attributes are bound as."""
