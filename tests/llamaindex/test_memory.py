"""The memory of chat engines and agents, called as they call it."""

import asyncio
import copy
import logging
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ReActAgent
from llama_index.core.base.llms.types import (
    ChatMessage,
    CitableBlock,
    DocumentBlock,
    ImageBlock,
    MessageRole,
    TextBlock,
)
from llama_index.core.chat_engine import CondensePlusContextChatEngine, ContextChatEngine, SimpleChatEngine
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.span_handlers import SimpleSpanHandler
from llama_index.core.tools import FunctionTool
from pydantic import BaseModel, ValidationError

from llamaindex_rmm import RMMMemory, hide_markers
from rmm_core import Attachment, ConfigError, RMMConfig, StoreError
from rmm_core.prompts import read_fences
from rmm_core.testing import HashEmbedder
from tests.llamaindex.conftest import ScriptedIndexLLM, calling
from tests.llamaindex.hosts import WAYS, Pages
from tests.llamaindex.hosts import said as seen

FACT, QUESTION = "I keep bees in Graz.", "What do I keep?"
PICTURE = "https://pictures.example/bee.png"
MARKERS = RMMConfig(batch_size=1, attribution="markers")
ENGINES = {
    "simple": lambda llm, own: SimpleChatEngine.from_defaults(llm=llm, memory=own),
    "context": lambda llm, own: ContextChatEngine.from_defaults(retriever=Pages(), llm=llm, memory=own),
    "condense": lambda llm, own: CondensePlusContextChatEngine.from_defaults(
        retriever=Pages(), llm=llm, memory=own, skip_condense=True
    ),
}


@pytest.fixture
def memory(open_memory):
    return open_memory(config=MARKERS)


@pytest.fixture
def own(memory):
    return of(memory)


@pytest.fixture
def recalled(memory, monkeypatch):
    """What the bank was searched for, in order."""
    queries, add = [], memory.recent.add

    def adding(recall):
        queries.append(recall.query)
        return add(recall)

    monkeypatch.setattr(memory.recent, "add", adding)
    return queries


def of(memory, user_id="ann", **changes):
    return RMMMemory.from_defaults(**{"memory": memory, "user_id": user_id, "session_id": "s"} | changes)


def user(text, *blocks):
    return ChatMessage(role="user", blocks=[TextBlock(text=text), *blocks])


def agent(text):
    return ChatMessage(text, role="assistant")


def tool(text):
    return ChatMessage(text, role="tool", additional_kwargs={"tool_call_id": "1"})


def texts(messages):
    return [(m.role.value, m.content) for m in messages]


def words(messages):
    return [m.content for m in messages]


def said(memory, session="s", user_id="ann"):
    return [t.text for t in memory.store.turns(user_id, session)]


def shown(messages):
    """The recalls whose memories stand in a request."""
    return read_fences("\n".join(m.content or "" for m in messages))[0]


def learned(memory):
    """The numbers of memories that each answer learned from cites."""
    return [len(f.cited) for _, f in memory.store.feedback()]


def number_of(memory, query, word, user_id="ann"):
    """The number that a memory has in the newest recall for a query."""
    recall = memory.recent.of_query(user_id, query)
    return next(s.number for s in recall.shown if word in s.memory.summary)


def change(block):
    if isinstance(block, ImageBlock):
        block.url = "https://pictures.example/other.png"
    else:
        block.text = "changed"


# -- one turn --------------------------------------------------------------------------------


async def test_one_recall_a_turn(memory, own, told, recalled):
    told("ann", FACT)
    await own.aput(user(QUESTION))
    requests = [await own.aget(), await own.aget(input=QUESTION), own.get(initial_token_count=12)]
    assert len(shown(requests[0])) == 1
    assert shown(requests[0]) == shown(requests[1]) == shown(requests[2])
    loop = [calling("weather", "Let me look [1].", city="Graz"), tool("It rains."), agent("You keep bees [1].")]
    await own.aput_messages(loop)
    assert texts(await own.aget()) == [("user", QUESTION), ("assistant", "You keep bees.")]
    assert said(memory) == [QUESTION, "You keep bees."]
    assert recalled == [QUESTION]
    assert learned(memory) == [1]


def test_the_same_question_in_the_next_turn_is_recalled_anew(own, told, recalled):
    told("ann", FACT)
    for _ in "ab":
        own.put(user(QUESTION))
        own.get()
        own.put(agent("Bees."))
    assert recalled == [QUESTION, QUESTION]


def test_memories_stand_in_front_of_the_message_that_was_put(own, told):
    told("ann", FACT)
    own.put(user(QUESTION))
    (asked,) = own.get()
    memories, question = asked.blocks
    assert asked.role == MessageRole.USER
    assert FACT in memories.text
    assert question.text == QUESTION


def test_memories_stand_before_the_history_when_nothing_was_put_yet(memory, own, told):
    told("ann", FACT)
    own.put_messages([user("Hello!"), agent("Hi.")])
    memories, *history = own.get(input=QUESTION)
    assert memories.role == MessageRole.SYSTEM
    assert FACT in memories.content
    assert texts(history) == [("user", "Hello!"), ("assistant", "Hi.")]
    own.put_messages([user(QUESTION), agent("Bees [1].")])
    assert learned(memory) == [1]


def test_a_question_is_searched_for_and_not_what_stayed_unanswered_before_it(own, told, recalled):
    told("ann", FACT)
    own.put(user("Where is Graz?"))
    memories, unanswered = own.get(input=QUESTION)
    assert recalled == [QUESTION]
    assert FACT in memories.content
    assert unanswered.content == "Where is Graz?"


def test_the_memories_of_an_unanswered_question_are_not_cited_by_the_next_answer(memory, own, told):
    told("ann", FACT)
    own.put(user(QUESTION))
    own.get()
    own.put_messages([user("Hello?"), agent("Hi, see [1].")])
    assert memory.store.feedback() == []
    assert said(memory) == [QUESTION, "Hello?", "Hi, see [1]."]


@pytest.mark.parametrize("asked", [None, "", "  "])
def test_nothing_asked_is_nothing_shown(own, told, recalled, asked):
    told("ann", FACT)
    own.put_messages([user("Hello!"), agent("Hi.")])
    assert texts(own.get(input=asked)) == [("user", "Hello!"), ("assistant", "Hi.")]
    assert recalled == []


def test_an_empty_bank_leaves_the_request_and_the_answer_alone(memory, own):
    own.put(user("What does the paper say?"))
    assert texts(own.get()) == [("user", "What does the paper say?")]
    answer = agent("That it works, see [1].")
    own.put(answer)
    assert said(memory)[1] == answer.content == "That it works, see [1]."


@pytest.mark.parametrize("getter", ["get", "get_all"])
def test_a_host_may_change_what_it_gets(own, getter):
    own.set([user("Before", ImageBlock(url=PICTURE)), agent("Nice.")])
    own.put_messages([user("Then"), agent("Good."), user("Now")])
    before = words(own.get_all())
    for message in getattr(own, getter)():
        message.additional_kwargs["mine"] = True
        for block in message.blocks:
            change(block)
        message.blocks.clear()
    assert words(own.get_all()) == words(own.get()) == before
    assert str(own.get_all()[0].blocks[1].url) == PICTURE
    assert [m.additional_kwargs for m in own.get_all()] == [{}] * 5


@pytest.mark.parametrize("getter", ["get", "get_all"])
def test_a_host_may_change_the_picture_that_waits_for_its_answer(own, getter):
    own.put(user("Look", ImageBlock(url=PICTURE)))
    change(getattr(own, getter)()[-1].blocks[-1])
    getattr(own, getter)()[-1].additional_kwargs["mine"] = True
    (asked,) = own.get_all()
    assert (str(asked.blocks[-1].url), asked.additional_kwargs) == (PICTURE, {})


def test_a_host_may_change_what_it_put(memory, own):
    asked = user("Look", ImageBlock(url=PICTURE))
    own.put(asked)
    for block in asked.blocks:
        change(block)
    own.put(agent("A bee."))
    assert said(memory) == ["Look", "A bee."]
    assert memory.store.turns("ann", "s")[0].attachments[0].uri == PICTURE


def test_what_nobody_said_is_not_stored(memory, own):
    own.put_messages([ChatMessage("Be brief.", role="system"), user("Weather?")])
    own.put_messages([calling("weather", "Let me look.", city="Graz"), tool("It rains."), agent("It rains.")])
    own.put_messages([ChatMessage(role="user"), ChatMessage(content=None, role="assistant"), agent("  ")])
    assert said(memory) == ["Weather?", "It rains."]
    assert texts(own.get()) == texts(own.get_all()) == [("user", "Weather?"), ("assistant", "It rains.")]


def test_a_greeting_stands_alone(memory, own):
    own.put(agent("How can I help?"))
    assert said(memory) == ["How can I help?"]
    assert texts(own.get_all()) == [("assistant", "How can I help?")]


REASONING = """Thought: I need the weather.
Action: weather
Action Input: {'city': 'Graz'}
Observation: It rains [1].
Thought: I can answer now [1].
Answer: """


@pytest.mark.parametrize(("answer", "cites"), [("You keep bees [1].", 1), ("You keep bees. [NO_CITE]", 0)])
def test_a_react_agents_answer_is_what_it_says_in_the_end(memory, own, told, answer, cites):
    told("ann", FACT)
    own.put(user(QUESTION))
    own.get()
    own.put(agent(REASONING + answer))
    assert said(memory) == [QUESTION, "You keep bees."]
    assert learned(memory) == [cites]


@pytest.mark.parametrize("silent", [True, False])
def test_an_answer_is_cleaned_in_place_and_learned_from_once(memory, own, told, model, silent):
    told("ann", FACT)
    engine = SimpleChatEngine.from_defaults(llm=hide_markers(model, memory) if silent else model, memory=own)
    reply = agent("You keep bees [1], in Graz [1].")
    model.enqueue(reply)
    assert str(engine.chat(QUESTION)) == "You keep bees, in Graz."
    assert silent or reply.content == "You keep bees, in Graz."
    assert said(memory)[1] == "You keep bees, in Graz."
    assert learned(memory) == [1]
    assert memory.status("ann").learner.updates == 1


def test_the_last_answer_tells_what_it_cites(own, told):
    told("ann", FACT)
    assert own.last_answer is None
    own.put(user(QUESTION))
    own.get()
    own.put(agent("You keep bees [1]."))
    assert own.last_answer.text == "You keep bees."
    assert [m.summary for m in own.last_answer.cited] == ["User: I keep bees in Graz."]


def test_structured_output_is_not_cited_and_not_cleaned(memory, own, told, model):
    class Ids(BaseModel):
        """Some ids."""

        ids: list[int]

    told("ann", FACT)
    model.enqueue(calling("Ids", ids=[1]))
    structured = hide_markers(model, memory).as_structured_llm(Ids)
    assert str(SimpleChatEngine.from_defaults(llm=structured, memory=own).chat("Which ids?")) == '{"ids":[1]}'


# -- markers stand again in what the model reads -----------------------------------------------


def test_a_model_sees_its_earlier_answers_with_their_markers(memory, own, told):
    told("ann", FACT, "My sister plays the cello.", "I moved to Linz in May.")
    turns = ((QUESTION, "You keep bees [{}]."), ("How much is 2 + 2?", "4. [NO_CITE]"), ("Sure?", "Yes."))
    for question, answer in turns:
        own.put(user(question))
        own.get()
        own.put(agent(answer.format(number_of(memory, question, "bees"))))
    clean = [QUESTION, "You keep bees.", "How much is 2 + 2?", "4.", "Sure?", "Yes."]
    last = "Which instrument does my sister play, the cello?"
    own.put(user(last))
    request = words(own.get())
    now = number_of(memory, last, "bees")
    assert now != number_of(memory, QUESTION, "bees")
    assert request[:-1] == [QUESTION, f"You keep bees. [{now}]", clean[2], "4. [NO_CITE]", *clean[4:]]
    assert words(own.get_all()) == [*clean, last]
    own.put(agent("Yes, the cello."))
    assert words(own.get()) == words(own.get_all()) == [*clean, last, "Yes, the cello."]
    assert said(memory) == words(own.get_all())


def test_an_answer_that_rests_on_nothing_shown_now_stands_without_a_marker(open_memory, told):
    memory = open_memory(config=RMMConfig(batch_size=1, attribution="markers", top_m=1))
    own = of(memory)
    told("ann", FACT, "My sister plays the cello.")
    own.put(user("Do I keep bees?"))
    own.get()
    own.put(agent("You keep bees [1]."))
    own.put(user("Who plays the cello?"))
    request = own.get()
    assert "cello" in request[-1].blocks[0].text
    assert words(request)[:2] == ["Do I keep bees?", "You keep bees."]
    assert learned(memory) == [1]


def test_markers_are_those_of_the_same_user(memory, told):
    for user_id in ("ann", "bob"):
        told(user_id, FACT)
    for user_id, answer in (("ann", "You keep bees. [NO_CITE]"), ("bob", "You keep bees [1].")):
        own = of(memory, user_id)
        own.put(user(QUESTION))
        own.get()
        own.put(agent(answer))
        own.put(user("Sure?"))
    assert own.get()[1].content == "You keep bees. [1]"
    assert of(memory).get(input="Sure?")[2].content == "You keep bees. [NO_CITE]"


# -- engines and agents ------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ENGINES)
def test_braces_reach_the_model_as_they_are(memory, own, told, model, kind, way):
    told("ann", "I name my slots {context_str} and {query_str}.")
    engine = ENGINES[kind](hide_markers(model, memory), own)
    model.enqueue("I noted {context_str}, and {existing_answer}.", "They are {query_str} and {context_str}.")
    asked = ("My template is {query_str}: {context_str}.", "What are my {query_str} slots?")
    for question in asked:
        seen(engine, way, question)
    request = model.history[-1]
    assert "I name my slots {context_str} and {query_str}." in "\n".join(words(request))
    spoken = [m.blocks[-1].text for m in request if m.role != MessageRole.SYSTEM]
    assert spoken[-3:] == [asked[0], "I noted {context_str}, and {existing_answer}.", asked[1]]
    assert said(memory)[:3] == spoken[-3:]


@pytest.mark.parametrize("way", WAYS)
def test_what_the_model_failed_to_answer_is_stored(memory, own, model, way):
    engine = SimpleChatEngine.from_defaults(llm=hide_markers(model, memory), memory=own)
    model.enqueue(ConnectionError("down"), "Good to know.")
    with pytest.raises(ConnectionError, match="down"):
        seen(engine, way, FACT)
    assert said(memory) == words(own.get_all()) == [FACT]
    seen(engine, way, "I have a cat too.")
    assert said(memory) == [FACT, "I have a cat too.", "Good to know."]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # where LlamaIndex reads streams
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ENGINES)
def test_words_repeated_after_a_failure_count_once(memory, own, model, told, recalled, kind, way):
    told("ann", FACT)
    engine = ENGINES[kind](hide_markers(model, memory), own)
    model.enqueue(ConnectionError("down"), "You keep bees [1].")
    with pytest.raises(ConnectionError):
        seen(engine, way, QUESTION)
    assert seen(engine, way, QUESTION) == "You keep bees."
    assert said(memory) == [QUESTION, "You keep bees."]
    assert recalled == [QUESTION]
    assert learned(memory) == [1]


@pytest.mark.parametrize("kind", ENGINES)
def test_a_stream_read_in_another_thread_is_one_turn(memory, own, model, told, kind):
    told("ann", FACT)
    model.enqueue("You keep bees [1], in Graz.")
    response = ENGINES[kind](hide_markers(model, memory), own).stream_chat(QUESTION)
    tokens = []
    reading = threading.Thread(target=lambda: tokens.extend(response.response_gen))
    reading.start()
    reading.join()
    assert "".join(tokens) == "You keep bees, in Graz."
    assert said(memory) == [QUESTION, "You keep bees, in Graz."]
    assert learned(memory) == [1]


@pytest.mark.parametrize("streaming", [True, False])
async def test_an_agents_tool_loop_is_one_turn(memory, own, model, told, recalled, streaming):
    told("ann", FACT)
    model.enqueue(
        calling("weather", "Let me look [1].", city="Graz"),
        calling("weather", city="Linz"),
        "It rains, and bees stay at home [1].",
    )
    weather = FunctionTool.from_defaults(lambda city: f"It rains in {city}.", name="weather", description="Weather")
    talking = FunctionAgent(
        llm=hide_markers(model, memory), tools=[weather], streaming=streaming, initial_state={"mood": "calm"}
    )
    answer = await talking.run("Will my bees fly?", memory=own)
    assert answer.response.content == "It rains, and bees stay at home."
    assert [len(shown(request)) for request in model.history] == [1, 1, 1]
    assert "'mood': 'calm'" in model.history[0][0].content
    assert said(memory) == ["Will my bees fly?", "It rains, and bees stay at home."]
    assert recalled == ["Will my bees fly?"]
    assert learned(memory) == [1]


async def test_a_quotation_in_a_question_is_a_part_of_it_in_a_tool_loop(memory, own, model, told, recalled):
    told("ann", FACT)
    model.enqueue(calling("weather", city="Graz"), "You keep bees [1].")
    weather = FunctionTool.from_defaults(lambda city: "It rains.", name="weather", description="The weather")
    quoted = CitableBlock(title="t", source="s", content=[TextBlock(text="Bees fly in May.")])
    talking = FunctionAgent(llm=hide_markers(model, memory), tools=[weather], streaming=False)
    await talking.run(user(QUESTION, quoted), memory=own)
    assert [len(shown(request)) for request in model.history] == [1, 1]
    assert len(recalled) == 1
    assert learned(memory) == [1]


async def test_agents_that_hand_over_answer_one_turn(memory, own, model, told, recalled):
    told("ann", FACT)
    model.enqueue(calling("handoff", "Ask Bob.", to_agent="bob", reason="bees"), "You keep bees [1].")
    llm = hide_markers(model, memory)
    names = {"alf": ["bob"], "bob": []}
    agents = [
        FunctionAgent(name=name, description=name, llm=llm, streaming=False, can_handoff_to=others)
        for name, others in names.items()
    ]
    answer = await AgentWorkflow(agents=agents, root_agent="alf").run(QUESTION, memory=own)
    assert answer.response.content == "You keep bees."
    assert said(memory) == [QUESTION, "You keep bees."]
    assert recalled == [QUESTION]
    assert learned(memory) == [1]


@pytest.mark.parametrize("kind", ENGINES)
def test_users_do_not_meet_in_threads(memory, model, told, kind):
    secrets = {"ann": "hazelnuts", "bob": "walnuts"}
    for user_id, secret in secrets.items():
        told(user_id, f"I am allergic to {secret}.")

    def reply(messages):
        prompt = "\n".join(words(messages))
        return f"{messages[-1].blocks[-1].text} {' and '.join(s for s in secrets.values() if s in prompt)} [1]."

    llm = hide_markers(model.enqueue(*[reply] * 36), memory)

    def talk(number):
        user_id = list(secrets)[number % 2]
        engine = ENGINES[kind](llm, of(memory, user_id, session_id=f"s{number}"))
        asked = [f"Question {number}.{n}:" for n in range(3)]
        assert [str(engine.chat(q)) for q in asked] == [f"{q} {secrets[user_id]}." for q in asked]

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(talk, range(12)))
    assert [len(memory.store.feedback(user_id=user_id)) for user_id in secrets] == [18, 18]
    assert all(len([s for s in secrets.values() if s in "\n".join(words(h))]) == 1 for h in model.history)


def test_a_memory_out_of_reach_leaves_the_user_an_answer(open_memory, model, told, caplog):
    def raising(texts):
        raise TimeoutError("embedding service down")

    embedder = HashEmbedder()
    memory = open_memory(embedder=embedder, config=MARKERS)
    with memory.chat("ann") as chat:
        chat.record(FACT, "Noted.")
    embedder.embed = raising
    model.enqueue("I do not know, see [1].")
    engine = SimpleChatEngine.from_defaults(llm=hide_markers(model, memory), memory=of(memory))
    with caplog.at_level(logging.ERROR, logger="rmm_core"):
        assert str(engine.chat(QUESTION)) == "I do not know, see [1]."
    assert words(model.history[0]) == [QUESTION]
    assert "the model answers without it" in caplog.text
    assert "embedding service down" in caplog.text
    assert said(memory) == [QUESTION, "I do not know, see [1]."]


# -- a history that the app holds ---------------------------------------------------------------

HELD = ("I keep bees.", "Noted.", "And a cat.", "Lovely.")


def held(*given):
    return [agent(text) if place % 2 else user(text) for place, text in enumerate(given or HELD)]


def test_what_the_session_has_is_not_stored_again(memory, own):
    own.set(held())
    of(memory).set(held(*HELD, "More?", "Go on."))
    assert said(memory) == [*HELD, "More?", "Go on."]


def test_the_words_that_were_cleaned_are_known_again(memory, own, told):
    told("ann", FACT)
    own.put(user(QUESTION))
    own.get()
    own.put(agent("You keep bees [1]."))
    own.set(held(QUESTION, "You keep bees [1]."))
    own.set(held(QUESTION, "You keep bees."))
    assert said(memory) == [QUESTION, "You keep bees."]


def test_a_window_of_it_is_what_the_model_reads(memory, own):
    own.set(held())
    own.set(held()[2:])
    assert said(memory) == [*HELD]
    own.put_messages([user("More?"), agent("Go on.")])
    assert words(own.get()) == words(own.get_all()) == [*HELD[2:], "More?", "Go on."]
    assert said(memory) == [*HELD, "More?", "Go on."]


def test_an_edited_one_is_what_the_model_reads(memory, own):
    own.set(held())
    own.set(held("I keep goats.", "Noted."))
    assert texts(own.get()) == [("user", "I keep goats."), ("assistant", "Noted.")]
    assert said(memory) == [*HELD, "I keep goats."]


async def test_one_that_ends_in_a_question_waits_for_the_answer(memory, own, told):
    told("ann", FACT)
    await own.aset([*held(), user(QUESTION)])
    *history, asked = await own.aget()
    assert words(history) == [*HELD]
    assert FACT in asked.content
    assert said(memory) == [*HELD, QUESTION]
    await own.aput(agent("Bees [1]."))
    assert said(memory) == words(await own.aget_all()) == [*HELD, QUESTION, "Bees."]
    assert learned(memory) == [1]


def test_an_empty_one_begins_a_new_session(memory, own):
    own.put_messages(held())
    own.set([])
    assert own.get_all() == []
    assert memory.status("ann").pending == ()
    own.put_messages(held("Hello!", "Hi."))
    assert words(own.get_all()) == said(memory, "s/2") == ["Hello!", "Hi."]


def test_what_was_unanswered_is_not_lost_by_setting_one(memory, own):
    own.put_messages(held(*HELD, "I moved to Linz."))
    own.set(held())
    assert said(memory) == [*HELD, "I moved to Linz."]
    assert words(own.get_all()) == [*HELD]


@pytest.mark.parametrize("again", ["I moved to Linz.", "Hello?"])
def test_what_was_unanswered_is_asked_again_with_one(memory, own, again):
    own.put(user("I moved to Linz."))
    own.set([*held(), user(again)])
    own.put(agent("Good to know."))
    assert sorted(said(memory)) == sorted({*HELD, "I moved to Linz.", again, "Good to know."})


def test_a_given_history_keeps_what_a_model_needs_to_know_of_it(own):
    own.set([user("Weather?"), calling("weather", city="Graz"), tool("It rains."), agent("It rains.")])
    own.put(user("And tomorrow?"))
    _, calls, result, _, _ = own.get()
    assert calls.blocks == calling("weather", city="Graz").blocks
    assert result.additional_kwargs == {"tool_call_id": "1"}


def test_after_a_restart_it_is_not_stored_again(open_memory):
    for lines in (HELD, (*HELD, "More?", "Go on.")):
        with open_memory(config=MARKERS) as memory:
            of(memory).set(held(*lines))
    memory = open_memory(config=MARKERS)
    stored = [text for s in memory.status("ann").sessions for text in said(memory, s.id)]
    assert stored == [*HELD, "More?", "Go on."]


def test_the_turns_since_are_read_when_the_session_was_ended_elsewhere(memory, own):
    own.set(held())
    of(memory).reset()
    own.put_messages([user("More?"), agent("Go on.")])
    assert words(own.get())[-2:] == ["More?", "Go on."]


@pytest.mark.parametrize("kind", ENGINES)
def test_an_engine_is_told_the_history_with_each_message(memory, own, model, kind):
    engine = ENGINES[kind](hide_markers(model, memory), own)
    model.enqueue("One, then.", "Two, then.")
    engine.chat("First", chat_history=held())
    engine.chat("Second", chat_history=held(*HELD, "First", "One, then."))
    asked = [m.content for m in model.history[-1] if m.role != MessageRole.SYSTEM]
    assert asked == [*HELD, "First", "One, then.", "Second"]
    assert said(memory) == [*HELD, "First", "One, then.", "Second", "Two, then."]


def test_one_to_begin_with(memory):
    own = of(memory, chat_history=held())
    assert words(own.get_all()) == words(own.get()) == said(memory) == [*HELD]
    assert of(memory, session_id="t", chat_history=[]).get_all() == []


# -- the session -------------------------------------------------------------------------------


def test_the_session_goes_on_in_another_object(memory, own):
    own.put_messages(held())
    assert words(of(memory).get()) == [*HELD]
    assert of(memory, "bob").get_all() == of(memory, session_id="t").get_all() == []


def test_sessions_without_a_name_are_their_own(memory):
    first, second = (RMMMemory.from_defaults(memory, "ann") for _ in "ab")
    first.put_messages(held())
    assert second.get_all() == []


@pytest.mark.parametrize("awaited", [True, False])
async def test_reset_ends_the_session_and_loses_nothing(memory, own, awaited):
    own.set(held("Hello!", "Hi."))
    own.put(user(FACT))
    if awaited:
        await own.areset()
    else:
        own.reset()
    assert own.get_all() == own.get() == []
    assert said(memory) == ["Hello!", "Hi.", FACT]
    assert memory.status("ann").pending == ()
    assert [m.summary for m in memory.memories("ann", kind="topic")] == ["User: I keep bees in Graz."]
    own.put(user(QUESTION))
    assert FACT in own.get()[-1].content
    own.put(agent("Bees [1]."))
    assert words(own.get_all()) == said(memory, "s/2") == [QUESTION, "Bees."]


async def test_the_end_tells_what_was_reflected(own):
    assert own.end().status == (await own.aend()).status == "nothing"
    own.put_messages(held(FACT, "Noted."))
    assert (await own.aend()).status == "reflected"


@pytest.mark.parametrize(
    ("turns", "repeated"),
    [(0, []), (1, []), (2, ["q2", "a2"]), (3, ["q2", "a2"]), (4, ["q1", "a1", "q2", "a2"]), (40, None)],
)
def test_how_much_of_the_session_is_repeated(memory, turns, repeated):
    whole = ["q0", "a0", "q1", "a1", "q2", "a2"]
    own = of(memory, history_turns=turns)
    own.put_messages(held(*whole))
    assert words(own.get()) == (whole if repeated is None else repeated)
    own.put(user("q3"))
    assert words(own.get())[-1] == "q3"
    assert words(own.get())[:-1] == (whole if repeated is None else repeated)
    assert words(own.get_all()) == [*whole, "q3"]


def test_the_speakers_have_names(memory):
    own = of(memory, user_name="Ann", agent_name="Bot")
    own.put_messages(held(FACT, "Noted."))
    assert [t.speaker for t in memory.store.turns("ann", "s")] == ["Ann", "Bot"]


def test_pictures_come_back(memory, own):
    own.put(user("Look", ImageBlock(url=PICTURE), DocumentBlock(data=b"%PDF", title="The lease")))
    for (asked,) in (own.get(), own.get_all()):
        assert [b.block_type for b in asked.blocks] == ["text", "image", "document"]
        assert str(asked.blocks[1].url) == PICTURE
    own.put(agent("A bee."))
    stored = memory.store.turns("ann", "s")[0].attachments
    assert stored[0] == Attachment("image", PICTURE, "")
    assert (stored[1].kind, stored[1].caption) == ("document", "The lease")
    asked, _ = own.get()
    assert [str(b.url) for b in asked.blocks if isinstance(b, ImageBlock)] == [PICTURE]


def test_captions_are_kept_and_not_sent(memory, own):
    picture = user("Look", ImageBlock(url=PICTURE))
    picture.additional_kwargs["captions"] = ["A bee"]
    own.put(picture)
    for _ in ("waiting", "stored"):
        assert own.get()[0].additional_kwargs == {}
        assert own.get_all()[0].additional_kwargs == {"captions": ["A bee"]}
        own.put(agent("I see."))
    assert memory.store.turns("ann", "s")[0].attachments == (Attachment("image", PICTURE, "A bee"),)


def test_a_picture_alone_is_said_too(memory, own, recalled):
    own.put(ChatMessage(role="user", blocks=[ImageBlock(url=PICTURE)]))
    assert [b.block_type for b in own.get()[-1].blocks] == ["image"]
    own.put(agent("A bee."))
    assert said(memory) == ["", "A bee."]
    assert recalled == []


def test_a_forgotten_user_is_forgotten_in_an_open_turn_too(memory, own, told):
    told("ann", FACT)
    own.put(user(QUESTION))
    assert FACT in own.get()[-1].content
    memory.forget_user("ann")
    assert words(own.get()) == [QUESTION]
    own.put(agent("Bees [1]."))
    assert memory.store.feedback() == []
    assert memory.memories("ann") == ()


# -- what it is made of ---------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [{"user_id": " "}, {"session_id": ""}])
def test_what_cannot_name_anybody(memory, bad):
    with pytest.raises(ValueError, match="is blank"):  # as pydantic reports it
        of(memory, **bad)


def test_what_is_no_memory_is_refused():
    with pytest.raises(ConfigError, match=r"memory is what llamaindex_rmm\.open_memory returns; got str"):
        of("memory.db")


def test_a_typo_is_refused(memory):
    with pytest.raises(TypeError, match="history_turn"):
        of(memory, history_turn=3)
    with pytest.raises(ValidationError, match="sesion_id"):
        RMMMemory(memory=memory, user_id="ann", sesion_id="s")
    with pytest.raises(ValidationError, match="history_turns"):
        of(memory, history_turns=-1)


def test_llamaindexs_conventions(memory, own):
    assert "BaseMemory" in [c.__name__ for c in RMMMemory.__mro__]
    assert RMMMemory.class_name() == own.to_dict()["class_name"] == "RMMMemory"
    assert "ReflectiveMemory" not in repr(own)
    assert "memory" not in own.model_dump()


async def test_llamaindex_sees_what_it_does(own):
    spans, root = SimpleSpanHandler(), get_dispatcher()
    root.add_span_handler(spans)
    try:
        own.put(user("Hello!"))
        own.get()
        await own.aput(agent("Hi."))
        await own.aget()
    finally:
        root.span_handlers.remove(spans)
    names = [s.id_.partition("-")[0] for s in spans.completed_spans]
    assert names == ["RMMMemory.put", "rmm.recall", "RMMMemory.get", "RMMMemory.aput", "RMMMemory.aget"]


def test_a_model_without_functions_remembers_too(memory, own, told):
    told("ann", FACT)
    plain = ScriptedIndexLLM(calls_functions=False).enqueue("You keep bees [1].")
    assert str(SimpleChatEngine.from_defaults(llm=plain, memory=own).chat(QUESTION)) == "You keep bees."


@pytest.mark.parametrize("silent", [True, False])
def test_nothing_but_a_marker_is_an_answer_too(memory, own, told, model, silent):
    told("ann", FACT)
    engine = SimpleChatEngine.from_defaults(llm=hide_markers(model, memory) if silent else model, memory=own)
    model.enqueue("Bees [1].", "[1]", "Fine.")
    assert [str(engine.chat(text)) for text in (QUESTION, "Which ones?", "And now?")][2] == "Fine."
    assert said(memory) == [QUESTION, "Bees.", "Which ones?", "And now?", "Fine."]
    assert len(memory.store.feedback()) == 2


# -- many at once, one object a request, failures at a bad moment ----------------------------------


class Echo(ScriptedIndexLLM):
    """Answers what it was asked, after a while."""

    def next(self, messages):
        return ChatMessage(f"Re: {messages[-1].blocks[-1].text}", role="assistant")


@pytest.mark.parametrize("kind", ENGINES)
async def test_messages_that_come_at_once_are_each_stored_once(memory, own, kind):
    engine = ENGINES[kind](hide_markers(Echo(seconds=0.01), memory), own)
    facts = [f"Fact {i}." for i in range(6)]
    await asyncio.gather(*(engine.achat(fact) for fact in facts))
    assert sorted(said(memory)) == sorted([*facts, *(f"Re: {fact}" for fact in facts)])


@pytest.mark.parametrize(("again", "stored"), [(FACT, [FACT, "Noted."]), ("Hello?", [FACT, "Hello?", "Noted."])])
def test_an_object_for_each_request_loses_nothing(memory, model, again, stored):
    model.enqueue(ConnectionError("down"), "Noted.")
    for text in (FACT, again):
        engine = SimpleChatEngine.from_defaults(llm=hide_markers(model, memory), memory=of(memory))
        with suppress(ConnectionError):
            engine.chat(text)
    assert said(memory) == stored


async def test_an_answer_that_was_stored_before_its_request_ended_is_stored_once(memory, own, monkeypatch):
    append, calls = memory.store.append, []

    def breaking(*args, **kwargs):
        turns = append(*args, **kwargs)
        calls.append(args)
        if len(calls) == 2:
            raise StoreError("the disk went away right after")
        return turns

    monkeypatch.setattr(memory.store, "append", breaking)
    own.put(user(FACT))
    with pytest.raises(StoreError):
        own.put(agent("Noted."))
    own.put(agent("Noted."))
    own.put(user("And a cat."))
    assert said(memory) == [FACT, "Noted.", "And a cat."]


def test_the_next_message_may_come_while_an_answer_is_stored(memory, own, monkeypatch):
    append = memory.store.append

    def slow(user_id, session_id, messages, **kwargs):
        turns = append(user_id, session_id, messages, **kwargs)
        if any(m.role == "agent" for m in messages):
            monkeypatch.setattr(memory.store, "append", append)
            own.put(user("And a cat."))
        return turns

    own.put(user(FACT))
    monkeypatch.setattr(memory.store, "append", slow)
    own.put(agent("Noted."))
    own.put(agent("Lovely."))
    assert said(memory) == [FACT, "Noted.", "And a cat.", "Lovely."]


@pytest.mark.parametrize("kind", [FunctionAgent, ReActAgent])
async def test_what_a_tool_answers_directly_is_no_answer_of_a_models(memory, own, told, model, kind):
    told("ann", FACT)
    menu = FunctionTool.from_defaults(lambda: "Choose: [1] fish, [2] meat.", name="menu", return_direct=True)
    thought = "Thought: The menu.\nAction: menu\nAction Input: {}"
    model.enqueue(calling("menu") if kind is FunctionAgent else thought)
    running = kind(llm=hide_markers(model, memory), tools=[menu]).run("What is for lunch?", memory=own)
    assert (await running).response.content == "Choose: [1] fish, [2] meat."
    assert said(memory)[-2:] == ["What is for lunch?", "Choose: [1] fish, [2] meat."]
    assert memory.store.feedback() == []


def test_a_long_history_is_cut_to_what_fits(memory):
    own = of(memory, history_tokens=10)
    own.put_messages([user("a" * 200), agent("b" * 30), user("c" * 20), agent("d" * 10)])
    assert words(own.get()) == ["c" * 20, "d" * 10]
    assert words(of(memory, history_tokens=0).get()) == []


def test_it_is_copied_and_pickled_by_the_name_of_its_memory(memory, own):
    own.put(user(FACT))
    for copied in (copy.deepcopy(own), pickle.loads(pickle.dumps(own))):
        assert copied.memory is own.memory is memory
        assert words(copied.get_all()) == [FACT]


def test_a_question_is_not_a_memory_of_itself(open_memory):
    memory = open_memory(config=RMMConfig(session_turns=1, attribution="markers"))
    own = of(memory)
    own.put(user("What is the name of my cat?"))
    assert own.get()[-1].content == "What is the name of my cat?"
    own.put(agent("I do not know."))
    assert memory.status("ann").pending == ()


def test_words_said_before_are_said_again_at_the_end_of_a_given_history(memory):
    of(memory).put_messages([user("yes"), agent("ok"), user("no"), agent("third")])
    own = of(memory)
    own.set([agent("third"), user("yes")])
    own.put(agent("fourth"))
    assert said(memory) == ["yes", "ok", "no", "third", "yes", "fourth"]


def test_a_given_history_hides_nothing_of_a_forgotten_users_new_session(memory):
    own = of(memory, chat_history=held())
    memory.forget_user("ann")
    own.put_messages([user("five"), agent("six"), user("seven")])
    assert words(own.get_all())[-3:] == ["five", "six", "seven"]


def test_a_key_is_of_its_session(memory):
    own, other = of(memory), of(memory)
    own.put(user("x"))
    other.reset()
    other.put(user("x"))
    own.put(user("x"))
    own.put(agent("ok"))
    assert said(memory, "s/2") == ["x", "ok"]


def test_an_answer_that_could_not_be_stored_is_learned_from_when_it_is(memory, own, told, model, monkeypatch):
    told("ann", FACT)
    own.put(user(QUESTION))
    quiet = hide_markers(model.enqueue("Bees [1]."), memory)
    answer = quiet.chat(own.get()).message
    with monkeypatch.context() as broken:
        broken.setattr(memory.store, "append", lambda *args, **kwargs: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            own.put(answer)
    own.put(answer)
    assert said(memory) == [QUESTION, "Bees."]
    assert learned(memory) == [1]


@pytest.mark.parametrize("reply", ['{"ids": [1]}', "[[1, 2], [3]]", '["a"]'])
def test_data_of_a_plain_model_is_left_alone(own, told, memory, model, reply):
    told("ann", FACT)
    assert str(SimpleChatEngine.from_defaults(llm=model.enqueue(reply), memory=own).chat(QUESTION)) == reply
    assert said(memory) == [QUESTION, reply]
