"""Whose turn it is, and which session."""

import threading
from dataclasses import dataclass
from datetime import timedelta

import pytest

from langchain_rmm._who import Sittings, Who, who
from rmm_core import InputError


@dataclass
class Context:
    user_id: str | None = None
    session_id: str | None = None


def of(**configurable):
    return {"configurable": configurable}


@pytest.mark.parametrize("context", [None, {"user_id": "ann"}, Context("ann"), Context(), {}, "text"])
def test_a_user_is_found_where_it_is_named(context):
    assert who(of(user_id="ann"), context, user_id="ann") == Who("ann", None)
    assert who(of(user_id="ann"), context) == Who("ann", None)
    assert who({"metadata": {"user_id": "ann", "user_name": "Annie"}}, context) == Who("ann", None, "Annie")
    assert who(None, context, metadata={"user_id": "ann"}) == Who("ann", None)


@pytest.mark.parametrize("config", [None, {}, of(), {"metadata": {}}, {"metadata": None}])
def test_no_user_is_an_error_that_says_where_to_name_one(config):
    with pytest.raises(InputError, match=r"no user is named.*constructor.*configurable.*metadata.*context"):
        who(config, Context())


def test_two_users_are_an_error():
    with pytest.raises(InputError, match="names 2 users, 'ann' and 'bob'"):
        who(of(user_id="bob"), user_id="ann")
    with pytest.raises(InputError, match="names 2 users, 'ann' and 'bob'"):
        who(of(user_id="bob"), Context("ann"))
    with pytest.raises(InputError, match="names 2 users, 'ann' and 'bob'"):
        who({"metadata": {"user_id": "bob"}}, user_id="ann")


def test_metadata_are_handed_down_and_give_way():
    assert who(of(user_id="bob") | {"metadata": {"user_id": "ann"}}, metadata={"user_id": "ann"}).user_id == "bob"


@pytest.mark.parametrize("bad", [7, "", "  ", b"ann"])
def test_what_cannot_name_a_user(bad):
    with pytest.raises(InputError, match="user_id is"):
        who(of(user_id=bad))


def test_the_session_that_is_named():
    assert who(of(user_id="ann", thread_id=7)).session_id == "7"
    assert who(of(thread_id="t"), {"session_id": "s"}, user_id="ann").session_id == "s"
    assert who(of(session_id="s"), user_id="ann", session_id="own").session_id == "own"
    assert who(of(thread_id="t") | {"metadata": {"user_id": "ann"}}) == Who("ann", "t")


def test_a_sitting_lasts_until_silence(clock):
    sittings, ann, bob = Sittings(clock, 30), Who("ann", None), Who("bob", None)
    first = sittings.session(ann)
    assert sittings.session(bob) != first
    clock.now += timedelta(minutes=30)
    assert sittings.session(ann) == first
    clock.now += timedelta(minutes=31)
    assert sittings.session(ann) != first
    assert sittings.session(Who("ann", "named")) == "named"


def test_a_sitting_that_is_ended(clock):
    sittings, ann = Sittings(clock, 30), Who("ann", None)
    assert sittings.end(ann) is None
    first = sittings.session(ann)
    assert sittings.end(ann) == first
    assert sittings.end(ann) is None
    assert sittings.session(ann) != first
    assert sittings.end(Who("ann", "named")) == "named"


def test_turns_at_the_same_moment_share_a_sitting(clock):
    for _ in range(50):
        sittings, start, found = Sittings(clock, 30), threading.Barrier(4), set()

        def turn(sittings=sittings, start=start, found=found):
            start.wait()
            found.add(sittings.session(Who("ann", None)))

        threads = [threading.Thread(target=turn) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 1
