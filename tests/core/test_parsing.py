"""Replies of language models, as they come: whole, wrapped, broken, cut off, hostile."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmm_core.errors import ReplyError
from rmm_core.parsing import merge_repeats, parse_actions, parse_extraction
from rmm_core.types import Add, Decision, Extracted, Extraction, Merge

TURNS = range(10)
TEA = {"summary": "likes tea", "reference": [1, 2]}
CAT = {"summary": "has a cat", "reference": [3]}
READ_TEA, READ_CAT = Extracted("likes tea", (1, 2)), Extracted("has a cat", (3,))


def document(*entries: Any) -> str:
    return json.dumps({"extracted_memories": list(entries)}, ensure_ascii=False)


def read(reply: str) -> Extraction:
    return parse_extraction(reply, TURNS)


@pytest.mark.parametrize(
    "reply",
    [
        document(TEA, CAT),
        json.dumps({"extracted_memories": [TEA, CAT]}, indent=2),
        f"Sure {{here}} it [is]:\n{document(TEA, CAT)}\nI hope {{this}} helps!",
        f"```json\n{document(TEA, CAT)}\n```",
        f"<think>Perhaps {document({'summary': 'draft', 'reference': [5]})}, no.</think>\n{document(TEA, CAT)}",
        f"so I thought\n</think>\n{document(TEA, CAT)}",
        f"<think>It never ends {document(TEA, CAT)}",
        json.dumps([TEA, CAT]),
        json.dumps([{"extracted_memories": [TEA]}, CAT]),
        f"{json.dumps(TEA)}\n{json.dumps(CAT)}",
        json.dumps({"result": {"extracted_memories": [TEA, CAT]}}),
        document(TEA, CAT).replace("}", ",}").replace("]", ",]"),
        document(TEA, CAT)[:-2],
        document(TEA, CAT)[:-1] + ", ",
        document(TEA, CAT).replace('"', "'"),
        document(TEA, CAT).replace("}, {", "} {"),
        document(TEA, CAT).replace("extracted_memories", "Extracted_Memories").replace("summary", "Summary"),
        document(TEA, CAT).replace("reference", "REFERENCE"),
        '{extracted_memories: [{summary: "likes tea", reference: [1, 2]}, {summary: "has a cat", reference: [3]}]}',
        document({"id": 1, **TEA}, {"id": 2, **CAT}),
        document({**TEA, "summary": "  likes \n tea\t"}, CAT),
    ],
)
def test_entries_are_found_however_they_are_wrapped(reply: str) -> None:
    assert read(reply) == Extraction((READ_TEA, READ_CAT))


def test_a_single_object_is_one_memory() -> None:
    for reply in (json.dumps(TEA), json.dumps({"extracted_memories": TEA}), f"Here: {json.dumps(TEA)}."):
        assert read(reply) == Extraction((READ_TEA,))


@pytest.mark.parametrize(
    ("reference", "turns"),
    [
        (3, (3,)),
        ("3", (3,)),
        ("Turn 3", (3,)),
        ("[3]", (3,)),
        ("3, 4", (3, 4)),
        ("3-5", (3, 4, 5)),
        ("Turns 3 \u2013 5 and 7", (3, 4, 5, 7)),
        ("turn 3 to turn 5", (3, 4, 5)),
        (["3", "Turn 4", "6-7"], (3, 4, 6, 7)),
        ([3.0, 4], (3, 4)),
        (3.0, (3,)),
        ([4, 3, 4], (3, 4)),
        ([3, 99, -1], (3,)),
        ([3, 1.5, True, None, {}, [4]], (3,)),
        ([3, float("nan"), float("inf"), -float("inf"), 10**30, 1e300], (3,)),
        (["3", "3.5", "-4", "99999999999999", "1-99999999", "5-4"], (3,)),
    ],
)
def test_references_in_any_form(reference: Any, turns: tuple[int, ...]) -> None:
    assert read(document({"summary": "s", "reference": reference})) == Extraction((Extracted("s", turns),))


def test_a_number_of_ten_thousand_digits_costs_nothing_else() -> None:
    reply = document(TEA).replace("[1, 2]", f"[1, 2, {'9' * 10_000}]")
    assert read(reply) == Extraction((READ_TEA,))


BAD = [
    {},
    {"summary": "", "reference": [1]},
    {"summary": " \n", "reference": [1]},
    {"summary": 5, "reference": [1]},
    {"summary": None, "reference": [1]},
    {"summary": ["a"], "reference": [1]},
    {"reference": [1]},
    {"summary": "no turn"},
    {"summary": "no turn", "reference": []},
    {"summary": "no turn", "reference": [99]},
    {"summary": "no turn", "reference": True},
    {"summary": "no turn", "reference": "none"},
    {"summary": "no turn", "reference": None},
    "a string",
    7,
    None,
    [TEA],
]


@pytest.mark.parametrize("bad", BAD)
def test_a_malformed_entry_costs_itself_alone(bad: Any) -> None:
    assert read(document(TEA, bad, CAT)) == Extraction((READ_TEA, READ_CAT), 1)
    with pytest.raises(ReplyError, match="none of 1 memories"):
        read(document(bad))


def test_a_malformed_entry_in_broken_json_costs_itself_alone() -> None:
    broken = '{"summary": "he said "hi" and left, "reference" [}, '
    reply = document(TEA, CAT).replace('{"summary": "has', broken + '{"summary": "has')
    assert read(reply) == Extraction((READ_TEA, READ_CAT), 1)


def test_a_repairer_that_fails_costs_only_what_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise IndexError("string index out of range")

    monkeypatch.setattr("json_repair.loads", fail)
    assert read(document(TEA, CAT)[:-10]) == Extraction((READ_TEA,))


def test_repeats_of_several_replies_are_merged_alike() -> None:
    again = Extracted("Has a  cat!", (7,))
    assert merge_repeats([READ_TEA, READ_CAT, again]) == (READ_TEA, Extracted("has a cat", (3, 7)))
    assert merge_repeats([]) == ()


@pytest.mark.parametrize("end", range(len(document(TEA)), len(document(TEA, CAT)) - 5))
def test_a_truncated_reply_stores_no_half_sentence(end: int) -> None:
    found = read(document(TEA, CAT)[:end])
    assert found.memories[0] == READ_TEA
    assert found.memories[1:] in ((), (READ_CAT,))


def test_a_truncated_turn_number_is_not_trusted() -> None:
    reply = '{"extracted_memories": [{"summary": "likes tea", "reference": [11, 2'
    assert parse_extraction(reply, range(50)) == Extraction((Extracted("likes tea", (11,)),))


@pytest.mark.parametrize(
    "reply",
    [
        "NO_TRAIT",
        "`NO_TRAIT`.",
        "There is nothing here: NO_TRAIT",
        "<think>what a {day}</think>NO_TRAIT",
        "<think>I think it is NO_TRAIT",
        document(),
        "{'extracted_memories': []}",
        "```json\n" + document() + "\n```",
        '{"extracted_memories": "NO_TRAIT"}',
        '["NO_TRAIT"]',
        document("NO_TRAIT"),
        document({"summary": "NO_TRAIT", "reference": []}),
        document({"summary": "no_trait.", "reference": [1]}),
        "{} NO_TRAIT",
    ],
)
def test_nothing_worth_keeping(reply: str) -> None:
    assert read(reply) == Extraction(())


def test_entries_count_more_than_the_token_beside_them() -> None:
    assert read(document(TEA) + "\nNO_TRAIT") == Extraction((READ_TEA,))
    assert read(document(TEA, {"summary": "NO_TRAIT", "reference": []})) == Extraction((READ_TEA,))


@pytest.mark.parametrize(
    "reply",
    [
        "",
        " ",
        "{}",
        "[]",
        "null",
        "I am sorry, I cannot help with that.",
        '{"extracted_memories": null}',
        '{"extracted_memories": {}}',
        '{"extracted_memories": ',
        '{"extracted_memories": [',
        '{"extracted_memories": [{"summary": "half a sent',
        '{"other": [1]}',
        "<think>should I say NO_TRAIT? Let me see",
        "[1, 2, 3]",
        '["a", "b"]',
    ],
)
def test_a_reply_without_anything_usable_is_a_failure_not_nothing(reply: str) -> None:
    with pytest.raises(ReplyError) as caught:
        read(reply)
    assert caught.value.reply == reply


def test_repeats_become_one_memory_with_all_turns() -> None:
    again = {"summary": "Likes  TEA.", "reference": [5, 1]}
    assert read(document(TEA, CAT, again)) == Extraction((Extracted("likes tea", (1, 2, 5)), READ_CAT))


def test_summaries_fit_any_database() -> None:
    entry = '{"summary": "a\\u0000b \\ud800 \\ud83d\\ude00", "reference": [1]}'
    assert read(entry).memories[0].summary == "a b \ufffd \U0001f600"


SUMMARIES = st.text(min_size=1, max_size=40).map(lambda s: " ".join(s.replace("\0", " ").split())).filter(bool)
ENTRIES = st.lists(st.tuples(SUMMARIES, st.sets(st.sampled_from(TURNS), min_size=1)), min_size=1, max_size=4)
SCRAPS = st.sampled_from(["{", "}", "[", "]", '"', "'", "{x}", "[1]", "```json\n", "\n", "NO_TRAIT", ": "])
PROSE = st.lists(st.text(max_size=8) | SCRAPS, max_size=8).map("".join)


@settings(max_examples=150, deadline=None)
@given(ENTRIES, PROSE, PROSE, st.booleans())
def test_a_document_within_prose_is_found(
    entries: list[tuple[str, set[int]]], before: str, after: str, ascii_only: bool
) -> None:
    entries = [(f"{i} {summary} {i}", turns) for i, (summary, turns) in enumerate(entries) if "think>" not in summary]
    rendered = json.dumps(
        {"extracted_memories": [{"summary": s, "reference": sorted(t)} for s, t in entries]}, ensure_ascii=ascii_only
    )
    found = read(f"{before}\n{rendered}\n{after}")
    assert found == Extraction(tuple(Extracted(s, tuple(sorted(t))) for s, t in entries))


NOISES = [
    '{"',
    '"}',
    "{",
    "[",
    "]",
    "summary",
    '"summary": "a"',
    '"reference": [1]',
    "extracted_memories",
    ": [",
    ",",
    "\\",
]
NOISES += [
    "NO_TRAIT",
    "<think>",
    "</think>",
    "\n",
    "Merge(",
    "Add(",
    "0, ",
    ")",
    '"',
    "'",
    "`",
    "1e999",
    "NaN",
    "9" * 30,
]
NOISE = st.lists(st.text(max_size=5) | st.sampled_from(NOISES), max_size=20).map("".join)


@settings(max_examples=300, deadline=None)
@given(NOISE)
def test_noise_raises_nothing_but_reply_error(reply: str) -> None:
    with contextlib.suppress(ReplyError):
        assert all(memory.summary and memory.reference for memory in read(reply).memories)
    with contextlib.suppress(ReplyError):
        assert parse_actions(reply, 2).actions


ABSURD = ["[" * 100_000, "{" * 100_000, '{"a":' * 50_000, '[{"summary":' * 30_000, '{"summary": "' + 'x"y ' * 40_000]
ABSURD += ["{summary: " + "{" * 200_000, ("{summary: " + "{" * 60) * 3_000, "{" + " " * 500_000, "x{" * 500_000]
ABSURD += ['{"a" ' * 400_000, '[{"a":[1,1,1,1,1],' * 100_000, "`" * 1_000_000, 'Merge(0, "\n' * 100_000]
ABSURD += ["Merge(0, (" * 100_000, "Merge(0, 'a') x " * 50_000, "<think>" * 100_000, "- " * 500_000]


@pytest.mark.parametrize("reply", ABSURD, ids=range(len(ABSURD)))
def test_absurd_replies_end_soon(reply: str) -> None:
    begin = time.perf_counter()
    with pytest.raises(ReplyError):
        read(reply)
    with contextlib.suppress(ReplyError):
        parse_actions(reply, 3)
    assert time.perf_counter() - begin < 8


# -- actions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "actions"),
    [
        ("Add()", [Add()]),
        ("add( )", [Add()]),
        ('Add("likes tea")', [Add()]),
        ("Add()\nAdd()\n", [Add()]),
        ("Merge(0, likes tea)", [Merge(0, "likes tea")]),
        ("MERGE( 1 , likes tea )", [Merge(1, "likes tea")]),
        ("Merge(0, likes tea)\nMerge(1, has a cat)\nAdd()", [Merge(0, "likes tea"), Merge(1, "has a cat"), Add()]),
        ("Add()\r\nMerge(0, x)\r\n", [Add(), Merge(0, "x")]),
        ("Merge(0, x)\nMerge(0, x)", [Merge(0, "x")]),
        ("Merge(0, tea, milk (warm), and :) more)", [Merge(0, "tea, milk (warm), and :) more")]),
        ("Merge(0, sad :( today)", [Merge(0, "sad :( today")]),
        ("Merge(0, he said \"hi\", 'bye')", [Merge(0, "he said \"hi\", 'bye'")]),
        ("Merge(0, two\nlines (of\ntext)\nhere)\n\nBecause (so).", [Merge(0, "two lines (of text) here")]),
        ("Merge(0, \u559d\u8336\uff0c\u6bcf\u5929)", [Merge(0, "\u559d\u8336\uff0c\u6bcf\u5929")]),
        (
            "Merge(1, \u064a\u062d\u0628 \u0627\u0644\u0634\u0627\u064a)",
            [Merge(1, "\u064a\u062d\u0628 \u0627\u0644\u0634\u0627\u064a")],
        ),
        ('Merge(0, "likes tea")', [Merge(0, "likes tea")]),
        ("Merge(0, 'likes tea')", [Merge(0, "likes tea")]),
        ("Merge(0, 'She's a nurse')", [Merge(0, "She's a nurse")]),
        ("Merge(0, `likes tea`)", [Merge(0, "likes tea")]),
        ("Merge(0, \u201clikes tea\u201d)", [Merge(0, "likes tea")]),
        ('Merge(0, "say \\"hi\\" (now)")', [Merge(0, 'say "hi" (now)')]),
        ('Merge(0, "She said "hi" twice")', [Merge(0, 'She said "hi" twice')]),
        ('Merge(0, "C:\\q is \\"his\\"")', [Merge(0, 'C:\\q is "his"')]),
        ('Merge(0, "Dune" is her book)', [Merge(0, '"Dune" is her book')]),
        ('Merge(0, "Dune" and "Emma")', [Merge(0, '"Dune" and "Emma"')]),
        ('Merge(0, "Dune" (see "Emma"), too)', [Merge(0, '"Dune" (see "Emma"), too')]),
        ('Merge(0, "a 5" screen")', [Merge(0, 'a 5" screen')]),
        ('Merge(index=1, merged_summary="a, b) c")', [Merge(1, "a, b) c")]),
        ("Merge(index = 1, summary = x)", [Merge(1, "x")]),
        ("Merge([1], x)", [Merge(1, "x")]),
        ('Merge("1", "x")', [Merge(1, "x")]),
        ("- Merge(0, x)\n* Add()", [Merge(0, "x"), Add()]),
        ("1. Merge(0, x)\n2) Add()", [Merge(0, "x"), Add()]),
        ("```\nMerge(0, x)\n```", [Merge(0, "x")]),
        ("```Add()```", [Add()]),
        ("`Merge(0, x)`", [Merge(0, "x")]),
        ("**Add()**", [Add()]),
        ("<think>\nMerge(1, no)\n</think>\nMerge(0, yes)", [Merge(0, "yes")]),
        ("They agree.\n</think>\nMerge(0, yes)", [Merge(0, "yes")]),
        ("<think>hm\nMerge(0, yes)", [Merge(0, "yes")]),
        ("The two concern tea.\n\nMerge(0, x)\n\nI did not Add() it.", [Merge(0, "x")]),
        ("Merge(0, x) # same thing", [Merge(0, "x")]),
        ("Merge(0, x (y)) because both do", [Merge(0, "x (y)")]),
        ('Merge(0, "A") as before.\nMerge(1, "B")', [Merge(0, "A"), Merge(1, "B")]),
        (
            "Merge(0, was told to Add() and Merge(1, evil) things)",
            [Merge(0, "was told to Add() and Merge(1, evil) things")],
        ),
        ('Merge(0, "a\nMerge(1, evil)\nAdd()\nb")', [Merge(0, "a Merge(1, evil) Add() b")]),
        ('Add("a\nMerge(1, evil)\nb")', [Add()]),
    ],
)
def test_actions_in_any_dress(reply: str, actions: list[Add | Merge]) -> None:
    assert parse_actions(reply, 2) == Decision(tuple(actions))


FAILED = ["Merge(99, x)", "Merge(2, x)", "Merge(-1, x)", "Merge(99999999999999999999, x)", "Merge(0)", "Merge()"]
FAILED += ["Merge(0, )", 'Merge(0, "")', 'Merge(0, " \n ")', "Merge(index, merged_summary)", "Merge(0, merged_summary)"]
FAILED += ["Merge(0, cut off in the mid", 'Merge(0, "cut off (in', "Merge(0, cut (off)\nin the mid"]
FAILED += ['Merge(q, "a\nMerge(0, evil)\nb")']


@pytest.mark.parametrize("merge", FAILED)
def test_a_merge_that_cannot_be_followed_becomes_an_add(merge: str) -> None:
    assert parse_actions(merge, 2) == Decision((Add(),), 1)
    assert parse_actions(f"Merge(1, fine)\n{merge}", 2) == Decision((Merge(1, "fine"),), 1)
    assert parse_actions(f"{merge}\nAdd()", 2) == Decision((Add(),), 1)


def test_several_failures_are_one_add() -> None:
    assert parse_actions("Merge(8, x)\nMerge(9, y)", 2) == Decision((Add(),), 2)
    assert parse_actions("Merge(0, x)", 0) == Decision((Add(),), 1)


def test_of_two_merges_into_one_entry_the_first_counts() -> None:
    assert parse_actions("Merge(0, a)\nMerge(0, b)", 2) == Decision((Merge(0, "a"),), 1)


@pytest.mark.parametrize(
    "reply", ["", "Nothing to do.", "I would Add() it.", "Please Merge(0, x)", "Adder()", "Add", "{}"]
)
def test_no_action_is_a_failure(reply: str) -> None:
    with pytest.raises(ReplyError, match="no Add") as caught:
        parse_actions(reply, 2)
    assert caught.value.reply == reply


SAID = SUMMARIES.filter(lambda s: "summary" not in s.lower())  # the prompt's own placeholder is no text
PLAIN = SAID.filter(lambda s: s[0] not in "\"'`\u201c\u2018")


@settings(max_examples=150, deadline=None)
@given(st.lists(PLAIN, min_size=1, max_size=4), st.booleans())
def test_rendered_actions_come_back(summaries: list[str], add: bool) -> None:
    reply = "\n".join([*(f"Merge({i}, {s})" for i, s in enumerate(summaries)), *["Add()"] * add])
    expected = tuple(Merge(i, s) for i, s in enumerate(summaries)) + (Add(),) * add
    assert parse_actions(reply, len(summaries)) == Decision(expected)


@settings(max_examples=150, deadline=None)
@given(st.lists(SAID, min_size=1, max_size=4), st.booleans())
def test_rendered_actions_in_quotes_come_back(summaries: list[str], ascii_only: bool) -> None:
    reply = "\n".join(f"Merge({i}, {json.dumps(s, ensure_ascii=ascii_only)})" for i, s in enumerate(summaries))
    assert parse_actions(reply, len(summaries)).actions == tuple(Merge(i, s) for i, s in enumerate(summaries))
