"""An agent with memory: what the model is shown, what state keeps, who is who."""

import re
import warnings
from datetime import timedelta
from importlib.util import find_spec

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, SystemMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver

from langchain_rmm import RMMMiddleware
from rmm_core import ConfigError, InputError, RMMConfig
from tests.langchain.agents import ANN, LATER, SECRET, ask, builder, call, shown, turns, weather


@pytest.fixture
def memory(open_memory):
    return open_memory(config=RMMConfig(batch_size=1))


@pytest.fixture
def agent(memory, model):
    return builder(memory, model)


# -- what the model is shown, and what is kept ---------------------------------------------


def test_the_request_shows_memories_and_the_answer_hides_their_markers(agent, memory, model, told):
    told("ann", SECRET)
    model.enqueue("No hazelnuts for you [1]. See [the list](https://a.example).")
    answer = ask(agent(system_prompt="Be brief."), "What must I not eat?")
    assert answer.text == "No hazelnuts for you. See [the list](https://a.example)."
    assert shown(model).startswith("Be brief.\n\nYou know this user")
    assert "hazelnuts" in shown(model)
    noted = answer.response_metadata["reflective_memory"]
    assert (noted["numbers"], noted["status"]) == ([1], "cited")
    assert memory.get("ann", noted["memory_ids"][0]).summary == f"User: {SECRET}"
    assert turns(memory) == [("user", "What must I not eat?"), ("agent", answer.text)]
    assert memory.status("ann").learner.updates == 1


def test_a_model_sees_its_own_citations_and_nobody_else_does(agent, memory, model, told):
    told("ann", SECRET, "My sister plays the cello.")
    talking = agent()
    model.enqueue("No hazelnuts [1].", "I do not know that. [NO_CITE]", "Silent.", "None [2].")
    for text in ("Am I allergic to hazelnuts?", "Hazelnuts?", "My allergic hazelnuts?", "Which of my hazelnuts?"):
        ask(talking, text)
    said = [m.text for m in model.history[-1] if isinstance(m, AIMessage)]
    (number,) = re.findall(r'number="(\d)">\nSummary: User: I am allergic', shown(model))
    assert said == [f"No hazelnuts. [{number}]", "I do not know that. [NO_CITE]", "Silent."]
    kept = [m.text for m in talking.get_state(ANN).values["messages"] if isinstance(m, AIMessage)]
    assert kept == ["No hazelnuts.", "I do not know that.", "Silent.", "None."]


def test_a_first_turn_is_left_as_it_is(agent, memory, model):
    model.enqueue("As [1] says, hello.", "Hello again.")
    assert ask(agent(system_prompt="Be brief."), "Hello there").text == "As [1] says, hello."
    assert shown(model) == "Be brief."
    ask(agent(), "Hello")
    assert all(not isinstance(m, SystemMessage) for m in model.history[-1])
    assert memory.store.feedback() == []


@LATER
def test_a_system_message_of_blocks_stays_first(agent, model, told):
    told("ann", SECRET)
    model.enqueue("Fine.")
    own = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
    ask(agent(system_prompt=SystemMessage([own])), "What must I not eat?")
    content = model.history[0][0].content
    assert content[0] == own
    assert "hazelnuts" in content[1]["text"]


def test_blocks_are_cleaned_block_by_block(agent, model, told):
    told("ann", SECRET)
    thought = {"type": "reasoning", "reasoning": "memory [1] says so"}
    model.enqueue(AIMessage([thought, {"type": "text", "text": "No hazelnuts [1"}, {"type": "text", "text": "]."}]))
    answer = ask(agent(), "What must I not eat?")
    assert answer.content[0] == thought
    assert answer.text == "No hazelnuts."
    assert answer.response_metadata["reflective_memory"]["numbers"] == [1]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_no_checkpoint_holds_a_memory(agent, memory, model, told, kind, tmp_path):
    told("ann", SECRET)
    with SqliteSaver.from_conn_string(str(tmp_path / "checkpoints.db")) as on_disk:
        saver = InMemorySaver() if kind == "memory" else on_disk
        model.enqueue(call(), "Not with that allergy [1].", "As I said.")
        talking = agent(tools=[weather], saver=saver)
        ask(talking, "What must I not eat?")
        ask(talking, "Sure?")
        kept = [str(c) for c in saver.list(ANN)]
        assert len(kept) > 6
        assert not [c for c in kept if "hazelnut" in c.casefold() or "You know this user" in c]
    if kind == "sqlite":
        assert b"hazelnut" not in (tmp_path / "checkpoints.db").read_bytes()
    assert "hazelnuts" in shown(model, 1)


def test_the_state_that_is_returned_is_the_hosts_own(agent, model):
    model.enqueue("Hello.")
    assert set(agent().invoke({"messages": [("user", "Hello there")]}, ANN)) == {"messages"}


# -- who, and when a session ends ----------------------------------------------------------


def test_users_are_named_by_each_call(agent, memory, model, told):
    told("ann", SECRET)
    talking = agent(context_schema=dict)
    model.enqueue("One.", "Two.", "Three.")
    ask(talking, "What must I not eat?", {"configurable": {"thread_id": "b", "user_id": "bob"}})
    assert all(not isinstance(m, SystemMessage) for m in model.history[-1])
    ask(talking, "What must I not eat?", {"configurable": {"thread_id": "c"}, "metadata": {"user_id": "ann"}})
    assert "hazelnuts" in shown(model)
    talking.invoke(
        {"messages": [("user", "What must I not eat?")]},
        {"configurable": {"thread_id": "d"}},
        context={"user_id": "ann"},
    )
    assert "hazelnuts" in shown(model)
    assert memory.users() == ["ann", "bob"]


def test_a_user_may_have_a_name_of_their_own(agent, memory, model):
    model.enqueue("Noted.", "Noted.")
    for user, name in (("ann", "Annie"), ("bob", None)):
        named = {"user_id": user, "thread_id": user} | ({"user_name": name} if name else {})
        ask(agent(), SECRET, {"configurable": named})
    assert [memory.store.turns(u, u)[0].speaker for u in ("ann", "bob")] == ["Annie", "User"]


def test_no_user_or_two_is_an_error(agent, memory, model):
    with pytest.raises(InputError, match="no user is named"):
        ask(agent(), "Hello", {"configurable": {"thread_id": "t"}})
    two = {"configurable": {"thread_id": "t", "user_id": "ann"}}
    with pytest.raises(InputError, match="names 2 users"):
        agent(context_schema=dict).invoke({"messages": [("user", "Hello")]}, two, context={"user_id": "bob"})
    assert model.history == []


def test_without_threads_a_session_lasts_until_silence(memory, model, clock):
    talking = create_agent(model, [], middleware=[middleware := RMMMiddleware(memory, user_id="ann")])
    model.enqueue("One.", "Two.", "Three.")
    for text, minutes in (("first", 1), ("second", 45), ("third", 1)):
        ask(talking, text, {})
        clock.now += timedelta(minutes=minutes)
    first, second = memory.status("ann").sessions
    assert (first.turns, first.reflected, second.turns, second.reflected) == (4, 4, 2, 0)
    assert middleware.end("ann").status in ("reflected", "nothing")
    assert middleware.end("ann").status == "nothing"
    assert memory.status("ann").pending == ()


def test_a_session_ends_when_asked_to(memory, model):
    middleware = RMMMiddleware(memory)
    talking = create_agent(model, [], middleware=[middleware], checkpointer=InMemorySaver())
    model.enqueue("Noted.")
    ask(talking, SECRET)
    assert memory.memories("ann") == ()
    assert middleware.end("ann", "t").status == "reflected"
    assert "hazelnuts" in memory.memories("ann", kind="topic")[0].summary


def test_a_failing_reflection_does_not_fail_the_turn(open_memory, llm, model, clock):
    memory = open_memory(llm)
    llm.enqueue(*[ConnectionError("down")] * 4)
    talking = create_agent(model, [], middleware=[RMMMiddleware(memory)], checkpointer=InMemorySaver())
    model.enqueue("Noted.", "Hello.")
    ask(talking, SECRET)
    clock.now += timedelta(hours=2)
    assert ask(talking, "Hello").text == "Hello."
    (session,) = memory.status("ann").pending
    assert "down" in session.error


def test_one_users_failed_turn_is_not_anothers(agent, memory, model):
    talking = agent()
    model.enqueue(ConnectionError("down"), "Hello Bob.")
    with pytest.raises(ConnectionError):
        ask(talking, SECRET)
    ask(talking, "Hello", {"configurable": {"thread_id": "t", "user_id": "bob"}})
    assert turns(memory, "bob") == [("user", "Hello"), ("agent", "Hello Bob.")]


@pytest.mark.parametrize("wrong", ["memory.db", None, 5])
def test_what_is_no_memory_is_refused(wrong):
    with pytest.raises(
        ConfigError, match=f"memory is what langchain_rmm.open_memory returns; got {type(wrong).__name__}"
    ):
        RMMMiddleware(wrong)


def test_a_user_that_is_none_is_refused(memory):
    with pytest.raises(InputError, match="user_id is a string; got int"):
        RMMMiddleware(memory, user_id=5)


# -- every way to run it -------------------------------------------------------------------


def visible(chunk):
    return chunk[0].text if isinstance(chunk, tuple) and hasattr(chunk[0], "text") else str(chunk)


@pytest.mark.parametrize("mode", ["messages", "updates", "values", "debug"])
async def test_no_stream_shows_a_marker(agent, memory, model, told, mode):
    told("ann", SECRET)
    model.enqueue("No hazelnuts [1], ever [1].", "None [1].")
    talking = agent()
    for number, chunks in enumerate(
        [
            list(talking.stream({"messages": [("user", "What must I not eat?")]}, ANN, stream_mode=mode)),
            [c async for c in talking.astream({"messages": [("user", "Again?")]}, ANN, stream_mode=mode)],
        ]
    ):
        text = " ".join(map(visible, chunks))
        assert " [1" not in text.replace("'numbers': [1", "")
        if mode == "messages":
            assert "".join(map(visible, chunks)) == ("No hazelnuts, ever.", "None.")[number]
            assert len(chunks) > 2
    assert len(memory.store.feedback()) == 2


async def test_events_show_no_marker(agent, model, told):
    told("ann", SECRET)
    model.enqueue("No hazelnuts [1].")
    talking, question = agent(), {"messages": [("user", "What must I not eat?")]}
    events = [e async for e in talking.astream_events(question, ANN, version="v2")]
    tokens = [e["data"]["chunk"].text for e in events if e["event"] == "on_chat_model_stream"]
    assert "".join(tokens) == "No hazelnuts."
    assert len([e for e in events if e["event"] == "on_chat_model_start"]) == 1


@pytest.mark.skipif(find_spec("langgraph.stream") is None, reason="comes with langgraph 1.2")
async def test_the_event_protocol_shows_no_marker(agent, model, told):
    told("ann", SECRET)
    model.enqueue("None [1].")
    talking, question = agent(), {"messages": [("user", "What must I not eat?")]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # LangChain calls this interface a beta
        run = await talking.astream_events(question, ANN, version="v3")
        seen = [token async for message in run.messages async for token in message.text]
    assert "".join(seen) == "None."


async def test_the_whole_story_on_an_event_loop(agent, memory, model, told):
    told("ann", SECRET)
    model.enqueue(call(), "It rains, and no hazelnuts [1].")
    state = await agent(tools=[weather]).ainvoke({"messages": [("user", "Weather, and what must I not eat?")]}, ANN)
    assert state["messages"][-1].text == "It rains, and no hazelnuts."
    assert len(turns(memory)) == 2
    assert memory.status("ann").learner.updates == 1
