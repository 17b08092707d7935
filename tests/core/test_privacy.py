"""What a data-protection officer asks for: erasure with a receipt, retention, consent, redaction; on both databases."""

import re
from contextlib import closing
from datetime import timedelta

import pytest

from rmm_core import Attachment, Message, RMMConfig
from rmm_core.errors import ConfigError, InputError, NotFoundError
from rmm_core.stores.expiring import expiring
from rmm_core.stores.sqlite import SQLiteStore
from rmm_core.testing import HashEmbedder, MemoryStoreContract, ScriptedLLM
from rmm_core.types import Erasure
from tests.conftest import T0, Clock

FACT = '{"extracted_memories": [{"summary": "%s", "reference": [0]}]}'


class TestExpiring(MemoryStoreContract):
    """A store in front of another keeps its promises while nothing expires."""

    @pytest.fixture
    def store(self, tmp_path):
        with closing(expiring(SQLiteStore(str(tmp_path / "m.db")), RMMConfig(expire_days=1e5), Clock())) as store:
            yield store


def say(memory, text, user="ann", session="s1"):
    with memory.chat(user, session_id=session) as chat:
        chat.record(text, "Noted")


def summaries(memory, user="ann"):
    return [m.summary for m in memory.memories(user)]


# -- erasure -----------------------------------------------------------------------------


def test_erasure_gives_a_receipt(open_at, clock):
    memory = open_at(config=RMMConfig(batch_size=1, learner_scope="user"))
    say(memory, "My sister Ida plays the cello in Vienna.")
    memory.feedback(memory.recall("ann", "Who plays the cello?"), "Ida [1].")
    say(memory, "I keep bees.", user="bob")
    clock.now = T0 + timedelta(hours=1)
    assert memory.forget_user("ann") == Erasure("ann", clock.now, 1, 2, 1, 1, 1)
    assert memory.forget_user("ann") == Erasure("ann", clock.now)
    assert memory.users() == ["bob"]


# -- retention ---------------------------------------------------------------------------


def test_what_expired_is_read_nowhere_and_purged_by_a_call(open_at, clock):
    memory = open_at(config=RMMConfig(expire_days=30))
    say(memory, "My sister Ida plays the cello in Vienna.")
    old = next(m.id for m in memory.memories("ann") if "cello" in m.summary)
    clock.now = T0 + timedelta(days=20)
    say(memory, "I keep bees in the garden.", session="s2")
    assert memory.recall("ann", "Who plays the cello?").shown[0].memory.id == old
    clock.now = T0 + timedelta(days=31)
    assert not any("cello" in s for s in summaries(memory))
    assert old not in [s.memory.id for s in memory.recall("ann", "Who plays the cello in Vienna?").shown]
    assert "cello" not in "".join(line for line in memory.export_user("ann") if '"memory"' in line)
    with pytest.raises(NotFoundError, match="expired"):
        memory.get("ann", old)
    (receipt,) = memory.purge()
    assert receipt == Erasure("ann", clock.now, sessions=1, turns=2, memories=1)
    assert "cello" not in "".join(memory.export_user("ann"))
    assert memory.purge() == []
    with pytest.raises(NotFoundError):
        memory.store.inner.get("ann", old)


def test_what_is_merged_into_begins_anew_and_what_expired_is_not_merged_into(open_at, clock):
    llm = ScriptedLLM(FACT % "Ann plays the cello", "NO_TRAIT", FACT % "Ann plays the cello daily", "NO_TRAIT")
    memory = open_at(llm=llm, config=RMMConfig(expire_days=30, unfiled=False))
    say(memory, "I play the cello")
    clock.now = T0 + timedelta(days=40)
    say(memory, "I play the cello every day", session="s2")  # the model is not asked whether to merge
    assert summaries(memory) == ["Ann plays the cello daily"]
    assert llm.left == 0


def test_what_is_cited_stays(open_at, clock):
    memory = open_at(config=RMMConfig(expire_uncited_days=30))
    say(memory, "My sister Ida plays the cello in Vienna.")
    say(memory, "I keep bees in the garden.", session="s2")
    clock.now = T0 + timedelta(days=20)
    recall = memory.recall("ann", "Who plays the cello?")
    assert "cello" in recall.shown[0].memory.summary
    memory.feedback(recall, "Ida [1].")
    clock.now = T0 + timedelta(days=40)
    assert [s for s in summaries(memory) if "Noted" not in s] == ["User: My sister Ida plays the cello in Vienna."]
    assert [r.memories for r in memory.purge("ann")] == [2]
    clock.now = T0 + timedelta(days=51)
    assert summaries(memory) == []


def test_expired_memories_do_not_take_the_place_of_others(open_at, clock):
    memory = open_at(config=RMMConfig(expire_days=30, top_k=3, top_m=3))
    for i in range(12):
        say(memory, f"I saw {i} blue birds by the lake.", session=f"s{i}")
    clock.now = T0 + timedelta(days=20)
    say(memory, "A heron stood by the water.", session="late")
    clock.now = T0 + timedelta(days=31)
    assert ["heron" in s.memory.summary for s in memory.recall("ann", "blue birds by the lake").shown] == [True]


def test_purging_needs_a_rule(open_at):
    with pytest.raises(ConfigError, match="expire_days"):
        open_at().purge()
    with pytest.raises(ConfigError, match="expire_days"):
        RMMConfig(expire_days=0)


# -- consent -----------------------------------------------------------------------------


def test_without_consent_nothing_is_stored_or_learned(open_at):
    memory = open_at(config=RMMConfig(batch_size=1))
    say(memory, "My sister Ida plays the cello in Vienna.")
    recall = memory.recall("ann", "Who plays the cello?")
    memory.set_consent("ann", False)
    assert not memory.status("ann").consents
    before = list(memory.export_user("ann"))
    with memory.chat("ann", session_id="s1") as chat:
        answer = chat.record("And she is ill", "I am sorry [1].", recall)
        assert answer.text == "I am sorry."
        assert chat.add(Message("user", "very ill")) == ()
        assert chat.end().status == "declined"
    memory.feedback(recall, "Ida [1].")
    assert memory.status("ann").learner.updates == 0
    assert [line for line in memory.export_user("ann") if '"memory"' in line] == [b for b in before if '"memory"' in b]
    assert "ill" not in re.findall(r"\w+", "".join(memory.export_user("ann")))
    memory.set_consent("ann", True)
    say(memory, "She is well again.", session="s2")
    assert memory.status("ann").turns == 4


def test_a_session_that_waits_is_not_reflected_without_consent(open_at):
    llm = ScriptedLLM()
    memory = open_at(llm=llm)
    memory.chat("ann", session_id="s1").record("I am ill", "I am sorry")
    memory.set_consent("ann", False)
    assert memory.reflect_pending() == []
    assert memory.chat("ann", session_id="s1").end().status == "declined"
    assert llm.history == []


# -- redaction ---------------------------------------------------------------------------


def test_what_is_redacted_reaches_neither_database_nor_model(open_at, place):
    embedded = []

    class Watched(HashEmbedder):
        def embed(self, texts):
            embedded.extend(texts)
            return super().embed(texts)

    llm = ScriptedLLM(FACT % "Ann's card number is known", "NO_TRAIT", "It is [1].")
    memory = open_at(llm=llm, embedder=Watched(), redact=lambda text: re.sub(r"\d{4,}", "#", text))
    with memory.chat("ann") as chat:
        photo = Attachment("image", "file:///a.png", "card 12345678")
        chat.record("My card is 12345678", "I noted 12345678", attachments=(photo,))
    with memory.chat("ann") as chat:
        recall = chat.recall("Is 12345678 my card?")
        assert recall.query == "Is # my card?"
        llm.enqueue("NO_TRAIT", "NO_TRAIT")
        chat.ask("Is 12345678 my card?")
    everything = "".join(memory.export_user("ann")) + "".join(llm.history) + "".join(embedded)
    assert "12345678" not in everything
    assert "My card is #" in everything


def test_a_redactor_that_is_none_is_refused(open_at):
    with pytest.raises(ConfigError, match="redact"):
        open_at(redact="secrets")
    with pytest.raises(InputError, match="what redact returned"):
        open_at(redact=lambda text: None).recall("ann", "What?")
