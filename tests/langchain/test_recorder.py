"""The last step of a chain."""

import logging
from dataclasses import replace
from functools import reduce
from operator import add, itemgetter

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough

from langchain_rmm import CitationOutputParser, CitedAnswer, RMMRetriever, format_memories, hide_markers, turn_recorder
from rmm_core import Attachment, InputError, RMMConfig

PROMPT = ChatPromptTemplate.from_messages([("system", "Be brief. {memories}"), ("human", "{question}")])
QUESTION = "What do I keep, by the way?"
REPLY = "You keep bees [1], in Graz."
ANN = {"configurable": {"user_id": "ann", "session_id": "now"}}


@pytest.fixture
def memory(open_memory):
    return open_memory(config=RMMConfig(batch_size=1, attribution="markers"))


@pytest.fixture
def chain(memory, model):
    shown = RunnablePassthrough.assign(memories=lambda x: format_memories(x["documents"]))
    return (
        RunnablePassthrough.assign(documents=itemgetter("question") | RMMRetriever(memory=memory, k=2))
        | RunnablePassthrough.assign(answer=shown | PROMPT | model | CitationOutputParser())
        | turn_recorder(memory)
    )


def said(memory, user="ann", session="now"):
    return [(t.role, t.text) for t in memory.store.turns(user, session)]


def learned(memory):
    return [(f.user_id, len(f.cited)) for _, f in memory.store.feedback()]


async def invoke(chain, value, config):
    return chain.invoke(value, config)


async def ainvoke(chain, value, config):
    return await chain.ainvoke(value, config)


async def stream(chain, value, config):
    return reduce(add, chain.stream(value, config))


async def astream(chain, value, config):
    return reduce(add, [part async for part in chain.astream(value, config)])


async def batch(chain, value, config):
    return chain.batch([value], config)[0]


async def abatch(chain, value, config):
    return (await chain.abatch([value], config))[0]


@pytest.mark.parametrize("call", [invoke, ainvoke, stream, astream, batch, abatch])
async def test_an_exchange_is_stored_and_learned_from_once(memory, chain, model, told, call):
    told("ann", "I keep bees in Graz.")
    model.enqueue(REPLY)
    answer = await call(chain, {"question": QUESTION}, ANN)
    assert (answer.text, answer.numbers, answer.status) == ("You keep bees, in Graz.", (1,), "cited")
    assert ["bees" in d.page_content for d in answer.memories] == [True]
    assert said(memory) == [("user", QUESTION), ("agent", "You keep bees, in Graz.")]
    assert learned(memory) == [("ann", 1)]
    assert memory.status("ann").learner.updates == 1
    assert '<memory number="1">' in model.history[0][0].text


@pytest.mark.parametrize("call", [stream, astream])
async def test_chunks_pass_before_the_exchange_is_stored(memory, chain, model, told, call):
    told("ann", "I keep bees in Graz.")
    model.enqueue(REPLY)
    seen = []
    if call is stream:
        for part in chain.stream({"question": QUESTION}, ANN):
            seen.append((part.text, bool(memory.store.feedback())))
    else:
        async for part in chain.astream({"question": QUESTION}, ANN):
            seen.append((part.text, bool(memory.store.feedback())))
    assert "".join(text for text, _ in seen) == "You keep bees, in Graz."
    assert len(seen) > 3
    assert [stored for _, stored in seen] == [False] * (len(seen) - 1) + [True]


def test_many_at_once_each_for_its_user(memory, chain, model, told):
    told("ann", "I keep bees in Graz.")
    told("bob", "I keep goats in Linz.")
    model.enqueue(*[lambda messages: "Bees [1]." if "bees" in messages[0].text else "Goats [1]."] * 6)
    configs = [{"metadata": {"user_id": user}} for user in ("ann", "bob") * 3]
    answers = chain.batch([{"question": QUESTION}] * 6, configs)
    assert [a.text for a in answers] == ["Bees.", "Goats."] * 3
    for user in ("ann", "bob"):
        (session,) = [s for s in memory.status(user).sessions if not s.ended]
        assert session.turns == 6
    assert sorted(learned(memory)) == [("ann", 1)] * 3 + [("bob", 1)] * 3


def test_documents_of_another_user_are_refused(memory, told):
    told("bob", "I keep goats in Linz.")
    documents = RMMRetriever(memory=memory, user_id="bob").invoke(QUESTION)
    exchange = {"question": QUESTION, "documents": documents, "answer": "Goats [1]."}
    with pytest.raises(InputError, match="these documents are of user 'bob', the turn is of 'ann'"):
        turn_recorder(memory, user_id="ann").invoke(exchange)
    assert (memory.users(), learned(memory)) == (["bob"], [])


async def test_a_recall_that_is_too_old_is_not_learned_from(memory, told, caplog):
    told("ann", "I keep bees in Graz.")
    (document, *_) = RMMRetriever(memory=memory, user_id="ann").invoke(QUESTION)
    old = document.model_copy(update={"metadata": document.metadata | {"recall_id": "gone"}})
    exchange = {"question": QUESTION, "documents": [old], "answer": CitationOutputParser().parse(REPLY)}
    with caplog.at_level(logging.WARNING, "langchain_rmm"):
        answer = await turn_recorder(memory, user_id="ann", session_id="now").ainvoke(exchange)
    assert "the turn is stored, its citations are not learned from" in caplog.text
    assert answer.memories == (old,)
    assert said(memory) == [("user", QUESTION), ("agent", "You keep bees, in Graz.")]
    assert learned(memory) == []


@pytest.mark.parametrize("call", [invoke, ainvoke, stream, astream])
async def test_a_failing_model_stores_nothing(memory, chain, model, told, call):
    told("ann", "I keep bees in Graz.")
    model.enqueue(ConnectionError("no line"), "Yes.")
    with pytest.raises(ConnectionError, match="no line"):
        await call(chain, {"question": QUESTION}, ANN)
    assert said(memory) == []
    chain.invoke({"question": QUESTION}, ANN)
    assert said(memory) == [("user", QUESTION), ("agent", "Yes.")]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"answer": "Hi.", "documents": []}, r"wants 'question' in its input; it got \['answer', 'documents'\]"),
        ({"question": "Hi?"}, r"wants 'answer' in its input; it got \['question'\]"),
        ({"question": None, "answer": "Hi."}, "wants 'question'"),
        ({"question": 3, "answer": "Hi."}, "a text, a message or a list of them is wanted; got int"),
        (
            {"question": "Hi?", "answer": "Hi.", "documents": "text"},
            "'documents' holds str, a list of documents is wanted",
        ),
        ("Hi.", "the turn recorder takes a dict with 'question' and 'answer'; got str"),
        (CitedAnswer("Hi."), "the turn recorder takes a dict with 'question' and 'answer'; got CitedAnswer"),
    ],
)
async def test_an_input_that_is_no_exchange(memory, value, message):
    recorder = turn_recorder(memory, user_id="ann")
    with pytest.raises(InputError, match=message):
        recorder.invoke(value)
    with pytest.raises(InputError, match=message):
        await recorder.ainvoke(value)
    assert memory.users() == []


def test_no_user_is_an_error(memory):
    with pytest.raises(InputError, match="no user is named"):
        turn_recorder(memory).invoke({"question": "Hi?", "answer": "Hi."})


@pytest.mark.parametrize("answer", [REPLY, AIMessage(REPLY), CitationOutputParser().parse(REPLY)])
def test_an_answer_in_any_form(memory, told, answer):
    told("ann", "I keep bees in Graz.")
    documents = RMMRetriever(memory=memory, user_id="ann").invoke(QUESTION)
    recorder = turn_recorder(memory, session_id="now", question_key="q", documents_key="d", answer_key="a")
    question = [HumanMessage(QUESTION)] if isinstance(answer, str) else HumanMessage(QUESTION)
    part = recorder.invoke({"q": question, "d": documents, "a": answer}, ANN)
    assert part == CitedAnswer("You keep bees, in Graz.", (1,), "cited", tuple(documents))
    assert said(memory) == [("user", QUESTION), ("agent", "You keep bees, in Graz.")]
    assert learned(memory) == [("ann", 1)]


def test_an_answer_of_plain_text_that_streams(memory, model):
    model.enqueue("You keep bees, in Graz.")
    chain = RunnablePassthrough.assign(answer=itemgetter("question") | model | StrOutputParser())
    whole = reduce(add, (chain | turn_recorder(memory)).stream({"question": QUESTION}, ANN))
    assert whole == CitedAnswer("You keep bees, in Graz.")
    assert said(memory) == [("user", QUESTION), ("agent", "You keep bees, in Graz.")]


def test_documents_of_elsewhere_are_kept_and_not_learned_from(memory):
    page = Document(page_content="The pump is primed with water.")
    answer = turn_recorder(memory).invoke({"question": "How?", "documents": [page], "answer": "With water [1]."}, ANN)
    assert answer.memories == (page,)
    assert learned(memory) == []


def test_what_comes_with_a_question_is_kept_and_its_id_counts_once(memory):
    blocks = [{"type": "text", "text": "What is this?"}, {"type": "image", "url": "https://example.org/cat.png"}]
    exchange = {"question": HumanMessage(blocks, id="m-1"), "answer": "A cat."}
    for _ in "ab":  # a chain that is retried
        turn_recorder(memory).invoke(exchange, ANN)
    asked, answered = memory.store.turns("ann", "now")
    assert asked.attachments == (Attachment("image", "https://example.org/cat.png"),)
    assert (asked.text, answered.text) == ("What is this?", "A cat.")


def test_citations_that_point_nowhere_are_not_learned_from(memory, told):
    told("ann", "I keep bees in Graz.")
    documents = RMMRetriever(memory=memory, user_id="ann").invoke(QUESTION)
    answer = turn_recorder(memory).invoke({"question": QUESTION, "documents": documents, "answer": "Bees [9]."}, ANN)
    assert (answer.text, answer.numbers, answer.status) == ("Bees.", (), "malformed")
    assert learned(memory) == []


def test_nothing_that_was_shown_is_recorded_again(memory, chain, model, told):
    told("ann", "I keep bees in Graz.")
    model.enqueue(lambda messages: f"I was told: {messages[0].text}")
    chain.invoke({"question": QUESTION}, ANN)
    assert "Original turns" not in str(said(memory))


def test_it_is_a_runnable_like_others(memory):
    recorder = turn_recorder(memory, user_id="ann")
    assert recorder.get_name() == "turn_recorder"
    chain = RunnableLambda(lambda q: {"question": q, "answer": "Hi."}) | recorder | (lambda a: replace(a, text="!"))
    assert chain.invoke("Hello?").text == "!"


def test_documents_of_several_recalls_store_the_turn_and_teach_nothing(memory, told, caplog):
    told("ann", "I keep bees in Graz.")
    retriever = RMMRetriever(memory=memory, user_id="ann", k=1)
    documents = [*retriever.invoke(QUESTION), *retriever.invoke("bees")]
    exchange = {"question": QUESTION, "documents": documents, "answer": "Bees [1]."}
    answer = turn_recorder(memory, user_id="ann", session_id="now").invoke(exchange)
    assert (answer.text, answer.numbers, len(answer.memories)) == ("Bees.", (1,), 1)
    assert "several recalls" in caplog.text
    assert (len(memory.store.turns("ann", "now")), learned(memory)) == (2, [])


def test_citations_of_other_retrievers_are_no_reward(memory, told):
    told("ann", "I keep bees in Graz.")
    found = RMMRetriever(memory=memory, user_id="ann", k=1).invoke(QUESTION)
    exchange = {"question": QUESTION, "documents": [Document(page_content="A manual."), *found]}
    recorder = turn_recorder(memory, user_id="ann", session_id="now")
    answer = recorder.invoke(exchange | {"answer": "Both say so [1, 2]."})
    assert [d.page_content for d in answer.memories] == [found[0].page_content, "A manual."]
    assert [f.cited for _, f in memory.store.feedback()] == [(0,)]


def test_an_answer_of_a_model_that_hides_its_markers(memory, model, told):
    told("ann", "I keep bees in Graz.")
    documents = RMMRetriever(memory=memory, user_id="ann").invoke(QUESTION)
    recall = memory.recent.get("ann", documents[0].metadata["recall_id"])
    message = hide_markers(model.enqueue("Bees [1]."), recall).invoke(QUESTION)
    exchange = {"question": QUESTION, "documents": documents, "answer": message}
    assert turn_recorder(memory, user_id="ann").invoke(exchange).numbers == (1,)
    assert len(memory.store.feedback()) == 1
