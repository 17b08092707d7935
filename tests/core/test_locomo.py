"""The loop on a real conversation: LoCoMo's first, with its recorded facts and a real embedder."""

from functools import partial

import numpy as np
import pytest
from _measure import USER, cited, mean, scored
from _models import bundled_embedder

from benchmarks.datasets.locomo import answerable, load
from benchmarks.feedback import SimulatedCitations
from benchmarks.reflectors import RecordedReflector
from rmm_core import ReflectiveMemory, RMMConfig
from rmm_core.types import Citations

pytestmark = pytest.mark.benchmark_data


class Remembering:
    """An embedder that embeds each text once."""

    def __init__(self, inner):
        self.inner, self.rows = inner, {}

    def embed(self, texts):
        new = list(dict.fromkeys(t for t in texts if t not in self.rows))
        if new:
            self.rows.update(zip(new, self.inner.embed(new), strict=True))
        return np.stack([self.rows[t] for t in texts])

    async def aembed(self, texts):
        return self.embed(texts)


@pytest.fixture(scope="module")
def conversation(data_file):
    return answerable(load(data_file("locomo10.json"))[0])


@pytest.fixture(scope="module")
def remembered(conversation, tmp_path_factory):
    """Opens the bank of the conversation under any settings that leave reflection alone."""
    embedder = Remembering(bundled_embedder())
    path = tmp_path_factory.mktemp("locomo") / "memory.db"
    with ReflectiveMemory.open(path, embedder=embedder, reflector=RecordedReflector(conversation.sittings)) as memory:
        for sitting in conversation.sittings:
            chat = memory.chat(USER, session_id=sitting.id, user_name=conversation.speakers[0], at=sitting.at)
            chat.add(*sitting.messages)
            chat.end()

    def open_(config):
        return ReflectiveMemory.open(path, embedder=embedder, config=config)

    return open_


def recall_at_5(memory, conversation):
    return mean(scored(q, memory.recall(USER, q.text)) for q in conversation.questions).recall


def test_every_turn_is_reachable(remembered, conversation):
    with remembered(RMMConfig()) as memory:
        held = {ref for m in memory.memories(USER) for ref in m.evidence}
        turns = {(s.id, i) for s in conversation.sittings for i in range(len(s.messages))}
        lost = turns - {(r.session_id, r.index) for r in held}
        assert len(lost) <= 5  # greetings
        assert not {(r.session_id, r.index) for q in conversation.questions for r in q.evidence} & lost


def test_the_prior_finds_what_dense_retrieval_misses(remembered, conversation):
    with remembered(RMMConfig(features=False)) as dense, remembered(RMMConfig()) as prior:
        assert recall_at_5(dense, conversation) < 0.65
        assert recall_at_5(prior, conversation) > 0.68


def test_the_papers_sampling_ruins_retrieval_and_greedy_serving_does_not(remembered, conversation):
    with remembered(RMMConfig.paper()) as paper, remembered(RMMConfig.paper(serving="greedy")) as greedy:
        sampled, ranked = recall_at_5(paper, conversation), recall_at_5(greedy, conversation)
    assert ranked > 0.5
    assert sampled < 0.6 * ranked


def learn(memory, conversation, reply):
    for question in conversation.questions:
        recall = memory.recall(USER, question.text)
        memory.feedback(recall, reply(question, recall))


def test_random_citations_do_no_harm(remembered, conversation):
    rng = np.random.default_rng(0)

    def at_random(question, recall):
        numbers = tuple(s.number for s in recall.shown if rng.random() < 0.3)
        return Citations("", numbers, "cited" if numbers else "none")

    with remembered(RMMConfig(learner_scope="user")) as memory:
        before = recall_at_5(memory, conversation)
        learn(memory, conversation, at_random)
        assert memory.status(USER).learner.updates >= 30
        assert recall_at_5(memory, conversation) >= before - 0.005


def test_useful_citations_help_what_is_asked_again(remembered, conversation):
    simulated = SimulatedCitations(np.random.default_rng(0))
    with remembered(RMMConfig(learner_scope="store")) as memory:
        before = recall_at_5(memory, conversation)
        for _ in range(3):
            learn(memory, conversation, partial(cited, simulated))
        assert recall_at_5(memory, conversation) > before + 0.005
