"""Multi-step exchanges, written once and driven twice.

A flow is a generator that yields what it needs and is handed the answer. It never does I/O,
so one flow serves a synchronous and an asynchronous caller; the two drivers of
:mod:`rmm_core.drivers` are the only place where either happens::

    def greet(name):                        # a flow
        reply = yield from complete(f"Greet {name}.")
        return reply.strip()

    run(greet("Ada"), services)             # blocks
    await arun(greet("Ada"), services)      # does not

What a step raises is raised inside the flow, at its ``yield``, so a flow can catch it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar, cast

from rmm_core.tracing import Attributes
from rmm_core.types import Matrix

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Complete:
    """Ask the language model; answered by its reply, a string."""

    prompt: str
    schema: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Embed:
    """Embed texts; answered by a float32 array of shape ``(len(texts), d)``."""

    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """Call something that may block, a store above all; answered by what it returns."""

    function: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Spanned:
    """Drive another flow inside of a span (:mod:`rmm_core.tracing`); answered by what it returns.

    Attributes:
        told: What the span is to say of that.
    """

    name: str
    attributes: Attributes
    flow: Flow[Any]
    told: Callable[[Any], Attributes]


Request: TypeAlias = Complete | Embed | Call | Spanned
Flow: TypeAlias = Generator[Request, Any, T]


def complete(prompt: str, schema: Mapping[str, Any] | None = None) -> Flow[str]:
    """Ask the language model from within a flow."""
    return cast(str, (yield Complete(prompt, schema)))


def embed(texts: Sequence[str]) -> Flow[Matrix]:
    """Embed texts from within a flow; no texts need no model."""
    if not texts:
        import numpy as np

        return np.zeros((0, 0), dtype=np.float32)
    return cast(Matrix, (yield Embed(tuple(texts))))


def before_each(flow: Flow[T], kind: type[Request], step: Callable[[], Any]) -> Flow[T]:
    """``flow``, with ``step`` called before each request of a kind; what ``step`` raises is raised inside the flow."""
    resume: Callable[[], Request] = partial(flow.send, None)
    while True:
        try:
            request = resume()
        except StopIteration as end:
            return cast(T, end.value)
        try:
            if isinstance(request, kind):
                yield Call(step)
            answer = yield request
        except GeneratorExit:
            flow.close()
            raise
        except BaseException as error:
            resume = partial(flow.throw, error)
        else:
            resume = partial(flow.send, answer)


def spanned(
    name: str, attributes: Attributes, flow: Flow[T], told: Callable[[T], Attributes] = lambda _: {}
) -> Flow[T]:
    """``flow`` inside of a span; one that is never begun leaves none."""
    return cast(T, (yield Spanned(name, attributes, flow, told)))


def call(function: Callable[..., T], *args: Any, **kwargs: Any) -> Flow[T]:
    """Call something blocking from within a flow."""
    return cast(T, (yield Call(lambda: function(*args, **kwargs))))
