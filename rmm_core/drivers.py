"""Drives flows: the one place where models are asked, blocking or on an event loop.

What a model raises becomes one of our errors here, chained; what an embedder returns is checked here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from rmm_core.errors import ConfigError, EmbedderError, LLMError, RMMError
from rmm_core.flow import Call, Complete, Embed, Flow, Request
from rmm_core.protocols import LLM, Embedder
from rmm_core.types import Matrix

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Services:
    """The models that flows ask; either may be missing until a flow needs it."""

    llm: LLM | None
    embedder: Embedder | None

    def need_llm(self) -> LLM:
        """The language model, or a clear error."""
        if self.llm is None:
            raise ConfigError("this step asks a language model and none was given: pass llm=... to ReflectiveMemory")
        return self.llm

    def need_embedder(self) -> Embedder:
        """The embedder, or a clear error."""
        if self.embedder is None:
            raise ConfigError("this step needs an embedder and none was given: pass embedder=... to ReflectiveMemory")
        return self.embedder


def run(flow: Flow[T], services: Services) -> T:
    """Drive a flow to its end, blocking."""
    answer: Any = None
    failure: BaseException | None = None
    while True:
        try:
            request = flow.throw(failure) if failure is not None else flow.send(answer)
        except StopIteration as end:
            return cast(T, end.value)
        answer, failure = None, None
        try:
            answer = _perform(request, services)
        except BaseException as error:
            failure = error


async def arun(flow: Flow[T], services: Services) -> T:
    """Drive a flow to its end without blocking the event loop."""
    answer: Any = None
    failure: BaseException | None = None
    while True:
        try:
            request = flow.throw(failure) if failure is not None else flow.send(answer)
        except StopIteration as end:
            return cast(T, end.value)
        answer, failure = None, None
        try:
            answer = await _aperform(request, services)
        except BaseException as error:
            failure = error


def _perform(request: Request, services: Services) -> Any:
    match request:
        case Complete(prompt, schema):
            llm = services.need_llm()
            return _translated(lambda: llm.complete(prompt, schema=schema), LLMError)
        case Embed(texts):
            embedder = services.need_embedder()
            return _checked(_translated(lambda: embedder.embed(texts), EmbedderError), len(texts))
        case Call(function):
            return function()


async def _aperform(request: Request, services: Services) -> Any:
    match request:
        case Complete(prompt, schema):
            llm = services.need_llm()
            try:
                return await llm.acomplete(prompt, schema=schema)
            except Exception as error:
                raise _as_ours(error, LLMError) from error
        case Embed(texts):
            embedder = services.need_embedder()
            try:
                rows = await embedder.aembed(texts)
            except Exception as error:
                raise _as_ours(error, EmbedderError) from error
            return _checked(rows, len(texts))
        case Call(function):
            from asyncio import to_thread  # a tenth of this package's import time, for some of its users

            return await to_thread(function)


def _translated(step: Callable[[], T], kind: type[RMMError]) -> T:
    """Run a foreign model's step; what it raises becomes ours, chained."""
    try:
        return step()
    except Exception as error:
        raise _as_ours(error, kind) from error


def _as_ours(error: Exception, kind: type[RMMError]) -> RMMError:
    return error if isinstance(error, RMMError) else kind(f"{type(error).__name__}: {error}")


def _checked(rows: Any, count: int) -> Matrix:
    """What an embedder returned, as one finite float32 row per text, each of length 1 (or 0)."""
    import numpy as np

    try:
        matrix = np.ascontiguousarray(rows, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise EmbedderError(f"the embedder returned no numeric array: {error}") from error
    if matrix.ndim != 2 or matrix.shape[0] != count:
        raise EmbedderError(f"the embedder returned shape {matrix.shape} for {count} texts")
    if not np.isfinite(matrix).all():
        raise EmbedderError("the embedder returned values that are not finite")
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    return np.asarray(matrix / np.where(lengths > 0, lengths, 1.0), dtype=np.float32)
