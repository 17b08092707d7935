"""The learned reranker behind another retriever."""

import copy

import pytest
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers.base import BaseEventHandler
from llama_index.core.instrumentation.span_handlers import SimpleSpanHandler
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from pydantic import Field

from llamaindex_rmm import (
    CITING_QA_TEMPLATE,
    CitationOutputParser,
    RMMNodePostprocessor,
    RMMRetriever,
    hide_markers,
)
from rmm_core import InputError, RMMConfig

PAGES = ("The pump is primed with water.", "Tonight there is pumpkin soup.", "Trains to Graz leave at nine.")


@pytest.fixture
def memory(open_memory):
    return open_memory(config=RMMConfig(batch_size=1, attribution="markers", guard=False))


def pages(*texts):
    return [NodeWithScore(node=TextNode(text=t, id_=f"p{i}"), score=0.5) for i, t in enumerate(texts or PAGES)]


async def test_the_best_come_out_as_copies(memory):
    given, ranks = pages(), RMMNodePostprocessor(memory=memory, user_id="ann", top_n=1)
    for found in (
        ranks.postprocess_nodes(given, query_str="soup"),
        await ranks.apostprocess_nodes(given, QueryBundle("soup")),
    ):
        assert [n.node.node_id for n in found] == ["p1"]
        assert (found[0].node.metadata["index"], found[0].node.metadata["user_id"]) == (1, "ann")
        assert "recall_id" not in found[0].node.get_content("llm")
    assert [(n.score, n.node.metadata) for n in given] == [(0.5, {})] * 3
    assert memory.users() == []


def test_a_stand_in_makes_room(memory):
    ranks = RMMNodePostprocessor(memory=memory, user_id="ann", cite=True, top_n=1)
    (stands_in,) = RMMRetriever(memory, user_id="ann").retrieve("soup")
    assert ranks.postprocess_nodes([stands_in], query_str="soup") == [stands_in]
    (found,) = ranks.postprocess_nodes([stands_in, *pages()], query_str="soup")
    assert found.node.get_content("llm").startswith('<memory number="1" recall="')
    assert PAGES[1] in found.node.get_content("llm")
    assert found.text == found.node.get_content("embed") == PAGES[1]


def test_no_nodes_and_no_query(memory):
    ranks = RMMNodePostprocessor(memory=memory, user_id="ann")
    assert ranks.postprocess_nodes([], query_str="soup") == []
    with pytest.raises(InputError, match="pass query_str="):
        ranks.postprocess_nodes(pages())
    with pytest.raises(ValueError, match="user_id is blank"):
        RMMNodePostprocessor(memory=memory, user_id=" ")


def test_nodes_of_one_id_are_all_kept(memory):
    same = [NodeWithScore(node=TextNode(text=t, id_="p"), score=0.5) for t in PAGES]
    found = RMMNodePostprocessor(memory=memory, user_id="ann").postprocess_nodes(same, query_str="soup")
    assert {n.text for n in found} == set(PAGES)


def test_it_learns_from_what_is_cited(memory):
    ranks = RMMNodePostprocessor(memory=memory, user_id="ann", top_n=2)
    first = ranks.postprocess_nodes(pages(), query_str="pump pumpkin")
    for _ in range(40):
        nodes = ranks.postprocess_nodes(pages(), query_str="pump pumpkin")
        CitationOutputParser().parse("It says so [2].").citing(nodes).feedback(memory)
        if ranks.postprocess_nodes(pages(), query_str="pump pumpkin")[0].node.node_id == first[1].node.node_id:
            return
    pytest.fail("forty citations did not move the second node to the front")


def test_llamaindex_sees_what_it_does(memory):
    class Events(BaseEventHandler):
        seen: list = Field(default_factory=list)

        def handle(self, event, **kwargs):
            self.seen.append(event)

    events, spans, root = Events(), SimpleSpanHandler(), get_dispatcher()
    root.add_event_handler(events)
    root.add_span_handler(spans)
    try:
        ranks = RMMNodePostprocessor(memory=memory, user_id="ann", top_n=2)
        ranks.postprocess_nodes(pages(), query_str="soup")
    finally:
        root.event_handlers.remove(events)
        root.span_handlers.remove(spans)
    started, ended = [e for e in events.seen if e.class_name().startswith("ReRank")]
    assert (started.top_n, started.model_name, len(started.nodes)) == (2, "reflective-memory", 3)
    assert len(ended.nodes) == 2
    assert any("RMMNodePostprocessor" in s.id_ for s in spans.completed_spans)


def test_llamaindexs_conventions(memory):
    assert "BaseNodePostprocessor" in [c.__name__ for c in RMMNodePostprocessor.__mro__]
    assert RMMNodePostprocessor.class_name() == "RMMNodePostprocessor"
    assert "ReflectiveMemory" not in repr(RMMNodePostprocessor(memory=memory, user_id="ann"))


def test_a_number_is_shown_once(memory, told):
    told("ann", "I keep bees in Graz.")
    nodes = [*RMMRetriever(memory, user_id="ann", cite=True).retrieve("bees"), *pages()]
    ranked = RMMNodePostprocessor(memory=memory, user_id="ann", cite=True).postprocess_nodes(nodes, query_str="bees")
    for number, node in enumerate(ranked, start=1):
        shown = node.node.get_content("llm")
        assert shown.count("<memory ") == shown.count(f'<memory number="{number}" ') == 1


def test_a_typo_and_what_is_no_memory_are_refused(memory):
    with pytest.raises(ValueError, match="topn"):
        RMMNodePostprocessor(memory=memory, user_id="ann", topn=2)
    with pytest.raises(ValueError, match="open_memory returns; got str"):
        RMMNodePostprocessor(memory="memory.db", user_id="ann")
    assert copy.deepcopy(RMMNodePostprocessor(memory=memory, user_id="ann")).memory is memory


def test_an_answer_of_a_model_that_hides_markers_is_learned_from(memory, model):
    nodes = RMMNodePostprocessor(memory=memory, user_id="ann", top_n=2, cite=True).postprocess_nodes(
        pages(), query_str="soup"
    )
    quiet = hide_markers(model.enqueue("There is soup [1]."), memory)
    prompt = CITING_QA_TEMPLATE.format(context_str="\n\n".join(n.get_content("llm") for n in nodes), query_str="soup?")
    answer = CitationOutputParser().parse(quiet.complete(prompt).text).citing(nodes)
    assert (answer.text, answer.feedback(memory).numbers) == ("There is soup.", (1,))
