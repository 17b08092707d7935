"""A turn of an agent is stored once, and whole, whatever happens to it."""

import pytest
from langchain.agents import create_agent
from langchain.agents import middleware as stock
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command
from pydantic import BaseModel

from langchain_rmm import RMMMiddleware, memory_tools
from rmm_core import RMMConfig
from rmm_core.testing import HashEmbedder
from tests.langchain.agents import ANN, LATER, SECRET, ask, builder, call, shown, turns, weather


@pytest.fixture
def memory(open_memory):
    return open_memory(config=RMMConfig(batch_size=1))


@pytest.fixture
def agent(memory, model):
    return builder(memory, model)


# -- one record a turn ---------------------------------------------------------------------


def test_a_tool_loop_is_one_turn(agent, memory, model, told):
    told("ann", SECRET)
    model.enqueue(call(), call(), "It rains, and no hazelnuts [1].")
    state = agent(tools=[weather]).invoke({"messages": [("user", "Weather, and what must I not eat?")]}, ANN)
    assert len({shown(model, i) for i in range(3)}) == 1
    kinds = [type(m) for m in state["messages"]]
    assert kinds == [HumanMessage, AIMessage, ToolMessage, AIMessage, ToolMessage, AIMessage]
    assert state["messages"][2].content == "It rains in Graz [1]."
    assert state["messages"][2].tool_call_id == state["messages"][1].tool_calls[0]["id"]
    assert turns(memory) == [
        ("user", "Weather, and what must I not eat?"),
        ("agent", "It rains, and no hazelnuts."),
    ]
    assert len(memory.store.feedback()) == 1


@LATER
def test_a_retried_model_call_is_one_turn(agent, memory, model, told):
    told("ann", SECRET)
    retry = stock.ModelRetryMiddleware(max_retries=2, initial_delay=0.0)
    model.enqueue(ConnectionError("down"), TimeoutError("slow"), "No hazelnuts [1].")
    ask(agent(retry), "What must I not eat?")
    assert len(model.history) == 3
    assert len(turns(memory)) == 2
    assert len(memory.store.feedback()) == 1


def test_every_invocation_adds_one_exchange(agent, memory, model):
    talking = agent()
    model.enqueue("One.", "Two.", "Three.")
    for text in ("first", "second", "third"):
        ask(talking, text)
    assert [t for _, t in turns(memory)] == ["first", "One.", "second", "Two.", "third", "Three."]


def test_what_a_failed_call_left_is_stored_with_the_next_answer(agent, memory, model):
    talking = agent()
    model.enqueue(ConnectionError("down"))
    with pytest.raises(ConnectionError):
        ask(talking, SECRET)
    assert turns(memory) == []
    model.enqueue("Noted.")
    ask(talking, "Did you get that?")
    assert turns(memory) == [("user", SECRET), ("user", "Did you get that?"), ("agent", "Noted.")]


def test_a_question_asked_again_after_an_error_is_stored_once(agent, memory, model):
    talking = agent()
    model.enqueue(ConnectionError("down"), "Noted.")
    with pytest.raises(ConnectionError):
        ask(talking, SECRET)
    ask(talking, SECRET)
    assert turns(memory) == [("user", SECRET), ("agent", "Noted.")]


def test_a_replayed_checkpoint_adds_nothing(agent, memory, model, told):
    told("ann", SECRET)
    talking = agent()
    model.enqueue("No hazelnuts [1].", "Hazelnuts are out [1].")
    ask(talking, "What must I not eat?")
    past = list(talking.get_state_history(ANN))
    before_the_model = next(s for s in past if s.next and s.next[0] == "model")
    place = before_the_model.config["configurable"] | {"user_id": "ann"}
    again = talking.invoke(None, {"configurable": place})
    assert again["messages"][-1].text == "Hazelnuts are out."
    assert len(turns(memory)) == 2
    assert len(memory.store.feedback()) == 1


def test_an_interrupt_and_its_resumption_are_one_turn(agent, memory, model, told):
    told("ann", SECRET)
    talking = agent(stock.HumanInTheLoopMiddleware(interrupt_on={"weather": True}), tools=[weather])
    model.enqueue(call(), "It rains, and no hazelnuts [1].")
    asked = talking.invoke({"messages": [("user", "Weather, and what must I not eat?")]}, ANN)
    assert "__interrupt__" in asked
    assert turns(memory) == []
    talking.invoke(Command(resume={"decisions": [{"type": "approve"}]}), ANN)
    assert turns(memory)[-1] == ("agent", "It rains, and no hazelnuts.")
    assert len(turns(memory)) == 2
    assert len(memory.store.feedback()) == 1


def test_an_interrupt_is_resumed_by_another_process(open_memory, model, told, tmp_path):
    """Everything that is not on disk is made anew in between."""
    told("ann", SECRET)
    model.enqueue(call(), "It rains, and no hazelnuts [1].")
    for step in ({"messages": [("user", "Weather?")]}, Command(resume={"decisions": [{"type": "approve"}]})):
        memory = open_memory(config=RMMConfig(batch_size=1))
        with SqliteSaver.from_conn_string(str(tmp_path / "checkpoints.db")) as saver:
            middleware = [stock.HumanInTheLoopMiddleware(interrupt_on={"weather": True}), RMMMiddleware(memory)]
            create_agent(model, [weather], middleware=middleware, checkpointer=saver).invoke(step, ANN)
    assert turns(memory) == [("user", "Weather?"), ("agent", "It rains, and no hazelnuts.")]
    assert len(memory.store.feedback()) == 1


@LATER
def test_summaries_are_not_said_by_anybody(agent, memory, model, told):
    told("ann", SECRET)
    summaries = type(model)().enqueue("They greeted each other.", "They talked.", "They talked on.")
    talking = agent(stock.SummarizationMiddleware(summaries, trigger=("messages", 3), keep=("messages", 1)))
    model.enqueue("One.", "Two [1].", "Three.")
    for text in ("first", "second", "third"):
        ask(talking, text)
    assert len(summaries.history) == 2
    assert [t for _, t in turns(memory)] == ["first", "One.", "second", "Two.", "third", "Three."]
    assert "hazelnut" not in " ".join(m.text for prompt in summaries.history for m in prompt)


@LATER
def test_a_turn_summarised_while_it_is_answered_is_stored_whole(agent, memory, model):
    summaries = type(model)().enqueue("They asked for the weather.", "They asked for the weather.")
    talking = agent(
        stock.SummarizationMiddleware(summaries, trigger=("messages", 3), keep=("messages", 2)), tools=[weather]
    )
    model.enqueue(call(), "It rains.")
    ask(talking, "What is the weather?")
    assert summaries.history
    assert turns(memory) == [("user", "What is the weather?"), ("agent", "It rains.")]


def test_structured_output_is_no_answer_in_words(agent, memory, model, told):
    class Meal(BaseModel):
        """A meal."""

        name: str

    told("ann", SECRET)
    model.enqueue(call("Meal", name="soup"))
    state = agent(response_format=ToolStrategy(Meal)).invoke({"messages": [("user", "Suggest a meal")]}, ANN)
    assert state["structured_response"] == Meal(name="soup")
    assert turns(memory) == [("user", "Suggest a meal")]


def test_structured_output_is_not_cited_and_not_cleaned(memory, model, told):
    class Ids(BaseModel):
        """Some ids."""

        ids: list[int]

    told("ann", SECRET)
    model.enqueue('{"ids":[1]}')
    talking = create_agent(
        model, [], middleware=[RMMMiddleware(memory, user_id="ann")], response_format=ProviderStrategy(Ids)
    )
    state = talking.invoke({"messages": [("user", "Which ids?")]})
    assert state["structured_response"] == Ids(ids=[1])
    assert "hazelnuts" in shown(model)
    assert "square brackets" not in shown(model)


def test_what_was_redacted_stays_redacted(agent, memory, model, told):
    told("ann", SECRET)
    talking = agent(
        stock.PIIMiddleware("email", strategy="redact"),
        stock.HumanInTheLoopMiddleware(interrupt_on={"weather": True}),
        tools=[weather],
    )
    model.enqueue(call(), "Fine [1].")
    talking.invoke({"messages": [("user", "My mail is ann@example.com, what must I not eat?")]}, ANN)
    assert "ann@example.com" not in str(talking.get_state(ANN).values)
    talking.invoke(Command(resume={"decisions": [{"type": "approve"}]}), ANN)
    assert turns(memory)[0] == ("user", "My mail is [REDACTED_EMAIL], what must I not eat?")


def test_a_message_edited_under_its_id_is_a_new_one(agent, memory, model, told):
    told("ann", SECRET)
    talking = agent()
    model.enqueue("One.", "Two.")
    ask(talking, HumanMessage("I like pears.", id="m"))
    *_, start = (s for s in talking.get_state_history(ANN) if s.values.get("messages"))
    plums = {"messages": [HumanMessage("I like plums.", id="m")]}
    edited = talking.update_state(start.config, plums, as_node="__start__")
    talking.invoke(None, {"configurable": edited["configurable"] | {"user_id": "ann"}})
    assert turns(memory) == [
        ("user", "I like pears."),
        ("agent", "One."),
        ("user", "I like plums."),
        ("agent", "Two."),
    ]


def test_an_edit_after_an_error_is_recalled_for_itself(agent, memory, model, told):
    told("ann", SECRET, "My sister plays the cello.")
    talking = agent()
    model.enqueue(ConnectionError("down"), "Fine.")
    with pytest.raises(ConnectionError):
        talking.invoke({"messages": [HumanMessage("What must I not eat, hazelnuts?", id="m")]}, ANN)
    talking.invoke({"messages": [HumanMessage("Does my sister play the cello?", id="m")]}, ANN)
    assert shown(model, 0) != shown(model, 1)
    assert turns(memory) == [("user", "Does my sister play the cello?"), ("agent", "Fine.")]


def test_everything_said_at_once_is_stored(agent, memory, model):
    model.enqueue("Cheers.")
    beer = ["One more beer.", "And fries.", "One more beer."]
    agent().invoke({"messages": [("user", text) for text in beer]}, ANN)
    assert [text for _, text in turns(memory)] == [*beer, "Cheers."]


def test_images_without_words_are_not_the_same(agent, memory, model):
    def image(url):
        return HumanMessage([{"type": "image", "url": url, "extras": {"caption": f"shows {url[-1]}"}}])

    model.enqueue("Two pictures.")
    agent().invoke({"messages": [image("https://a.example/a"), image("https://a.example/b")]}, ANN)
    stored = memory.store.turns("ann", "t")
    assert [t.attachments[0].uri for t in stored[:2]] == ["https://a.example/a", "https://a.example/b"]


def test_a_forgotten_user_is_forgotten_in_an_open_turn_too(agent, memory, model, told):
    told("ann", SECRET)
    talking = agent(stock.HumanInTheLoopMiddleware(interrupt_on={"weather": True}), tools=[weather])
    model.enqueue(call(), "It rains.")
    talking.invoke({"messages": [("user", "Weather, and what must I not eat?")]}, ANN)
    assert "hazelnuts" in shown(model)
    memory.forget_user("ann")
    talking.invoke(Command(resume={"decisions": [{"type": "approve"}]}), ANN)
    assert all(not isinstance(m, SystemMessage) for m in model.history[-1])
    assert memory.store.feedback() == []


def test_a_deleted_memory_is_not_shown_again(agent, memory, model, told):
    told("ann", SECRET)
    (memory_id,) = [m.id for m in memory.memories("ann") if "hazelnuts" in m.summary]
    model.enqueue(call("forget", memory_id=memory_id), "Forgotten.")
    ask(agent(tools=memory_tools(memory)), "Forget that I must not eat hazelnuts")
    assert "hazelnuts" in shown(model, 0)
    assert "hazelnuts" not in " ".join(m.text for m in model.history[-1] if isinstance(m, SystemMessage))


def test_an_unreachable_embedder_leaves_the_agent_its_answer(open_memory, model, told, caplog):
    def raising(texts):
        raise TimeoutError("embedding service down")

    embedder = HashEmbedder()
    memory = open_memory(embedder=embedder)
    with memory.chat("ann") as chat:
        chat.record(SECRET, "Noted.")
    embedder.embed = raising
    model.enqueue("I answer all the same.")
    talking = create_agent(model, [], middleware=[RMMMiddleware(memory)], checkpointer=InMemorySaver())
    assert ask(talking, "What must I not eat?").text == "I answer all the same."
    assert "embedding service down" in caplog.text
    assert len(turns(memory)) == 2
