"""Flows behave the same under both drivers."""

import asyncio
import threading

import numpy as np
import pytest

from rmm_core.drivers import Services, arun, run
from rmm_core.errors import ConfigError, EmbedderError, LLMError, ReplyError
from rmm_core.flow import Complete, before_each, call, complete, embed
from rmm_core.testing import HashEmbedder, ScriptedLLM


def flow(seen):
    reply = yield from complete("first", {"type": "object"})
    rows = yield from embed([reply, "b"])
    seen.append((yield from call(threading.get_ident)))
    try:
        yield from complete("second")
    except LLMError as error:
        return reply, rows.shape, str(error)


def drivers():
    return [run, lambda f, s: asyncio.run(arun(f, s))]


@pytest.mark.parametrize("drive", drivers(), ids=["sync", "async"])
def test_a_flow_is_answered_and_can_catch(drive):
    llm, seen = ScriptedLLM("one", ValueError("bad gateway")), []
    assert drive(flow(seen), Services(llm, HashEmbedder(16))) == ("one", (2, 16), "ValueError: bad gateway")
    assert llm.history == ["first", "second"]
    assert llm.schemas == [{"type": "object"}, None]
    assert (seen[0] == threading.get_ident()) is (drive is run)  # blocking calls leave the loop's thread


@pytest.mark.parametrize("drive", drivers(), ids=["sync", "async"])
def test_our_own_errors_pass_as_they_are(drive):
    with pytest.raises(ReplyError, match="odd"):
        drive(complete("x"), Services(ScriptedLLM(ReplyError("odd", "reply")), None))


@pytest.mark.parametrize("drive", drivers(), ids=["sync", "async"])
def test_a_missing_model_is_named(drive):
    with pytest.raises(ConfigError, match="llm="):
        drive(complete("x"), Services(None, None))
    assert drive(embed([]), Services(None, None)).shape[0] == 0


@pytest.mark.parametrize("drive", drivers(), ids=["sync", "async"])
def test_a_reply_that_is_no_text_is_named(drive):
    with pytest.raises(LLMError, match="returned int, a text is wanted"):
        drive(complete("x"), Services(ScriptedLLM(lambda prompt: 5), None))


@pytest.mark.parametrize("drive", drivers(), ids=["sync", "async"])
def test_long_texts_reach_no_model_whole(drive):
    class Limited(HashEmbedder):
        def embed(self, texts):
            assert max(map(len, texts)) <= 6000
            return super().embed(texts)

    rows = drive(embed(["a " * 3_000 + "zebra", "zebra", ""]), Services(None, Limited()))
    assert rows.shape == (3, 64)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, rtol=1e-5)
    assert rows[0] @ rows[1] > 0.1


@pytest.mark.parametrize("drive", drivers(), ids=["sync", "async"])
def test_rows_come_out_with_length_one(drive):
    class Long:
        def embed(self, texts):
            return [[3.0, 4.0], [0.0, 0.0]]

        async def aembed(self, texts):
            return self.embed(texts)

    rows = drive(embed(["a", "b"]), Services(None, Long()))
    np.testing.assert_allclose(rows, [[0.6, 0.8], [0.0, 0.0]], rtol=1e-6)
    assert rows.dtype == np.float32


async def test_cancelling_reaches_the_flow():
    ended = []

    def patient():
        try:
            yield from complete("slow")
        finally:
            ended.append(True)

    task = asyncio.create_task(arun(patient(), Services(ScriptedLLM("late", seconds=5), None)))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [True]


def test_an_embedder_error_passes_as_it_is():
    class Broken:
        def embed(self, texts):
            raise EmbedderError("no weights")

    with pytest.raises(EmbedderError, match=r"^no weights$"):
        run(embed(["x"]), Services(None, Broken()))


@pytest.mark.parametrize("drive", drivers(), ids=["sync", "async"])
def test_a_step_before_each_request(drive):
    llm, steps = ScriptedLLM("one", ValueError("bad gateway")), []
    watched = before_each(flow([]), Complete, lambda: steps.append(len(llm.history)))
    assert drive(watched, Services(llm, HashEmbedder(16))) == ("one", (2, 16), "ValueError: bad gateway")
    assert steps == [0, 1]


def test_what_a_step_raises_is_raised_inside_the_flow():
    def refuse():
        raise LLMError("not now")

    def answered():
        try:
            yield from complete("first")
        except LLMError as error:
            return str(error)

    llm = ScriptedLLM()
    assert run(before_each(answered(), Complete, refuse), Services(llm, HashEmbedder(16))) == "not now"
    assert llm.history == []


def test_a_watched_flow_is_closed_with_the_one_that_watches():
    closed = []

    def waiting():
        try:
            yield from complete("first")
        finally:
            closed.append(True)

    watched = before_each(waiting(), Complete, list)
    next(watched)
    next(watched)
    watched.close()
    assert closed == [True]
