"""Files that a disk, a cable or a cosmic ray damaged: a clear error or an answer, and never another user's data.

What was damaged inside of a text cannot be seen by anybody who holds no second copy; a file with a key is told apart
in every bit, since SQLCipher signs its pages.
"""

import random
import warnings

import numpy as np
import pytest

from rmm_core import Attachment, InputError, Message, ReflectiveMemory, RMMConfig, StoreError
from rmm_core.learned import Learned
from rmm_core.stores import _talk
from rmm_core.stores._rows import FEEDBACK_COLUMNS
from rmm_core.testing import HashEmbedder, ScriptedLLM
from tests.hostile import FUZZ

PAGE = 4096
USERS = {"alice-aaaaaaaa": "ZANZIBAR", "robert-bbbbbbbb": "QUOKKA", "xxyyzz-cccccc": "MANATEE"}
FACT = '{{"extracted_memories": [{{"summary": "likes {}, number {}", "reference": [0]}}]}}'


def fill(memory, llm):
    """Everything a file can hold, of three users: turns, attachments, topics with history, answers, a learner."""
    for user, word in USERS.items():
        for number in range(5):
            llm.enqueue(
                FACT.format(word, number), *([] if not number else ["Merge(0, more)" if number == 2 else "Add()"])
            )
            with memory.chat(user, session_id=f"s{number}") as chat:
                chat.add(
                    Message("user", f"I like {word}, {number}.", attachments=(Attachment("image", "x", word),)),
                    Message("agent", f"{word} is nice. " * 20),
                )
        for number in range(6):
            memory.feedback(memory.recall(user, f"{word}, {number}"), "[1]" if number % 2 else "[2]")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The bytes of a file that is as it should be."""
    path = tmp_path_factory.mktemp("whole") / "memory.db"
    llm = ScriptedLLM()
    with ReflectiveMemory.open(path, embedder=HashEmbedder(), llm=llm, config=RMMConfig(speakers=("user",))) as memory:
        fill(memory, llm)
        assert memory.check() == ()
    return path.read_bytes()


def flipped(data, rng):
    """A few bits anywhere, or where a page says what is where in it."""
    damaged = bytearray(data)
    start, size = (0, len(data)) if rng.random() < 0.6 else (rng.randrange(len(data) // PAGE) * PAGE, 120)
    for _ in range(rng.choice([1, 1, 2, 4, 16, 64])):
        damaged[start + rng.randrange(size)] ^= 1 << rng.randrange(8)
    return damaged


def overwritten(data, rng):
    """Random bytes, or zeros, in the place of others."""
    damaged = bytearray(data)
    size = rng.choice([1, 8, 64, 512, PAGE])
    at = rng.randrange(len(data) - size)
    damaged[at : at + size] = rng.randbytes(size) if rng.random() < 0.7 else bytes(size)
    return damaged


def misplaced(data, rng):
    """A page where another should be."""
    damaged = bytearray(data)
    one, other = (PAGE * n for n in rng.sample(range(1, len(data) // PAGE), 2))
    damaged[one : one + PAGE] = data[other : other + PAGE]
    if rng.random() < 0.5:
        damaged[other : other + PAGE] = data[one : one + PAGE]
    return damaged


def cut(data, rng):
    """A file that ends too early."""
    return data[: rng.randrange(len(data))]


def steps(memory, user):
    """All that is done with a memory, the erasure last."""
    chat = memory.chat(user, session_id="new")
    yield "recall", lambda: memory.recall(user, "What do I like?").prompt()
    yield "explain", lambda: memory.explain(user, "What do I like?")
    yield "memories", lambda: memory.memories(user)
    yield "status", lambda: memory.status(user)
    yield "answers", lambda: memory.answers(user)
    yield "export", lambda: list(memory.export_user(user))
    yield "record", lambda: chat.record("What do I like?", "Tea [1].", memory.recall(user, "What do I like?")).text
    yield "ask", lambda: chat.ask("What else do I like?").text
    yield "end", chat.end
    yield "pending", lambda: [r for r in memory.reflect_pending() if r.user_id == user]
    yield "unlearn", lambda: memory.unlearn(1, user_id=user)
    yield "delete", lambda: [memory.delete(user, m.id) for m in memory.memories(user)[:1]]
    yield "check", lambda: [f.what for f in memory.check()] and ""
    yield "repair", lambda: memory.repair() and ""
    yield "users", lambda: memory.users() and ""
    yield "forget", lambda: memory.forget_user(user)


def tried(path, user):
    """What each step gave: a text, or the error of the database."""
    try:
        memory = ReflectiveMemory.open(path, embedder=HashEmbedder())
    except StoreError as error:
        return {"open": error}
    found = {}
    for name, step in steps(memory, user):
        try:
            found[name] = str(step())
        except StoreError as error:
            found[name] = error
    memory.store.close()
    return found


@pytest.mark.parametrize("damage", [flipped, overwritten, misplaced, cut])
def test_a_damaged_file_gives_errors_or_answers_and_nothing_of_others(whole, damage, tmp_path):
    errors = 0
    for seed in range(24 * FUZZ):
        rng = random.Random(seed)
        path = tmp_path / f"{seed}.db"
        path.write_bytes(damage(whole, rng))
        user = rng.choice(list(USERS))
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of numpy: a number that is none would spoil what all users share
            found = tried(path, user)
        for name, text in found.items():
            errors += isinstance(text, StoreError)
            if isinstance(text, str):
                leaked = [word for other, word in USERS.items() if other != user and word in text]
                assert not leaked, (damage.__name__, seed, name)
        for file in tmp_path.glob(f"{seed}.db*"):
            file.unlink()
    assert errors, "nothing was damaged: this test cannot fail"


def test_a_check_tells_of_a_page_that_was_overwritten(whole, tmp_path):
    silent, free = [], int.from_bytes(whole[36:40])  # pages that hold nothing: the header counts them
    for number in range(1, len(whole) // PAGE):
        path = tmp_path / "memory.db"
        path.write_bytes(whole[: number * PAGE] + bytes([7]) * PAGE + whole[(number + 1) * PAGE :])
        try:
            with ReflectiveMemory.open(path, embedder=HashEmbedder()) as memory:
                if not memory.check():
                    silent.append(number)
        except StoreError:
            pass
        for file in tmp_path.iterdir():
            file.unlink()
    assert len(silent) <= free  # nobody reads those


def test_every_flipped_bit_of_a_file_with_a_key_is_told(tmp_path):
    pytest.importorskip("sqlcipher3", reason="needs the extra 'encryption'")
    path, key, llm = tmp_path / "memory.db", bytes(range(32)), ScriptedLLM()
    config = RMMConfig(speakers=("user",))
    with ReflectiveMemory.open(path, key=key, embedder=HashEmbedder(), llm=llm, config=config) as memory:
        fill(memory, llm)
    data = path.read_bytes()
    for seed in range(12 * FUZZ):
        rng = random.Random(seed)
        damaged = bytearray(data)
        damaged[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            with ReflectiveMemory.open(path, key=key, embedder=HashEmbedder()) as memory:
                assert memory.check(), seed
        except StoreError:
            continue
        finally:
            for file in tmp_path.glob("memory.db-*"):
                file.unlink()


def test_a_number_that_is_none_reaches_no_ranking(tmp_path):
    llm = ScriptedLLM()
    path, config = tmp_path / "memory.db", RMMConfig(speakers=("user",))
    with ReflectiveMemory.open(path, embedder=HashEmbedder(), llm=llm, config=config) as memory:
        fill(memory, llm)
        bad = np.full(64, np.nan, dtype="<f4").tobytes()
        memory.store._file._db.execute("UPDATE memories SET embedding = ? WHERE user_id = 'alice-aaaaaaaa'", (bad,))
    with ReflectiveMemory.open(path, embedder=HashEmbedder()) as memory:
        with pytest.raises(StoreError, match="damaged"):
            memory.recall("alice-aaaaaaaa", "What do I like?")
        assert "QUOKKA" in memory.recall("robert-bbbbbbbb", "What do I like?").prompt()
        assert len(list(memory.export_user("robert-bbbbbbbb"))) > 5


def test_an_index_that_leads_to_another_users_row_is_noticed(whole, tmp_path):
    path = tmp_path / "memory.db"
    path.write_bytes(whole)
    with ReflectiveMemory.open(path, embedder=HashEmbedder()) as memory:
        roots = memory.store._file._db.execute(
            "SELECT rootpage FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'memories'"
        ).fetchall()
    data = bytearray(whole)
    for (root,) in roots:
        start = (root - 1) * PAGE
        assert data[start] == 10, "an index of one page, its leaf"
        data[start : start + PAGE] = data[start : start + PAGE].replace(b"alice-aaaaaaaa", b"alicf-aaaaaaaa")
    path.write_bytes(data)
    with ReflectiveMemory.open(path, embedder=HashEmbedder()) as memory:
        for step in (memory.memories, memory.status, lambda user: list(memory.export_user(user))):
            with pytest.raises(StoreError, match="of another user"):
                step("alicf-aaaaaaaa")
        assert any(finding.kind == "file" for finding in memory.check())


def test_a_damaged_learner_is_one_that_has_learned_nothing(whole, tmp_path):
    path = tmp_path / "memory.db"
    path.write_bytes(whole)
    with ReflectiveMemory.open(path, embedder=HashEmbedder()) as memory:
        content = memory.store.learner_state("store").content
        for seed in range(400 * FUZZ):
            rng = random.Random(seed)
            damaged = bytearray(content)
            for _ in range(rng.choice([1, 1, 2, 8])):
                damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
            try:
                Learned.unpack(bytes(damaged), memory.config, 1)
            except InputError:
                continue


class Astray:
    """A connection that gives rows in an order that a damaged table has."""

    def __init__(self, rows):
        self.rows = rows

    def execute(self, statement, values=()):
        return self

    def fetchall(self):
        return self.rows


def test_a_learning_log_out_of_order_is_not_read_for_ever(whole, tmp_path):
    path = tmp_path / "memory.db"
    path.write_bytes(whole)
    with ReflectiveMemory.open(path, embedder=HashEmbedder()) as memory:
        rows = memory.store._file._db.execute(
            f"SELECT number, {FEEDBACK_COLUMNS} FROM feedback ORDER BY number"
        ).fetchall()
        assert len(_talk.logged(Astray(rows), 0, 99, None)) == len(rows) > 3
        for order in (rows[::-1], [rows[0], rows[0]], [rows[1], rows[0], rows[2]]):
            with pytest.raises(StoreError, match="not in its order"):
                _talk.logged(Astray(order), 0, 99, None)
        with pytest.raises(StoreError, match="not in its order"):
            _talk.logged(Astray(rows), rows[0][0], 99, None)
