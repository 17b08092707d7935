"""What memories are scored by: each feature on a bank made by hand, and the index as the bank grows."""

import math
from dataclasses import fields, replace
from itertools import count

import numpy as np
import pytest

from rmm_core import ReflectiveMemory, RMMConfig
from rmm_core.features import FEATURES, HISTORY, SCORED_BY, FeatureWeights
from rmm_core.protocols import BankChange, Entry
from rmm_core.stores._asked import Asked
from rmm_core.stores.sqlite import SQLiteStore
from rmm_core.testing import HashEmbedder
from rmm_core.types import Citations, Feedback, Memory, Message, Session, TurnRef
from tests.core.small_world import T0

WIDTH = 4
SAID = {
    "s": (
        ("user", "I keep 3 bees in Graz."),
        ("agent", "How many hives?"),
        ("user", "Two hives, since last year."),
        ("agent", "Nice."),
        ("user", "My sister plays the cello."),
        ("agent", "Lovely."),
        ("agent", "And the violin"),
        ("user", "Hm."),
        ("user", "The violin is mine."),
    ),
    "t": (("user", "Tea tonight."), ("agent", "Tea tomorrow?"), ("user", "Tea with bees and bees and honey.")),
}
RESTS_ON = {
    "bees": (("s", 0),),
    "hives": (("s", 1),),
    "two": (("s", 2),),
    "cello": (("s", 4),),
    "violin": (("s", 8),),
    "tea": (("t", 0),),
    "both": (("s", 6), ("t", 1)),
}
ROWS = {
    "bees": (1.0, 0.0, 0.0, 0.0),
    "hives": (0.6, 0.8, 0.0, 0.0),
    "two": (0.0, 1.0, 0.0, 0.0),
    "cello": (0.0, 0.6, 0.8, 0.0),
    "violin": (-1.0, 0.0, 0.0, 0.0),
    "tea": (0.28, 0.0, 0.0, 0.96),
    "both": (0.0, 0.0, 0.0, 1.0),
}
QUERY = np.float32([1.0, 0.0, 0.0, 0.0])


def vector(*values):
    return np.asarray(values, dtype=np.float32)


def say(store, user, session, said):
    store.open_session(Session(user, session, "Ann Lee", "Bot", T0, T0))
    store.append(user, session, [Message(role, text) for role, text in said], at=T0)


def entry(user, name, refs, row, summary=""):
    evidence = tuple(TurnRef(*ref) for ref in refs)
    return Entry(Memory(name, user, "topic", summary, evidence, T0, T0), vector(*row))


def put(store, user, *entries, removed=()):
    store.commit(user, BankChange(store.bank_version(user), entries, removed))


@pytest.fixture
def store():
    held = SQLiteStore(":memory:")
    for user in ("ann", "bob"):
        for session, said in SAID.items():
            say(held, user, session, said)
        put(held, user, *(entry(user, name, refs, ROWS[name]) for name, refs in RESTS_ON.items()))
    yield held
    held.close()


def column(store, name, text, row=QUERY, user="ann", limit=20):
    place = FEATURES.index(name)
    return {c.memory.id: float(c.features[place]) for c in store.search(user, row, text=text, limit=limit)}


def above_0(store, name, text):
    return {m for m, value in column(store, name, text).items() if value > 0}


# -- each of them ------------------------------------------------------------------------


def test_a_weight_for_each_in_order():
    weights = FeatureWeights(similarity=2.0, own=3.0, passed_over=-7.0)
    assert tuple(f.name for f in fields(FeatureWeights)) == SCORED_BY == ("similarity", *FEATURES)
    assert (weights.row()[0], weights.row()[1], weights.row()[-1]) == (2.0, 3.0, -7.0)
    assert FeatureWeights.plain().row().tolist() == [1.0] + [0.0] * len(FEATURES)
    assert weights.without_history() == replace(weights, cited=0.0, passed_over=0.0)


def test_own_words(store):
    found = column(store, "own", "bees")
    assert found["bees"] == 1.0
    assert {m for m, value in found.items() if value} == {"bees"}
    found = column(store, "own", "Which hives and bees?")
    assert found["bees"] == 1.0  # the rarest of the words
    assert 0 < found["two"] < found["hives"] < 1  # the longer, the less
    assert found["cello"] == found["violin"] == 0.0


def test_the_words_of_a_summary_are_its_own(store):
    put(store, "ann", entry("ann", "cello", (("s", 4),), ROWS["cello"], summary="An orchestra of apiarists"))
    assert above_0(store, "own", "orchestra") == {"cello"}
    assert above_0(store, "window", "orchestra") == set()
    assert above_0(store, "session", "orchestra") == set()


def test_words_of_neighbours(store):
    assert above_0(store, "window", "Graz") == {"bees", "hives", "two"}  # turns 0 to 2
    assert above_0(store, "window", "cello") == {"two", "cello", "both"}  # turns 2 to 6
    assert above_0(store, "window", "honey") == {"tea", "both"}
    assert max(column(store, "window", "cello").values()) == 1.0


def test_words_of_the_session(store):
    in_s = {"bees", "hives", "two", "cello", "violin", "both"}
    assert above_0(store, "session", "cello") == in_s
    assert set(column(store, "session", "cello").values()) == {0.0, 1.0}
    found = column(store, "session", "honey")
    assert {m for m, value in found.items() if value == 1.0} == {"tea", "both"}


def test_the_most_similar_of_the_session(store):
    found = column(store, "session_similarity", "x")
    assert {m for m, value in found.items() if value == pytest.approx(1.0)} == set(RESTS_ON) - {"tea"}
    assert found["tea"] == pytest.approx(0.28)
    away = column(store, "session_similarity", "x", vector(0, 0, 0, 1))
    assert away["tea"] == pytest.approx(1.0)
    assert away["cello"] == pytest.approx(1.0)  # by "both", which is of either


def test_the_mean_of_the_neighbours(store):
    found = column(store, "neighbours", "x")
    assert found["bees"] == pytest.approx((0.6 + 0.0) / 2)
    assert found["hives"] == pytest.approx((1.0 + 0.0) / 2)
    assert found["two"] == pytest.approx((1.0 + 0.6 + 0.0) / 3)
    assert found["cello"] == pytest.approx(0.0)
    assert found["violin"] == pytest.approx(0.0)
    assert found["tea"] == pytest.approx(0.0)
    assert found["both"] == pytest.approx((0.0 - 1.0 + 0.28) / 3)
    put(store, "ann", entry("ann", "wide", (("s", 2), ("s", 4)), (0.8, 0.6, 0.0, 0.0)))
    assert column(store, "neighbours", "x")["wide"] == pytest.approx((1.0 + 0.6 + 0 + 0 + 0) / 5)  # without itself


def test_who_said_it(store):
    by_ann = {"bees", "two", "cello", "violin", "tea"}
    for text, who in (("What did LEE say?", by_ann), ("ann's bees", by_ann), ("bot?", {"hives", "both"})):
        assert column(store, "speaker", text) == {m: float(m in who) for m in RESTS_ON}
    assert set(column(store, "speaker", "What did Annabel say?").values()) == {0.0}


def test_how_long_it_is(store):
    found = column(store, "length", "x")
    assert found["bees"] == pytest.approx(math.log(1 + 8) / 5)  # Ann Lee: I keep 3 bees in Graz.
    assert found["both"] == pytest.approx(math.log(1 + 4 + 3) / 5)  # Bot: And the violin / Bot: Tea tomorrow?


def test_whether_it_asks(store):
    assert column(store, "question", "x") == {m: float(m in {"hives", "both"}) for m in RESTS_ON}


def test_words_of_time_where_the_query_asks_when(store):
    timed = {"two", "tea", "both"}
    assert column(store, "dated", "When was that?") == {m: float(m in timed) for m in RESTS_ON}
    assert set(column(store, "dated", "What year was that, and whenever?").values()) == {0.0}


def test_figures(store):
    assert column(store, "number", "x") == {m: float(m == "bees") for m in RESTS_ON}


def test_how_early_it_was_said(store):
    expected = {"bees": 1, "hives": 4 / 5, "two": 4 / 6, "cello": 1 / 2, "violin": 1 / 3, "tea": 1, "both": 4 / 10}
    assert column(store, "early", "x") == pytest.approx(expected)


def test_all_are_0_where_features_are_off(store):
    for config, some in ((RMMConfig(features=False), False), (RMMConfig.paper(), False), (RMMConfig(), True)):
        memory = ReflectiveMemory(store, embedder=HashEmbedder(WIDTH), config=config)
        store.add_feedback(an_answer("ann", memory.recall("ann", "When did Ann keep bees?").embedding, "bees"))
        recall = memory.recall("ann", "When did Ann keep bees?")
        assert len(recall.candidates) == len(RESTS_ON)
        assert any(c.features.any() for c in recall.candidates) == some
        assert all(len(c.features) == len(FEATURES) for c in recall.candidates)


# -- what earlier answers cited ----------------------------------------------------------


NUMBERS = count()


def an_answer(user, row, *cited, shown=tuple(RESTS_ON)):
    return Feedback(
        recall_id=f"answer {next(NUMBERS)}",
        user_id=user,
        embedding=np.asarray(row, dtype=np.float32),
        memory_ids=shown,
        features=np.zeros((len(shown), len(FEATURES)), dtype=np.float32),
        noise=np.zeros(len(shown), dtype=np.float32),
        shown=tuple(range(len(shown))),
        cited=tuple(shown.index(c) for c in cited),
        at=T0,
    )


def answered(store, *args, **more):
    store.add_feedback(an_answer(*args, **more))


def history(store, row=QUERY, user="ann"):
    """What is not 0, by memory: cited, passed over."""
    columns = [column(store, name, "x", row, user) for name in HISTORY]
    found = {m: tuple(round(c[m], 4) for c in columns) for m in columns[0]}
    return {m: pair for m, pair in found.items() if any(pair)}


def test_cited_and_passed_over_for_the_same_a_similar_and_an_unlike_question(store):
    answered(store, "ann", QUERY, "two", shown=("bees", "two"))
    assert history(store) == {"bees": (0.0, 1.0), "two": (1.0, 0.0)}
    alike = ((0.8 - 0.5) / 0.5) ** 2
    assert history(store, vector(0.8, 0.6, 0, 0)) == {"bees": (0.0, 0.36), "two": (0.36, 0.0)}
    assert alike == pytest.approx(0.36)
    for unlike in (vector(0.5, 0.5, 0.5, 0.5), vector(0, 1, 0, 0), vector(-1, 0, 0, 0)):
        assert history(store, unlike) == {}


def test_the_most_similar_question_counts(store):
    answered(store, "ann", vector(0.8, 0.6, 0, 0), "two", shown=("bees", "two"))
    answered(store, "ann", QUERY, "bees", shown=("bees", "two"))
    found = history(store)
    assert found == {"bees": (1.0, 0.36), "two": (0.36, 1.0)}


def test_history_is_of_one_user(store):
    answered(store, "ann", QUERY, "two")
    assert history(store, user="bob") == {}
    answered(store, "bob", QUERY, "tea")
    assert {m for m, (cited, _) in history(store).items() if cited} == {"two"}


def test_what_similar_questions_cited_is_found_again(store):
    """Also where neither its embedding nor its words lead to it."""
    assert set(column(store, "own", "Graz", limit=1)) == {"bees"}
    answered(store, "ann", QUERY, "tea", "cello", shown=("cello", "tea", "two"))
    assert set(column(store, "own", "Graz", limit=2)) >= {"bees", "tea", "cello"}
    assert "two" not in column(store, "own", "Graz", limit=1)
    assert set(column(store, "own", "Graz", row=vector(0, 0, 0, 1), limit=1)) == {"bees", "both"}


def test_history_of_a_deleted_memory_is_none(store):
    answered(store, "ann", QUERY, "two", shown=("bees", "two"))
    store.delete("ann", "two")
    assert history(store) == {"bees": (0.0, 1.0)}


def test_history_is_taken_back_by_unlearning_and_forgetting(store):
    memory = ReflectiveMemory(store, embedder=HashEmbedder(WIDTH))
    answered(store, "ann", QUERY, "bees", shown=("bees", "two"))
    once = history(store)
    answered(store, "bob", QUERY, "bees", shown=("bees", "two"))
    answered(store, "ann", QUERY, "two", shown=("bees", "two"))
    assert history(store) != once
    assert memory.unlearn(1, user_id="ann") == 1
    assert history(store) == once
    assert history(store, user="bob") == once
    assert memory.unlearn(2) == 2
    assert history(store) == history(store, user="bob") == {}
    answered(store, "ann", QUERY, "bees", shown=("bees", "two"))
    memory.forget_user("ann")
    for session, said in SAID.items():
        say(store, "ann", session, said)
    put(store, "ann", *(entry("ann", name, refs, ROWS[name]) for name, refs in RESTS_ON.items()))
    assert history(store) == {}


def test_history_ends_where_the_embedder_changes(store):
    answered(store, "ann", QUERY, "two", shown=("bees", "two"))
    assert history(store)
    ReflectiveMemory(store, embedder=HashEmbedder(WIDTH)).reembed()
    assert history(store) == {}


@pytest.mark.parametrize(
    ("cites", "usual"),
    [
        ((1, 0), (96.5 / 100, 1.5 / 100)),
        ((0, 1), (1.5 / 100, 96.5 / 100)),
        ((1, 1), (96.5 / 100, 96.5 / 100)),
        ((0, 0), (1.5 / 100, 1.5 / 100)),
    ],
    ids=["first", "last", "all", "none"],
)
def test_a_place_that_is_always_or_never_cited_says_little(store, cites, usual):
    shown = ("bees", "two")
    cited = [name for name, yes in zip(shown, cites, strict=True) if yes]
    expected = {}
    for _ in range(95):
        answered(store, "ann", QUERY, *cited, shown=shown)
    for name, yes, share in zip(shown, cites, usual, strict=True):
        value = round((1 - share) / 0.1 if yes else share / 0.05, 4)
        expected[name] = (value, 0.0) if yes else (0.0, value)
        assert value < 0.4
    assert history(store) == expected


def test_a_place_that_is_sometimes_cited_says_all(store):
    for _ in range(20):
        answered(store, "ann", vector(0, 1, 0, 0), "two", shown=("bees", "two"))
        answered(store, "ann", vector(0, 1, 0, 0), "bees", shown=("bees", "two"))
    answered(store, "ann", QUERY, "two", shown=("bees", "two"))
    assert history(store) == {"bees": (0.0, 1.0), "two": (1.0, 0.0)}


def test_texts_from_elsewhere_and_other_embedders_questions_are_left_out():
    asked = Asked()
    asked.add([(1, an_answer("ann", QUERY, "bees")), (2, an_answer("ann", vector(0.8, 0.6, 0, 0), "two"))])
    foreign = replace(an_answer("ann", QUERY, "tea"), embeddings=np.zeros((len(RESTS_ON), WIDTH), np.float32))
    asked.add([(3, foreign)])
    assert (asked.last, asked.cited(asked.similar(QUERY))) == (3, ["bees", "two"])
    assert asked.cited(asked.similar(np.ones(WIDTH + 1, np.float32))) == []
    assert not asked.features(asked.similar(np.ones(WIDTH + 1, np.float32)), ["bees"]).any()
    asked.add([(4, an_answer("ann", vector(1, 0, 0, 0, 0), "tea"))])
    assert asked.cited(asked.similar(vector(1, 0, 0, 0, 0))) == ["tea"]
    assert asked.cited(asked.similar(QUERY)) == []


def test_a_thousand_questions_are_held():
    asked = Asked()
    asked.add([(0, an_answer("ann", QUERY, "bees"))])
    asked.add((i, an_answer("ann", vector(0, 1, 0, 0), "two")) for i in range(1, 1000))
    assert asked.cited(asked.similar(QUERY)) == ["bees"]
    asked.add([(1000, an_answer("ann", vector(0, 1, 0, 0), "two"))])
    assert asked.cited(asked.similar(QUERY)) == []


# -- the index as the bank grows ---------------------------------------------------------

TEXTS = ("When did Ann keep bees in Graz?", "hives cello violin", "tea tonight with honey", "zebra", "")


def seen(store):
    """All that searches of a few kinds find."""
    found = {}
    for i, text in enumerate(TEXTS):
        for kind in (None, "topic"):
            row = np.asarray(np.roll([0.8, 0.55, 0.23, 0.07], i), dtype=np.float32)
            for c in store.search("ann", row, text=text, limit=3, kind=kind):
                found[text, kind, c.memory.id] = (round(c.score, 5), *np.round(c.features, 5).tolist())
    return found


def a_step(store, number):
    """One change of the bank, as reflection and users make them."""
    s = SAID["s"]

    def a(name, *refs, **more):
        return entry("ann", name, refs, ROWS[name], **more)

    if number == 0:
        say(store, "ann", "s", s[:1])
        put(store, "ann", a("bees", ("s", 0)))
    elif number == 1:  # later turns of the session: the window and the neighbours of what is held already grow
        store.append("ann", "s", [Message(*m) for m in s[1:3]], at=T0)
        put(store, "ann", a("two", ("s", 2)))
    elif number == 2:
        say(store, "ann", "t", SAID["t"])
        put(store, "ann", a("tea", ("t", 0)))
    elif number == 3:  # a merge
        put(store, "ann", a("tea", ("t", 0), ("s", 1), summary="tea and hives"))
    elif number == 4:
        store.append("ann", "s", [Message(*m) for m in s[3:]], at=T0)
        put(store, "ann", a("cello", ("s", 4)), a("violin", ("s", 8)))
    elif number == 5:
        answered(store, "ann", QUERY, "tea", shown=("bees", "tea"))
    elif number == 6:
        store.delete("ann", "two")
    elif number == 7:  # one summary in place of two
        put(store, "ann", a("both", ("s", 0), ("t", 0)), removed=("bees",))
    elif number == 8:
        store.delete("ann", "tea")
    elif number == 9:
        store.append("ann", "t", [Message("user", "A zebra, at 9.")], at=T0)
        put(store, "ann", a("bees", ("t", 3)))


STEPS = 10


def test_an_index_that_grew_equals_one_that_was_built_at_once(tmp_path):
    grown = SQLiteStore(str(tmp_path / "memory.db"))
    before = {}
    for number in range(STEPS):
        a_step(grown, number)
        fresh = SQLiteStore(str(tmp_path / "memory.db"))
        now = seen(grown)
        assert now == seen(fresh), number
        assert now != before, number
        before = now
        fresh.close()
    grown.close()


def test_an_index_that_missed_some_changes_equals_one_that_was_built_at_once(tmp_path):
    """Those of another process."""
    for first in range(STEPS):
        path = str(tmp_path / f"{first}.db")
        writer, reader, fresh = SQLiteStore(path), SQLiteStore(path), SQLiteStore(path)
        for number in range(first + 1):
            a_step(writer, number)
        seen(reader)
        for number in range(first + 1, STEPS):
            a_step(writer, number)
        assert seen(reader) == seen(fresh), first
        for held in (writer, reader, fresh):
            held.close()


def test_turns_that_were_reflected_to_nothing_are_words_of_their_neighbours_too(tmp_path):
    """A session goes on, and what was said holds nothing to file: an index that grew knows it like a new one."""
    path = str(tmp_path / "memory.db")
    grown = SQLiteStore(path)
    say(grown, "ann", "s", SAID["s"][:1])
    born = grown.open_session(Session("ann", "s", "Ann Lee", "Bot", T0, T0)).born
    first = (entry("ann", "bees", (("s", 0),), ROWS["bees"]),)
    grown.commit("ann", BankChange(0, first, (), "s", born, 0, 1))
    seen(grown)
    grown.append("ann", "s", [Message("user", "A zebra!")], at=T0)
    grown.commit("ann", BankChange(grown.bank_version("ann"), (), (), "s", born, 1, 2))
    fresh = SQLiteStore(path)
    assert seen(grown) == seen(fresh)
    for held in (grown, fresh):
        held.close()


def test_a_recall_of_a_bank_by_hand_cites_into_its_history():
    """The whole way: recalled, cited, recalled again."""
    with ReflectiveMemory.open(":memory:", embedder=HashEmbedder()) as memory:
        for i, text in enumerate(("I keep bees in Graz.", "Bees sting.", "The cello is loud.")):
            memory.chat("ann", session_id=f"s{i}").record(text, "Good.")
            memory.chat("ann", session_id=f"s{i}").end()
        recall = memory.recall("ann", "bees?")
        memory.feedback(recall, Citations("", (2,), "cited"))
        places = [FEATURES.index(name) for name in HISTORY]
        again = {c.memory.id: c.features[places].tolist() for c in memory.recall("ann", "bees?").candidates}
        for s in recall.shown:
            assert again[s.memory.id] == [float(s.number == 2), float(s.number != 2)]
