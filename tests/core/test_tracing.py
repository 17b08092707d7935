import asyncio
import json
import logging
from contextlib import contextmanager

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rmm_core import RMMConfig, tracing
from rmm_core.errors import EmbedderError
from rmm_core.testing import HashEmbedder

SECRET = "heptagonal"


@pytest.fixture
def finished(monkeypatch):
    """The spans that OpenTelemetry was given and that are over, in order of their ends."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    return exporter.get_finished_spans


@pytest.fixture
def watched():
    """Takes tracers that watch for this test alone."""
    before = list(tracing._tracers)
    yield tracing.watch
    tracing._tracers[:] = before


def talk(memory):
    with memory.chat("alice", session_id="monday") as chat:
        chat.record(f"My {SECRET} table arrived, four cats slept on it.", "Okay.")
    with memory.chat("alice", session_id="tuesday") as chat:
        recall = chat.recall(f"Which table is {SECRET}?")
        chat.record(recall.query, "The one your cats sleep on [1].", recall)
    return recall


def test_a_recall_an_answer_and_a_reflection_are_spans_with_ids(open_memory, finished):
    recall = talk(open_memory(config=RMMConfig(batch_size=1)))
    assert [s.name for s in finished()] == ["rmm.reflect", "rmm.rerank", "rmm.recall", "rmm.learn", "rmm.reflect"]
    first, rerank, recalled, learn, _ = finished()
    assert rerank.parent.span_id == recalled.context.span_id
    assert recalled.parent is None
    assert dict(first.attributes) == {
        "rmm.session": "monday",
        "rmm.status": "reflected",
        "rmm.added": 1,
        "rmm.merged": 0,
        "rmm.unfiled": 0,
        "rmm.dropped": 0,
    }
    about = {"rmm.recall": recall.id, "rmm.ranking": "prior", "rmm.candidates": 1, "rmm.shown": 1}
    assert (dict(rerank.attributes), dict(recalled.attributes)) == (about, about)
    assert dict(learn.attributes) == {"rmm.recall": recall.id, "rmm.steps": 1}


def test_no_words_and_no_name_stand_in_spans(open_memory, finished):
    talk(open_memory())
    for span in finished():
        assert SECRET not in span.to_json()
        assert "alice" not in span.to_json()


def test_words_and_names_stand_in_spans_where_they_are_wanted(open_memory, finished):
    talk(open_memory(config=RMMConfig(trace_content=True)))
    recalled = next(s for s in finished() if s.name == "rmm.recall")
    assert recalled.attributes["rmm.query"] == f"Which table is {SECRET}?"
    assert all(s.attributes["rmm.user"] == "alice" for s in finished() if s.name in ("rmm.recall", "rmm.reflect"))


class FailingEmbedder(HashEmbedder):
    def embed(self, texts):
        raise RuntimeError(f"too long: {texts}")


def test_a_failure_is_told_by_its_kind_alone(open_memory, finished):
    with pytest.raises(EmbedderError, match=SECRET):
        open_memory(embedder=FailingEmbedder()).recall("alice", f"Which table is {SECRET}?")
    (span,) = finished()
    assert (span.status.status_code, span.status.description) == (trace.StatusCode.ERROR, "EmbedderError")
    assert not span.events
    assert SECRET not in span.to_json()


async def test_on_an_event_loop_spans_are_children_of_the_task_that_asks(open_memory, finished):
    memory = open_memory()
    with memory.chat("alice") as chat:
        chat.record("I keep bees.", "How many?")

    async def turn(name):
        with trace.get_tracer("app").start_as_current_span(name):
            await memory.arecall("alice", "Who keeps bees?")

    await asyncio.gather(turn("one"), turn("two"))
    spans = {s.context.span_id: s for s in finished()}
    for name in ("rmm.recall", "rmm.rerank"):
        parents = [spans[s.parent.span_id].name for s in spans.values() if s.name == name]
        assert sorted(parents) == (["one", "two"] if name == "rmm.recall" else ["rmm.recall", "rmm.recall"])


def test_nothing_is_imported_for_who_does_not_trace(open_memory, monkeypatch):
    monkeypatch.delitem(tracing.sys.modules, "opentelemetry.trace")
    talk(open_memory())
    assert "opentelemetry.trace" not in tracing.sys.modules


def test_a_tracer_that_fails_stops_nothing(open_memory, watched, caplog):
    def refuses(name, attributes):
        raise OSError("no route")

    @contextmanager
    def fails_late(name, attributes):
        def note(told):
            raise OSError("disk full")

        yield note
        raise OSError("broken pipe")

    watched(refuses)
    watched(fails_late)
    with caplog.at_level(logging.ERROR, "rmm_core.tracing"):
        assert talk(open_memory()).shown
    assert {str(r.exc_info[1]) for r in caplog.records} == {"no route", "disk full", "broken pipe"}


def test_a_tracer_sees_what_is_raised(watched):
    seen = []

    @contextmanager
    def tracer(name, attributes):
        try:
            yield seen.append
        except ValueError as error:
            seen.append(str(error))
            raise

    watched(tracer)
    watched(tracer)

    def traced():
        with tracing.span("rmm.test", {}) as note:
            note({"a": 1})
            raise ValueError("no bees")

    with pytest.raises(ValueError, match="no bees"):
        traced()
    assert json.dumps(seen) == '[{"a": 1}, "no bees"]'
