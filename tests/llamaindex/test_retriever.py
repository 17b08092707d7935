"""The memory as a retriever, and its nodes in an answer that is learned from."""

import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import MetadataMode

from llamaindex_rmm import CITING_QA_TEMPLATE, CitationOutputParser, RMMRetriever
from rmm_core import ConfigError, InputError, RMMConfig

QUESTION = "What do I keep?"


@pytest.fixture
def memory(open_memory):
    return open_memory(config=RMMConfig(batch_size=1, attribution="markers"))


async def test_nodes(memory, told):
    told("ann", "I keep bees in Graz.", "My sister plays the cello.")
    retriever = RMMRetriever(memory, user_id="ann", similarity_top_k=1)
    for nodes in (retriever.retrieve(QUESTION), await retriever.aretrieve(QUESTION)):
        (found,) = nodes
        assert "I keep bees in Graz." in found.text
        assert found.score > 0
        metadata = found.node.metadata
        assert (metadata["index"], metadata["user_id"], metadata["kind"]) == (1, "ann", "topic")
        assert metadata["memory_id"] == found.node.node_id
        assert metadata["evidence"][0] == {"session_id": "before 0", "index": 0}
        for mode in (MetadataMode.LLM, MetadataMode.EMBED):
            assert "recall_id" not in found.node.get_content(mode)


def test_an_empty_bank_and_another_user(memory, told):
    told("bob", "I keep bees in Graz.")
    for options, texts in (
        ({}, ["(no memories were found)"]),
        ({"when_empty": None}, []),
        ({"when_empty": "-"}, ["-"]),
    ):
        nodes = RMMRetriever(memory, user_id="ann", **options).retrieve(QUESTION)
        assert [n.text for n in nodes] == [n.get_content(MetadataMode.LLM) for n in nodes] == texts
    assert isinstance(RMMRetriever(memory, user_id="bob"), BaseRetriever)
    nothing = CitationOutputParser().parse("Who knows [1].").citing(RMMRetriever(memory, user_id="ann").retrieve("x"))
    assert (nothing.cited, nothing.feedback(memory).numbers) == ((), ())


def test_models_read_the_numbers_on_request(memory, told):
    told("ann", "I keep bees in Graz, {query_str} and all.")
    (plain,), (cited,) = (RMMRetriever(memory, user_id="ann", cite=c).retrieve(QUESTION) for c in (False, True))
    assert plain.get_content(MetadataMode.LLM) == plain.text == cited.text == cited.get_content(MetadataMode.EMBED)
    opening, text, closing = cited.get_content(MetadataMode.LLM).partition(cited.text)
    assert (opening, closing) == (
        f'<memory number="1" recall="{cited.metadata["recall_id"]}">\n',
        "\n</memory>",
    )
    prompt = CITING_QA_TEMPLATE.format(context_str=cited.get_content(MetadataMode.LLM), query_str=QUESTION)
    assert text in prompt
    assert prompt.endswith(f"Question: {QUESTION}\nAnswer:")


@pytest.mark.parametrize(("memory_", "user", "error"), [("m.db", "ann", ConfigError), (None, " ", InputError)])
def test_what_cannot_work_is_refused(memory, memory_, user, error):
    with pytest.raises(error, match=r"open_memory returns; got str|user_id is blank"):
        RMMRetriever(memory_ or memory, user_id=user)


def test_a_count_that_is_none_is_refused(memory):
    with pytest.raises(ConfigError, match="similarity_top_k is a whole number from 0; got '3'"):
        RMMRetriever(memory, user_id="ann", similarity_top_k="3")


async def test_an_answer_is_learned_from_once(memory, told):
    told("ann", "I keep bees in Graz.")
    nodes = RMMRetriever(memory, user_id="ann").retrieve(QUESTION)
    answer = CitationOutputParser().parse("You keep bees [1], see [a](b).").citing(nodes)
    assert (str(answer), answer.numbers, answer.status) == ("You keep bees, see [a](b).", (1,), "cited")
    assert [n.node.node_id for n in answer.cited] == [nodes[0].node.node_id]
    assert answer.feedback(memory).status == "cited"
    await answer.afeedback(memory)
    assert len(memory.store.feedback()) == memory.status("ann").learner.updates == 1


def test_an_answer_without_nodes_says_what_is_missing(memory, told):
    with pytest.raises(InputError, match=r"answer\.citing\(nodes\)"):
        CitationOutputParser(count=2).parse("Bees [1].").feedback(memory)
    told("ann", "I keep bees in Graz.")
    retriever = RMMRetriever(memory, user_id="ann")
    several = [*retriever.retrieve(QUESTION), *retriever.retrieve(QUESTION)]
    with pytest.raises(InputError, match="several recalls"):
        CitationOutputParser().parse("Bees [1].").citing(several).feedback(memory)
