"""What makes the figures honest: asked before learned from, no sight of the evidence, learning that is real."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import numpy as np
import pytest

from benchmarks.datasets import Conversation, Question, Sitting
from benchmarks.evaluation import evaluate
from benchmarks.feedback import SimulatedCitations
from benchmarks.methods import Found
from benchmarks.methods.catalogue import CATALOGUE, Setting
from benchmarks.methods.pretraining import PretrainedRetrieval, Pretraining
from benchmarks.methods.rmm import RMM
from benchmarks.methods.units import turns
from rmm_core import RMMConfig, TurnRef
from rmm_core.testing import HashEmbedder
from rmm_core.types import Extracted
from tests.benchmarks.worlds import banks, conversation, said

PLAIN = {
    "pretrained-turn": "rag-turn",
    "pretrained-session": "rag-session",
    "pretrained-mixed": "rag-mixed",
    "pr-pretrained": "pr",
    "rmm-pretrained": "rmm-prior",
}
"""What each of the pretrained is without that, and before it learns from citations."""

SEE_THE_EVIDENCE = {"oracle", "best-of", *PLAIN}


def world(count, asked, told, beside):
    """A conversation of ``count`` sessions: a thing each, what is told of it, what is said beside, and a question."""
    things = [f"thing{i}" for i in range(count)]
    sittings = tuple(
        Sitting(
            f"s{i}",
            datetime(2024, 1, 1, tzinfo=UTC) + timedelta(days=i),
            said(told(i, thing), beside(i, thing)),
            facts=(Extracted(told(i, thing), (0,)), Extracted(beside(i, thing), (1,))),
        )
        for i, thing in enumerate(things)
    )
    questions = tuple(
        Question(f"q{i}", asked(i, thing), told(i, thing), "one", frozenset({TurnRef(f"s{i}", 0)}))
        for i, thing in enumerate(things)
    )
    return Conversation("ada", sittings, questions)


def misled(count):
    """What is said beside answers nothing and has more of the question's words, so that citations have to teach it."""
    return world(
        count,
        asked=lambda i, thing: f"Where, {thing}?",
        told=lambda i, thing: f"{thing}: shed.",
        beside=lambda i, thing: f"I do not quite know where a thing like {thing} went.",
    )


ASKED, TOLD = "aircraft canine feline vessel".split(), "plane dog cat ship".split()


def renamed(count):
    """Questions call things by other words than the talk does, always by the same ones: pretraining can learn it."""
    return world(
        count,
        asked=lambda i, thing: f"{thing} {ASKED[i % 4]}",
        told=lambda i, thing: f"{TOLD[i % 4]} number {i // 4}",
        beside=lambda i, thing: f"{thing} talk",
    )


def run(method, talk, m=5, seed=0):
    """The rows of a run whose citations never err, and where no bar is drawn."""
    perfect = partial(SimulatedCitations, recall=1.0, false=0.0)
    return evaluate(method, [talk], m=m, seed=seed, citations=perfect, track=lambda items, what: items)


@pytest.fixture
def make(tmp_path):
    """Makes methods that remember a talk; of the catalogue, when they are named."""
    made = []

    def make(method, talk=None, seed=0):
        if isinstance(method, str):
            method = CATALOGUE[method].make(Setting(banks(tmp_path / "banks"), "recorded", seed))
        made.append(method)
        if talk is not None:
            method.remember([talk])
        return method

    yield make
    for method in made:
        method.close()


class Recording:
    """Notes what it is asked to do. A question it learned from brings up its evidence first, others another turn."""

    trained_on = frozenset()

    def __init__(self, learns=True):
        self.learns = learns
        self.settings = {}
        self.log = []
        self._taught = set()

    def remember(self, conversations):
        self.log.append("remember")

    def find(self, conversation, question, k):
        self.log.append(question.id)
        self._last = question.id
        beside = Found("beside", (TurnRef("s1", 3),))
        told = [Found("told", (ref,)) for ref in sorted(question.evidence, key=str)]
        return [*told, beside] if question.id in self._taught else [beside, *told]

    def learn(self, cited):
        self.log.append(cited)
        self._taught.add(self._last)

    def reachable(self, conversation):
        return frozenset(ref for turn in turns(conversation) for ref in turn.turns)

    def close(self):
        pass


ONE, TWO, NEVER = conversation().questions
TALK = conversation(questions=(ONE, TWO, NEVER, replace(ONE, id="q4", evidence=frozenset())))
CITED = {"q1": (2,), "q2": (2, 3)}
"""What is right to cite of the untaught; nothing can be told of the other two questions."""


@pytest.mark.parametrize("seed", range(4))
def test_each_question_is_found_for_then_learned_from_and_all_are_asked_again_without(seed):
    method = Recording()
    first, again = run(method, TALK, seed=seed)
    order = [row.question for row in first]
    assert sorted(order) == ["q1", "q2", "q3", "q4"]
    taught = [step for q in order for step in ([q, CITED[q]] if q in CITED else [q])]
    assert method.log == ["remember", *taught, *order]
    assert [row.question for row in again] == order


def test_the_first_rows_are_what_was_found_before_learning():
    first, again = ({row.question: row for row in rows} for rows in run(Recording(), TALK))
    assert {q: row.gains for q, row in first.items()} == {"q1": (0, 1), "q2": (0, 1, 1), "q3": (0, 1), "q4": (0,)}
    assert {q: row.gains for q, row in again.items()} == {"q1": (1, 0), "q2": (1, 1, 0), "q3": (0, 1), "q4": (0,)}
    assert {q: row.cited for q, row in first.items()} == {"q1": 1, "q2": 2, "q3": 0, "q4": 0}
    assert {row.cited for row in again.values()} == {0}


def test_only_what_is_shown_can_be_cited():
    method = Recording()
    run(method, TALK, m=2)
    assert [step for step in method.log if isinstance(step, tuple)] == [(2,), (2,)]


@pytest.mark.parametrize("seed", range(4))
def test_who_does_not_learn_is_asked_once_in_the_order_of_the_file(seed):
    method = Recording(learns=False)
    first, again = run(method, TALK, seed=seed)
    assert method.log == ["remember", "q1", "q2", "q3", "q4"]
    assert [row.question for row in first] == ["q1", "q2", "q3", "q4"]
    assert again == []


def unguarded(tmp_path, features=False):
    """This package's memory of turns, in which what was learned serves at once."""
    return RMM(banks(tmp_path / "banks"), RMMConfig(features=features, guard=False), "none", learns=True)


def test_citations_teach_what_answers(make, tmp_path):
    first, again = run(make(unguarded(tmp_path)), misled(16))
    assert sum(row.at(1).all for row in again) > sum(row.at(1).all for row in first)


@pytest.mark.parametrize("features", [False, True])
def test_a_seed_decides_the_order_and_what_is_learned_in_it(make, tmp_path, features):
    talk = misled(16)
    query = talk.questions[0].text

    def scores(method):
        """What each candidate scores."""
        found = method.memory.recall(talk.name, query)
        return {c.memory.summary: c.score for c in found.candidates}

    methods = [make(unguarded(tmp_path, features)) for _ in range(3)]
    one, same, other = (run(m, talk, seed=seed) for m, seed in zip(methods, (1, 1, 2), strict=True))
    assert [m.memory.status(talk.name).learner.updates for m in methods] == [4, 4, 4]
    assert one == same
    assert [row.question for row in one[0]] != [row.question for row in other[0]]
    untaught = scores(make(unguarded(tmp_path, features), talk))
    assert scores(methods[0]) == scores(methods[1])
    assert scores(methods[0]) != pytest.approx(untaught, abs=1e-4)
    assert scores(methods[0]) != scores(methods[2])


@pytest.fixture(scope="module")
def banks_of(tmp_path_factory):
    """The banks of a talk that is labelled so, and of the same talk labelled otherwise."""
    return {labels: banks(tmp_path_factory.mktemp(labels)) for labels in ("these", "others")}


def labelled_otherwise(talk, only=None):
    """The same questions, or some of them, with what was said beside in the session after for evidence and answer."""

    def otherwise(question, sitting):
        other = TurnRef(sitting.id, 1)
        return replace(question, answer=talk.message(other).text, kind="two", evidence=frozenset({other}))

    after = (*talk.sittings[1:], talk.sittings[0])
    return replace(
        talk,
        questions=tuple(
            otherwise(q, sitting) if only is None or q.id in only else q
            for q, sitting in zip(talk.questions, after, strict=True)
        ),
    )


def brought_up(method, talk):
    """All that is found for the questions, by a method that is always told that what it found first was right."""
    found = []
    for question in talk.questions:
        found.append(list(method.find(talk, question, 50)))
        if method.learns:
            method.learn((1,))
    return found


@pytest.fixture
def under_either(make, banks_of):
    """What two methods of one name bring up, each of which remembers the talk under other labels."""

    def both(name):
        talks = {"these": misled(6), "others": labelled_otherwise(misled(6))}
        made = {labels: CATALOGUE[name].make(Setting(banks_of[labels], "recorded", seed=0)) for labels in talks}
        return [brought_up(make(made[labels], talk), talk) for labels, talk in talks.items()]

    return both


@pytest.mark.parametrize("name", [name for name in CATALOGUE if name not in SEE_THE_EVIDENCE])
def test_no_method_sees_the_evidence_or_the_answer(under_either, name):
    these, others = under_either(name)
    assert these == others


def test_the_oracle_sees_the_evidence(under_either):
    these, others = under_either("oracle")
    assert these != others


@pytest.mark.parametrize("name", PLAIN)
def test_what_was_trained_on_is_not_asked(make, name):
    talk = renamed(8)
    method = make(name)
    asked = {row.question for row in run(method, talk)[0]}
    assert len(asked) == len(method.trained_on) == 4
    assert asked | method.trained_on == {q.id for q in talk.questions}
    assert make(name, talk, seed=1).trained_on != method.trained_on


@pytest.mark.parametrize("name", PLAIN)
def test_training_changes_the_ranking(make, name):
    talk = renamed(16)
    method, plain = make(name, talk), make(PLAIN[name], talk)
    assert [method.find(talk, q, 50) for q in talk.questions] != [plain.find(talk, q, 50) for q in talk.questions]


@pytest.mark.parametrize("name", PLAIN)
def test_the_evidence_of_questions_that_are_asked_does_not_train(make, name):
    talk = renamed(8)
    method = make(name, talk)
    asked = {q.id for q in talk.questions} - method.trained_on
    other = labelled_otherwise(talk, only=asked)
    assert brought_up(make(name, other), other) == brought_up(method, talk)


LITTLE = Pretraining(HashEmbedder(256), held_out=4, epochs=20, learning_rate=0.01)
"""Learns a little talk by heart."""


def places(method, talk, ids):
    """How many things stand before the evidence of each of these questions."""
    found = [(q, method.find(talk, q, 50)) for q in talk.questions if q.id in ids]
    return [next(i for i, f in enumerate(ranking) if q.evidence <= f.covers) for q, ranking in found]


def on_turns(tmp_path, *, learns=False, pretraining=None):
    """This package's ranking of all turns by embedding."""
    config = RMMConfig(features=False, top_k=50)
    return RMM(banks(tmp_path / "banks"), config, "none", learns=learns, pretraining=pretraining)


def test_pretraining_finds_what_other_words_were_used_for(make):
    talk = renamed(16)
    method, plain = make(PretrainedRetrieval("turn", LITTLE), talk), make("rag-turn", talk)
    assert len(method.trained_on) == 12
    assert np.mean(places(plain, talk, method.trained_on)) > 5
    assert np.mean(places(method, talk, method.trained_on)) < 1


def test_the_reranker_ranks_by_pretrained_weights(make, tmp_path):
    talk = renamed(16)
    method, plain = make(on_turns(tmp_path, pretraining=LITTLE), talk), make(on_turns(tmp_path), talk)
    assert np.mean(places(plain, talk, method.trained_on)) > 5
    assert np.mean(places(method, talk, method.trained_on)) < 1


def test_learning_goes_on_from_pretrained_weights(make, tmp_path):
    talk = renamed(16)
    method = make(on_turns(tmp_path, learns=True, pretraining=LITTLE))
    run(method, talk)
    assert method.memory.status(talk.name).learner.updates == 2
    assert np.mean(places(method, talk, method.trained_on)) < 1


@pytest.mark.parametrize("untold", [{"evidence": frozenset()}, {"abstains": True}])
def test_where_nothing_can_be_trained_on_the_weights_are_those_of_the_start(untold):
    talk = renamed(4)
    talk = replace(talk, questions=tuple(replace(q, **untold) for q in talk.questions))
    weights, trained_on = LITTLE([talk], {talk.name: list(turns(talk))})
    assert weights.w_q.shape == weights.w_m.shape == (256, 256)
    assert not weights.w_q.any()
    assert not weights.w_m.any()
    assert trained_on == frozenset()


def test_a_run_on_shuffled_labels_gives_chance(make):
    talk = misled(40)
    method = make("rag-turn", talk)
    places = [f.turns[0] for f in turns(talk)]
    rng = np.random.default_rng(0)
    coverage = []
    for _ in range(25):
        drawn = [frozenset({places[rng.integers(len(places))]}) for _ in talk.questions]
        questions = tuple(replace(q, evidence=e) for q, e in zip(talk.questions, drawn, strict=True))
        rows, _ = run(method, replace(talk, questions=questions))
        coverage += [row.at(5).coverage for row in rows]
    assert len(coverage) == 1000
    assert np.mean(coverage) == pytest.approx(5 / len(places), abs=0.02)
    assert np.mean([row.at(5).coverage for row in run(method, talk)[0]]) > 0.9  # and with the right ones it is not
