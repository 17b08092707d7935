"""What is shown of what was found: nothing twice, nothing too little, and all of what others found."""

from datetime import UTC, datetime

import numpy as np
import pytest

from rmm_core import ReflectiveMemory, RMMConfig
from rmm_core.protocols import BankChange, Entry
from rmm_core.testing import HashEmbedder
from rmm_core.types import Memory, Message, Session, TurnRef

T0 = datetime(2024, 3, 1, tzinfo=UTC)
SAID = ("I keep bees in Graz.", "The bees made honey.", "My bees are ill.", "I sold some bees.")
RESTS_ON = {"a": (0,), "again": (0,), "both": (0, 1), "c": (2,), "d": (3,), "c and d": (2, 3)}


@pytest.fixture
def bank():
    """Opens memories of which several rest on the same turns, all about as like the question."""
    opened = []

    def open_(config, rests_on=RESTS_ON):
        memory = ReflectiveMemory.open(":memory:", embedder=HashEmbedder(), config=config, clock=lambda: T0)
        opened.append(memory)
        memory.store.open_session(Session("ann", "s", "Ann", "Bot", T0, T0))
        memory.store.append("ann", "s", [Message("user", text) for text in SAID], at=T0)
        rows = HashEmbedder().embed([f"bees {name}" for name in rests_on])
        entries = [
            Entry(Memory(name, "ann", "topic", f"bees {name}", tuple(TurnRef("s", i) for i in turns), T0, T0), row)
            for (name, turns), row in zip(rests_on.items(), rows, strict=True)
        ]
        memory.store.commit("ann", BankChange(0, tuple(entries)))
        return memory

    yield open_
    for memory in opened:
        memory.store.close()


def turns_of(recall):
    return [tuple(ref.index for ref in s.memory.evidence) for s in recall.shown]


def test_memories_that_rest_on_the_same_are_shown_once(bank):
    recall = bank(RMMConfig(top_m=6)).recall("ann", "bees")
    assert len(recall.candidates) == len(RESTS_ON)  # all of them can still be cited elsewhere
    seen = set()
    for turns in turns_of(recall):
        assert not seen.issuperset(turns)
        seen.update(turns)
    assert seen == {0, 1, 2, 3}
    assert len(recall.shown) < len(RESTS_ON)
    assert [s.number for s in recall.shown] == list(range(1, len(recall.shown) + 1))


def test_what_is_skipped_leaves_its_place_to_the_next(bank):
    config = RMMConfig(top_m=3, unfiled=False)
    memory = bank(config, {"a": (0,), "again": (0,), "once more": (0,), "c": (2,), "d": (3,)})
    assert sorted(turns_of(memory.recall("ann", "bees"))) == [(0,), (2,), (3,)]


@pytest.mark.parametrize("config", [RMMConfig.paper(), RMMConfig(features=False)], ids=["paper", "no features"])
def test_the_paper_shows_what_it_ranks(bank, config):
    recall = bank(config).recall("ann", "bees", top_m=6)
    assert sorted(turns_of(recall)) == sorted(RESTS_ON.values())


def test_texts_from_elsewhere_rest_on_nothing_and_are_all_shown(bank):
    memory = bank(RMMConfig())
    documents = {name: f"bees {name}" for name in RESTS_ON}
    recall = memory.rerank("ann", "bees", documents, top_m=6)
    assert {s.memory.id for s in recall.shown} == set(documents)
    assert not any(c.features.any() for c in recall.candidates)


def test_what_scores_below_the_floor_is_not_shown(bank):
    free = bank(RMMConfig(features=False)).recall("ann", "bees a", top_m=6)
    scores = [c.score for c in free.candidates]
    assert scores == sorted(scores, reverse=True)
    floor = float(np.mean(scores[1:3]))
    held = bank(RMMConfig(features=False, floor=floor)).recall("ann", "bees a", top_m=6)
    above = [c.memory.id for c in free.candidates if c.score >= floor]
    assert [s.memory.id for s in held.shown] == above
    assert 0 < len(above) < len(RESTS_ON)
