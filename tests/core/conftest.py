"""What tests of the core share: both databases."""

import pytest

from rmm_core import ReflectiveMemory
from rmm_core.testing import HashEmbedder


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path):
    """Where a memory may be kept, on either database."""
    return tmp_path / "memory.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
def open_at(place, clock):
    """Opens memories there, and closes them."""
    opened = []

    def open_(**changes):
        settings = {"embedder": HashEmbedder(), "clock": clock} | changes
        opened.append(ReflectiveMemory.open(place, **settings))
        return opened[-1]

    yield open_
    for memory in opened:
        memory.store.close()
