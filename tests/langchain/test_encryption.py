"""A memory with LangChain's models and a key."""

from importlib.util import find_spec

import pytest

from langchain_rmm import RMMMiddleware, open_memory
from rmm_core import ConfigError
from rmm_core.errors import WrongKeyError
from tests.langchain.test_backend import Words


def test_what_is_no_key(tmp_path):
    with pytest.raises(ConfigError, match="the key is blank"):
        open_memory(tmp_path / "memory.db", embeddings=Words(), key="")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(find_spec("sqlcipher3") is None, reason="needs the extra 'encryption': pip install sqlcipher3")
def test_a_memory_with_a_key(tmp_path, caplog):
    memory = open_memory(tmp_path / "memory.db", embeddings=Words(), key="correct horse")
    with memory.chat("ann") as chat:
        chat.record("I keep bees in Graz.", "Noted.")
    assert "horse" not in repr(RMMMiddleware(memory)) + repr(memory)
    memory.close()
    assert b"bees" not in (tmp_path / "memory.db").read_bytes()
    for wrong in (None, "wrong horse"):
        with pytest.raises(WrongKeyError):
            open_memory(tmp_path / "memory.db", embeddings=Words(), key=wrong)
    with open_memory(tmp_path / "memory.db", embeddings=Words(), key="correct horse") as memory:
        assert "bees" in memory.recall("ann", "bees").shown[0].memory.summary
    assert "horse" not in caplog.text
