"""4 workers x 8 users x 500 turns on one store; every second a worker is killed and replaced."""

import json
import os
import sys

import pytest

from tests.chaos import checks
from tests.chaos.balancer import Balancer
from tests.chaos.scenario import Clock, opened

pytestmark = [
    pytest.mark.no_cover,  # workers are processes of their own, and tracing would slow down the checks
    pytest.mark.timeout(900),  # it shares the machine with whatever else is tested
]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def place(request, tmp_path_factory):
    if request.param == "sqlite":
        return str(tmp_path_factory.mktemp("chaos") / "memory.db")
    server = request.getfixturevalue("postgres_server")
    return f"{server}{'&' if '?' in server else '?'}options=-csearch_path%3Dchaos_{os.getpid()},public"


@pytest.fixture(scope="module")
def run(place):
    return Balancer(place).play()


@pytest.fixture(scope="module")
def memory(place, run):
    with opened(place, Clock()) as memory:
        run.reflections += checks.settle(memory)
        sys.stdout.write(json.dumps(checks.figures(run, memory), indent=2) + "\n")
        yield memory


@pytest.fixture(scope="module")
def other():
    """A memory with the same history, of one process."""
    with checks.alone() as memory:
        yield memory


def test_nothing_fails_and_indexes_follow(run):
    checks.check_run(run)


def test_no_turn_is_lost_or_stored_twice(memory):
    checks.check_turns(memory)


def test_every_session_is_reflected_once(run, memory):
    checks.check_sessions(run, memory)


def test_every_turn_is_in_the_bank_and_no_memory_is_doubled(memory):
    checks.check_bank(memory)


def test_the_bank_is_that_of_one_process(memory, other):
    checks.check_same_bank(memory, other)


def test_every_answer_is_logged_once(memory):
    checks.check_log(memory)


def test_every_answer_is_learned_from_once_and_in_order(memory):
    checks.check_learner(memory)
