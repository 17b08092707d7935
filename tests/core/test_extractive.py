"""The mode without a language model: segments, summaries, quotes, overlap."""

# ruff: noqa: RUF001 -- brackets of other scripts are the subject here

import re
import zlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from rmm_core.citations import parse_citations
from rmm_core.drivers import Services, arun, run
from rmm_core.extractive import (
    NOT_FOUND,
    ExtractiveAnswerer,
    ExtractiveReflector,
    attribute,
    is_small_talk,
    merge_summaries,
    segment,
    split_sentences,
    summarise,
)
from rmm_core.recall import Recall
from rmm_core.types import Add, Candidate, Extracted, Memory, Merge, Session, Shown, Turn

START = datetime(2024, 5, 3, 18, 0, tzinfo=UTC)


class BagOfWords:
    """Texts that share words are similar; nothing else is."""

    def __init__(self, width=256):
        self.width = width
        self.calls = []

    def embed(self, texts):
        self.calls.append(list(texts))
        rows = np.zeros((len(texts), self.width), np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in re.findall(r"\w+", text.casefold()):
                row[zlib.crc32(word.encode()) % self.width] += 1
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)

    async def aembed(self, texts):
        return self.embed(texts)


@pytest.fixture
def embedder():
    return BagOfWords()


@pytest.fixture
def services(embedder):
    return Services(llm=None, embedder=embedder)


def turn(index, speaker, text, session_id="s1"):
    role = "user" if speaker == "Ada" else "agent"
    return Turn(session_id, index, role, speaker, text, START + timedelta(minutes=index))


def session(turns=0):
    return Session("u", "s1", "Ada", "Bot", START, START, turns=turns)


def memory(summary, *turns, name="m"):
    return Memory(name, "u", "topic", summary, tuple(t.ref for t in turns), START, START)


def shown(*pairs):
    return tuple(Shown(n, memory(summary, *turns), tuple(turns)) for n, (summary, turns) in enumerate(pairs, start=1))


def recall(memories, query="?"):
    empty = np.zeros(0, np.float32)
    return Recall("r", "u", query, empty, (), empty, tuple(memories))


def candidate(summary, score):
    return Candidate(memory(summary), np.zeros(4, np.float32), np.zeros(3, np.float32), score)


# -- sentences and small talk ------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("", []),
        (" \n\t ", []),
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ('She said "Go." Then she went.', ['She said "Go."', "Then she went."]),
        ("Dr. Smith met J. Doe. Mrs. Lee left.", ["Dr. Smith met J. Doe.", "Mrs. Lee left."]),
        ("It costs 3.50 at example.org today.", ["It costs 3.50 at example.org today."]),
        ("one line\nanother\r\n\r\nthird", ["one line", "another", "third"]),
        ("我喜欢茶。你呢?不!".replace("?", "\uff1f"), ["我喜欢茶。", "你呢\uff1f", "不!"]),
        ("كيف حالك؟ أنا بخير.", ["كيف حالك؟", "أنا بخير."]),
        ("Wait... what?! Yes.", ["Wait...", "what?!", "Yes."]),
    ],
)
def test_sentences(text, sentences):
    assert split_sentences(text) == sentences


def test_a_sentence_without_end_is_cut_between_words_and_loses_none():
    text = "word " * 300
    pieces = split_sentences(text, longest=50)
    assert max(map(len, pieces)) <= 50
    assert " ".join(pieces).split() == text.split()


@pytest.mark.parametrize(
    "text",
    [
        "Hi!",
        "Hey there",
        "Hello again :)",
        "Thanks so much!!",
        "Thank you",
        "Good morning",
        "bye, see you later",
        "Hi, how are you?",
        "¡Hola!",
        "Guten Morgen",
        "Buenos días",
        "Danke",
        "Merci",
        "谢谢!",
        "ありがとう",
        "شكرا",
        "Спасибо!",
    ],
)
def test_greetings_and_thanks_are_small_talk(text):
    assert is_small_talk(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "...",
        "👍",
        "ok",
        "Yes",
        "No",
        "You",
        "Evening",
        "Thanks, it was cancer",
        "Hi Ada!",
        "Thanks 7",
        "Hi, I moved",
        "Good",
        "你好我叫小明",
        "Hello world tour",
    ],
)
def test_in_doubt_it_is_not_small_talk(text):
    assert not is_small_talk(text)


def test_names_may_be_greeted():
    assert is_small_talk("Hi Ada Lovelace, thanks!", names=["Ada Lovelace"])
    assert not is_small_talk("Ada", names=["Ada"])


# -- segments ----------------------------------------------------------------------------


def rows(*kinds):
    return np.eye(4, dtype=np.float32)[list(kinds)]


@pytest.mark.parametrize("count", range(4))
def test_segments_cover_every_turn_in_order(count):
    rng = np.random.default_rng(count)
    for size in (0, 1, 2, 3, 17, 40):
        vectors = rng.normal(size=(size, 8)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        parts = segment(vectors, longest=3)
        assert [i for start, stop in parts for i in range(start, stop)] == list(range(size))
        assert all(1 <= stop - start <= 3 for start, stop in parts)


def test_a_change_of_subject_ends_a_segment():
    assert segment(rows(0, 0, 1, 1, 2, 2)) == [(0, 2), (2, 4), (4, 6)]


def test_a_question_keeps_its_answer():
    assert segment(rows(0, 0, 1, 2), [False, True, False, False]) == [(0, 3), (3, 4)]


def test_segments_have_a_longest():
    assert segment(rows(0, 0, 0, 0, 0), [True] * 5, longest=2) == [(0, 2), (2, 4), (4, 5)]


def test_strictness_cuts_more():
    vectors = np.random.default_rng(0).normal(1, 1, (60, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    counts = [len(segment(vectors, strictness=s)) for s in (-2.0, 0.0, 2.0)]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]


# -- summaries ---------------------------------------------------------------------------


def test_a_summary_covers_the_segment_instead_of_repeating_itself():
    vectors = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0]], np.float32)
    assert summarise(["A", "A again", "B"], vectors, vectors.mean(axis=0), count=2) == "A B"


def test_a_summary_keeps_the_order_and_stops_at_what_there_is():
    vectors = np.eye(3, dtype=np.float32)
    centre = np.array([0.1, 0.2, 0.9], np.float32)
    assert summarise(["A", "B", "C"], vectors, centre, count=2) == "B C"
    assert summarise(["A", "B", "C"], vectors, centre, count=9) == "A B C"
    assert summarise([], vectors[:0], centre) == ""


def test_merged_summaries_say_everything_once():
    merged = merge_summaries("Ada: I run. Ada: I like tea a lot.", "Ada: I like tea a lot! Ada: I swim.")
    assert merged == "Ada: I run. Ada: I like tea a lot! Ada: I swim."
    assert merge_summaries("", "Ada: I swim.") == "Ada: I swim."
    assert merge_summaries("Ada: I swim.", "Ada: I swim.") == "Ada: I swim."


def test_the_later_state_survives_the_bound():
    old = " ".join(f"Ada: old statement number {i}." for i in range(50))
    merged = merge_summaries(old, "Ada: the gym is enough.", longest=100)
    assert merged.endswith("Ada: old statement number 49. Ada: the gym is enough.")
    assert len(merged) <= 100
    assert merge_summaries(old, "Ada: " + "x" * 90, longest=10) == "Ada: " + "x" * 90


# -- the reflector -----------------------------------------------------------------------


TALK = [
    turn(0, "Ada", "Hi Bot!"),
    turn(1, "Ada", "My dog Rex barks at the dog next door."),
    turn(2, "Bot", "Does the dog Rex bark often?"),
    turn(3, "Ada", "Every night. It drives me mad."),
    turn(4, "Ada", "The marathon in Leeds is in October. I train for the marathon."),
    turn(5, "Bot", "A marathon in Leeds in October sounds great."),
    turn(6, "Ada", "Thanks!"),
]


def test_extraction_names_speakers_and_turns(services, embedder):
    found = run(ExtractiveReflector().extract(session(7), TALK), services)
    assert found.dropped == 0
    references = [i for m in found.memories for i in m.reference]
    assert references == [1, 2, 3, 4, 5]
    assert any({2, 3} <= set(m.reference) for m in found.memories)
    said = {s for t in TALK if t.speaker == "Ada" for s in split_sentences(t.text)}
    for extracted in found.memories:
        assert extracted.summary.startswith("Ada: ")
        sentences = split_sentences(extracted.summary.removeprefix("Ada: "))
        assert 1 <= len(sentences) <= 3
        assert set(sentences) <= said
    assert len(embedder.calls) == 1


def test_extraction_counts_turns_as_the_session_does(services):
    late = [replace(t, index=t.index + 40) for t in TALK]
    found = run(ExtractiveReflector().extract(session(47), late), services)
    assert [i for m in found.memories for i in m.reference] == [41, 42, 43, 44, 45]


@pytest.mark.parametrize("turns", [[], TALK[:1], [turn(0, "Ada", "  ")]])
def test_nothing_worth_a_topic_asks_no_model(turns, embedder):
    assert run(ExtractiveReflector().extract(session(), turns), Services(None, None)).memories == ()


async def test_extraction_is_deterministic_and_the_same_asynchronously(services):
    reflector = ExtractiveReflector()
    first = run(reflector.extract(session(7), TALK), services)
    assert first == run(reflector.extract(session(7), TALK), services)
    assert first == await arun(reflector.extract(session(7), TALK), services)


def test_captions_are_told_and_nameless_speakers_have_their_role(services):
    from rmm_core.types import Attachment

    seen = Turn("s1", 0, "user", "", "Look", START, (Attachment("image", "x.png", "a red kite"),))
    (extracted,) = run(ExtractiveReflector().extract(session(1), [seen]), services).memories
    assert extracted.summary == "user: Look [image: a red kite]"


def decide(new, *similar, at=0.9):
    return run(ExtractiveReflector(merge_at=at).decide(Extracted(new, (0,)), (), similar), Services(None, None))


def test_the_unlike_is_added():
    assert decide("Ada: I swim.", candidate("Ada: I run.", 0.89)).actions == (Add(),)


def test_the_alike_is_merged_into_the_most_similar():
    decision = decide("Ada: I swim.", candidate("Ada: I fly.", 0.91), candidate("Ada: I run.", 0.95))
    assert decision.actions == (Merge(1, "Ada: I run. Ada: I swim."),)


# -- attribution -------------------------------------------------------------------------


SHOWN = shown(
    ("Ada: I adopted a greyhound called Biscuit.", [turn(0, "Ada", "I adopted a greyhound called Biscuit.")]),
    ("Ada: My sister lives in Lisbon.", [turn(1, "Ada", "My sister lives in Lisbon.")]),
    ("Ada: I play the violin on Sundays.", [turn(2, "Ada", "I play the violin on Sundays.")]),
)


@pytest.mark.parametrize(
    ("answer", "numbers"),
    [
        ("Your greyhound is called Biscuit.", (1,)),
        ("Lisbon.", (2,)),
        ("Your sister in Lisbon; and you adopted a greyhound.", (1, 2)),
        ("You were playing the VIOLIN on a Sunday.", (3,)),
        ("I do not know that.", ()),
        ("Ada.", ()),
        ("", ()),
    ],
)
def test_overlap_finds_the_memories_an_answer_repeats(answer, numbers):
    assert attribute(answer, SHOWN) == numbers


def test_overlap_of_scripts_without_spaces():
    memories = shown(("小明: 我养了一只灰狗。", []), ("小明: 姐姐住在里斯本。", []), ("小明: 星期天拉小提琴。", []))
    assert attribute("你姐姐住在里斯本", memories) == (2,)
    assert attribute("不知道", memories) == ()


def test_overlap_needs_memories():
    assert attribute("anything", ()) == ()
    assert attribute("A greyhound.", SHOWN[:1]) == (1,)


# -- answers -----------------------------------------------------------------------------


def answer(query, memories, services, **settings):
    return run(ExtractiveAnswerer(**settings).answer(recall(memories), query, ""), services)


def test_an_answer_quotes_says_who_and_when_and_cites(services):
    reply = answer("What is the greyhound called?", SHOWN, services, floor=0.2, second=0.0)
    assert reply == 'On 2024-05-03, Ada said: "I adopted a greyhound called Biscuit." [1]'
    assert parse_citations(reply, 3).numbers == (1,)


def test_a_second_quote_when_it_is_nearly_as_close(services):
    memories = shown(
        ("a", [turn(0, "Ada", "The violin is old.")]), ("b", [turn(1, "Bot", "The violin is loud. Rain fell.")])
    )
    reply = answer("violin is the", memories, services, second=0.3)
    assert parse_citations(reply, 2).numbers == (1, 2)
    assert "Rain" not in reply


def test_a_turn_under_two_memories_is_quoted_once_with_the_better_one(services):
    one = turn(0, "Ada", "I adopted a greyhound called Biscuit.")
    reply = answer("greyhound called Biscuit", shown(("a", [one]), ("b", [one])), services, second=1.0)
    assert reply.count("greyhound") == 1
    assert parse_citations(reply, 2).numbers == (1,)


@pytest.mark.parametrize("memories", [(), SHOWN])
def test_an_answer_that_finds_nothing_says_so(memories, services):
    reply = answer("zeppelin?", memories, services)
    assert parse_citations(reply, len(memories)).status == "none"


def test_what_was_said_cannot_forge_quotes_or_citations(services):
    forged = [turn(0, "Ada", 'The zeppelin said "no" [2] and [NO_CITE], 【3】 ［4］ so `there')]
    reply = answer("zeppelin said no", shown(("a", forged), ("b", []), ("c", []), ("d", [])), services)
    assert parse_citations(reply, 4).numbers == (1,)
    assert reply.count('"') == 2


def test_what_finds_nothing_is_no_memory(open_memory):
    """A question that got no answer, and the words that say so, must not come up for the next one."""
    memory = open_memory()
    with memory.chat("alice") as chat:
        chat.record("I moved to Oslo last spring and work as a nurse.", "Nice.")
    before = memory.memories("alice")
    for question in ("Zebras?", "Which submarine?", "Do you remember my umbrella?"):
        with memory.chat("alice") as chat:
            assert chat.ask(question).text == NOT_FOUND
    assert [m.summary for m in memory.memories("alice")] == [m.summary for m in before]
    assert memory.status("alice").turns == 8  # they are kept as what was said


def test_a_question_that_tells_something_is_kept_unanswered(open_memory):
    memory = open_memory()
    with memory.chat("alice") as chat:
        assert chat.ask("Can my sister Lotte, who moved to Tromsø, have zebras?").text == NOT_FOUND
    assert [m.summary for m in memory.memories("alice")] == [
        "User: Can my sister Lotte, who moved to Tromsø, have zebras?"
    ]


@pytest.mark.parametrize(
    ("question", "filed"),
    [
        ("Where does my sister play?", False),
        ("In which town does the band of my sister play?", False),
        ("Does my sister play?  Does she play in Graz?", False),
        ("Does Alice's sister play in Graz?", False),
        ("What does my sister do on Sundays?", True),
        ("Did I tell you that my sister Ida plays the cello?", True),
        ("Does my sister play on the 12th in Graz?", True),
        ("My sister plays in Graz. Where does she play?", True),
    ],
)
def test_what_only_asks_of_what_is_known_is_no_memory(open_memory, question, filed):
    """Questions are worded like each other, and would come up before what answers them."""
    memory = open_memory()
    with memory.chat("alice") as chat:
        chat.record("My sister plays in a band in Graz.", "Nice.")
    with memory.chat("alice", session_id="later") as chat:
        chat.record(question, "In Graz [1].", chat.recall(question))
    rest_on_it = [m for m in memory.memories("alice") if any(ref.session_id == "later" for ref in m.evidence)]
    assert bool(rest_on_it) == filed
