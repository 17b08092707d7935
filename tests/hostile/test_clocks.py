"""Clocks that are set back or jump ahead: turns keep their order, nothing is lost, and nobody waits for ever."""

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmm_core import InputError, Message, RMMConfig
from rmm_core.testing import ScriptedLLM
from tests.conftest import T0
from tests.hostile import scaled

YEAR = timedelta(days=365)
STEPS = st.lists(st.sampled_from([-YEAR, timedelta(hours=-1), timedelta(0), timedelta(minutes=31), YEAR]), max_size=8)


class Jumping:
    """A clock that tells what it is told to."""

    def __init__(self):
        self.now = T0

    def __call__(self):
        return self.now


@scaled(25)
@given(steps=STEPS)
def test_turns_keep_the_order_they_were_said_in_whatever_the_clock_says(open_memory, steps):
    clock = Jumping()
    memory = open_memory(place=":memory:", clock=clock)
    said = []
    for number, step in enumerate([timedelta(0), *steps]):
        clock.now += step
        chat = memory.chat("ann", session_id="s")
        chat.record(f"I keep {number + 2} bees in box{number}.", "Noted.")
        said += [f"I keep {number + 2} bees in box{number}.", "Noted."]
        assert [t.text for t in memory.store.turns("ann", "s")] == said
        assert memory.recall("ann", "How many bees?") is not None
    memory.chat("ann", session_id="s").end()
    assert memory.status("ann").pending == ()
    evidence = {ref.index for m in memory.memories("ann") for ref in m.evidence}
    assert evidence >= set(range(0, len(said), 2))
    assert f"box{len(steps)}" in memory.recall("ann", f"box{len(steps)}").prompt()


def test_a_clock_that_was_set_back_keeps_no_visitor_from_being_reflected(open_memory):
    clock = Jumping()
    memory = open_memory(clock=clock)
    memory.run(memory.sessions.visiting("ann"))
    clock.now -= YEAR
    memory.chat("ann", session_id="s").record("I keep bees.", "Fine.")
    clock.now += timedelta(hours=1)
    (report,) = memory.run(memory.sessions.visiting("ann"))
    assert report.session_id == "s"
    assert report.status == "reflected"


def test_a_session_written_to_by_a_clock_that_was_ahead_waits_no_longer_than_until_its_end(open_memory):
    clock = Jumping()
    memory = open_memory(clock=clock)
    clock.now += YEAR
    memory.chat("ann", session_id="s").record("I keep bees.", "Fine.")
    clock.now -= YEAR
    assert memory.reflect_pending() == []  # it does not look silent for a year
    assert memory.chat("ann", session_id="s").end().status == "reflected"


def test_leases_go_by_the_databases_clock(open_memory):
    clock = Jumping()
    memory = open_memory(ScriptedLLM(), clock=clock)
    memory.chat("ann", session_id="s").add(Message("user", "I keep bees."))
    assert memory.store.lease("ann", "s", holder="one", seconds=60)
    for jump in (YEAR, -3 * YEAR):
        clock.now += jump
        assert not memory.store.lease("ann", "s", holder="other", seconds=60)
        assert memory.store.lease("ann", "s", holder="one", seconds=60)


def test_a_clock_that_was_set_back_expires_nothing_and_one_that_comes_back_does(open_memory):
    clock = Jumping()
    memory = open_memory(clock=clock, config=RMMConfig(expire_days=30))
    with memory.chat("ann", session_id="s") as chat:
        chat.record("I keep bees.", "Fine.")
    held = memory.memories("ann")
    assert held
    clock.now -= YEAR
    assert memory.memories("ann") == held
    assert memory.purge() == []
    clock.now += YEAR
    assert memory.memories("ann") == held
    clock.now += timedelta(days=31)
    assert memory.memories("ann") == ()
    assert [r.user_id for r in memory.purge()] == ["ann"]


@pytest.mark.parametrize("at", [datetime.min, datetime.max, T0.replace(year=1), T0.replace(year=9999)])
def test_turns_from_the_ends_of_time_are_kept(open_memory, at):
    memory = open_memory()
    chat = memory.chat("ann", session_id="s")
    chat.add(Message("user", "I keep bees."))
    chat.add(Message("user", "I keep wasps.", at=at))
    assert [t.text for t in memory.store.turns("ann", "s")] == ["I keep bees.", "I keep wasps."]
    assert chat.end().status == "reflected"
    memory.recall("ann", "Do I keep bees?").prompt()
    assert list(memory.export_user("ann"))


def test_times_beyond_the_ends_of_utc_are_refused(open_memory):
    memory = open_memory()
    early, late = timezone(timedelta(hours=23)), timezone(timedelta(hours=-23))
    for at in (datetime.min.replace(tzinfo=early), datetime.max.replace(tzinfo=late)):
        with pytest.raises(InputError, match="outside of the years"):
            memory.chat("ann", session_id="s").add(Message("user", "I keep wasps.", at=at))
        with pytest.raises(InputError, match="outside of the years"):
            memory.chat("ann", session_id="s", at=at)
    assert memory.users() == []


def test_a_clock_without_a_timezone_is_taken_as_utc(open_memory):
    memory = open_memory(clock=lambda: datetime(2024, 3, 1, 9))
    with memory.chat("ann", session_id="s") as chat:
        chat.record("I keep bees.", "Fine.")
    assert memory.store.turns("ann", "s")[0].at == T0
