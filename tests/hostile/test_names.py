"""User ids of every kind, through every public method, on both databases: each its own user, or a clear error."""

# ruff: noqa: RUF001 -- look-alikes are the subject here

import asyncio
import inspect
import os
import re
import unicodedata

import pytest

from rmm_core import ConfigError, InputError, Message, NotFoundError, ReflectiveMemory, RMMConfig
from rmm_core.engine import Engine
from rmm_core.testing import HashEmbedder, ScriptedLLM
from tests.hostile import attacks

NAMES = [
    "ann", "Ann", "ANN", " ann", "ann ", "ann\n", "\tann", "ann\u200b", "\ufeffann", "\u202eann", "annn", "an",
    "é", "e\u0301", "Å", "A\u030a", "\u212b", "ﬁ", "fi", "ß", "ss", "İ", "i", "ı", "K", "\u212a",
    "مريم", "用户", "用戶", "👩‍👩‍👧", "👩👩👧", "👩🏽", "🇦🇹", "a\u0300\u0301\u0302", "\x01", "\x1b[2J", "\x7f",
    "a\u2028b", "%", "_", "a%b", "a_b", "axb", "*", "?", "[a]", "^a.*$", "\\", "'", '"', "x' OR '1'='1",
    "'; DROP TABLE turns; --",
    "../x", "a/b", "a:b", "user:ann", "store", "{0}", "%s", "None", "null", "0", "00", "1", "1.0", "true", "\u0661",
    "x" * 512, "x" * 511 + "y", "é" * 256,
]  # fmt: skip
BAD = [
    "", " ", "\n", "\u3000", "\x00", "ann\x00", "a\x00b", "\ud800", "ann\udfff", "\ud83d", "\ude00\ud83d",
    "x" * 513, "é" * 257, "x" * 10_000, None, 5, 5.0, True, b"ann", ["ann"], ("ann",), object(),
]  # fmt: skip
FILES = ("sqlite", "postgres")
T = "Where is it?"


def secret(number):
    return f"canary{number:03}x"


@pytest.fixture(scope="module", params=FILES)
def crowd(request, tmp_path_factory):
    """One database with a user of every name; each said a word of their own, in a session of their own name."""
    if request.param == "postgres":
        import psycopg

        server = request.getfixturevalue("postgres_server")
        schema = f"hostile_names_{os.getpid()}"
        place = f"{server}{'&' if '?' in server else '?'}options=-csearch_path%3D{schema},public"
    else:
        place = tmp_path_factory.mktemp("crowd") / "memory.db"
    with ReflectiveMemory.open(place, embedder=HashEmbedder(), config=RMMConfig(expire_days=30)) as memory:
        for number, name in enumerate(NAMES):
            with memory.chat(name, session_id=name) as chat:
                chat.add(Message("user", f"It is in the {secret(number)} cupboard.", key=name))
        yield memory
    if request.param == "postgres":
        with psycopg.connect(server) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


def test_the_list_holds_what_it_should():
    assert len(set(NAMES)) == len(NAMES)
    composed = [unicodedata.normalize("NFC", name) for name in NAMES]
    assert len(set(composed)) < len(NAMES)


def test_each_is_a_user_of_their_own_in_every_method(crowd):
    words = {secret(n) for n in range(len(NAMES))}
    assert set(crowd.users()) == set(NAMES)
    assert crowd.users() == sorted(NAMES)
    for number, name in enumerate(NAMES):
        own = secret(number)
        recall = crowd.recall(name, T)
        (found,) = crowd.memories(name)
        status = crowd.status(name)
        seen = {
            "recall": recall.prompt(),
            "arecall": asyncio.run(crowd.arecall(name, T)).prompt(),
            "explain": str(crowd.explain(name, T)),
            "memories": str(found),
            "get": str(crowd.get(name, found.id)),
            "turns": str(crowd.store.turns(name, name)),
            "export": "\n".join(crowd.export_user(name)),
            "ask": crowd.chat(name, session_id="another").ask("Which cupboard is it in?").text,
        }
        for method, text in seen.items():
            assert [word for word in words if word in text] == [own], (method, name)
        assert found.user_id == status.user_id == name
        assert status.sessions[0].id == name
        crowd.feedback(recall, "[1]")
        assert len(crowd.answers(name)) == len(crowd.store.feedback(user_id=name)) == 2
        others = crowd.memories(NAMES[number - 1])
        assert not crowd.delete(name, others[0].id)
        with pytest.raises(NotFoundError):
            crowd.get(name, others[0].id)
        crowd.set_consent(name, consents=False)
        assert not crowd.status(name).consents
        assert crowd.status(NAMES[number - 1]).consents
        crowd.set_consent(name, consents=True)
        assert all(r.user_id == name for r in crowd.reflect_pending(name))
        assert crowd.purge(name) == []


def unborn(line):
    """A line of an export without the number by which a database tells sessions apart."""
    return re.sub(r'"born": \d+', "", line)


def test_each_moves_to_another_database_and_is_forgotten_alone(crowd):
    with ReflectiveMemory.open(":memory:", embedder=HashEmbedder()) as other:
        for name in NAMES:
            lines = list(crowd.export_user(name))
            assert other.import_user(lines) == name
            assert [*map(unborn, other.export_user(name))] == [*map(unborn, lines)]
        for number, name in enumerate(NAMES):
            other.forget_user(name)
            assert set(other.users()) == set(NAMES[number + 1 :])


def methods():
    """Every public method that is told a user, however it is told."""
    for kind in (ReflectiveMemory, Engine):
        for name, function in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_") and "user_id" in inspect.signature(function).parameters:
                yield name


ARGUMENTS = {
    "query": T,
    "documents": {"a": "b"},
    "memory_id": "m",
    "consents": True,
    "lines": ['{"format": "reflective-memory/1", "user_id": "x"}'],
}


def outcome(memory, method, arguments):
    """What a method returns, driven to its end whatever kind it is of."""
    called = getattr(memory, method)(**arguments)
    if inspect.iscoroutine(called):
        return asyncio.run(called)
    if inspect.isgenerator(called):
        return list(called) if method == "export_user" else memory.run(called)
    return called


@pytest.mark.parametrize("method", sorted(set(methods())))
def test_what_cannot_name_a_user_is_refused_by_every_method(crowd, method):
    parameters = inspect.signature(getattr(crowd, method)).parameters
    arguments = {n: ARGUMENTS[n] for n, p in parameters.items() if n != "user_id" and p.default is p.empty}
    for bad in BAD:
        if bad is None and parameters["user_id"].default is None:
            continue  # stands for everybody, or for the id in the file
        with pytest.raises(ConfigError if method == "sync" else InputError):  # there is no store to bring up to date
            outcome(crowd, method, arguments | {"user_id": bad})


@pytest.mark.parametrize("bad", BAD[:14], ids=[ascii(b)[:12] for b in BAD[:14]])
def test_what_cannot_name_a_session_or_a_message_is_refused(crowd, bad):
    before = len(crowd.status("ann").sessions)
    with pytest.raises(InputError):
        crowd.chat("ann", session_id=bad)
    if bad:
        chat = crowd.chat("ann", session_id="keys")
        with pytest.raises(InputError):
            chat.add(Message("user", "Hello there", key=bad))
        with pytest.raises(InputError):
            chat.record("Hello there", "Hi", key=bad)
    assert len(crowd.status("ann").sessions) == before


@pytest.mark.parametrize("bad", ["\x00", "\ud800", "x" * 10_000, "'", "m" * 20])
def test_an_id_that_no_memory_has_is_not_found(crowd, bad):
    with pytest.raises(NotFoundError):
        crowd.get("ann", bad)
    assert not crowd.delete("ann", bad)


TEXTS = [attack.said for attack in attacks.ATTACKS.values()] + [
    "\x00",
    "a\ud800b",
    "\ud83d\ude00",
    "x" * 100_000,
    "\u202e\u2066",
]


@pytest.mark.parametrize("text", TEXTS, ids=[ascii(t)[:16] for t in TEXTS])
def test_any_text_can_be_said_asked_and_named(crowd, text):
    from rmm_core import Attachment

    things = (Attachment(text[:50], text[:50], text[:50]),)
    chat = crowd.chat("texts", user_name=text, agent_name=text)
    chat.add(Message("user", f"It is {text}", speaker=text, attachments=things))
    chat.record(f"Where is {text}?", f"There: {text}", crowd.recall("texts", text), attachments=things)
    assert chat.end().status in ("reflected", "nothing")
    crowd.recall("texts", text).prompt()
    lines = list(crowd.export_user("texts"))
    crowd.forget_user("texts")
    assert crowd.import_user(lines) == "texts"
    crowd.forget_user("texts")


def test_what_a_model_failed_with_moves_too(crowd):
    llm = ScriptedLLM(RuntimeError("bad \x00 gateway \ud83d"))
    with ReflectiveMemory.open(":memory:", embedder=HashEmbedder(), llm=llm) as memory:
        with memory.chat("moving") as chat:
            chat.add(Message("user", "I like tea."))
        (session,) = memory.status("moving").pending
        assert "gateway" in session.error
        crowd.import_user(memory.export_user("moving"))
    assert "gateway" in crowd.status("moving").pending[0].error
    crowd.forget_user("moving")
