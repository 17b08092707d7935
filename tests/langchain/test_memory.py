"""The memory of classic chains."""

import warnings

import pytest
from langchain_classic.chains import ConversationChain, LLMChain
from langchain_core._api import LangChainDeprecationWarning
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder, PromptTemplate

from langchain_rmm import RMMMemory
from rmm_core import Attachment, InputError, RMMConfig

QUESTION = "What do I keep?"
CHAT = ChatPromptTemplate.from_messages([("system", "Be brief."), MessagesPlaceholder("history"), ("human", "{input}")])


@pytest.fixture
def memory(open_memory):
    return open_memory(config=RMMConfig(batch_size=1, attribution="markers"))


def of(memory, user="ann", **changes):
    return RMMMemory(memory=memory, user_id=user, session_id="s", **changes)


def chain_of(kind, **settings):
    with warnings.catch_warnings():  # classic chains are deprecated, and say so once a process
        warnings.simplefilter("ignore", LangChainDeprecationWarning)
        return kind(**settings)


def said(memory, session="s", user="ann"):
    return [(t.role, t.text) for t in memory.store.turns(user, session)]


def prompt_of(model, call=-1):
    return "\n".join(m.text for m in model.history[call])


async def test_a_conversation(memory, model, told):
    told("ann", "I keep bees in Graz.")
    chain = chain_of(ConversationChain, llm=model, memory=of(memory))
    model.enqueue("You keep bees [1], in Graz.", "In Graz [1].")
    assert chain.invoke({"input": QUESTION})["response"] == "You keep bees, in Graz."
    assert "<memories>" in prompt_of(model)
    assert "I keep bees in Graz." in prompt_of(model)
    assert (await chain.ainvoke({"input": "Where?"}))["response"] == "In Graz."
    assert "</memories>\n\nHuman: What do I keep?\nAI: You keep bees, in Graz.\nHuman: Where?\nAI:" in prompt_of(model)
    assert said(memory) == [
        ("user", QUESTION),
        ("agent", "You keep bees, in Graz."),
        ("user", "Where?"),
        ("agent", "In Graz."),
    ]
    assert len(memory.store.feedback()) == memory.status("ann").learner.updates == 2
    assert [m.summary for m in chain.memory.last_answer.cited] == ["User: I keep bees in Graz."]


def test_a_stream_gives_what_the_user_may_see(memory, model, told):
    told("ann", "I keep bees in Graz.")
    chain = chain_of(ConversationChain, llm=model, memory=of(memory))
    model.enqueue("Bees [1].")
    (end,) = chain.stream({"input": QUESTION})
    assert end["response"] == "Bees."
    assert said(memory)[1] == ("agent", "Bees.")


async def test_messages(memory, model, told):
    told("ann", "I keep bees in Graz.")
    chain = chain_of(LLMChain, llm=model, prompt=CHAT, memory=of(memory, return_messages=True))
    model.enqueue("Bees [1].", "In Graz.")
    assert chain.invoke({"input": QUESTION})["text"] == "Bees."
    assert [m.type for m in model.history[-1]] == ["system", "system", "human"]
    await chain.ainvoke({"input": "Where?"})
    assert [(m.type, m.text) for m in model.history[-1][2:]] == [
        ("human", QUESTION),
        ("ai", "Bees."),
        ("human", "Where?"),
    ]


@pytest.mark.parametrize("messages", [True, False])
def test_memories_under_a_name_of_their_own(memory, told, messages):
    told("ann", "I keep bees in Graz.")
    ours = of(memory, memory_key="talk", memories_key="known", return_messages=messages)
    assert ours.memory_variables == ["talk", "known"]
    variables = ours.load_memory_variables({"input": QUESTION})
    known = variables["known"][0].text if messages else variables["known"]
    assert variables["talk"] == ([] if messages else "")
    assert known == memory.recent.of_query("ann", QUESTION).instructions()


def test_a_chain_with_memories_of_their_own(memory, model, told):
    told("ann", "I keep bees in Graz.")
    prompt = PromptTemplate.from_template("{known}\n--\n{history}\n--\n{input}")
    chain = chain_of(ConversationChain, llm=model, prompt=prompt, memory=of(memory, memories_key="known"))
    model.enqueue("Bees [1].", "Yes.")
    chain.invoke({"input": QUESTION})
    chain.invoke({"input": "Sure?"})
    known, history, asked = prompt_of(model).split("\n--\n")
    assert known.endswith("</memories>")
    assert history == "Human: What do I keep?\nAI: Bees."
    assert asked == "Sure?"


@pytest.mark.parametrize("messages", [True, False])
def test_an_empty_bank_leaves_the_prompt_alone(memory, model, messages):
    prompt = CHAT if messages else PromptTemplate.from_template("{history}|{input}")
    chain = chain_of(LLMChain, llm=model, prompt=prompt, memory=of(memory, return_messages=messages))
    model.enqueue("Hi.")
    chain.invoke({"input": "Hello"})
    assert prompt_of(model) == ("Be brief.\nHello" if messages else "|Hello")


async def test_several_inputs_or_outputs_want_a_name(memory):
    ours, two = of(memory), {"input": "Hi", "lang": "de", "history": "", "stop": ["x"]}
    wanted = r"the chain's inputs are \['input', 'lang'\]: name one with input_key"
    for step in (ours.load_memory_variables, lambda i: ours.save_context(i, {"out": "Hello"})):
        with pytest.raises(InputError, match=wanted):
            step(two)
    with pytest.raises(InputError, match=wanted):
        await ours.aload_memory_variables(two)
    with pytest.raises(InputError, match=r"outputs are \['a', 'b'\]: name one with output_key"):
        await ours.asave_context({"input": "Hi"}, {"b": "1", "a": "2"})
    with pytest.raises(InputError, match="input_key='text' is not among them"):
        of(memory, input_key="text").load_memory_variables(two)
    with pytest.raises(InputError, match="a text, a message or a list of them is wanted; got int"):
        ours.load_memory_variables({"input": 3})
    assert memory.users() == []


async def test_the_input_and_the_output_that_are_named(memory):
    ours = of(memory, input_key="input", output_key="answer")
    outputs = {"answer": "Hallo", "sources": 3}
    ours.save_context({"input": "Hi", "lang": "de", "history": "Human: old"}, outputs)
    await ours.asave_context({"input": "Bye", "lang": "de"}, {"answer": "Ade"})
    assert said(memory) == [("user", "Hi"), ("agent", "Hallo"), ("user", "Bye"), ("agent", "Ade")]
    assert outputs == {"answer": "Hallo", "sources": 3}


def test_messages_as_input_and_output(memory, told):
    told("ann", "I keep bees in Graz.")
    ours = of(memory)
    blocks = [{"type": "text", "text": QUESTION}, {"type": "image", "url": "https://example.org/bee.png"}]
    inputs = {"input": [HumanMessage(blocks)]}
    ours.load_memory_variables(inputs)
    reply = AIMessage("Bees [1].", id="r-1")
    outputs = {"output": reply}
    ours.save_context(inputs, outputs)
    assert (outputs["output"].text, outputs["output"].id) == ("Bees.", "r-1")
    assert reply.text == "Bees [1]."
    asked, _ = memory.store.turns("ann", "s")
    assert asked.attachments == (Attachment("image", "https://example.org/bee.png"),)
    assert len(memory.store.feedback()) == 1


def test_what_was_injected_is_not_recorded_again(memory, model, told):
    told("ann", "I keep bees in Graz.")
    chain = chain_of(ConversationChain, llm=model, memory=of(memory))
    model.enqueue(lambda m: f"You wrote: {m[0].text}", "Yes.")
    chain.invoke({"input": QUESTION})
    chain.invoke({"input": "And?"})
    assert "Original turns" not in str(said(memory))
    assert [text for _, text in said(memory)][2:] == ["And?", "Yes."]


def test_a_failing_model_stores_nothing(memory, model):
    chain = chain_of(ConversationChain, llm=model, memory=of(memory))
    model.enqueue(ConnectionError("no line"))
    with pytest.raises(ConnectionError, match="no line"):
        chain.invoke({"input": "Hello"})
    assert memory.users() == []


def test_how_much_of_the_session_is_repeated(memory):
    for n in range(3):
        of(memory).save_context({"input": f"q{n}"}, {"out": f"a{n}"})
    for turns, text in ((0, ""), (1, "A: a2"), (3, "A: a1\nU: q2\nA: a2")):
        ours = of(memory, history_turns=turns, human_prefix="U", ai_prefix="A")
        assert ours.load_memory_variables({"input": "x"}) == {"history": text}


async def test_clear_ends_the_session_and_loses_nothing(memory):
    ours = of(memory, user_name="Ann", agent_name="Bot")
    ours.save_context({"input": "I keep bees in Graz."}, {"out": "Noted."})
    ours.clear()
    assert "Human:" not in ours.load_memory_variables({"input": "bees"})["history"]
    assert "Ann: I keep bees in Graz." in ours.load_memory_variables({"input": "bees"})["history"]
    await ours.asave_context({"input": "And goats in Linz."}, {"out": "Noted."})
    await ours.aclear()
    assert [s.id for s in memory.status("ann").sessions] == ["s", "s/2"]
    assert said(memory, "s/2") == [("user", "And goats in Linz."), ("agent", "Noted.")]
    assert ours.end().status == (await ours.aend()).status == "nothing"
    ours.save_context({"input": "My cat is called Tofu."}, {"out": "Noted."})
    assert (await ours.aend()).status == "reflected"


async def test_forget_leaves_nothing(memory, told):
    told("bob", "I keep goats in Linz.")
    ours = of(memory)
    for forget in (ours.aforget, None):
        ours.save_context({"input": "I keep bees in Graz."}, {"out": "Noted."})
        ours.clear()
        ours.save_context({"input": "Once more."}, {"out": "Yes."})
        await forget() if forget else ours.forget()
        assert ours.load_memory_variables({"input": "bees"}) == {"history": ""}
        assert memory.users() == ["bob"]


async def test_users_do_not_meet(memory):
    of(memory).save_context({"input": "I keep bees."}, {"out": "Noted."})
    assert of(memory, "bob").load_memory_variables({"input": "bees"}) == {"history": ""}
    assert await of(memory, "bob").aload_memory_variables({"input": "bees"}) == {"history": ""}


def test_sessions_without_a_name_are_their_own(memory):
    first, second = (RMMMemory(memory=memory, user_id="ann") for _ in "ab")
    assert first.session_id != second.session_id
    first.save_context({"input": "I keep bees."}, {"out": "Noted."})
    assert second.load_memory_variables({"input": "bees"}) == {"history": ""}


@pytest.mark.parametrize("bad", [{"user_id": " "}, {"user_id": "ann", "session_id": ""}])
def test_what_cannot_name_anybody(memory, bad):
    with pytest.raises(ValueError, match="is blank"):  # as pydantic reports it
        RMMMemory(memory=memory, **bad)


def test_what_a_memory_shows_of_itself(memory):
    assert "ReflectiveMemory" not in repr(of(memory))
    assert "memory" not in of(memory).model_dump()
