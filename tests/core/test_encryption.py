"""An encrypted file: it keeps the contract, opens with its key alone, and shows nothing to who reads the disk."""

import os
import shutil
import sqlite3
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from rmm_core import ReflectiveMemory, RMMConfig, StoreClosedError, StoreError
from rmm_core.errors import WrongKeyError
from rmm_core.stores.sqlite import SQLiteStore
from rmm_core.testing import HashEmbedder, MemoryStoreContract
from rmm_core.types import Message, Session
from tests.conftest import T0

pytestmark = pytest.mark.skipif(
    find_spec("sqlcipher3") is None, reason="needs the extra 'encryption': pip install sqlcipher3"
)
ROOT = Path(__file__).parents[2]
RAW = bytes(range(32))
SAID = "The unmistakable xylophone of Zoe stands in Graz."
KEYS = ["correct horse", 'it\'s "quoted"; --', "x'00'", "Schlüssel 钥匙 🔑", "k" * 5000, RAW]


class TestEncryptedFile(MemoryStoreContract):
    @pytest.fixture
    def store(self, tmp_path):
        store = SQLiteStore(str(tmp_path / "memory.db"), key=RAW)
        yield store
        store.close()


def open_at(path, key):
    return ReflectiveMemory.open(path, key=key, embedder=HashEmbedder(), config=RMMConfig(batch_size=1))


def talk(memory, user="zoe-unmistakable", said=SAID):
    """Fill every table: turns, a memory, an answer that cites it, what was learned."""
    chat = memory.chat(user, session_id=f"session-of-{user}")
    chat.record(said, "I see.")
    chat.end()
    memory.feedback(memory.recall(user, said), "[1]")


def traces(*folders):
    """What of :func:`talk` can be read in the files of folders."""
    content = b"".join(path.read_bytes() for folder in folders for path in sorted(folder.iterdir()))
    row = HashEmbedder().embed([f"User: {SAID}"])[0]  # as its memory says it
    wanted = {
        "text": SAID.encode(),
        "word": b"xylophone",
        "user": b"zoe-unmistakable",
        "vector": (row / np.linalg.norm(row)).astype("<f4").tobytes(),
        "schema": b"CREATE TABLE",
        "format": b"SQLite format 3",
    }
    return {name for name, what in wanted.items() if what in content}


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith("-shm")}


def pages_of(folder):
    """The pages in the files of a folder, wherever in the log one begins."""
    return {
        content[start : start + 4096]
        for name, content in files_of(folder).items()
        for start in range(*((56, len(content), 4120) if name.endswith("-wal") else (0, len(content), 4096)))
    }


def process(code, *arguments, **settings):
    command = [sys.executable, "-c", f"import sys\nfrom tests.core.test_encryption import *\n{code}", *arguments]
    return subprocess.Popen(
        command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **settings
    )


def crash(folder, key):
    """Leave a file and its log as a process does that is killed."""
    code = "memory = open_at(sys.argv[1] + '/m.db', eval(sys.argv[2]))\ntalk(memory)\nos.kill(os.getpid(), 9)"
    child = process(code, str(folder), repr(key))
    assert child.communicate() == ("", "")
    assert child.returncode == -9
    assert (folder / "m.db-wal").stat().st_size > 0


@pytest.mark.parametrize("key", KEYS, ids=range(len(KEYS)))
def test_a_file_opens_with_its_key_and_no_other(tmp_path, key):
    with open_at(tmp_path / "m.db", key) as memory:
        talk(memory)
        found = memory.memories("zoe-unmistakable")
    for other in (f"{key[:-1]}?", f"{key}?", f" {key}", key.upper()) if isinstance(key, str) else (key[:-1] + b"?",):
        with pytest.raises(WrongKeyError, match="with this key: it has another one"):
            open_at(tmp_path / "m.db", other)
    with open_at(tmp_path / "m.db", key) as memory:
        assert memory.memories("zoe-unmistakable") == found
        assert memory.recall("zoe-unmistakable", SAID).shown[0].memory == found[0]


@pytest.mark.parametrize(
    ("key", "literal"), [("it's", "'it''s'"), ("k" * 100, f"'{'k' * 100}'"), (RAW, f"\"x'{RAW.hex()}'\"")]
)
def test_other_programs_with_sqlcipher_open_it(tmp_path, key, literal):
    from sqlcipher3 import dbapi2

    with open_at(tmp_path / "m.db", key) as memory:
        talk(memory)
        memory.rekey("other")
        memory.rekey(key)
    db = dbapi2.connect(str(tmp_path / "m.db"))
    db.execute(f"PRAGMA key = {literal}")
    assert db.execute("SELECT text FROM turns WHERE position = 0").fetchall() == [(SAID,)]
    db.close()


IN_USE = """
data, temp, key = Path(sys.argv[1]), Path(sys.argv[2]), eval(sys.argv[3])
memory = open_at(data / "m.db", key)
for i in range(40):
    talk(memory, f"other{i}", f"Number {i} has a xylophone. " * 60)
talk(memory)
print(sorted(traces(data, temp)))
memory.forget_user("other3")
talk(memory, "other4", "And a second xylophone.")
print(sorted(traces(data, temp)), flush=True)
if sys.argv[4] == "close":
    memory.close()
else:
    os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("ending", ["close", "kill"])
@pytest.mark.parametrize("key", ["correct horse", RAW, None], ids=["passphrase", "bytes", "plain"])
def test_nothing_can_be_read_on_the_disk(tmp_path, key, ending):
    data, temp = tmp_path / "data", tmp_path / "temp"
    data.mkdir()
    temp.mkdir()
    untouched = temp.stat().st_mtime_ns
    places = dict.fromkeys(("SQLITE_TMPDIR", "TMPDIR", "TMP", "TEMP"), str(temp))
    child = process(IN_USE, str(data), str(temp), repr(key), ending, env=os.environ | places)
    out, err = child.communicate()
    assert (child.returncode, err) == (0 if ending == "close" else -9, "")
    everything = ["format", "schema", "text", "user", "vector", "word"]
    expected = everything if key is None else []  # the first shows that looking finds
    assert out.splitlines() == [str(expected)] * 2
    assert sorted(traces(data, temp)) == expected
    assert (data / "m.db-wal").exists() == (ending == "kill")
    assert temp.stat().st_mtime_ns == untouched  # not even a file that was unlinked at once
    with open_at(data / "m.db", key) as memory:
        assert SAID in memory.recall("zoe-unmistakable", SAID).shown[0].memory.summary
    assert sorted(traces(data, temp)) == expected


@pytest.mark.parametrize("left", ["closed", "crashed"])
@pytest.mark.parametrize(
    ("key", "other", "message"),
    [
        (RAW, RAW[::-1], "with this key: it has another one, or is no encrypted memory. Nothing was changed"),
        ("correct horse", "wrong horse", "open it with the key that it was given last"),
        (RAW, None, "it is encrypted, or no SQLite file at all. An encrypted memory is opened with its key"),
        (None, "wrong horse", "it is not encrypted. Open it without a key; to encrypt what it holds, open a new file"),
    ],
    ids=["bytes", "passphrase", "no key", "plain"],
)
def test_the_wrong_key_changes_nothing(tmp_path, key, other, message, left):
    crash(tmp_path, key)
    if left == "closed":
        open_at(tmp_path / "m.db", key).close()
    before = files_of(tmp_path)
    assert ("m.db-wal" in before) == (left == "crashed")
    with pytest.raises(WrongKeyError, match=message) as caught:
        open_at(tmp_path / "m.db", other)
    assert "m.db" in str(caught.value)
    assert files_of(tmp_path) == before
    with open_at(tmp_path / "m.db", key) as memory:
        assert len(memory.memories("zoe-unmistakable")) == 1


def test_a_file_of_something_else_is_refused_with_a_key(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_bytes(b"not a database, but long enough to be taken for one" * 400)
    with pytest.raises(WrongKeyError, match=r"notes\.txt' with this key: .* or is no encrypted memory"):
        open_at(path, RAW)
    assert len(path.read_bytes()) == 51 * 400
    with pytest.raises(StoreError, match="is its folder there"):
        open_at(tmp_path / "nowhere" / "m.db", RAW)
    path.write_bytes(b"")  # as tempfile makes them
    open_at(path, RAW).close()
    assert traces(tmp_path) == set()


def test_what_a_plain_file_holds_moves_into_an_encrypted_one(tmp_path):
    with open_at(tmp_path / "m.db", None) as plain, open_at(tmp_path / "new.db", RAW) as memory:
        talk(plain)
        for user in plain.users():
            memory.import_user(plain.export_user(user))
        assert memory.memories("zoe-unmistakable") == plain.memories("zoe-unmistakable")


def refuse(*arguments, **settings):
    raise AssertionError("the file was touched")


def test_one_process_does_not_open_a_file_with_two_libraries(tmp_path, monkeypatch):
    memory = open_at(tmp_path / "m.db", RAW)
    plain = open_at(tmp_path / "plain.db", None)
    (tmp_path / "link.db").symlink_to(tmp_path / "m.db")
    with monkeypatch.context() as patch:
        patch.setattr("sqlite3.connect", refuse)
        patch.setattr("sqlcipher3.dbapi2.connect", refuse)
        for name in ("m.db", "link.db"):
            with pytest.raises(WrongKeyError, match="it is encrypted"):
                open_at(tmp_path / name, None)
        with pytest.raises(WrongKeyError, match="it is not encrypted"):
            open_at(tmp_path / "plain.db", RAW)
    memory.close()
    plain.close()
    (tmp_path / "m.db").unlink()
    open_at(tmp_path / "m.db", None).close()


# -- another key -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"), [("old horse", "it's new"), ("old horse", RAW), (RAW, "new"), (RAW, RAW[::-1])]
)
def test_nothing_opens_with_the_earlier_key(tmp_path, old, new):
    memory = open_at(tmp_path / "m.db", old)
    talk(memory)
    for i in range(5):
        talk(memory, f"user{i}", f"Number {i} plays too. " * 80)
    memory.forget_user("user3")  # free pages are pages too
    before = pages_of(tmp_path)
    memory.rekey(new)
    after = pages_of(tmp_path)
    assert not before & after
    assert len(after) > 20
    assert (tmp_path / "m.db-wal").stat().st_size == 0
    talk(memory, "later")
    (tmp_path / "copy").mkdir()
    shutil.copy(tmp_path / "m.db", tmp_path / "copy" / "m.db")
    memory.close()
    for path in (tmp_path / "m.db", tmp_path / "copy" / "m.db"):
        with pytest.raises(WrongKeyError, match="with this key"):
            open_at(path, old)
        with open_at(path, new) as memory:
            assert SAID in memory.memories("zoe-unmistakable")[0].summary
    with open_at(tmp_path / "m.db", new) as memory:
        assert memory.users() == ["later", "user0", "user1", "user2", "user4", "zoe-unmistakable"]


def attempts(memory):
    """What each way of using a memory says, the reading ones and the writing ones."""
    uses = [
        memory.users,
        lambda: memory.recall("zoe-unmistakable", SAID),
        lambda: talk(memory, "late"),
        lambda: memory.forget_user("zoe-unmistakable"),
        lambda: memory.rekey("third"),
        memory.users,
    ]
    for number in range(len(uses)):
        try:
            uses[number]()
        except StoreError as error:
            yield type(error).__name__, str(error)
        else:
            yield "nothing", ""


def test_another_process_is_told_that_the_key_changed(tmp_path):
    memory = open_at(tmp_path / "m.db", "old horse")
    talk(memory)
    code = """
memory = open_at(sys.argv[1], "old horse")
print(len(memory.recall("zoe-unmistakable", SAID).shown), flush=True)
input()
for name, message in attempts(memory):
    print(name, "another process gave it another key" in message, "horse" in message)
memory.store.close()"""
    child = process(code, str(tmp_path / "m.db"))
    assert child.stdout.readline() == "1\n"
    memory.rekey("new horse")
    out, err = child.communicate("\n")
    assert (out.splitlines(), err) == (["WrongKeyError True False"] * 6, "")
    assert len(memory.memories("zoe-unmistakable")) == 1  # they did no harm
    assert memory.users() == ["zoe-unmistakable"]
    memory.close()
    open_at(tmp_path / "m.db", "new horse").close()


@pytest.mark.parametrize("first", range(4))
def test_whichever_use_comes_first_is_told(tmp_path, first):
    memory = open_at(tmp_path / "m.db", RAW)
    talk(memory)
    other = open_at(tmp_path / "m.db", RAW)
    other.users()
    memory.rekey(RAW[::-1])
    uses = [
        lambda: other.store._file.scrub(whole=True),
        lambda: other.store.append("zoe-unmistakable", "session-of-zoe-unmistakable", [Message("user", "x")], at=T0),
        lambda: other.rekey(RAW),
        other.users,
    ]
    for use in (uses[first], *uses):
        with pytest.raises(WrongKeyError, match="another process gave it another key"):
            use()
    other.store.close()
    assert SAID in memory.memories("zoe-unmistakable")[0].summary
    memory.close()


def test_a_reader_keeps_pages_of_the_earlier_key_and_that_is_admitted(tmp_path):
    memory = open_at(tmp_path / "m.db", RAW)
    talk(memory)
    other = SQLiteStore(str(tmp_path / "m.db"), key=RAW)
    before = pages_of(tmp_path)
    memory.store._file._db.execute("PRAGMA busy_timeout = 100")
    with other._file.read() as db:
        db.execute("SELECT count(*) FROM turns").fetchone()
        with pytest.raises(StoreError, match="call rekey again then"):
            memory.rekey("new")
    assert before & pages_of(tmp_path)
    other.close()
    memory.rekey("new")
    assert not before & pages_of(tmp_path)
    memory.close()
    open_at(tmp_path / "m.db", "new").close()


def test_a_writer_is_not_overtaken(tmp_path):
    memory = open_at(tmp_path / "m.db", RAW)
    other = SQLiteStore(str(tmp_path / "m.db"), key=RAW)
    memory.store._file._db.execute("PRAGMA busy_timeout = 100")
    with other._file.write(), pytest.raises(StoreError, match="locked"):
        memory.rekey("new")
    talk(memory)
    other.close()
    memory.close()
    with open_at(tmp_path / "m.db", RAW) as memory:
        assert memory.users() == ["zoe-unmistakable"]


FULL_DISK = """
import resource
memory = open_at(sys.argv[1], "old horse")
for i in range(60):
    memory.chat(f"user{i}").record("A long story. " * 2000, "I see.")
memory.store._file.scrub(whole=False)
size = Path(sys.argv[1]).stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, resource.RLIM_INFINITY))
for attempt in (lambda: memory.rekey("new horse"), memory.users):
    try:
        attempt()
    except StoreError as error:
        print(type(error).__name__, error)
"""


def test_a_full_disk_leaves_the_earlier_key(tmp_path):
    child = process(FULL_DISK, str(tmp_path / "m.db"))
    out, err = child.communicate()
    first, second = out.splitlines()
    assert first.startswith("StoreError ")
    assert "was not given another key, and this memory is closed; open it again" in first
    assert second.startswith(StoreClosedError.__name__)
    assert "horse" not in out + err
    with pytest.raises(WrongKeyError):
        open_at(tmp_path / "m.db", "new horse")
    with open_at(tmp_path / "m.db", "old horse") as memory:
        assert len(memory.users()) == 60
        assert memory.store._file._db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert memory.store._file._db.execute("PRAGMA cipher_integrity_check").fetchall() == []


def test_a_kill_after_the_new_key_leaves_the_new_key(tmp_path):
    code = """
import rmm_core.stores._file as file
file.SQLiteFile._tidy = lambda *arguments: os.kill(os.getpid(), 9)
memory = open_at(sys.argv[1], "old horse")
talk(memory)
memory.rekey("new horse")"""
    assert process(code, str(tmp_path / "m.db")).communicate() == ("", "")
    before = files_of(tmp_path)
    assert before["m.db-wal"]
    with pytest.raises(WrongKeyError):
        open_at(tmp_path / "m.db", "old horse")
    assert files_of(tmp_path) == before
    with open_at(tmp_path / "m.db", "new horse") as memory:
        assert SAID in memory.memories("zoe-unmistakable")[0].summary


# -- the key itself ----------------------------------------------------------------------


def held_by(thing, seen):
    """Every text and bytes that an object of ours holds, however deep."""
    if id(thing) in seen:
        return
    seen[id(thing)] = thing
    if isinstance(thing, str | bytes):
        yield thing
    elif isinstance(thing, dict):
        for part in thing.items():
            yield from held_by(part, seen)
    elif isinstance(thing, list | tuple | set | frozenset):
        for part in thing:
            yield from held_by(part, seen)
    elif type(thing).__module__.startswith("rmm_core"):
        names = {n for c in type(thing).__mro__ for n in getattr(c, "__slots__", ())} | set(
            getattr(thing, "__dict__", ())
        )
        for name in names:
            yield from held_by(getattr(thing, name, None), seen)


@pytest.mark.parametrize("key", ["correct horse", RAW], ids=["passphrase", "bytes"])
def test_a_key_is_kept_and_told_nowhere(tmp_path, key, caplog, capfd):
    caplog.set_level(0)
    forms = [key] if isinstance(key, str) else [key.hex(), repr(key)]
    told = []
    memory = open_at(tmp_path / "m.db", key)
    talk(memory)
    other = open_at(tmp_path / "m.db", key)
    held = [str(what) for what in held_by(memory, {})]
    assert str(tmp_path / "m.db") in held  # it looks everywhere
    memory.rekey(key)
    memory.rekey(key[::-1])
    told += [message for _, message in attempts(other)] + [repr(memory), repr(memory.store), repr(memory.store._file)]
    other.store.close()
    memory.close()
    told += [message for _, message in attempts(memory)]
    for wrong in (key, None):
        with pytest.raises(WrongKeyError) as caught:
            open_at(tmp_path / "m.db", wrong)
        told += [repr(caught.value), repr(caught.value.__cause__), repr(caught.value.__context__)]
    told += [caplog.text, *capfd.readouterr()]
    assert capfd.readouterr().err == ""
    for form in (*forms, *(form[::-1] for form in forms)):
        assert not [what for what in (*told, *held) if form in what]


def test_standard_error_stays_empty(tmp_path, capfd):
    open_at(tmp_path / "m.db", RAW).close()
    with pytest.raises(WrongKeyError):
        open_at(tmp_path / "m.db", "wrong")
    assert capfd.readouterr().err == ""  # SQLCipher has a log of its own there


def test_long_texts_and_much_of_them(tmp_path):
    texts = ["🐝" * 300_000, *(f"{i}: {'word ' * 2000}" for i in range(300))]
    store = SQLiteStore(str(tmp_path / "m.db"), key=RAW)
    store.open_session(Session("ann", "s", "Ann", "Bot", T0, T0))
    store.append("ann", "s", [Message("user", text) for text in texts], at=T0)
    store.rekey("larger than what SQLite keeps of it in memory")
    assert [turn.text for turn in store.turns("ann", "s")] == texts
    store.close()
    with pytest.raises(sqlite3.DatabaseError):
        sqlite3.connect(tmp_path / "m.db").execute("SELECT * FROM turns")
