"""A session as a chat message history."""

import warnings

import pytest
from langchain_core._api import LangChainDeprecationWarning
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import ConfigurableFieldSpec, RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory

from langchain_rmm import RMMChatMessageHistory
from rmm_core import InputError, RMMConfig

CALL = {"name": "look", "args": {}, "id": "c1"}
FIELDS = [
    ConfigurableFieldSpec(id=name, annotation=str, name=name, is_shared=True) for name in ("user_id", "session_id")
]


@pytest.fixture
def memory(open_memory):
    return open_memory(config=RMMConfig(batch_size=1, attribution="markers"))


@pytest.fixture
def history(memory):
    return RMMChatMessageHistory(memory, user_id="ann", session_id="s")


def with_history(memory, chain, **keys):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LangChainDeprecationWarning)  # LangChain's own, of this class, since 1.3
        return RunnableWithMessageHistory(
            chain,
            lambda user_id, session_id: RMMChatMessageHistory(memory, user_id=user_id, session_id=session_id),
            history_factory_config=FIELDS,
            **keys,
        )


def of(user, session="s"):
    return {"configurable": {"user_id": user, "session_id": session}}


def texts(messages):
    return [(m.type, m.text) for m in messages]


def said(memory, session="s", user="ann"):
    return [(t.role, t.text) for t in memory.store.turns(user, session)]


def test_the_history_itself_does_not_warn(memory):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RMMChatMessageHistory(memory, user_id="ann", session_id="s").add_user_message("Hello")


@pytest.mark.parametrize(("user", "session"), [("", "s"), ("ann", " "), (7, "s")])
def test_what_cannot_name_a_session(memory, user, session):
    with pytest.raises(InputError):
        RMMChatMessageHistory(memory, user_id=user, session_id=session)


async def test_in_a_chain_of_two_users(memory, model):
    prompt = ChatPromptTemplate.from_messages(
        [("system", "Be brief."), MessagesPlaceholder("history"), ("human", "{question}")]
    )
    chain = with_history(memory, prompt | model, input_messages_key="question", history_messages_key="history")
    model.enqueue("Bees!", "Goats!", "In Graz.", "In Linz.")
    chain.invoke({"question": "I keep bees."}, of("ann"))
    await chain.ainvoke({"question": "I keep goats."}, of("bob"))
    assert "".join(c.text for c in chain.stream({"question": "Where?"}, of("ann"))) == "In Graz."
    assert "".join([c.text async for c in chain.astream({"question": "Where?"}, of("bob"))]) == "In Linz."
    assert texts(model.history[2]) == [
        ("system", "Be brief."),
        ("human", "I keep bees."),
        ("ai", "Bees!"),
        ("human", "Where?"),
    ]
    ann = [("user", "I keep bees."), ("agent", "Bees!"), ("user", "Where?"), ("agent", "In Graz.")]
    bob = [("user", "I keep goats."), ("agent", "Goats!"), ("user", "Where?"), ("agent", "In Linz.")]
    assert (said(memory), said(memory, user="bob")) == (ann, bob)


async def test_over_a_model_alone(memory, model):
    chain = with_history(memory, model)
    model.enqueue("One.", "Two.", "Three.")
    chain.invoke([SystemMessage("Be brief."), HumanMessage("1?")], of("ann"))
    chain.invoke("2?", of("ann"))
    await chain.ainvoke([HumanMessage("3?")], of("ann"))
    assert texts(model.history[2]) == [
        ("human", "1?"),
        ("ai", "One."),
        ("human", "2?"),
        ("ai", "Two."),
        ("human", "3?"),
    ]
    assert said(memory)[4:] == [("user", "3?"), ("agent", "Three.")]
    assert len(said(memory)) == 6


def test_a_failing_model_stores_nothing(memory, model):
    chain = with_history(memory, model)
    model.enqueue(ConnectionError("no line"))
    with pytest.raises(ConnectionError, match="no line"):
        chain.invoke("1?", of("ann"))
    assert memory.users() == []


async def test_clear_ends_the_session_and_loses_nothing(memory, history):
    history.add_messages([HumanMessage("I keep bees in Graz."), AIMessage("Noted.")])
    history.clear()
    assert history.messages == await history.aget_messages() == []
    assert "bees" in memory.recall("ann", "bees").shown[0].memory.summary
    await history.aadd_messages([HumanMessage("And goats in Linz."), AIMessage("Noted.")])
    assert texts(history.messages) == [("human", "And goats in Linz."), ("ai", "Noted.")]
    await history.aclear()
    history.clear()  # twice is fine
    assert await history.aget_messages() == []
    assert len(memory.memories("ann", kind="topic")) == 2
    assert [s.id for s in memory.status("ann").sessions] == ["s", "s/2"]
    assert said(memory) == [("user", "I keep bees in Graz."), ("agent", "Noted.")]


def test_clear_when_the_model_fails_leaves_the_session_pending(open_memory, llm):
    memory = open_memory(llm)
    history = RMMChatMessageHistory(memory, user_id="ann", session_id="s")
    history.add_user_message("I keep bees in Graz.")
    history.clear()  # the script is empty
    assert history.messages == []
    assert [s.id for s in memory.status("ann").pending] == ["s"]


def test_clear_before_anything_was_said(memory, history):
    history.clear()
    assert memory.users() == []


def test_a_message_id_is_stored_once(memory, history):
    first, second = HumanMessage("I keep bees.", id="1"), AIMessage("Noted.", id="2")
    history.add_messages([first, second])
    history.add_messages([first, second, HumanMessage("In Graz.", id="3"), AIMessage("I see.", id="4")])
    history.add_messages([HumanMessage("I keep bees.", id="1")])
    assert [text for _, text in said(memory)] == ["I keep bees.", "Noted.", "In Graz.", "I see."]


def test_what_nobody_said_is_not_stored(memory, history):
    history.add_messages(
        [
            SystemMessage("Be brief."),
            HumanMessage("Where is Tofu?"),
            AIMessage("", tool_calls=[CALL]),
            ToolMessage("on the roof", tool_call_id="c1"),
            AIMessage("On the roof."),
        ]
    )
    assert said(memory) == [("user", "Where is Tofu?"), ("agent", "On the roof.")]


def test_messages_in_any_order(memory, history):
    history.add_messages([AIMessage("Hello!"), HumanMessage("Hi."), HumanMessage("I keep bees."), AIMessage("Noted.")])
    history.add_messages([])
    history.add_messages([AIMessage("Anything else?")])
    assert [text for _, text in said(memory)] == ["Hello!", "Hi.", "I keep bees.", "Noted.", "Anything else?"]


def test_the_speakers_have_names(memory):
    history = RMMChatMessageHistory(memory, user_id="ann", session_id="s", user_name="Ann", agent_name="Bot")
    history.add_messages([HumanMessage("I keep bees."), AIMessage("Noted.")])
    assert [t.speaker for t in memory.store.turns("ann", "s")] == ["Ann", "Bot"]


@pytest.mark.parametrize("at_once", [True, False])
def test_what_an_answer_cites_is_learned_from_once(memory, told, history, at_once):
    told("ann", "I keep bees in Graz.")
    memory.recall("ann", "What do I keep?")
    messages = [HumanMessage("What do I keep?", id="1"), AIMessage("You keep bees [1], in Graz.", id="2")]
    for _ in "ab":
        for some in [messages] if at_once else [[m] for m in messages]:
            history.add_messages(some)
    assert said(memory) == [("user", "What do I keep?"), ("agent", "You keep bees, in Graz.")]
    assert len(memory.store.feedback()) == 1


def test_an_answer_after_tool_calls_is_the_one_that_cites(memory, told, history):
    told("ann", "I keep bees in Graz.")
    memory.recall("ann", "What do I keep?")
    look = AIMessage("Let me look.", tool_calls=[CALL])
    history.add_messages(
        [HumanMessage("What do I keep?"), look, ToolMessage("bees", tool_call_id="c1"), AIMessage("Bees [1].")]
    )
    assert [text for _, text in said(memory)] == ["What do I keep?", "Let me look.", "Bees."]
    assert [len(f.cited) for _, f in memory.store.feedback()] == [1]


def test_numbers_that_cite_nothing_of_ours_stay(memory, history):
    history.add_messages([HumanMessage("What does the paper say?"), AIMessage("That it works [1].")])
    assert said(memory)[1] == ("agent", "That it works [1].")


async def test_a_callable_for_each_session_finds_what_the_other_wrote(memory, model):
    model.enqueue("Noted.")
    await with_history(memory, RunnableLambda(lambda m: m) | model).ainvoke("I keep bees.", of("ann"))
    found = RMMChatMessageHistory(memory, user_id="ann", session_id="s").messages
    assert texts(found) == [("human", "I keep bees."), ("ai", "Noted.")]
    assert RMMChatMessageHistory(memory, user_id="bob", session_id="s").messages == []
    assert RMMChatMessageHistory(memory, user_id="ann", session_id="t").messages == []


def test_messages_added_one_by_one_and_again_together_are_stored_once(history):
    said, answered = HumanMessage("I keep bees.", id="h"), AIMessage("Lovely.", id="a")
    history.add_messages([said])
    history.add_messages([answered])
    history.add_messages([said, answered])
    assert [m.text for m in history.messages] == ["I keep bees.", "Lovely."]
