"""The learning log as people read it, with what was asked; on both databases, and without what was deleted."""

from dataclasses import replace
from datetime import timedelta

import pytest

from rmm_core import InputError, Message, RMMConfig, ShownMemory
from rmm_core.types import TurnRef
from tests.conftest import T0

CELLO, BEES = "My sister Ida plays the cello in Vienna.", "I keep bees in the garden."
ASKED = "Who plays the cello in Vienna?"


def said(memory, *texts, user="ann"):
    for i, text in enumerate(texts):
        with memory.chat(user, session_id=f"said{i}") as chat:
            chat.record(text, "Noted")
    return memory


def ask(memory, query=ASKED, reply="Ida does [1].", user="ann", session="asked", **more):
    chat = memory.chat(user, session_id=session)
    return chat.record(query, reply, chat.recall(query), **more)


def queries(memory, *args, **more):
    return [record.query for record in memory.answers(*args, **more)]


def test_an_answer_with_what_was_asked_shown_and_cited(open_at, clock):
    memory = said(open_at(), CELLO, BEES)
    clock.now = T0 + timedelta(hours=1)
    recall = memory.recall("ann", ASKED)
    ask(memory)
    (record,) = memory.answers()
    assert (record.user_id, record.at, record.query, record.duel) == ("ann", clock.now, ASKED, False)
    assert record.shown == tuple(ShownMemory(s.memory.id, s.memory.summary, s.number == 1) for s in recall.shown)
    assert record.number == memory.store.feedback()[0][0]


def test_the_last_of_one_user_or_of_everybody_oldest_first(open_at):
    memory = said(said(open_at(), CELLO), BEES, user="bob")
    for i in range(3):
        ask(memory, f"{ASKED} {i}")
        ask(memory, f"Who keeps bees? {i}", "You do [1].", "bob")
    assert queries(memory, "ann", last=2) == [f"{ASKED} 1", f"{ASKED} 2"]
    assert queries(memory, last=3) == ["Who keeps bees? 1", f"{ASKED} 2", "Who keeps bees? 2"]
    assert len(queries(memory)) == 6
    assert queries(memory, last=0) == queries(memory, "nobody") == []
    with pytest.raises(InputError, match="last"):
        memory.answers(last=-1)


def test_what_was_asked_without_a_chat_is_not_known(open_at):
    memory = said(open_at(), CELLO)
    memory.feedback(memory.recall("ann", ASKED), "Ida [1].")
    memory.feedback(memory.rerank("ann", ASKED, {"doc": "A cello for sale."}), "That [1].")
    of_bank, elsewhere = memory.answers("ann")
    assert of_bank.query is elsewhere.query is None
    assert of_bank.shown[0].summary == f"User: {CELLO}"
    assert elsewhere.shown == (ShownMemory("doc", None, True),)


def test_a_question_that_was_stored_before_its_answer_is_found_by_its_key(open_at):
    memory = said(open_at(), CELLO)
    chat = memory.chat("ann", session_id="asked")
    chat.add(Message("user", "Something else first"), Message("user", ASKED, key="k"))
    ask(memory, key="k")
    assert queries(memory) == [ASKED]
    ((_, entry),) = memory.store.feedback()
    assert entry.asked_in == TurnRef("asked", 1)
    assert memory.store.session("ann", "asked").turns == 3


def test_a_duel_is_told(open_at):
    memory = said(open_at(config=RMMConfig(batch_size=1)), CELLO, BEES)
    recall = memory.recall("ann", ASKED)
    memory.feedback(replace(recall, sides={recall.shown[0].memory.id: 1}), "Ida [1].")
    assert [record.duel for record in memory.answers()] == [True]


# -- what is deleted ---------------------------------------------------------------------


def text_of(memory):
    return repr(memory.answers())


def test_a_deleted_memory_is_shown_by_its_id_alone(open_at):
    memory = said(open_at(), CELLO, BEES)
    ask(memory)
    cello = next(m for m in memory.memories("ann") if "cello" in m.summary)
    memory.delete("ann", cello.id)
    (record,) = memory.answers()
    assert [s.summary for s in record.shown if s.memory_id == cello.id] == [None]
    assert "Ida" not in text_of(memory)


def test_a_question_goes_with_the_memory_that_rests_on_it(open_at):
    memory = said(open_at(), CELLO)
    with memory.chat("ann", session_id="asked") as chat:
        question = "Does Ida, who lives with Tom in Graz now, still play the cello?"
        chat.record(question, "She does [1].", chat.recall(question))
    assert queries(memory) == [question]
    for held in memory.memories("ann"):
        if "Tom" in held.summary:
            memory.delete("ann", held.id)
    assert queries(memory) == [None]
    assert "Tom" not in text_of(memory)


def test_of_a_forgotten_user_nothing_is_shown(open_at):
    memory = said(said(open_at(), CELLO), BEES, user="bob")
    ask(memory)
    ask(memory, "Who keeps bees?", "You do [1].", "bob")
    memory.forget_user("ann")
    assert queries(memory) == ["Who keeps bees?"]
    said(memory, BEES)
    ask(memory, "Who keeps bees then?", "You do [1].")
    assert queries(memory, "ann") == ["Who keeps bees then?"]


def test_what_expired_is_shown_no_more_and_purged_wholly(open_at, clock):
    memory = said(open_at(config=RMMConfig(expire_days=30)), CELLO)
    ask(memory)
    clock.now = T0 + timedelta(days=31)
    assert {s.summary for s in memory.answers()[0].shown} == {None}
    memory.purge()
    assert memory.answers() == ()
