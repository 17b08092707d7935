"""Files of an export that were edited, cut, mixed up or made up: imported whole, or refused with nothing stored."""

import json
import random
import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmm_core import Attachment, InputError, Message, ReflectiveMemory, RMMConfig
from rmm_core.testing import HashEmbedder, ScriptedLLM
from tests.conftest import T0
from tests.hostile import scaled

FACTS = '{"extracted_memories": [{"summary": "Ann keeps bees", "reference": [0]}]}'


def a_memory(place=":memory:", llm=None):
    return ReflectiveMemory.open(
        place, embedder=HashEmbedder(), llm=llm, config=RMMConfig(speakers=("user",)), clock=lambda: T0
    )


@pytest.fixture(scope="module")
def lines():
    """An export with everything in it: two sessions, an attachment, a topic with history, unfiled turns."""
    llm = ScriptedLLM(FACTS, "NO_TRAIT", FACTS, "Merge(0, Ann keeps bees in Graz)")
    with a_memory(llm=llm) as memory:
        for name in ("s1", "s2", "s3"):
            with memory.chat("ann", session_id=name) as chat:
                chat.add(
                    Message("user", f"I keep bees, {name}.", attachments=(Attachment("image", "x.png", "a hive"),)),
                    Message("agent", "Lovely."),
                )
        assert llm.left == 0
        assert memory.memories("ann", kind="topic")[0].history
        return list(memory.export_user("ann"))


def imported(lines):
    """What is there after an import: the memory, or None when it was refused."""
    memory = a_memory()
    try:
        user = memory.import_user(lines)
    except InputError:
        assert memory.users() == []
        assert memory.store.width() is None
        left = "SELECT (SELECT count(*) FROM turns) + (SELECT count(*) FROM evidence) + (SELECT count(*) FROM memories)"
        assert memory.store._file._db.execute(left).fetchone() == (0,)
        memory.close()
        return None
    return memory, user


def unborn(line):
    """A line without the number by which a database tells sessions apart: lines may come in another order."""
    return re.sub(r'"born": \d+', "", line)


def usable(found):
    """What was imported can be used like anything else; it is let go of then."""
    memory, user = found
    memory.status(user)
    memory.memories(user)
    recall = memory.recall(user, "bees?")
    recall.prompt()
    exported = list(memory.export_user(user))
    assert exported
    memory.forget_user(user)
    with a_memory() as other:
        assert other.import_user(exported) == user
        assert [*map(unborn, other.export_user(user))] == [*map(unborn, exported)]
    memory.close()


NUMBERS = (True, 0, -1, 1, 7, 2**31, 2**63, 10**30, -(2**63) - 1, 1.5, float("nan"), float("inf"))
TEXTS = ("", " ", "x", "\x00", "\ud800", "é" * 3000, "user", "topic", "2024-03-01", "2024-03-01T09:00:00+00:00")
ENDS_OF_TIME = ("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59")
TURN = {"session_id": "s1", "index": 10**20}
VALUES = st.sampled_from((None, *NUMBERS, *TEXTS, *ENDS_OF_TIME, [], [[]], ["x"], {}, {"x": 1}, [TURN], TURN))


def places(value, path=()):
    """Every place in a document."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def changed(document, path, change):
    """The document with the value at a place changed, or gone."""
    if not path:
        return change(document)
    copy = dict(document) if isinstance(document, dict) else list(document)
    try:
        copy[path[0]] = changed(copy[path[0]], path[1:], change)
    except KeyError:
        del copy[path[0]]
    return copy


def gone(_):
    raise KeyError


@scaled(150)
@given(data=st.data())
def test_a_value_of_another_kind(lines, data):
    documents = [json.loads(line) for line in lines]
    for _ in range(data.draw(st.integers(1, 2))):
        number = data.draw(st.integers(0, len(documents) - 1))
        path = data.draw(st.sampled_from(list(places(documents[number]))))
        value = data.draw(VALUES)
        how = data.draw(
            st.sampled_from([lambda _, new=value: new, gone, lambda old: [old, old], lambda old: {"x": old}])
        )
        with suppress(IndexError, TypeError, KeyError):
            documents[number] = changed(documents[number], path, how)
    if (found := imported([json.dumps(d) for d in documents])) is not None:
        usable(found)


@scaled(60)
@given(data=st.data())
def test_a_line_that_was_edited(lines, data):
    edited = list(lines)
    for _ in range(data.draw(st.integers(1, 3))):
        number = data.draw(st.integers(0, len(edited) - 1))
        line = edited[number]
        start = data.draw(st.integers(0, len(line)))
        stop = min(len(line), start + data.draw(st.integers(0, 6)))
        edited[number] = line[:start] + data.draw(st.text(max_size=4)) + line[stop:]
    if (found := imported(edited)) is not None:
        usable(found)


@scaled(60)
@given(order=st.lists(st.integers(0, 7), max_size=12))
def test_lines_that_are_missing_doubled_or_in_another_order(lines, order):
    if (found := imported([lines[i % len(lines)] for i in order])) is not None:
        usable(found)


def test_a_file_cut_at_any_byte(lines):
    whole = "\n".join(lines)
    for end in range(0, len(whole), 7):
        if (found := imported(whole[:end].splitlines())) is not None:
            found[0].close()


def test_nested_a_hundred_thousand_deep(lines):
    for bracket in ("[", '{"memory":'):
        assert imported([lines[0], bracket * 100_000]) is None
        assert imported([bracket * 100_000]) is None


def test_bytes_that_are_no_text(lines):
    rng = random.Random(0)
    for _ in range(20):
        junk = rng.randbytes(200).decode("utf-8", "surrogateescape")
        assert imported([lines[0], junk]) is None
        assert imported([junk]) is None
