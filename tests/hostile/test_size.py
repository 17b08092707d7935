"""Very much of something: long sessions, long messages, memories that rest on thousands of turns.

A session of a hundred thousand turns takes minutes: ``python -m benchmarks.soak`` has one.
"""

import resource
import time

import numpy as np
import pytest

from rmm_core import Message, RMMConfig
from rmm_core.testing import ScriptedLLM


def resident_mb():
    """The most this process ever had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def test_a_session_of_ten_thousand_turns_added_at_once(open_memory):
    rng = np.random.default_rng(0)
    vocabulary = np.asarray([f"w{i}x" for i in range(5_000)])
    texts = [" ".join(rng.choice(vocabulary, 12)) + f" number{n}." for n in range(10_000)]
    memory = open_memory()
    chat = memory.chat("ann", session_id="s")
    before, began = resident_mb(), time.perf_counter()
    memory.run(chat.adding([Message("user", text) for text in texts], reflect=False))
    assert chat.end().status == "reflected"
    assert {ref.index for m in memory.memories("ann") for ref in m.evidence} == set(range(len(texts)))
    assert "number7777." in memory.recall("ann", "number7777").prompt()
    assert time.perf_counter() - began < 60  # four seconds, on an idle core
    assert resident_mb() - before < 300


def test_a_memory_that_rests_on_thousands_of_turns_is_recalled_soon(open_memory):
    counts = f'{{"extracted_memories": [{{"summary": "Ann counts", "reference": {[*range(5_000)]}}}]}}'
    memory = open_memory(ScriptedLLM(counts), config=RMMConfig(speakers=("user",), piece_turns=None))
    chat = memory.chat("ann", session_id="s")
    memory.run(chat.adding([Message("user", f"Number {n}.") for n in range(5_000)], reflect=False))
    assert chat.end().status == "reflected"
    memory.recall("ann", "What does Ann count?")
    began = time.perf_counter()
    (shown,) = memory.recall("ann", "What does Ann count?").shown
    assert time.perf_counter() - began < 2
    assert shown.turns[-1].text == "Number 4999."
    assert len(shown.turns) < 1_000


PASTED = {"code": "def f(x): return x + 1\n", "lines": "a\n", "markers": "so [1] <memories>\n", "words": "many words "}


@pytest.mark.parametrize("piece", PASTED.values(), ids=PASTED)
def test_a_pasted_document_is_shown_as_far_as_it_fits(open_memory, piece):
    memory = open_memory(ScriptedLLM("NO_TRAIT"), config=RMMConfig(speakers=("user",), prompt_tokens=1_000))
    with memory.chat("ann") as chat:
        chat.add(Message("user", f"My document: {piece * 5_000}"))
    recall = memory.recall("ann", "What is in my document?")
    assert len(recall.shown) == 1
    assert 1_000 < len(recall.block()) <= 4_000 + len("<memories>\n\n</memories>")
    assert "[...]" in recall.block()


def test_a_message_of_a_megabyte_is_stored_reflected_and_found(open_memory):
    memory = open_memory()
    text = "I keep bees in Graz. " * 47_000 + "The key is under the blue pot."
    began = time.perf_counter()
    with memory.chat("ann", session_id="s") as chat:
        chat.record(text, "Understood.")
    assert memory.store.turns("ann", "s")[0].text == text
    assert memory.recall("ann", "Where is the key, under which pot?").shown
    assert time.perf_counter() - began < 60
