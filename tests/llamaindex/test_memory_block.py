"""The memory as a block of LlamaIndex's own."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from inspect import iscoroutinefunction

import pytest
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, MessageRole, TextBlock
from llama_index.core.chat_engine import ContextChatEngine, SimpleChatEngine
from llama_index.core.memory import BaseMemoryBlock, Memory
from pydantic import ValidationError
from sqlalchemy import NullPool
from sqlalchemy.ext.asyncio import create_async_engine

from llamaindex_rmm import RMMMemoryBlock, hide_markers
from rmm_core import Attachment, RMMConfig
from rmm_core.prompts import read_fences
from rmm_core.testing import HashEmbedder
from tests.llamaindex.conftest import calling
from tests.llamaindex.hosts import WAYS, Pages
from tests.llamaindex.hosts import said as seen

FACT, QUESTION = "I keep bees in Graz.", "What do I keep?"
MARKERS = RMMConfig(batch_size=1, attribution="markers")
SMALL = {"token_limit": 20, "token_flush_size": 4, "chat_history_token_ratio": 0.5}


@pytest.fixture(autouse=True)
def no_loop_left_open(request):
    """LlamaIndex's blocking calls open an event loop where none was ever set, and do not close it."""
    if not iscoroutinefunction(request.function):
        asyncio.set_event_loop(None)


@pytest.fixture
def memory(open_memory):
    return open_memory(config=MARKERS)


@pytest.fixture
def block(memory):
    return RMMMemoryBlock(memory=memory, user_id="ann")


@pytest.fixture
def short_term(tmp_path):
    """LlamaIndex's own memory with a block."""

    def of(block, session_id="s", **options):
        file = tmp_path / f"{session_id}.db"  # its own: LlamaIndex makes the table at the first use of each memory
        database = create_async_engine(f"sqlite+aiosqlite:///{file}", poolclass=NullPool)
        return Memory.from_defaults(
            session_id=session_id, memory_blocks=[block], tokenizer_fn=str.split, async_engine=database, **options
        )

    return of


@pytest.fixture
def recalled(memory, monkeypatch):
    """What the bank was searched for, in order."""
    queries, add = [], memory.recent.add

    def adding(recall):
        queries.append(recall.query)
        return add(recall)

    monkeypatch.setattr(memory.recent, "add", adding)
    return queries


def talk(*lines):
    return [ChatMessage(text, role="assistant" if place % 2 else "user") for place, text in enumerate(lines)]


def words(messages):
    return [m.content for m in messages]


def said(memory, session="s", user_id="ann"):
    return [t.text for t in memory.store.turns(user_id, session)]


def learned(memory):
    return [len(f.cited) for _, f in memory.store.feedback()]


# -- what is shown -------------------------------------------------------------------------------


def test_it_recalls_across_sessions(block, short_term):
    first = short_term(block)
    first.put_messages(talk(FACT, "Noted."))
    block.end(first)
    second = short_term(block, "t")
    second.put_messages(talk(QUESTION))
    memories, question = second.get()
    assert memories.role == MessageRole.SYSTEM
    assert FACT in memories.content
    assert question.content == QUESTION


async def test_one_recall_a_turn(block, short_term, told, recalled):
    told("ann", FACT)
    own = short_term(block)
    await own.aput(ChatMessage(QUESTION))
    requests = [await own.aget(), await own.aget()]
    await own.aput_messages([calling("weather", city="Graz"), ChatMessage("It rains.", role="tool")])
    requests += [await own.aget(), await own.aget(input=None)]
    assert len(read_fences(" ".join(words(requests[0])))[0]) == 1
    assert len({r[0].content for r in requests}) == 1
    await own.aput(ChatMessage("Bees.", role="assistant"))
    await own.aget()
    assert recalled == [QUESTION]
    await own.aput(ChatMessage(QUESTION))
    await own.aget()
    assert recalled == [QUESTION, QUESTION]


def test_an_input_that_was_not_put_yet_is_searched_for(block, short_term, told, recalled):
    told("ann", FACT)
    assert FACT in short_term(block).get(input=QUESTION)[0].content
    assert recalled == [QUESTION]


@pytest.mark.parametrize("told_before", [True, False])
def test_nothing_to_show_is_no_message(block, short_term, told, told_before):
    own = short_term(block)
    if told_before:
        told("ann", FACT)
        assert own.get() == []
    else:
        own.put(ChatMessage(QUESTION))
        assert words(own.get()) == [QUESTION]


def test_it_may_speak_as_a_user(memory, short_term, told):
    told("ann", FACT)
    own = short_term(RMMMemoryBlock(memory=memory, user_id="ann", role="user"))
    own.put(ChatMessage(QUESTION))
    assert [m.role for m in own.get()] == [MessageRole.USER, MessageRole.USER]


@pytest.mark.parametrize("way", WAYS)
def test_braces_reach_the_model_as_they_are(memory, block, short_term, told, model, way):
    told("ann", "I name my slots {context_str} and {query_str}.")
    engine = ContextChatEngine.from_defaults(
        retriever=Pages(), llm=hide_markers(model, memory), memory=short_term(block)
    )
    model.enqueue("They are your {slots} [1].")
    assert seen(engine, way, "What are my {query_str} slots?") == "They are your {slots}."
    assert "I name my slots {context_str} and {query_str}." in "\n".join(words(model.history[0]))
    assert model.history[0][-1].content == "What are my {query_str} slots?"


def test_a_memory_out_of_reach_leaves_the_user_an_answer(open_memory, short_term, model, caplog):
    def raising(texts):
        raise TimeoutError("embedding service down")

    embedder = HashEmbedder()
    memory = open_memory(embedder=embedder, config=MARKERS)
    with memory.chat("ann") as chat:
        chat.record(FACT, "Noted.")
    embedder.embed = embedder.aembed = raising
    own = short_term(RMMMemoryBlock(memory=memory, user_id="ann"))
    model.enqueue("I do not know.")
    with caplog.at_level(logging.ERROR, logger="rmm_core"):
        assert str(SimpleChatEngine.from_defaults(llm=model, memory=own).chat(QUESTION)) == "I do not know."
    assert words(model.history[0]) == [QUESTION]
    assert "embedding service down" in caplog.text
    assert own.memory_blocks[0].end(own).status == "pending"
    assert said(memory) == [QUESTION, "I do not know."]


@pytest.mark.parametrize("wholly", [True, False])
def test_what_is_forgotten_in_an_open_turn_is_not_shown_again(memory, block, short_term, told, wholly):
    told("ann", FACT)
    own = short_term(block)
    own.put(ChatMessage(QUESTION))
    assert FACT in own.get()[0].content
    if wholly:
        memory.forget_user("ann")
    for found in memory.memories("ann"):
        memory.delete("ann", found.id)
    assert words(own.get()) == [QUESTION]
    own.put(ChatMessage("Bees [1].", role="assistant"))
    block.end(own)
    assert memory.store.feedback() == []


# -- what is stored ------------------------------------------------------------------------------


@pytest.mark.parametrize("again", ["q1 with some words", "q0 with some words"])
async def test_what_was_flushed_is_stored_once(memory, block, short_term, again):
    own = short_term(block, **SMALL)
    turns = ["q0 with some words", "a0 with some words", again, "a1 with some words", "q2", "a2"]
    for message in talk(*turns):
        await own.aput(message)
    flushed = said(memory)
    assert turns[: len(flushed)] == flushed != []
    assert len(flushed) < len(turns)
    report = await block.aend(own)
    assert report.status == "reflected"
    assert said(memory) == turns
    assert await own.aget_all() == []


async def test_a_session_that_was_flushed_and_closed_is_stored_once(memory, open_memory, short_term):
    turns = ["q0 with some words", "a0 with some words", "q1 with some words", "a1 with some words", "q2", "a2"]
    own = short_term(RMMMemoryBlock(memory=memory, user_id="ann"), **SMALL)
    for message in talk(*turns):
        await own.aput(message)
    await memory.aclose()
    again = open_memory(config=MARKERS)
    block = RMMMemoryBlock(memory=again, user_id="ann")
    await block.aend(short_term(block, **SMALL))
    stored = [text for s in again.status("ann").sessions for text in said(again, s.id)]
    assert sorted(stored) == sorted(turns)


async def test_a_second_session_on_the_same_memory(memory, block, short_term):
    own = short_term(block)
    for lines in ((FACT, "Noted."), (FACT, "You said so.")):
        await own.aput_messages(talk(*lines))
        assert (await block.aend(own)).status == "reflected"
    assert (await block.aend(own)).status == "nothing"
    assert said(memory) == [FACT, "Noted."]
    assert said(memory, "s/2") == [FACT, "You said so."]


async def test_end_works_inside_of_a_running_loop(memory, block, short_term):
    own = short_term(block)
    await own.aput_messages(talk(FACT, "Noted."))
    assert block.end(own).status == "reflected"
    assert await own.aget_all() == []
    assert said(memory) == [FACT, "Noted."]


def test_what_nobody_answered_is_stored_too(memory, block, short_term):
    own = short_term(block)
    own.put_messages([ChatMessage(FACT), ChatMessage("Hello?"), ChatMessage("Hi.", role="assistant")])
    own.put_messages([ChatMessage("Be brief.", role="system"), ChatMessage("Bye.")])
    block.end(own)
    assert said(memory) == [FACT, "Hello?", "Hi.", "Bye."]


def test_what_nobody_said_is_not_stored(memory, block, short_term):
    own = short_term(block)
    own.put_messages([ChatMessage("Weather?"), calling("weather", "Let me look.", city="Graz")])
    own.put_messages([ChatMessage("It rains.", role="tool"), ChatMessage("It rains.", role="assistant")])
    block.end(own)
    assert said(memory) == ["Weather?", "It rains."]


def test_pictures_and_names_are_kept(memory, short_term):
    block = RMMMemoryBlock(memory=memory, user_id="ann", user_name="Ann", agent_name="Bot")
    own, picture = short_term(block), "https://pictures.example/bee.png"
    own.put(ChatMessage(role="user", blocks=[TextBlock(text="Look"), ImageBlock(url=picture)]))
    own.put(ChatMessage("A bee.", role="assistant"))
    block.end(own)
    asked, answered = memory.store.turns("ann", "s")
    assert asked.attachments == (Attachment("image", picture, ""),)
    assert (asked.speaker, answered.speaker) == ("Ann", "Bot")


def test_messages_of_no_session_have_one_of_their_own(memory, block):
    asyncio.run(block.aput(talk(FACT, "Noted.")))
    assert said(memory, "memory") == [FACT, "Noted."]


def test_what_a_flush_did_not_store_is_stored_at_the_end(memory, short_term):
    block = RMMMemoryBlock(memory=memory, user_id="ann", accept_short_term_memory=False)
    own, lines = short_term(block, **SMALL), [f"some words to flush {n}" for n in range(6)]
    own.put_messages(talk(*lines))
    assert memory.users() == []
    block.end(own)
    assert said(memory) == lines


# -- what is learned -----------------------------------------------------------------------------


@pytest.mark.parametrize("silent", [True, False])
@pytest.mark.parametrize("flushing", [True, False])
def test_an_answer_is_learned_from_once(memory, block, short_term, told, model, silent, flushing):
    told("ann", FACT)
    own = short_term(block, **(SMALL if flushing else {}))
    llm = hide_markers(model, memory) if silent else model
    engine = SimpleChatEngine.from_defaults(llm=llm, memory=own)
    model.enqueue("You keep bees [1], in Graz.", "4 it is. [NO_CITE]", "You are welcome.")
    answers = [str(engine.chat(q)) for q in (QUESTION, "How much is 2 + 2, please?", "Thank you very much!")]
    assert (answers[0] == "You keep bees, in Graz.") == silent
    assert bool(said(memory)) == flushing
    block.end(own)
    assert said(memory)[1::2] == ["You keep bees, in Graz.", "4 it is.", "You are welcome."]
    assert learned(memory) == [1, 0]


@pytest.mark.parametrize("silent", [True, False])
@pytest.mark.parametrize("second", ["Bees, as I said [1].", "You keep bees [1]."])
def test_a_question_asked_again_is_learned_from_again(memory, block, short_term, told, model, silent, second):
    told("ann", FACT)
    own = short_term(block)
    engine = SimpleChatEngine.from_defaults(llm=hide_markers(model, memory) if silent else model, memory=own)
    model.enqueue("You keep bees [1].", second)
    for _ in "ab":
        engine.chat(QUESTION)
    block.end(own)
    assert learned(memory) == [1, 1]


def test_answers_of_the_same_words_cite_each_their_own(memory, block, short_term, told, model):
    told("ann", FACT, "My sister plays the cello in Graz.")
    own = short_term(block)
    engine = SimpleChatEngine.from_defaults(llm=hide_markers(model, memory), memory=own)
    model.enqueue("Yes, indeed [1].", "Yes, indeed [2].")
    for question in ("Do I keep bees?", "Is that in Graz?"):
        engine.chat(question)
    block.end(own)
    assert [[f.shown.index(c) for c in f.cited] for _, f in memory.store.feedback()] == [[0], [1]]


def test_another_block_learns_what_the_first_one_showed(memory, block, short_term, told, model):
    told("ann", FACT)
    own = short_term(block)
    model.enqueue("You keep bees [1].")
    SimpleChatEngine.from_defaults(llm=model, memory=own).chat(QUESTION)
    RMMMemoryBlock(memory=memory, user_id="ann").end(own)
    assert learned(memory) == [1]


def test_users_do_not_meet(memory, short_term, told, model):
    secrets = {"ann": "hazelnuts", "bob": "walnuts"}
    for user_id, secret in secrets.items():
        told(user_id, f"I am allergic to {secret}.")

    def reply(messages):
        prompt, asked = str(words(messages)), messages[-1].content
        return f"{asked} {' and '.join(s for s in secrets.values() if s in prompt)} [1]."

    llm = hide_markers(model.enqueue(*[reply] * 4), memory)

    def chat(user_id):
        block = RMMMemoryBlock(memory=memory, user_id=user_id)
        own = short_term(block, f"of {user_id}")
        engine = SimpleChatEngine.from_defaults(llm=llm, memory=own)
        asked = [f"{n}: What must I not eat?" for n in "ab"]
        assert [str(engine.chat(q)) for q in asked] == [f"{q} {secrets[user_id]}." for q in asked]
        block.end(own)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(chat, secrets))
    assert [len(memory.store.feedback(user_id=user_id)) for user_id in secrets] == [2, 2]


# -- what it is made of ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "complaint"), [({"user_id": " "}, "is blank"), ({"usr": "ann"}, "usr"), ({"memory": "m.db"}, "memory")]
)
def test_what_cannot_work_is_refused(memory, bad, complaint):
    with pytest.raises(ValidationError, match=complaint):
        RMMMemoryBlock(**{"memory": memory, "user_id": "ann"} | bad)


def test_llamaindexs_conventions(block):
    assert isinstance(block, BaseMemoryBlock)
    assert "ReflectiveMemory" not in repr(block)
    assert "memory" not in block.model_dump()
    assert block.name == "reflective_memory"
