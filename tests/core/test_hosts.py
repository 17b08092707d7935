"""What the adapters stand on: exchanges counted once, recalls by id, silence noticed, other people's texts ranked."""

import sqlite3
from dataclasses import replace
from datetime import timedelta

import pytest

from rmm_core import Citations, InputError, NotFoundError, ReflectiveMemory, RMMConfig
from rmm_core.chat import going_on
from rmm_core.recent import RecentRecalls
from rmm_core.stores._migrations import MIGRATIONS
from rmm_core.testing import HashEmbedder

DOCUMENTS = {
    "manual": "The pump is primed with water.",
    "menu": "Tonight there is pumpkin soup.",
    "timetable": "Trains to Graz leave at nine.",
}


@pytest.fixture
def memory(open_memory):
    return open_memory(config=RMMConfig(batch_size=1))


def told(memory, *texts):
    with memory.chat("ann", session_id="told") as chat:
        for text in texts:
            chat.record(text, "Noted.")


def test_an_exchange_counts_once_a_key(memory):
    told(memory, "I keep bees in Graz.")
    chat = memory.chat("ann", session_id="s")
    for reply in ("You keep bees [1].", "Bees, of course [1]."):
        recall = chat.recall("What do I keep?")
        answer = chat.record("What do I keep?", reply, recall, key="m-1")
        assert [m.summary for m in answer.cited] == [recall.shown[0].memory.summary]
    assert [t.text for t in memory.store.turns("ann", "s")] == ["What do I keep?", "You keep bees."]
    assert len(memory.store.feedback()) == 1
    assert memory.status("ann").learner.updates == 1


def test_citations_that_were_read_elsewhere(memory):
    told(memory, "I keep bees in Graz.")
    recall = memory.recall("ann", "What do I keep?")
    assert memory.feedback(recall, Citations("Bees.", (7,), "cited")) == Citations("Bees.", (), "malformed")
    assert memory.store.feedback() == []
    assert memory.feedback(recall, Citations("Bees.", (1,), "cited")).numbers == (1,)
    assert len(memory.store.feedback()) == 1
    answer = memory.chat("ann", session_id="s").record("What?", Citations("Bees.", (1,), "cited"))
    assert (answer.text, answer.cited, answer.citations.status) == ("Bees.", (), "silent")


def test_a_recall_is_found_again_by_its_id(memory):
    told(memory, "I keep bees in Graz.")
    recall = memory.recall("ann", "What do I keep?")
    assert memory.recent.get("ann", recall.id) is recall
    assert memory.recent.of_query("ann", "What do I keep?") is recall
    assert memory.recent.of_query("bob", "What do I keep?") is None
    with pytest.raises(NotFoundError, match="user 'bob' has no recent recall"):
        memory.recent.get("bob", recall.id)
    memory.forget_user("ann")
    with pytest.raises(NotFoundError, match="the last 512"):
        memory.recent.get("ann", recall.id)


def test_old_recalls_make_room(memory):
    recent, recall = RecentRecalls(held=2), memory.recall("ann", "?")
    for name in "abc":
        recent.add(replace(recall, id=name))
    assert recent.get("ann", "c").id == "c"
    assert recent.of_query("ann", "?").id == "c"
    with pytest.raises(NotFoundError, match="no recent recall 'a'"):
        recent.get("ann", "a")


def test_silence_is_noticed_at_the_next_visit(memory, clock):
    def visit():
        return [(r.session_id, r.status) for r in memory.run(memory.sessions.visiting("ann"))]

    memory.chat("ann", session_id="s").record("I keep bees in Graz.", "Noted.")
    assert visit() == []
    clock.now += timedelta(minutes=20)
    assert visit() == []
    clock.now += timedelta(minutes=31)
    assert visit() == [("s", "reflected")]
    assert visit() == []
    assert "bees" in memory.memories("ann", kind="topic")[0].summary


def test_texts_from_elsewhere_are_ranked_and_learned_from(open_memory, llm):
    memory = open_memory(llm, config=RMMConfig(guard=False))
    query = "pump pumpkin"
    first = memory.rerank("ann", query, DOCUMENTS, top_m=2)
    assert {s.memory.id for s in first.shown} == {"manual", "menu"}
    assert "Original turns" not in first.block()
    assert memory.users() == []
    loser = first.shown[1]
    for _ in range(40):
        memory.feedback(memory.rerank("ann", query, DOCUMENTS, top_m=2), "It says so [2].")
        if memory.rerank("ann", query, DOCUMENTS, top_m=2).shown[0].memory.id == loser.memory.id:
            break
    else:
        pytest.fail("forty citations did not move the second text to the front")
    assert memory.rerank("ann", query, DOCUMENTS, top_m=2).ranking == "learned"


async def test_texts_from_elsewhere_on_an_event_loop(memory):
    shown = (await memory.arerank("ann", "soup", DOCUMENTS, top_m=1)).shown
    assert [s.memory.id for s in shown] == ["menu"]
    assert memory.rerank("ann", "soup", {}).shown == ()
    with pytest.raises(InputError, match="top_m is a whole number"):
        await memory.arerank("ann", "soup", DOCUMENTS, top_m=-1)


def test_a_file_of_the_first_schema_goes_on(tmp_path):
    path = tmp_path / "old.db"
    db = sqlite3.connect(path)
    for statement in MIGRATIONS[0].split(";"):
        db.execute(statement)
    db.execute("PRAGMA user_version = 1")
    db.execute(f"PRAGMA application_id = {0x524D4D31:d}")
    db.commit()
    db.close()
    with ReflectiveMemory.open(path, embedder=HashEmbedder()) as memory:
        told(memory, "I keep bees in Graz.")
        assert len(memory.memories("ann", kind="topic")) == 1


def test_a_name_used_again_is_another_session(open_memory):
    memory = open_memory()

    def name(user="ann"):
        return memory.run(going_on(memory, user, "s", user_name="Ann", agent_name="Bot")).session_id

    for expected in ("s", "s/2", "s/3"):
        assert name() == expected
        memory.chat("ann", session_id=expected).record("I keep bees in Graz.", "Noted.")
        assert name() == expected
        memory.chat("ann", session_id=expected).end()
    assert name("bob") == "s"


def test_an_answer_is_found_by_what_it_answers_or_by_its_words(open_memory):
    memory = open_memory()
    told(memory, "I keep bees in Graz.")
    yes = Citations("Yes.", (1,), "cited")
    earlier, now = memory.recall("ann", "bees?"), memory.recall("ann", "Graz?")
    assert memory.recent.read(earlier.id, yes)
    assert memory.recent.take("ann", "Yes.", now) is None  # it was read for something before
    assert memory.recent.take("bob", "Yes.") is None
    later = memory.recall("ann", "and now?")
    memory.recent.read(later.id, yes)
    assert memory.recent.take("ann", " Yes. ", now)[0] is later  # a query engine asked in words of its own
    assert memory.recent.take("ann", "Yes.")[0] is earlier
    assert memory.recent.take("ann", "Yes.") is None
    assert not memory.recent.read("nobody's", yes)


def test_answers_in_the_same_words_that_cite_otherwise_are_not_told_apart(open_memory):
    memory = open_memory()
    told(memory, "I keep bees in Graz.")
    recall = memory.recall("ann", "bees?")
    for _ in "ab":
        memory.recent.recorded(recall, Citations("Yes.", (1,), "cited"))
        assert memory.recent.behind("ann", "Yes.")[0] is recall
    for numbers in ((), (1,)):
        memory.recent.recorded(recall, Citations("Yes.", numbers, "cited"))
        assert memory.recent.behind("ann", "Yes.") is None
    memory.recent.forget("ann")
    assert memory.recent.behind("ann", "Yes.") is None
