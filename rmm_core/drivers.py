"""Drives flows: the one place where models are asked, blocking or on an event loop.

What a model raises becomes one of our errors here, chained; what an embedder returns is checked here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np

from rmm_core.errors import ConfigError, EmbedderError, LLMError, RMMError
from rmm_core.flow import Call, Complete, Embed, Flow, Request, Spanned
from rmm_core.protocols import LLM, Embedder
from rmm_core.tracing import span
from rmm_core.types import Matrix

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Services:
    """The models that flows ask; a language model may be missing until a flow needs it."""

    llm: LLM | None
    embedder: Embedder

    def need_llm(self) -> LLM:
        """The language model, or a clear error."""
        if self.llm is None:
            raise ConfigError("this step asks a language model and none was given: pass llm=... to ReflectiveMemory")
        return self.llm


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
            return _text(_translated(lambda: llm.complete(prompt, schema=schema), LLMError))
        case Embed(texts):
            embedder = services.embedder
            parts, flat = _parts(texts)
            return _pooled(_translated(lambda: embedder.embed(flat), EmbedderError), parts)
        case Call(function):
            return function()
        case Spanned(name, attributes, flow, told):
            with span(name, attributes) as note:
                result = run(flow, services)
                note(told(result))
                return result


async def _aperform(request: Request, services: Services) -> Any:
    match request:
        case Complete(prompt, schema):
            llm = services.need_llm()
            try:
                reply = await llm.acomplete(prompt, schema=schema)
            except Exception as error:
                raise _as_ours(error, LLMError) from error
            return _text(reply)
        case Embed(texts):
            embedder = services.embedder
            parts, flat = _parts(texts)
            try:
                rows = await embedder.aembed(flat)
            except Exception as error:
                raise _as_ours(error, EmbedderError) from error
            return _pooled(rows, parts)
        case Call(function):
            from asyncio import to_thread  # a tenth of this package's import time, for some of its users

            return await to_thread(function)
        case Spanned(name, attributes, flow, told):
            with span(name, attributes) as note:
                result = await arun(flow, services)
                note(told(result))
                return result


def _translated(step: Callable[[], T], kind: type[RMMError]) -> T:
    """Run a foreign model's step; what it raises becomes ours, chained."""
    try:
        return step()
    except Exception as error:
        raise _as_ours(error, kind) from error


def _as_ours(error: Exception, kind: type[RMMError]) -> RMMError:
    return error if isinstance(error, RMMError) else kind(f"{type(error).__name__}: {error}")


def _text(reply: Any) -> str:
    if not isinstance(reply, str):
        raise LLMError(f"the language model returned {type(reply).__name__}, a text is wanted")
    return reply


def _parts(texts: Sequence[str], longest: int = 6_000) -> tuple[list[list[str]], list[str]]:
    """Each text in parts that any embedding model takes, and all parts in a row.

    A pasted document must not fail a reflection.
    """
    parts = [[t[i : i + longest] for i in range(0, len(t), longest)] or [t] for t in texts]
    return parts, [part for text in parts for part in text]


def _pooled(returned: Any, parts: Sequence[Sequence[str]]) -> Matrix:
    """One row per text, of length 1 (or 0): the mean of what the embedder returned for its parts."""
    rows = _checked(returned, sum(len(p) for p in parts))
    ends = np.cumsum([len(p) for p in parts])[:-1]
    means = rows if len(rows) == len(parts) else np.stack([p.mean(axis=0) for p in np.split(rows, ends)])
    lengths = np.linalg.norm(means, axis=1, keepdims=True)
    return np.asarray(means / np.where(lengths > 0, lengths, 1.0), dtype=np.float32)


def _checked(rows: Any, count: int) -> Matrix:
    """What an embedder returned, as one finite float32 row per text."""
    try:
        matrix = np.ascontiguousarray(rows, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise EmbedderError(f"the embedder returned no numeric array: {error}") from error
    if matrix.ndim != 2 or matrix.shape[0] != count or not matrix.shape[1]:
        raise EmbedderError(f"the embedder returned shape {matrix.shape} for {count} texts")
    if not np.isfinite(matrix).all():
        raise EmbedderError("the embedder returned values that are not finite")
    return matrix
