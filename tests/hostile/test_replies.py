"""Replies of a language model that is broken, cut off, or means harm: what can be used is used, and nothing is lost."""

import json
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmm_core import Message, RMMConfig
from rmm_core.errors import ReplyError
from rmm_core.parsing import parse_actions, parse_extraction
from rmm_core.testing import ScriptedLLM
from rmm_core.types import Add, Extracted, Merge
from tests.hostile import scaled

TURNS = range(40)
SUMMARIES = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=12).filter(
    lambda said: "trait" not in said.casefold()  # a short summary of these words says that there is none
)
TRUTH = st.lists(
    st.tuples(SUMMARIES, st.sets(st.sampled_from(TURNS), min_size=1, max_size=4)),
    min_size=1,
    max_size=5,
    unique_by=lambda entry: entry[0].casefold(),
).map(lambda entries: {f"{i} {said} end": frozenset(turns) for i, (said, turns) in enumerate(entries)})
JUNK_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["summary", "reference", "x"]), inner),
    max_leaves=6,
)
JUNK_ENTRY = JUNK_VALUE.map(lambda value: json.dumps(value)) | st.sampled_from(
    [
        "",
        "{",
        "}{",
        "[[[[",
        "]]]]",
        '{"summary": ',
        '{"summary": "cut',
        "null",
        "...",
        "// none",
        '{"summary" "x"}',
        "\\",
        "<x>",
    ]
)


def reply_of(truth, ascii_only=False):
    entries = [{"summary": said, "reference": sorted(turns)} for said, turns in truth.items()]
    return json.dumps({"extracted_memories": entries}, ensure_ascii=ascii_only)


def found(reply):
    return {m.summary: frozenset(m.reference) for m in parse_extraction(reply, TURNS).memories}


@scaled(12)
@given(truth=TRUTH, ascii_only=st.booleans())
def test_a_reply_cut_at_any_byte_tells_nothing_that_is_not_so(truth, ascii_only):
    reply = reply_of(truth, ascii_only).encode()
    assert found(reply.decode()) == truth
    for end in range(len(reply)):
        with suppress(ReplyError):
            for said, turns in found(reply[:end].decode(errors="replace")).items():
                assert said in truth, f"of {reply[:end]!r}"
                assert turns <= truth[said]


@scaled(60)
@given(truth=TRUTH, junk=JUNK_ENTRY, data=st.data())
def test_a_bad_entry_costs_no_other(truth, junk, data):
    entries = [json.dumps({"summary": said, "reference": sorted(turns)}) for said, turns in truth.items()]
    entries.insert(data.draw(st.integers(0, len(entries))), junk)
    told = found(f'{{"extracted_memories": [{", ".join(entries)}]}}')
    assert told.items() >= truth.items()


@scaled(100)
@given(truth=TRUTH, data=st.data())
def test_a_mutated_reply_is_read_or_refused(truth, data):
    reply = reply_of(truth)
    for _ in range(data.draw(st.integers(1, 6))):
        start = data.draw(st.integers(0, len(reply)))
        stop = min(len(reply), start + data.draw(st.integers(0, 8)))
        reply = (
            reply[:start] + data.draw(st.text(max_size=6) | JUNK_ENTRY | st.just(reply[start:stop] * 2)) + reply[stop:]
        )
    with suppress(ReplyError):
        for memory in parse_extraction(reply, TURNS).memories:
            assert isinstance(memory, Extracted)
            assert memory.summary.strip()
            assert memory.reference
            assert set(memory.reference) <= set(TURNS)
            memory.summary.encode()


@scaled(100)
@given(value=JUNK_VALUE, key=st.sampled_from(["extracted_memories", "memories", "summary", "x"]))
def test_json_of_any_other_form_is_read_or_refused(value, key):
    for reply in (json.dumps({key: value}), json.dumps([value, {key: value}]), json.dumps(value)):
        with suppress(ReplyError):
            assert all(m.summary and m.reference for m in parse_extraction(reply, TURNS).memories)


SCRAPS = (
    "Add()",
    "Merge(",
    "merge (",
    "0",
    "1",
    "99",
    "-1",
    "9" * 400,
    ", ",
    ")",
    "(",
    '"',
    "'",
    "\n",
    "- ",
    "1. ",
    "```",
)
CLAUSES = (
    "tea",
    "\\",
    "index=",
    "merged_summary=",
    "<think>",
    "</think>",
    "Merge(0, likes tea)",
    'Merge(1, "a\nAdd()")',
)
ACTIONS = st.sampled_from((*SCRAPS, *CLAUSES, "\x00", "\ud800"))


@scaled(200)
@given(reply=st.lists(ACTIONS | st.text(max_size=4), max_size=25).map("".join), count=st.integers(0, 3))
def test_any_reply_to_an_update_is_followed_added_or_refused(reply, count):
    with suppress(ReplyError):
        decision = parse_actions(reply, count)
        assert decision.actions
        merged = [action.index for action in decision.actions if isinstance(action, Merge)]
        assert merged == [*dict.fromkeys(merged)]
        assert all(0 <= index < count for index in merged)
        assert sum(isinstance(action, Add) for action in decision.actions) <= 1
        for action in decision.actions:
            if isinstance(action, Merge):
                assert action.summary.strip()
                assert "\n" not in action.summary
                action.summary.encode()


BIG = 10_000_000
HUGE = {
    "entries": ('{"summary": "Ann likes tea", "reference": [0]}, ' * (BIG // 47))[:BIG],
    "brackets": "[" * BIG,
    "a string without end": '{"summary": "' + "so " * (BIG // 3),
    "merges": "Merge(0, tea)\n" * (BIG // 14),
    "a thought without end": "<think>" + "hm, " * (BIG // 4),
}


@pytest.mark.parametrize("reply", HUGE.values(), ids=HUGE)
def test_a_reply_of_ten_megabytes_is_read_in_seconds(reply):
    began = time.perf_counter()
    with suppress(ReplyError):
        parse_extraction(reply, TURNS)
    with suppress(ReplyError):
        parse_actions(reply, 3)
    assert time.perf_counter() - began < 10


@pytest.mark.parametrize("bracket", ["[", "{", '{"extracted_memories":[', '[{"summary":'])
def test_a_reply_nested_a_hundred_thousand_deep_leaves_the_session_pending(open_memory, bracket):
    memory = open_memory(ScriptedLLM(bracket * 100_000), config=RMMConfig(speakers=("user",)))
    chat = memory.chat("ann", session_id="s")
    chat.add(Message("user", "I like tea."))
    assert chat.end().status == "pending"
    (session,) = memory.status("ann").pending
    assert len(session.error) < 1_000
    assert memory.memories("ann") == ()
    assert [t.text for t in memory.store.turns("ann", "s")] == ["I like tea."]


def test_after_a_huge_reply_the_session_is_reflected_as_before(open_memory):
    good = '{"extracted_memories": [{"summary": "Ann likes tea", "reference": [0]}]}'
    llm = ScriptedLLM("x" * BIG, HUGE["brackets"], good)
    memory = open_memory(llm, config=RMMConfig(speakers=("user",)))
    chat = memory.chat("ann", session_id="s")
    chat.add(Message("user", "I like tea."))
    assert [chat.end().status for _ in range(3)] == ["pending", "pending", "reflected"]
    assert [m.summary for m in memory.memories("ann")] == ["Ann likes tea"]


SESSION_REPLIES = st.lists(
    st.sampled_from(
        ["", "{}", "NO_TRAIT", "Add()", "Merge(0, )", "Merge(9, x)", "Merge(0, merged)", '{"extracted_memories": [{}]}']
    )
    | st.just(RuntimeError("bad gateway"))
    | st.just('{"extracted_memories": [{"summary": "Ann likes tea", "reference": [0]}]}')
    | st.just('{"extracted_memories": [{"summary": "Ann has a cat", "reference": [0, 1]}, {"summary": "x"}]}'),
    max_size=8,
)


@scaled(25)
@given(replies=SESSION_REPLIES)
def test_whatever_a_model_replies_no_evidence_is_lost_and_what_failed_can_be_done_again(open_memory, replies):
    llm = ScriptedLLM(*replies)
    memory = open_memory(llm, place=":memory:")
    before = {}
    for name in ("s1", "s2", "s3"):
        chat = memory.chat("ann", session_id=name)
        chat.add(Message("user", f"I like tea, {name}."), Message("user", f"I have a cat, {name}."))
        report = chat.end()
        held = {m.id: m for m in memory.memories("ann")}
        if report.status == "pending":
            assert held == before, "a reply that failed changed the bank"
        evidence = {ref for m in held.values() for ref in m.evidence}
        assert evidence >= {ref for m in before.values() for ref in m.evidence}
        before = held
    llm.enqueue(*["NO_TRAIT"] * 40)
    while memory.reflect_pending():
        assert llm.left
    evidence = {ref for m in memory.memories("ann") for ref in m.evidence}
    assert {(ref.session_id, ref.index) for ref in evidence} == {(s, i) for s in ("s1", "s2", "s3") for i in (0, 1)}
