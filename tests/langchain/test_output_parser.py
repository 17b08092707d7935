"""Markers read out of an answer: whole, streamed, however it is cut."""

from functools import reduce
from itertools import pairwise
from operator import add

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.output_parsers import BaseTransformOutputParser
from langchain_core.outputs import ChatGeneration, Generation
from langchain_core.runnables import RunnableGenerator

from langchain_rmm import CitationOutputParser, CitedAnswer, hide_markers
from langchain_rmm._convert import numbered
from rmm_core import InputError, NotFoundError

PARSER = CitationOutputParser(count=3)
CASES = [
    ("You keep bees [1].", "You keep bees.", (1,), "cited"),
    ("Bees [3, 1] and tea [1-2].", "Bees and tea.", (1, 2, 3), "cited"),
    ("[Memory 2] Tea.", "Tea.", (2,), "cited"),
    ("I do not know. [NO_CITE]", "I do not know.", (), "none"),
    ("Bees.", "Bees.", (), "silent"),
    ("Bees [7].", "Bees.", (), "malformed"),
    ("Bees [1, 2", "Bees", (), "malformed"),
    ("Tea [1][NO_CITE].", "Tea.", (1,), "malformed"),
    ("In [2023] see [a](b) and `x[1]`.", "In [2023] see [a](b) and `x[1]`.", (), "silent"),
    ("蜜蜂【1】。", "蜜蜂。", (1,), "cited"),
    ("", "", (), "silent"),
]


def parts(chunks):
    """What the parser makes of a stream, chunk by chunk."""
    return list(PARSER.transform(iter(chunks)))


@pytest.mark.parametrize(("raw", "text", "numbers", "status"), CASES)
async def test_a_whole_answer(raw, text, numbers, status):
    wanted = CitedAnswer(text, numbers, status)
    assert PARSER.parse(raw) == wanted
    assert PARSER.parse_result([Generation(text=raw)]) == wanted
    assert PARSER.parse_result([ChatGeneration(message=AIMessage(raw))]) == wanted
    blocks = AIMessage([{"type": "reasoning", "reasoning": "[2]"}, *({"type": "text", "text": c} for c in raw)])
    for value in (raw, AIMessage(raw), blocks):
        assert PARSER.invoke(value) == wanted
        assert await PARSER.ainvoke(value) == wanted


@pytest.mark.parametrize(("raw", "text", "numbers", "status"), CASES)
def test_a_stream_cut_anywhere_adds_up_to_the_whole(raw, text, numbers, status):
    cuts = [[*raw], *([raw[:i], raw[i:j], raw[j:]] for j in range(len(raw) + 1) for i in range(j + 1))]
    for chunks in cuts:
        found = parts(chunks)
        assert reduce(add, found) == CitedAnswer(text, numbers, status)
        shown = ""
        for part in found:
            shown += part.text
            assert text.startswith(shown)  # nothing is taken back, so no half of a marker was ever seen
        assert all(p.text for p in found[:-1])
        assert all(p.status == "silent" for p in found[:-1])


@settings(max_examples=100, deadline=None)
@given(
    raw=st.lists(st.sampled_from(["[", "]", "1", "2, ", "NO_CITE", " ", "`", "\n", "tea", "(", "-", "."])).map("".join),
    cuts=st.sets(st.integers(0, 60)),
)
def test_any_text_cut_anyhow(raw, cuts):
    ends = [0, *sorted(c for c in cuts if c < len(raw)), len(raw)]
    chunks = [AIMessageChunk(raw[a:b]) for a, b in pairwise(ends)]
    assert reduce(add, parts(chunks)) == PARSER.parse(raw)


@pytest.mark.parametrize(("raw", "text", "numbers", "status"), CASES)
async def test_a_stream_on_an_event_loop(raw, text, numbers, status):
    async def chunks():
        for character in raw:
            yield AIMessageChunk([{"type": "text", "text": character, "index": 0}])

    found = [part async for part in PARSER.atransform(chunks())]
    assert found == parts([*raw])
    assert reduce(add, found) == CitedAnswer(text, numbers, status)


def test_text_passes_before_the_answer_ends():
    given_ = []

    def chunks():
        for chunk in ("You keep ", "bees [", "1]. Also ", "tea."):
            given_.append(chunk)
            yield chunk

    stream = PARSER.transform(chunks())
    assert next(stream).text == "You keep"
    assert given_ == ["You keep "]
    assert [p.text for p in stream] == [" bees", ". Also", " tea.", ""]


def test_two_streams_at_once_do_not_meet():
    first, second = PARSER.transform(iter(["a [", "1]", " b"])), PARSER.transform(iter(["c [", "2]", " d"]))
    found = [], []
    for pair in zip(first, second, strict=True):
        for part, into in zip(pair, found, strict=True):
            into.append(part)
    assert reduce(add, found[0]) == CitedAnswer("a b", (1,), "cited")
    assert reduce(add, found[1]) == CitedAnswer("c d", (2,), "cited")


async def test_it_takes_its_place_behind_a_model(model):
    chain = model | CitationOutputParser()
    model.enqueue(*["You keep bees [2], in Graz."] * 4)
    wanted = CitedAnswer("You keep bees, in Graz.", (2,), "cited")
    assert chain.invoke("?") == await chain.ainvoke("?") == wanted
    assert reduce(add, chain.stream("?")) == wanted
    streamed = [part async for part in chain.astream("?")]
    assert len(streamed) > 3
    assert reduce(add, streamed) == wanted
    assert isinstance(CitationOutputParser(), BaseTransformOutputParser)
    assert CitationOutputParser().OutputType is CitedAnswer


def test_digits_glued_to_a_word_count_when_in_range():
    assert CitationOutputParser(count=2).parse("green tea[2].").numbers == (2,)
    assert CitationOutputParser(count=2).parse("green tea[3].") == CitedAnswer("green tea[3].")
    assert CitationOutputParser().parse("green tea[3].").numbers == (3,)


def test_a_broken_stream_is_broken():
    def chunks(_):
        yield "You keep "
        raise ConnectionError("the line is dead")

    with pytest.raises(ConnectionError, match="the line is dead"):
        list((RunnableGenerator(chunks) | PARSER).stream("?"))


def test_what_an_answer_cites_as_documents():
    ours = {"recall_id": "r", "user_id": "ann"}
    documents = [Document(page_content=c, metadata=ours | {"index": i}) for c, i in (("tea", 2), ("bees", 1))]
    answer = PARSER.parse("Both [1, 2].").citing(documents)
    assert [d.page_content for d in answer.memories] == ["bees", "tea"]
    plain = [Document(page_content="bees"), Document(page_content="tea")]
    assert PARSER.parse("Tea [2].").citing(plain).memories == (plain[1],)
    assert PARSER.parse("Tea [3].").citing(plain).memories == ()
    assert PARSER.parse("Tea [2].").memories == ()
    more = answer + CitedAnswer(" More.")
    assert (more.text, more.numbers, more.status) == ("Both. More.", (1, 2), "cited")
    assert more.documents == answer.documents


async def test_feedback_counts_once(open_memory):
    memory = open_memory()
    with memory.chat("ann") as chat:
        chat.record("I keep bees in Graz.", "Noted.")
    recall = memory.recall("ann", "bees")
    documents = [Document(page_content="bees", metadata={"index": 1, "recall_id": recall.id, "user_id": "ann"})]
    answer = PARSER.parse("Bees [1].").citing(documents)
    assert answer.feedback(memory).status == "cited"
    assert (await answer.afeedback(memory)).numbers == (1,)
    assert [f.recall_id for _, f in memory.store.feedback()] == [recall.id]


async def test_feedback_needs_to_know_what_was_shown(open_memory):
    memory, answer = open_memory(), PARSER.parse("Bees [1].")
    with pytest.raises(InputError, match=r"use answer\.citing\(documents\)"):
        answer.feedback(memory)
    with pytest.raises(InputError, match=r"use answer\.citing\(documents\)"):
        await answer.citing([Document(page_content="of nobody")]).afeedback(memory)
    gone = Document(page_content="bees", metadata={"index": 1, "recall_id": "old", "user_id": "ann"})
    with pytest.raises(NotFoundError, match="no recent recall 'old'"):
        answer.citing([gone]).feedback(memory)


def test_documents_of_others_are_numbered_after_memories_and_teach_nothing():
    ours = {"recall_id": "r", "user_id": "ann"}
    foreign = Document(page_content="manual", metadata={"index": 1})
    documents = [foreign, *(Document(page_content=c, metadata=ours | {"index": i}) for c, i in (("a", 1), ("b", 2)))]
    assert [number for number, _ in numbered(documents)] == [3, 1, 2]
    answer = PARSER.parse("The manual says so [3], and you [2].").citing(documents)
    assert [d.page_content for d in answer.memories] == ["b", "manual"]
    assert (answer.of_memories().numbers, answer.of_memories().status) == ((2,), "cited")
    assert PARSER.parse("The manual [3].").citing(documents).of_memories().status == "none"


def test_documents_of_several_recalls_are_numbered_anew_and_once():
    def found(recall, memory, index):
        keys = {"recall_id": recall, "user_id": "ann", "memory_id": memory, "index": index}
        return Document(page_content=memory, metadata=keys)

    documents = [found("r", "a", 1), found("r", "b", 2), found("q", "b", 1), found("q", "c", 2)]
    assert [(n, d.page_content) for n, d in numbered(documents)] == [(1, "a"), (2, "b"), (3, "c")]
    assert [d.page_content for d in PARSER.parse("Tea [3].").citing(documents).memories] == ["c"]


def test_what_a_model_noted_itself_is_not_read_again(open_memory, model):
    memory = open_memory()
    with memory.chat("ann") as chat:
        chat.record("I keep bees in Graz.", "Noted.")
    quiet = hide_markers(model.enqueue("Bees [1].", "Bees [1]."), memory.recall("ann", "bees"))
    assert PARSER.invoke(quiet.invoke("?")) == CitedAnswer("Bees.", (1,), "cited")
    chunks = list((quiet | PARSER).stream("?"))
    assert sum(chunks[1:], chunks[0]) == CitedAnswer("Bees.", (1,), "cited")
