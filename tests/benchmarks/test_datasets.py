"""Benchmark files as they are, with what is odd about them."""

import json
import lzma
from collections import Counter
from datetime import UTC, datetime

import pytest

from benchmarks.datasets import longmemeval, of_the_user
from rmm_core import TurnRef


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


def written(path, content):
    text = json.dumps(content)
    if path.suffix == ".xz":
        path.write_bytes(lzma.compress(text.encode()))
    else:
        path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["l.json", "l.json.xz"])
def test_sessions_are_in_order_and_do_not_tell_where_the_answer_is(tmp_path, name):
    (talk,) = longmemeval.load(written(tmp_path / name, [entry()]))
    assert [s.id for s in talk.sittings] == ["session 1", "session 2", "session 3"]
    assert [s.messages[0].text for s in talk.sittings] == ["Hello.", "Seven bees.", "You keep seven."]
    assert "answer" not in str([s.id for s in talk.sittings])
    (question,) = talk.questions
    assert question.evidence == {TurnRef("session 2", 0), TurnRef("session 3", 0)}
    assert of_the_user(talk, question.evidence) == {TurnRef("session 2", 0)}
    assert (question.answer, question.abstains) == ("7", False)
    assert question.asked_at == datetime(2023, 5, 30, 23, 40, tzinfo=UTC)


def test_questions_that_are_to_be_left_open(tmp_path):
    ((question,),) = [t.questions for t in longmemeval.load(written(tmp_path / "l.json", [entry(question_id="q_abs")]))]
    assert question.abstains


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{}x", "is not a LongMemEval file: JSONDecodeError"),
        ('[{"a": 1}]', "is not a LongMemEval file: KeyError"),
        (None, "cannot read .*: No such file"),
    ],
)
def test_what_is_no_such_file_says_where_one_is(tmp_path, content, complaint):
    path = tmp_path / "l.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ValueError, match=rf"(?s){complaint}.*LongMemEval is had at"):
        longmemeval.load(path)


@pytest.mark.benchmark_data
def test_the_released_questions(data_file):
    talks = longmemeval.load(data_file("longmemeval_oracle_dev.json.xz"))
    questions = [q for t in talks for q in t.questions]
    assert len(questions) == 240
    assert Counter(q.kind for q in questions)["multi-session"] == 64
    assert sum(q.abstains for q in questions) == 15
    assert sum(not q.evidence for q in questions) == 9
    assert sum(not of_the_user(t, t.questions[0].evidence) for t in talks) == 34
    for talk in talks:
        assert list(talk.sittings) == sorted(talk.sittings, key=lambda s: s.at)
