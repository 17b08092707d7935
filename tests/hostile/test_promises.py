"""Faults of memories like this one that no other test shows to be absent: see docs/reliability.md."""

# ruff: noqa: RUF001 -- scripts with marks of their own are a part of the subject

import subprocess
import sys

import pytest
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.chat_engine import CondensePlusContextChatEngine, ContextChatEngine, SimpleChatEngine

from llamaindex_rmm import RMMMemory, hide_markers
from rmm_core import Message, RMMConfig
from rmm_core.prompts import EXTRACTION_SCHEMA
from rmm_core.testing import ScriptedLLM
from tests.llamaindex.conftest import ScriptedIndexLLM
from tests.llamaindex.hosts import Pages

FACT = '{"extracted_memories": [{"summary": "Ann likes tea", "reference": [0]}]}'
ALONE = RMMConfig(speakers=("user",))


def test_the_prompt_for_json_says_json_and_shows_it(open_memory):
    """Providers refuse a constraint to JSON whose prompt lacks the word, and drop the constraint silently."""
    llm = ScriptedLLM(FACT)
    memory = open_memory(llm, config=ALONE)
    with memory.chat("ann") as chat:
        chat.add(Message("user", "I like tea."))
    assert llm.schemas == [EXTRACTION_SCHEMA]
    assert "Reply with JSON only" in llm.history[0]
    assert llm.history[0].count('"extracted_memories"') == 2  # the form, and an example of it


def test_what_of_a_reply_was_left_out_is_logged(open_memory, caplog):
    llm = ScriptedLLM(
        FACT, '{"extracted_memories": [{"summary": "Ann likes rum", "reference": [0]}, {}]}', "Merge(99, x)"
    )
    memory = open_memory(llm, config=ALONE)
    for name in ("s1", "s2"):
        with memory.chat("ann", session_id=name) as chat:
            chat.add(Message("user", f"I like tea and rum, {name}."))
    assert [m.summary for m in memory.memories("ann", kind="topic")] == ["Ann likes tea", "Ann likes rum"]
    assert "2 malformed parts" in caplog.text


def test_the_reranker_gets_more_than_is_shown_and_shows_what_embeddings_rank_far_down(open_memory):
    memory = open_memory(config=RMMConfig(attribution="markers"))
    with memory.chat("ann") as chat:
        chat.add(
            *(Message("user", f"My garden has {n} roses and the garden is lovely, garden {n}.") for n in range(2, 32))
        )
        chat.add(Message("user", "The plumber whom we always call is named Xaver."))
    query = "garden garden garden roses lovely: plumber Xaver?"
    recall = memory.recall("ann", query)
    config = memory.config
    assert len(recall.candidates) >= config.top_k > config.top_m == len(recall.shown)
    dense = sorted(recall.candidates, key=lambda c: -float(c.embedding @ recall.embedding))
    far_down = [c.memory.id for c in dense[config.top_m :]]
    assert any(shown.memory.id in far_down for shown in recall.shown)


def test_importing_opens_no_socket_and_starts_no_thread():
    """Of any package, and of every public name of it."""
    script = """
import sys
def refuse(*arguments):
    raise AssertionError(f"started or opened: {arguments}")
import _thread, socket, threading
_thread.start_new_thread = threading._start_new_thread = refuse
sys.addaudithook(lambda event, arguments: event == "socket.__new__" and refuse(event, arguments))
import rmm_core, rmm_core.models, rmm_cli
for package in map(__import__, ("rmm_core", "langchain_rmm", "llamaindex_rmm")):
    for name in package.__all__:
        getattr(package, name)
for noticed in (socket.socket, threading.Thread(target=print).start):
    try:
        noticed()
    except AssertionError:
        print("noticed")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "noticed\n" * 2, done.stderr[-2_000:]


SPOKEN = {
    "zh": ("我对榛子过敏。", "我妹妹在维也纳拉大提琴。", "我对什么坚果过敏？榛子吗？", "榛子"),
    "ar": ("أعاني من حساسية البندق.", "أختي تعزف على التشيلو في فيينا.", "هل عندي حساسية البندق؟", "البندق"),
    "de": ("Ich vertrage keine Haselnüsse.", "Meine Schwester spielt Cello.", "Vertrage ich Haselnüsse?", "Haseln"),
    "hi": ("मुझे हेज़लनट से एलर्जी है।", "मेरी बहन वियना में सेलो बजाती है।", "क्या मुझे हेज़लनट से एलर्जी है?", "हेज़लनट"),
}  # fmt: skip


@pytest.mark.parametrize("language", SPOKEN)
def test_a_language_stays_what_it_is_and_is_found_again(open_memory, language):
    first, second, question, word = SPOKEN[language]
    memory = open_memory()
    with memory.chat("ann") as chat:
        chat.record(first, ".")
        chat.record(second, ".")
    told = " ".join(m.summary for m in memory.memories("ann"))
    assert first.rstrip("。.।") in told
    assert second.rstrip("。.।") in told
    (shown,) = memory.recall("ann", question, top_m=1).shown
    assert word in " ".join(t.text for t in shown.turns)


@pytest.mark.parametrize("engine", [SimpleChatEngine, ContextChatEngine, CondensePlusContextChatEngine])
def test_the_system_prompt_of_an_engine_stays_first(open_memory, engine):
    memory = open_memory()
    with memory.chat("ann") as chat:
        chat.record("I am allergic to hazelnuts.", "Understood.")
    model = ScriptedIndexLLM().enqueue("Fine.", "Fine.", "Fine.", "Fine.")
    own = RMMMemory.from_defaults(memory, user_id="ann", session_id="t")
    given = {} if engine is SimpleChatEngine else {"retriever": Pages()}
    talking = engine.from_defaults(llm=hide_markers(model, memory), memory=own, system_prompt="Be brief.", **given)
    talking.chat("Hello!")
    talking.chat("What must I not eat?")
    request = model.history[-1]
    systems = [m for m in request if m.role == MessageRole.SYSTEM]
    assert request[0] is systems[0]
    assert "Be brief." in request[0].content
    assert any("hazelnuts" in m.content for m in request)
    assert sum("Be brief." in m.content for m in request) == 1


def test_nothing_that_a_model_replies_ends_a_users_turn(open_memory):
    replies = ["", "{}", "[" * 1_000, "\ud83d", "Merge(0, x)", RuntimeError("down"), ValueError("\ud800"), "NO_TRAIT"]
    memory = open_memory(ScriptedLLM(*replies * 3), config=RMMConfig(session_turns=2, speakers=("user",)))
    chat = memory.chat("ann", session_id="s")
    for number in range(24):
        answer = chat.record(f"I like tea, {number}.", "Noted [1].", memory.recall("ann", "tea?"))
        assert answer.text == "Noted."
    chat.end()
    assert memory.status("ann").turns == 48


def test_a_messages_history_that_is_handed_over_again_is_stored_once(open_memory):
    """Three requests, each with the whole list so far, as a host with a checkpoint makes them."""
    memory = open_memory()
    said = []
    for number in range(3):
        said += [ChatMessage(f"Question {number}"), ChatMessage(f"Answer {number}", role="assistant")]
        own = RMMMemory.from_defaults(memory, user_id="ann", session_id="t", chat_history=list(said))
        assert len(own.get_all()) == len(said)
    assert [t.text for t in memory.store.turns("ann", "t")] == [m.content for m in said]


def test_numbers_names_and_dates_that_an_extractor_scrubbed_are_found_and_shown(open_memory):
    scrubbed = '{"extracted_memories": [{"summary": "Ann runs and has a relative.", "reference": [0]}]}'
    memory = open_memory(ScriptedLLM(scrubbed), config=ALONE)
    with memory.chat("ann") as chat:
        chat.add(
            Message("user", "I ran in Leeds on 6 October in 2:05:17, with my cousin Xanthe."),
            Message("user", "The weather is lovely here."),
            Message("user", "We should cook something soon."),
        )
    for asked in ("What took 2:05:17?", "Who is Xanthe?", "What did I do on 6 October?"):
        best = memory.recall("ann", asked, top_m=1)
        assert "I ran in Leeds on 6 October in 2:05:17, with my cousin Xanthe." in best.prompt()
