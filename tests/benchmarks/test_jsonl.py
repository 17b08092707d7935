"""A user's own data: what is read, and what a mistake in it is called."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from benchmarks.datasets import jsonl
from rmm_core import Message, TurnRef

FIRST = {"at": "2024-01-14T18:00", "messages": [["user", "I keep bees."], ["agent", "How many?"]]}
SECOND = {"at": "2024-01-15T01:00:00+02:00", "messages": [["user", "Seven."]]}
LINE = {"conversation": "m", "sessions": [FIRST, SECOND], "question": "Which pets?"}


def written(path, *rows):
    path.write_text(
        "".join((row if isinstance(row, str) else json.dumps(row, ensure_ascii=False)) + "\n" for row in rows)
    )
    return path


def test_the_example_of_the_documentation_is_read(tmp_path):
    lines = [line.strip() for line in jsonl.__doc__.splitlines() if line.strip().startswith("{")]
    (talk,) = jsonl.load(written(tmp_path / "own.jsonl", *lines))
    assert {field for line in lines for field in json.loads(line)} == set(jsonl.FIELDS)
    assert [q.kind for q in talk.questions] == ["question", "single-hop"]
    assert [talk.message(ref).text for ref in talk.questions[1].evidence] == ["I keep bees"]


def test_sessions_are_given_once_and_conversations_may_alternate(tmp_path):
    path = written(
        tmp_path / "own.jsonl",
        LINE,
        "",
        LINE | {"conversation": "n", "sessions": [SECOND], "question": "A\u2028b?"},
        {"conversation": "m", "question": "How many?", "answer": "7", "evidence": [[1, 0], [0, 1]], "kind": "number"},
    )
    m, n = jsonl.load(path)
    assert (m.name, n.name) == ("m", "n")
    assert [s.id for s in m.sittings] == ["session 0", "session 1"]
    assert m.sittings[0].at == datetime(2024, 1, 14, 18, tzinfo=UTC)
    assert m.sittings[1].at - m.sittings[0].at == timedelta(hours=5)
    assert m.sittings[0].messages == (Message("user", "I keep bees."), Message("agent", "How many?"))
    bare, full = m.questions
    assert (bare.id, bare.text, bare.answer, bare.kind, bare.evidence) == ("m 1", "Which pets?", "", "question", set())
    assert (full.id, full.answer, full.kind) == ("m 4", "7", "number")
    assert full.evidence == {TurnRef("session 1", 0), TurnRef("session 0", 1)}
    assert (n.questions[0].id, n.questions[0].text) == ("n 3", "A\u2028b?")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"evidnce": []}, "unknown field 'evidnce'; did you mean 'evidence'?"),
        (
            {"zzz": 1},
            "unknown field 'zzz'; a line has 'conversation', 'sessions', 'question', 'answer', 'evidence' and",
        ),
        ({"conversation": None}, "'conversation' is missing"),
        ({"conversation": 7}, "'conversation' is text; got 7"),
        ({"question": " "}, "'question' is text; got ' '"),
        ({"answer": 7}, "'answer' is text; got 7"),
        ({"kind": ["a"]}, "'kind' is text; got ['a']"),
        ({"sessions": []}, "'sessions' is a list with at least one entry; got []"),
        ({"sessions": {"at": 1}}, "'sessions' is a list with at least one entry; got {'at': 1}"),
        ({"sessions": ["x"]}, "session 0 is an object with 'at' and 'messages'; got 'x'"),
        ({"sessions": [FIRST | {"message": 1}]}, "unknown field 'message'; did you mean 'messages'?"),
        ({"sessions": [FIRST, SECOND | {"messages": []}]}, "'messages' of session 1 is a list with at least one entry"),
        (
            {"sessions": [FIRST | {"at": "14.1.2024"}]},
            "'at' of session 0 is an ISO date such as 2024-01-14T18:00; got '14",
        ),
        ({"sessions": [FIRST | {"at": 2024}]}, "'at' of session 0 is an ISO date such as 2024-01-14T18:00; got 2024"),
        (
            {"sessions": [{"messages": [["user", "x"]]}]},
            "'at' of session 0 is an ISO date such as 2024-01-14T18:00; got N",
        ),
        (
            {"sessions": [FIRST, FIRST | {"at": "2024-01-14T17:59"}]},
            "session 1 (2024-01-14T17:59:00+00:00) is earlier than",
        ),
        (
            {"sessions": [FIRST | {"messages": [["user", "x"], ["assistant", "y"]]}]},
            "the role of message 1 of session 0 is 'user' or 'agent'; got 'assistant'",
        ),
        ({"sessions": [FIRST | {"messages": [[["user"], "x"]]}]}, "is 'user' or 'agent'; got ['user']"),
        (
            {"sessions": [FIRST | {"messages": ["hi"]}]},
            "message 0 of session 0 is a list of its role and its text; got 'hi'",
        ),
        (
            {"sessions": [FIRST | {"messages": [["user", 1]]}]},
            "message 0 of session 0 is a list of its role and its text",
        ),
        ({"evidence": {}}, "'evidence' is a list with at least one entry; got {}"),
        ({"evidence": [3]}, "each of 'evidence' is [session, message], two numbers from 0; got 3"),
        ({"evidence": [[0, True]]}, "each of 'evidence' is [session, message], two numbers from 0; got [0, True]"),
        ({"evidence": [[0, 0], [2, 0]]}, "'evidence' [2, 0] is not there: the sessions are 0 to 1"),
        ({"evidence": [[0, 2]]}, "'evidence' [0, 2] is not there: the messages of session 0 are 0 to 1"),
        ({"evidence": [[-1, 0]]}, "'evidence' [-1, 0] is not there"),
        ({"evidence": [[0, -1]]}, "'evidence' [0, -1] is not there"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path, changes, complaint):
    path = written(tmp_path / "own.jsonl", LINE | {"conversation": "first"}, LINE | changes)
    with pytest.raises(ValueError, match=r"own\.jsonl, line 2: ") as raised:
        jsonl.load(path)
    assert complaint in str(raised.value)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"conversation": ', "this is not JSON: Expecting value at character 18"),
        ("[1]", "a line is an object with 'conversation', "),
        ({"conversation": "M", "question": "?"}, "this is the first line of conversation 'M', and has no 'sessions'"),
        (LINE, "the sessions of 'm' stand in an earlier line; leave 'sessions' out here"),
    ],
)
def test_a_line_that_cannot_follow(tmp_path, line, complaint):
    with pytest.raises(ValueError, match=r"own\.jsonl, line 2: ") as raised:
        jsonl.load(written(tmp_path / "own.jsonl", LINE, line))
    assert complaint in str(raised.value)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(None, "cannot read .*: No such file"), (b"\n", "is empty"), (b"\xff\xff", "is not a file of text")],
)
def test_what_is_no_such_file_says_how_one_is_written(tmp_path, content, complaint):
    path = tmp_path / "own.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{complaint}.*the top of benchmarks/datasets/jsonl\.py"):
        jsonl.load(path)


def test_half_a_character_is_told_with_its_line(tmp_path):
    path = written(tmp_path / "own.jsonl", LINE, r'{"conversation": "m", "question": "a\ud800b"}')
    with pytest.raises(ValueError, match=r"line 2: a text holds '\\ud800', half of a character"):
        jsonl.load(path)
