"""Replies are made once."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks.replies import CachedLLM
from rmm_core import LLM, ConfigError, LLMError
from rmm_core.testing import ScriptedLLM


@pytest.fixture
def cached(tmp_path):
    """Opens caches on one file, and closes them."""
    opened = []

    def open_(inner, name="small, temperature 0", path=tmp_path / "new" / "replies.db"):
        opened.append(CachedLLM(inner, path, name))
        return opened[-1]

    yield open_
    for llm in opened:
        llm.close()


def test_what_was_asked_before_costs_nothing(cached):
    inner = ScriptedLLM("one", "two")
    llm = cached(inner)
    assert isinstance(llm, LLM)
    assert [llm.complete(p) for p in ("a", "a", "b", "a")] == ["one", "one", "two", "one"]
    assert inner.history == ["a", "b"]
    assert (llm.asked, llm.answered_from_cache) == (4, 2)


def test_replies_survive_without_the_model(cached):
    first = cached(ScriptedLLM("one", ""))
    first.complete("a")
    first.complete("says nothing")
    first.close()
    later = cached(None)
    assert later.complete("a") == "one"
    assert later.complete("says nothing") == ""
    assert (later.asked, later.answered_from_cache) == (2, 2)


def test_the_schema_is_part_of_what_is_asked(cached):
    schema = {"type": "object", "required": ["a"]}
    inner = ScriptedLLM("plain", "constrained")
    llm = cached(inner)
    assert llm.complete("a") == "plain"
    assert llm.complete("a", schema=schema) == "constrained"
    assert llm.complete("a", schema=dict(reversed(schema.items()))) == "constrained"
    assert inner.schemas == [None, schema]


def test_models_do_not_answer_for_each_other(cached):
    assert cached(ScriptedLLM("small"), "small").complete("a") == "small"
    assert cached(ScriptedLLM("large"), "large").complete("a") == "large"
    assert cached(None, "small").complete("a") == "small"
    assert cached(None, "large").complete("a") == "large"


def test_no_model_and_no_reply_say_what_to_give(cached):
    llm = cached(None)
    with pytest.raises(ConfigError, match=r"replies\.db holds no reply of 'small, temperature 0'.*--llm"):
        llm.complete("a")
    assert (llm.asked, llm.answered_from_cache) == (1, 0)


def test_a_failure_is_not_kept(cached):
    llm = cached(ScriptedLLM(LLMError("busy"), "one"))
    with pytest.raises(LLMError, match="busy"):
        llm.complete("a")
    assert llm.complete("a") == "one"


async def test_event_loops_share_the_file(cached):
    inner = ScriptedLLM("one")
    llm = cached(inner)
    assert await llm.acomplete("a", schema={"type": "string"}) == "one"
    assert await llm.acomplete("a", schema={"type": "string"}) == "one"
    assert llm.complete("a", schema={"type": "string"}) == "one"
    assert len(inner.history) == 1
    with pytest.raises(ConfigError, match="--llm"):
        await cached(None).acomplete("b")


def test_threads_get_one_reply(cached):
    inner = ScriptedLLM(*map(str, range(40)), seconds=0.002)
    llm = cached(inner)
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(llm.complete, ["a", "b", "c", "d"] * 10))
    assert all(replies[i] == replies[i % 4] for i in range(40))
    assert len(set(replies)) == 4
    assert llm.asked == 40
    assert llm.answered_from_cache == 40 - len(inner.history)
