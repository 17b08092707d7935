"""What can be a key, and what goes on without the package that encrypts."""

import sys

import pytest

from rmm_core import ConfigError, MissingDependencyError, ReflectiveMemory, RMMConfig, StoreError
from rmm_core.stores import open_store
from rmm_core.stores._cipher import checked_key
from rmm_core.stores.sqlite import SQLiteStore
from rmm_core.testing import HashEmbedder
from tests.fresh import python


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("", "the key is blank; give a passphrase, or leave key out"),
        (" \n", "the key is blank"),
        (b"", r"32 random ones, for example secrets\.token_bytes\(32\); got 0\. A passphrase is a str"),
        (b"correct horse", "got 13"),
        (b"k" * 33, "got 33"),
        (12345678, "a passphrase .str. or 32 bytes; got int"),
        (bytearray(32), "got bytearray"),
        ("horse \ud83d", "the key holds half a character"),
        ("horse \x00", "the key holds a NUL character"),
    ],
)
def test_what_is_no_key(tmp_path, key, message):
    place = tmp_path / "m.db"
    uses = (
        lambda: ReflectiveMemory.open(place, key=key, embedder=HashEmbedder()),
        lambda: open_store(":memory:", RMMConfig(), key),
        lambda: SQLiteStore(":memory:", key="good").rekey(key),
    )
    for use in uses:
        with pytest.raises(ConfigError, match=message) as caught:
            use()
        assert "horse" not in repr(caught.value)
        assert caught.value.__context__ is None  # an encoding error would hold the key
    assert list(tmp_path.iterdir()) == []


def test_a_key_is_not_shown():
    assert repr(checked_key("secret")) == "Key()"


def test_a_key_for_a_server_is_refused():
    with pytest.raises(ConfigError, match="a database server encrypts itself: leave key out"):
        open_store("postgresql://ann:pass@localhost/memory", RMMConfig(), "secret")


def test_without_the_package_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "sqlcipher3", None)
    with pytest.raises(MissingDependencyError, match=r"reflective-memory\[encryption\]") as caught:
        ReflectiveMemory.open(tmp_path / "m.db", key="secret", embedder=HashEmbedder())
    assert caught.value.extra == "encryption"
    assert "secret" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_what_needs_no_key_does_not_import_the_package(tmp_path):
    code = f"""
import sys
from rmm_core import ReflectiveMemory
from rmm_core.testing import HashEmbedder
for place, key in (({str(tmp_path / "m.db")!r}, None), (":memory:", None), (":memory:", "secret")):
    with ReflectiveMemory.open(place, key=key, embedder=HashEmbedder()) as memory:
        with memory.chat("ann") as chat:
            chat.record("I keep bees in Graz.", "Noted.")
        if key:
            memory.rekey("another")
        assert memory.recall("ann", "bees").shown
print([name for name in sys.modules if name.startswith("sqlcipher")])"""
    assert python(code) == "[]"


@pytest.mark.parametrize("place", ["m.db", ":memory:"])
def test_a_file_without_a_key_is_given_none(monkeypatch, tmp_path, place):
    monkeypatch.chdir(tmp_path)
    with ReflectiveMemory.open(place, embedder=HashEmbedder()) as memory:
        with pytest.raises(StoreError, match="open a new file with one, import_user there what export_user gives here"):
            memory.rekey("secret")
        assert memory.users() == []  # and it goes on


def test_a_store_of_ones_own_has_no_key(memory):
    class Other:
        close = memory.store.close

    other = ReflectiveMemory(memory.store, embedder=HashEmbedder())
    other.store = Other()
    with pytest.raises(ConfigError, match="Other has no key to change"):
        other.rekey("secret")
