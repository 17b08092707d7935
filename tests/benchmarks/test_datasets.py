"""Benchmark files as they are, with what is odd about them."""

import json
import lzma
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from benchmarks.datasets import Conversation, Question, Sitting, locomo, longmemeval, msc, users_side
from benchmarks.datasets.locomo import answerable
from benchmarks.datasets.sources import SOURCES, fingerprint
from rmm_core import Message, TurnRef
from rmm_core.types import Extracted


def written(path, content):
    text = content if isinstance(content, str) else json.dumps(content)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(text.encode()) if path.suffix == ".xz" else text.encode())
    return path


# -- what they have in common


def test_the_users_side_is_counted_anew():
    said = [
        Message("agent", "Hello!"),
        Message("user", "Hi."),
        Message("agent", "And?"),
        Message("user", "I keep bees."),
    ]
    refs = [TurnRef("s", 2), TurnRef("s", 3)]
    asked = Question("q", "What?", "bees", "k", frozenset(refs))
    whole = Conversation("c", (Sitting("s", datetime.now(UTC), tuple(said), (Extracted("Bees.", (3,)),)),), (asked,))
    half = users_side(whole)
    (sitting,), (question,) = half.sittings, half.questions
    assert [m.text for m in sitting.messages] == ["Hi.", "I keep bees."]
    assert sitting.facts == ()
    assert question.evidence == {TurnRef("s", 1)}
    assert half.message(TurnRef("s", 1)) == whole.message(TurnRef("s", 3))


@pytest.mark.parametrize("reader", [longmemeval, locomo])
@pytest.mark.parametrize("content", ["{}x", '[{"a": 1}]', "[1]", "1", "\xff\xfe", None])
def test_what_is_no_such_file_says_where_one_is(tmp_path, reader, content):
    path = tmp_path / "l.json"
    if content is not None:
        path.write_bytes(content.encode("latin-1"))
    with pytest.raises(
        ValueError, match=r"(?s)(is not a \w+ file: \w+|cannot read .*: No such file).* is had at https:"
    ):
        reader.load(path)


def test_half_a_download_says_so(tmp_path):
    path = written(tmp_path / "l.json.xz", [])
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"l\.json\.xz is not a LoCoMo file: ValueError: Compressed data ended before"):
        locomo.load(path)


# -- LongMemEval


def entry(**changes):
    return {
        "question_id": "q1",
        "question_type": "single-session-user",
        "question": "What do I keep?",
        "question_date": "2023/05/30 (Tue) 23:40",
        "answer": 7,
        "answer_session_ids": ["answer_1"],
        "haystack_dates": ["2023/05/22 (Mon) 10:00", "2023/05/20 (Sat) 02:21", "2023/05/22 (Mon) 10:00"],
        "haystack_session_ids": ["answer_1", "x", "x"],
        "haystack_sessions": [
            [{"role": "user", "content": "Seven bees.", "has_answer": True}, {"role": "assistant", "content": "Oh!"}],
            [{"role": "user", "content": "Hello."}],
            [{"role": "assistant", "content": "You keep seven.", "has_answer": True}],
        ],
    } | changes


@pytest.mark.parametrize("name", ["l.json", "l.json.xz"])
def test_sessions_are_in_order_and_do_not_tell_where_the_answer_is(tmp_path, name):
    (talk,) = longmemeval.load(written(tmp_path / name, [entry()]))
    assert [s.id for s in talk.sittings] == ["session 1", "session 2", "session 3"]
    assert [s.messages[0].text for s in talk.sittings] == ["Hello.", "Seven bees.", "You keep seven."]
    (question,) = talk.questions
    assert question.evidence == {TurnRef("session 2", 0), TurnRef("session 3", 0)}
    assert (question.answer, question.abstains) == ("7", False)
    assert question.asked_at == datetime(2023, 5, 30, 23, 40, tzinfo=UTC)


def test_questions_that_are_to_be_left_open(tmp_path):
    ((question,),) = [t.questions for t in longmemeval.load(written(tmp_path / "l.json", [entry(question_id="q_abs")]))]
    assert question.abstains


@pytest.mark.benchmark_data
def test_the_released_questions(data_file):
    talks = longmemeval.load(data_file("longmemeval_oracle_dev.json.xz"))
    questions = [q for t in talks for q in t.questions]
    assert len(questions) == 240
    assert Counter(q.kind for q in questions)["multi-session"] == 64
    assert sum(q.abstains for q in questions) == 15
    assert sum(not q.evidence for q in questions) == 9
    assert sum(not users_side(t).questions[0].evidence for t in talks) == 34
    for talk in talks:
        assert list(talk.sittings) == sorted(talk.sittings, key=lambda s: s.at)


# -- LoCoMo


def locomo_entry(*questions):
    said = {"speaker": "Ann", "text": "Look, my bees!", "dia_id": "D2:1", "blip_caption": "a hive", "img_url": ["u"]}
    return {
        "sample_id": "conv-1",
        "conversation": {
            "speaker_a": "Ann",
            "speaker_b": "Bo",
            "session_10_date_time": "9:05 am on 3 June, 2023",
            "session_10": [{"speaker": "Bo", "text": "How are they?", "dia_id": "D10:1"}],
            "session_2_date_time": "1:56 pm on 8 May, 2023",
            "session_2": [said, {"speaker": "Bo", "text": "Lovely.", "dia_id": "D2:2"}],
            "session_11_date_time": "9:05 am on 4 June, 2023",
            "session_12_date_time": "9:05 am on 5 June, 2023",
            "session_12": [],
        },
        "observation": {
            "session_2_observation": {
                "Ann": [["Ann keeps bees.", "D2:1"], ["Ann said it elsewhere.", "D10:1"]],
                "Bo": [["Bo likes bees.", ["D2:2", "D10:1", "D2:1"]]],
            }
        },
        "session_summary": {"session_2_summary": "About bees."},
        "qa": [{"question": "?", "category": 4} | q for q in questions],
    }


def test_locomo_sessions_that_took_place(tmp_path):
    (talk,) = locomo.load(written(tmp_path / "l.json", [locomo_entry()]))
    assert (talk.name, talk.speakers) == ("conv-1", ("Ann", "Bo"))
    first, second = talk.sittings
    assert (first.id, first.at) == ("session_2", datetime(2023, 5, 8, 13, 56, tzinfo=UTC))
    assert [(m.role, m.speaker) for m in first.messages] == [("user", "Ann"), ("agent", "Bo")]
    assert talk.line(first.messages[0]) == "Ann: Look, my bees! [image: a hive]"
    assert first.facts == (Extracted("Ann keeps bees.", (0,)), Extracted("Bo likes bees.", (0, 1)))
    assert first.summary == "About bees."
    assert (second.id, second.facts, second.summary) == ("session_10", (), "")


@pytest.mark.parametrize(
    ("evidence", "found"),
    [
        (["D2:1"], {("session_2", 0)}),
        (["D2:1; D10:1"], {("session_2", 0), ("session_10", 0)}),
        (["D2:1 D2:2"], {("session_2", 0), ("session_2", 1)}),
        (["D02:01"], {("session_2", 0)}),
        (["D", "D:11:26", "D2:9", "D3:1"], set()),
        ([], set()),
    ],
)
def test_locomo_evidence_as_the_file_has_it(tmp_path, evidence, found):
    (talk,) = locomo.load(written(tmp_path / "l.json", [locomo_entry({"evidence": evidence})]))
    assert talk.questions[0].evidence == {TurnRef(*place) for place in found}
    assert len(answerable(talk).questions) == bool(found)


def test_locomo_questions_for_what_was_never_said(tmp_path):
    trick = {"category": 5, "adversarial_answer": "bees", "evidence": ["D2:1"]}
    plain = {"category": 2, "answer": 7, "evidence": ["D2:1"]}
    (talk,) = locomo.load(written(tmp_path / "l.json", [locomo_entry(trick, plain)]))
    assert [(q.id, q.answer, q.kind, q.abstains) for q in talk.questions] == [
        ("conv-1 0", "", "adversarial", True),
        ("conv-1 1", "7", "temporal", False),
    ]
    assert [q.id for q in answerable(talk).questions] == ["conv-1 1"]


@pytest.mark.benchmark_data
def test_the_ten_conversations(data_file):
    talks = SOURCES["locomo"].load(data_file(SOURCES["locomo"].file))
    questions = [q for t in talks for q in t.questions]
    sittings = [s for t in talks for s in t.sittings]
    assert (len(talks), len(sittings), sum(len(s.messages) for s in sittings)) == (10, 272, 5882)
    assert (len(questions), sum(bool(q.evidence) for q in questions)) == (1986, 1982)
    assert sum(len(answerable(t).questions) for t in talks) == 1536
    assert len({q.id for q in questions}) == 1986
    assert Counter(q.kind for q in questions) == {
        "single-hop": 841,
        "adversarial": 446,
        "temporal": 321,
        "multi-hop": 282,
        "open-domain": 96,
    }
    for talk in talks:
        assert list(talk.sittings) == sorted(talk.sittings, key=lambda s: s.at)


# -- Multi-Session Chat


def turns(*said):
    found = []
    for number, text in enumerate(said):
        text, _, fact = text.partition(" | ")
        found.append({"id": f"bot_{number % 2}", "text": text} | ({"persona_text": fact} if fact else {}))
    return found


TALK = {
    1: turns("Hi, I keep bees.  | I keep bees.", "Oh!"),
    2: turns("How are you?", "I moved\u2028to Ghent. | I live in Ghent."),
    3: turns("Nice?", "Very."),
    4: turns("Still there?", "Yes.", "How come?", "For the bees.", "Bye."),
}


def msc_folder(folder, *, ending=".txt", sessions=(1, 2, 3, 4), unit="days", name="valid_0"):
    """One whole conversation, and another that has some of the sessions."""
    for n, said in TALK.items():
        rows = [{"initial_data_id": "valid_9", "dialog": turns("A", "B")}] * (n in sessions)
        rows.append({"initial_data_id": name, "dialog": said})
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        written(folder / f"msc_personasummary/session_{n}/valid{ending}", lines)
    gaps = [{"time_num": 2, "time_unit": unit}, {"time_num": 1, "time_unit": "hour"}]
    rows = [{"metadata": {"initial_data_id": n}, "previous_dialogs": gaps} for n in (name, "valid_9")]
    written(folder / f"msc_dialogue/session_3/valid{ending}", "\n".join(map(json.dumps, rows)))
    return folder


@pytest.mark.parametrize("ending", [".txt", ".txt.xz"])
def test_msc_remembers_three_sessions_and_asks_in_the_fourth(tmp_path, ending):
    other, talk = msc.load(msc_folder(tmp_path, ending=ending))
    assert (other.name, talk.name, talk.speakers) == ("valid_9", "valid_0", ("Speaker 1", "Speaker 2"))
    assert [s.id for s in talk.sittings] == ["session 1", "session 2", "session 3"]
    assert [msc.LAST - s.at for s in talk.sittings] == [timedelta(days=2, hours=1), timedelta(hours=1), timedelta(0)]
    assert talk.sittings[0].messages[0] == Message("user", "Hi, I keep bees.", "Speaker 1")
    assert talk.sittings[0].facts == (Extracted("Speaker 1: I keep bees.", (0,)),)
    assert talk.sittings[1].facts == (Extracted("Speaker 2: I live in Ghent.", (1,)),)
    assert [(q.id, q.text, q.answer) for q in talk.questions] == [
        ("valid_0 0", "Still there?", "Yes."),
        ("valid_0 2", "How come?", "For the bees."),
    ]
    assert [m.text for m in talk.questions[1].history] == ["Still there?", "Yes."]


@pytest.mark.parametrize("missing", [1, 2, 3, 4])
def test_msc_leaves_out_what_lacks_a_session(tmp_path, missing):
    (talk,) = msc.load(msc_folder(tmp_path, sessions={1, 2, 3, 4} - {missing}))
    assert talk.name == "valid_0"


def test_what_is_no_msc_says_where_it_is(tmp_path):
    with pytest.raises(ValueError, match=r"cannot read .*session_1.valid\.txt: No such file.*MSC is had at https:"):
        msc.load(tmp_path)
    with pytest.raises(ValueError, match=r"is not a folder of MSC: KeyError: 'moons'\. MSC is had at https:"):
        msc.load(msc_folder(tmp_path, unit="moons"))


@pytest.mark.benchmark_data
def test_the_validation_split(data_file):
    talks = SOURCES["msc"].load(data_file(SOURCES["msc"].file))
    sittings = [s for t in talks for s in t.sittings]
    questions = [q for t in talks for q in t.questions]
    assert (len(talks), len(sittings), sum(len(s.messages) for s in sittings)) == (500, 1500, 19555)
    assert sum(len(s.facts) for s in sittings) == 12637
    assert len({q.id for q in questions}) == len(questions) == 2943
    assert all(q.text and q.answer for q in questions)
    for talk in talks:
        assert list(talk.sittings) == sorted(talk.sittings, key=lambda s: s.at)


# -- by name


def test_each_source_says_where_it_is_had(tmp_path):
    assert set(SOURCES) == {"locomo", "longmemeval", "msc", "jsonl"}
    for source in SOURCES.values():
        with pytest.raises(ValueError, match="cannot read") as raised:
            source.load(tmp_path / "nowhere")
        assert str(raised.value).endswith(source.where)


def test_longmemeval_is_asked_of_the_users_side(tmp_path):
    (talk,) = SOURCES["longmemeval"].load(written(tmp_path / "l.json", [entry()]))
    assert [[m.text for m in s.messages] for s in talk.sittings] == [["Hello."], ["Seven bees."], []]
    assert talk.questions[0].evidence == {TurnRef("session 2", 0)}


@pytest.mark.benchmark_data
def test_the_users_side_of_the_released_haystacks(data_file):
    source = SOURCES["longmemeval"]
    talks = source.load(data_file(source.file))
    assert len(talks) == 240
    assert {m.role for t in talks for s in t.sittings for m in s.messages} == {"user"}
    assert sum(not t.questions[0].evidence for t in talks) == 34
    assert sum(not s.messages for t in talks for s in t.sittings) == 30


def test_a_fingerprint_is_of_the_content(tmp_path):
    a, b = written(tmp_path / "x" / "a", "1"), written(tmp_path / "x" / "b", "2")
    assert fingerprint(a) != fingerprint(b)
    assert fingerprint(a) == fingerprint(written(tmp_path / "c", "1"))
    folder = fingerprint(tmp_path / "x")
    moved = (tmp_path / "x").rename(tmp_path / "y")
    assert fingerprint(moved) == folder
    written(moved / "a", "2")
    written(moved / "b", "1")
    assert fingerprint(moved) != folder
