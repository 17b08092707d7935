"""Places where no memory can be, disks that are full or read-only: a clear error, and what was stored stays."""

import os
import sqlite3
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmm_core import ConfigError, Message, ReflectiveMemory, RMMConfig, StoreError
from rmm_core.testing import HashEmbedder, ScriptedLLM


def opened(place, **settings):
    return ReflectiveMemory.open(place, embedder=HashEmbedder(), **settings)


# -- places ----------------------------------------------------------------------------------


def a_folder(tmp_path):
    return tmp_path


def a_folder_that_is_not_there(tmp_path):
    return tmp_path / "no" / "memory.db"


def a_file_in_the_place_of_a_folder(tmp_path):
    (tmp_path / "file").write_text("x")
    return tmp_path / "file" / "memory.db"


def a_text(tmp_path):
    (tmp_path / "memory.db").write_text("Dear diary, " * 1_000)
    return tmp_path / "memory.db"


def another_programs_database(tmp_path):
    with sqlite3.connect(tmp_path / "memory.db") as db:
        db.execute("CREATE TABLE turns (x)")
    db.close()
    return tmp_path / "memory.db"


def half_a_database(tmp_path):
    opened(tmp_path / "whole.db").close()
    (tmp_path / "memory.db").write_bytes((tmp_path / "whole.db").read_bytes()[:5_000])
    return tmp_path / "memory.db"


def a_loop_of_links(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    return tmp_path / "a"


def a_link_to_nothing(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "no" / "memory.db")
    return tmp_path / "a"


def a_name_too_long(tmp_path):
    return tmp_path / ("x" * 300)


def a_path_too_long(tmp_path):
    return str(tmp_path) + "/x" * 5_000


def a_name_with_a_nul(tmp_path):
    return f"{tmp_path}/a\x00b"


def half_a_character(tmp_path):
    return f"{tmp_path}/\ud800"


def a_device(tmp_path):
    return "/dev/full"


PLACES = [
    a_folder,
    a_folder_that_is_not_there,
    a_file_in_the_place_of_a_folder,
    a_text,
    another_programs_database,
    half_a_database,
    a_loop_of_links,
    a_link_to_nothing,
    a_name_too_long,
    a_path_too_long,
    a_name_with_a_nul,
    half_a_character,
    a_device,
]


def everything_in(folder):
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file() and not p.is_symlink()}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("key", [None, bytes(range(32))], ids=["plain", "with a key"])
def test_where_no_memory_can_be_is_told_and_left_as_it_is(place, key, tmp_path):
    if key is not None:
        pytest.importorskip("sqlcipher3", reason="needs the extra 'encryption'")
    where = place(tmp_path)
    before = everything_in(tmp_path)
    with pytest.raises((StoreError, ConfigError)) as raised:
        opened(where, key=key)
    assert len(str(raised.value)) > 20
    assert everything_in(tmp_path) == before


def test_a_link_to_a_memory_is_that_memory(tmp_path):
    (tmp_path / "link.db").symlink_to(tmp_path / "memory.db")
    with opened(tmp_path / "link.db") as memory, memory.chat("ann") as chat:
        chat.record("I keep bees.", "Fine.")
    with opened(tmp_path / "memory.db") as memory:
        assert memory.users() == ["ann"]


def test_a_name_that_is_no_utf_8_is_a_name(tmp_path):
    place = os.fsdecode(bytes(tmp_path) + b"/m\xff.db")
    with opened(place) as memory, memory.chat("ann") as chat:
        chat.record("I keep bees.", "Fine.")
    with opened(place) as memory:
        assert memory.users() == ["ann"]


@contextmanager
def nobody():
    """Somebody without rights, where the tests run as root, whom nobody refuses anything."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("mode", [0o000, 0o555])
def test_a_folder_without_permission(tmp_path, mode):
    folder = tmp_path / "folder"
    folder.mkdir()
    opened(folder / "memory.db").close()
    before = everything_in(folder)
    folder.chmod(mode)
    (folder / "memory.db").chmod(0o444) if mode == 0o555 else None
    try:
        with nobody(), pytest.raises(StoreError):
            opened(folder / "memory.db")
        with nobody(), pytest.raises(StoreError):
            opened(folder / "new.db")
    finally:
        folder.chmod(0o755)
    assert everything_in(folder) == before


# -- disks -----------------------------------------------------------------------------------


def mount(*arguments):
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip() or f"mount ended with {done.returncode}"


@pytest.fixture
def disk(tmp_path):
    """A disk of two megabytes; ``disk("size=8m")`` and ``disk("ro")`` mount it anew."""
    if sys.platform != "linux" or os.geteuid():
        pytest.skip("only root of a Linux machine mounts a small disk")
    place = tmp_path / "disk"
    place.mkdir()
    if problem := mount("-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)):
        pytest.skip(f"no disk can be mounted here: {problem}")

    def again(options):
        assert mount("-o", f"remount,{options}", str(place)) == ""

    again.place = place
    yield again
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill_up(memory):
    """Say things until the disk is full; what was stored, and what was not."""
    chat = memory.chat("ann", session_id="s")
    said = []
    for number in range(10_000):
        text = f"{number}: I keep bees. " + "Really! " * 500
        try:
            chat.record(text, "Fine.")
        except StoreError:
            return said, text
        said += [text, "Fine."]
    raise AssertionError("the disk is never full")


def test_on_a_full_disk_a_turn_that_cannot_be_stored_raises_and_what_was_stored_is_there(disk):
    memory = opened(disk.place / "memory.db")
    said, lost = fill_up(memory)
    assert len(said) > 100
    assert [t.text for t in memory.store.turns("ann", "s")] == said
    with pytest.raises(StoreError, match="full"):
        memory.chat("bob", session_id="t").record("x" * 100_000, "Fine.")
    assert memory.status("ann").turns == len(said)
    disk("size=16m")
    memory.chat("ann", session_id="s").record(lost, "Fine.")  # there is room again: nothing has to be opened anew
    memory.store.close()
    with opened(disk.place / "memory.db") as memory:
        assert [t.text for t in memory.store.turns("ann", "s")] == [*said, lost, "Fine."]
        assert {f.kind for f in memory.check()} <= {"pending"}


def test_a_reflection_that_finds_the_disk_full_leaves_its_session_pending(disk):
    facts = '{"extracted_memories": [{"summary": "' + "Ann keeps bees. " * 20_000 + '", "reference": [0]}]}'
    llm = ScriptedLLM(facts)
    memory = opened(disk.place / "memory.db", llm=llm, config=RMMConfig(speakers=("user",)))
    chat = memory.chat("ann", session_id="s")
    chat.add(Message("user", "I keep bees."))
    (disk.place / "other").write_bytes(bytes(1_400_000))
    with pytest.raises(OSError, match="space"):
        (disk.place / "rest").write_bytes(bytes(2_000_000))
    with pytest.raises(StoreError, match="full"):  # not even the failure can be noted
        chat.end()
    assert memory.memories("ann") == ()
    (disk.place / "rest").unlink()
    (disk.place / "other").unlink()
    llm.enqueue("NO_TRAIT")
    assert chat.end().status in ("nothing", "reflected")
    assert memory.status("ann").pending == ()
    memory.store.close()


def test_a_disk_that_becomes_read_only_loses_nothing(disk):
    memory = opened(disk.place / "memory.db")
    chat = memory.chat("ann", session_id="s")
    chat.record("I keep bees.", "Fine.")
    memory.store.close()
    disk("ro")
    with pytest.raises(StoreError):
        opened(disk.place / "memory.db")
    with pytest.raises(StoreError):
        opened(disk.place / "new.db")
    assert not (disk.place / "new.db").exists()
    disk("rw")
    with opened(disk.place / "memory.db") as memory:
        assert [t.text for t in memory.store.turns("ann", "s")] == ["I keep bees.", "Fine."]


def test_no_turn_is_half_stored_when_a_process_dies_on_a_full_disk(disk):
    child = """
import sys
from tests.hostile.test_disks import fill_up, opened
memory = opened(sys.argv[1])
print(len(fill_up(memory)[0]), flush=True)
import os, signal
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run(
        [sys.executable, "-c", child, str(disk.place / "memory.db")],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == -9, done.stderr
    disk("size=16m")
    with opened(disk.place / "memory.db") as memory:
        assert memory.status("ann").turns == int(done.stdout)
        assert {f.kind for f in memory.check()} <= {"pending"}
