"""Why memories stand where they stand: both rankings side by side, without any chance, and nothing stored."""

import re
from dataclasses import replace

import numpy as np
import pytest

from rmm_core import InputError, Reason, RMMConfig
from rmm_core.features import FEATURES, SCORED_BY
from rmm_core.learned import Learned
from rmm_core.reranker import Reranker
from tests.core.small_world import USER, answer, opened, world

SAID = ("I keep bees in Graz.", "My sister plays the cello.", "I am allergic to nuts.", "The cello is old.")


def filled(open_memory, **changes):
    memory = open_memory(**changes)
    for i, text in enumerate(SAID):
        with memory.chat("ann", session_id=f"s{i}") as chat:
            chat.record(text, "Good.")
    return memory


def taught(w, answers=60, **settings):
    """A memory whose learned ranking serves, and differs from the prior."""
    memory = opened(w, batch_size=2, **settings)
    for i in range(answers):
        answer(memory, w, i, lambda shown, relevant: [name in relevant for name in shown])
    return memory


def test_the_terms_of_every_candidate_sum_up_to_the_score_of_the_ranking_that_serves():
    w = world()
    for settings, serves in (({"guard": False}, "learned"), ({"duels": 0.0}, "learned"), ({}, "prior")):
        with taught(w, answers=60 if settings else 4, **settings) as memory:
            explained = memory.explain(USER, w.questions[70])
            assert explained.ranking == serves == memory.status(USER).learner.ranking
            assert explained.reason == memory.status(USER).learner.reason
            for reason in explained.candidates:
                assert tuple(reason.terms) == SCORED_BY
                assert tuple(reason.features) == FEATURES
                score = reason.learned if serves == "learned" else reason.prior
                assert sum(reason.terms.values()) == pytest.approx(score, abs=1e-5)


def test_it_says_what_a_recall_without_chance_shows():
    w = world()
    with taught(w, duels=0.0) as memory:
        differ = 0
        for question in w.questions[60:80]:
            recall, explained = memory.recall(USER, question), memory.explain(USER, question)
            assert [r.memory.id for r in explained.candidates] == [c.memory.id for c in recall.candidates]
            np.testing.assert_allclose([r.learned for r in explained.candidates], [c.score for c in recall.candidates])
            shown = {r.shown: r.memory.id for r in explained.candidates if r.shown is not None}
            assert [shown[n] for n in sorted(shown)] == [s.memory.id for s in recall.shown]
            assert [r.learned_rank for r in explained.candidates] == list(range(1, len(recall.candidates) + 1))
            differ += any(r.shown != r.prior_shown for r in explained.candidates)
        assert differ


def test_the_prior_stands_beside_what_was_learned():
    w = world()
    with taught(w, guard=False) as memory, opened(w) as untaught:
        explained, before = memory.explain(USER, w.questions[90]), untaught.explain(USER, w.questions[90])
        prior = {r.memory.id: r for r in before.candidates}
        for reason in explained.candidates:
            if reason.memory.id in prior and not reason.features["cited"] and not reason.features["passed_over"]:
                assert reason.prior == pytest.approx(prior[reason.memory.id].prior, abs=1e-5)
        assert {r.prior_rank for r in explained.candidates} == set(range(1, len(explained.candidates) + 1))
        assert {r.prior_shown for r in explained.candidates} - {None} == {1, 2, 3, 4, 5}


def test_similarity_passes_no_adapter():
    w = world()
    with taught(w, guard=False) as memory:
        state = Learned.unpack(memory.store.learner_state("store").content, memory.config, 0)
        far = np.full_like(state.reranker.weights.w_q, 0.5)
        bent = replace(state, reranker=Reranker(replace(state.reranker.weights, w_q=far), memory.config.logit_scale))
        version = memory.store.learner_version("store")
        memory.store.save_learner_state("store", bent.pack(), base_version=version)
        explained = memory.explain(USER, w.questions[3])
        for reason in explained.candidates:
            cosine = float(w.rows[w.questions[3]] @ w.memories[reason.memory.id])
            assert reason.similarity == pytest.approx(cosine, abs=1e-6)
            assert abs(reason.terms["similarity"] - cosine) > 1e-3


def test_nothing_is_stored_and_nothing_is_drawn(open_memory):
    w = world()
    with taught(w, serving="sampled") as memory, taught(w, serving="sampled") as untouched:
        log, lines = len(memory.store.feedback(limit=1000)), list(memory.export_user(USER))
        first = memory.explain(USER, w.questions[5])
        assert all(memory.explain(USER, w.questions[5]) == first for _ in range(20))
        assert (len(memory.store.feedback(limit=1000)), list(memory.export_user(USER))) == (log, lines)
        mine, other = memory.recall(USER, w.questions[99]), untouched.recall(USER, w.questions[99])
        np.testing.assert_array_equal(mine.noise, other.noise)  # the draws of recalls go on as if nothing had been
    memory = filled(open_memory)
    memory.explain("ann", "Who keeps bees?")
    assert memory.recent.of_query("ann", "Who keeps bees?") is None


def test_an_empty_bank_has_no_candidates(memory):
    explained = memory.explain("nobody", "What?")
    assert (explained.user_id, explained.query, explained.candidates) == ("nobody", "What?", ())
    assert (explained.ranking, explained.reason) == ("prior", "nothing learned yet: an update takes 4 answers")
    assert memory.users() == []


def test_the_query_is_redacted(open_memory):
    memory = filled(open_memory, redact=lambda text: re.sub(r"\d{4,}", "#", text))
    assert memory.explain("ann", "Is 12345 my number?").query == "Is # my number?"


def test_what_rests_on_the_same_turn_or_does_not_fit_is_not_shown(open_memory):
    memory = filled(open_memory, config=RMMConfig(top_m=2, prompt_tokens=40))
    shown = [r.shown for r in memory.explain("ann", "Who plays the cello?").candidates]
    assert [n for n in shown if n] == [s.number for s in memory.recall("ann", "Who plays the cello?").shown] == [1]
    wide = [r.shown for r in memory.explain("ann", "Who plays the cello?", top_m=3).candidates]
    assert [n for n in wide if n] == [1]
    with pytest.raises(InputError, match="top_m"):
        memory.explain("ann", "Who?", top_m=-1)


async def test_on_an_event_loop_it_is_the_same(open_memory):
    memory = filled(open_memory)
    explained = await memory.aexplain("ann", "Who plays the cello?", top_m=1)
    assert explained == memory.explain("ann", "Who plays the cello?", top_m=1)
    assert isinstance(explained.candidates[0], Reason)
    assert explained.candidates[0].memory.summary == "User: My sister plays the cello."
