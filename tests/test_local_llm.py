"""A story told with a real, small language model: what must hold whatever exactly it says.

Run with ``RMM_GGUF=model.gguf`` (an instruct model of about 1.5 billion parameters) and ``pip install xllamacpp``.
"""

import os
from pathlib import Path

import pytest

from rmm_core import Message, ReflectiveMemory, RMMConfig

pytestmark = [pytest.mark.local_llm, pytest.mark.enable_socket, pytest.mark.timeout(900)]

SAID = (
    ("user", "I started a new job as a beekeeper near Graz last Monday."),
    ("agent", "Congratulations! How is it?"),
    ("user", "Lovely, but I found out that I'm allergic to propolis, so I wear gloves."),
    ("agent", "Good that you noticed. Take care!"),
)


@pytest.fixture(scope="module")
def model():
    gguf = os.environ.get("RMM_GGUF", "")
    if not Path(gguf).is_file():
        pytest.skip("set RMM_GGUF to the file of a small instruct model")
    pytest.importorskip("xllamacpp")
    from _models import language_model

    with language_model("local", model="", gguf=gguf) as llm:
        yield llm


def test_a_small_model_extracts_answers_and_cites(model, tmp_path):
    from _models import bundled_embedder

    config = RMMConfig(piece_turns=10, merge_floor=0.6)
    with ReflectiveMemory.open(tmp_path / "m.db", llm=model, embedder=bundled_embedder(), config=config) as memory:
        chat = memory.chat("mia", session_id="first", user_name="Mia")
        chat.add(*(Message(role, text) for role, text in SAID))
        report = chat.end()
        assert report.status == "reflected", report.error
        summaries = " ".join(m.summary for m in memory.memories("mia", kind="topic")).casefold()
        assert "propolis" in summaries or "beekeeper" in summaries
        with memory.chat("mia", session_id="second", user_name="Mia") as chat:
            answer = chat.ask("What am I allergic to?")
        assert "propolis" in answer.text.casefold()
        assert answer.citations.status in ("cited", "silent", "none", "malformed")
        assert "[1]" not in answer.text
