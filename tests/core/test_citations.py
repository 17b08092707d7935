"""Markers in answers: every form seen in the wild, whole and cut into chunks."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmm_core.citations import CitationStream, parse_citations
from rmm_core.types import Citations

PIECES = [*"[]()`~#-,;:.=\\ \t\n\r19aZ_\u00e9\u8336\u3010\u3011\uff3b\uff3d"]
PIECES += ["[1]", "[2]", "[7]", " [1, 2]", "[Memory 2]", "[NO_CITE]", "[1-3]", "[[1]]", "```", "~~~", "\n```\n", "tea"]
PIECES += ["data[1]", " = ", "(url)", "[1]: ", "http", "[2023]", "and", "mem", "[1], [2]", " " * 70, "1, " * 30]
FRAGMENTS = st.sampled_from(PIECES)
ANSWERS = st.lists(FRAGMENTS | st.text(max_size=4), max_size=25).map("".join)


def stream(chunks: list[str], count: int) -> tuple[str, Citations]:
    reader = CitationStream(count)
    shown = [reader.feed(chunk) for chunk in chunks]
    tail, citations = reader.close()
    return "".join(shown) + tail, citations


@pytest.mark.parametrize(
    ("marker", "numbers"),
    [
        ("[1]", (1,)),
        ("[1, 2]", (1, 2)),
        ("[1,2]", (1, 2)),
        ("[1;2]", (1, 2)),
        ("[1 and 2]", (1, 2)),
        ("[1, 2, and 3]", (1, 2, 3)),
        ("[1 & 3]", (1, 3)),
        ("[1-3]", (1, 2, 3)),
        ("[1\u20133]", (1, 2, 3)),
        ("[2-2]", (2,)),
        ("[1-2, 4]", (1, 2, 4)),
        ("[Memory 2]", (2,)),
        ("[memories 1, 2]", (1, 2)),
        ("[Memory 1, Memory 2]", (1, 2)),
        ("[MEMORY #3]", (3,)),
        ("[#1, #2]", (1, 2)),
        ("[ 1 ]", (1,)),
        ("[1][2]", (1, 2)),
        ("[1] [2]", (1, 2)),
        ("[1], [2]", (1, 2)),
        ("[3, 1, 3][1]", (1, 3)),
        ("[[1]]", (1,)),
        ("[[1, 2]]", (1, 2)),
        ("\u30101\u3011", (1,)),
        ("\uff3b2\uff3d", (2,)),
        ("[1\uff0c2]", (1, 2)),
    ],
)
def test_markers_are_read_and_removed(marker: str, numbers: tuple[int, ...]) -> None:
    assert parse_citations(f"You like tea {marker}.", 5) == Citations("You like tea.", numbers, "cited")


@pytest.mark.parametrize("marker", ["[NO_CITE]", "[no_cite]", "[NO CITE]", "[No-Cite]", "[[NO_CITE]]"])
def test_an_explicit_none_is_not_silence(marker: str) -> None:
    assert parse_citations(f"I do not know. {marker}", 3) == Citations("I do not know.", (), "none")
    assert parse_citations("I do not know.", 3) == Citations("I do not know.", (), "silent")


@pytest.mark.parametrize(
    "text",
    [
        "tea (1) and",
        "in [2023] and [1, 2023] and [2019-2024] and [12345]",
        "a [link](url) and [1](https://a.b) and [[1]](url) and ![1](img)",
        "a note [^1] here",
        "arr[0]",
        "x[1] = 2",
        "data[12]",
        "data[1] = 2",
        "data[1] += 2",
        "items[1].name",
        "self.items[1] is",
        "my_list[1] is",
        "v2[1] is",
        "m[0][1] and",
        "f(x)[1] = 2",
        "[x] done, [ ] not, [] empty",
        "- [x] a\n- [ ] b",
        "[1]: http://a.b/c",
        "a\n  [1]: <https://a.b>",
        "escaped \\[1] and [note][1]",
        "[1 2] and [1/2] and [a, 1] and [1.5] and [-1] and [1,\n2]",
        "`arr[1]` and ``a ` [1]``",
        "```\ntea [1]\n```",
        "```python\nx[1]\n\n[2] ```not the end\n[3]",
        "~~~\n[1] ```\n[2]\n~~~",
        "inline ```a [1]``` b",
        "an open ` tick [1]",
        "[" + "1, " * 30 + "1]",
        "[memory] [and] [no] [#]",
        "\u30104:0\u2020source\u3011",
    ],
)
def test_everything_else_is_left_alone(text: str) -> None:
    assert parse_citations(text, 5) == Citations(text, (), "silent")


@pytest.mark.parametrize(
    ("text", "shown", "numbers"),
    [
        ("You like tea[1].", "You like tea.", (1,)),
        ("You like tea[1]", "You like tea", (1,)),
        ("You like tea[1] and", "You like tea and", (1,)),
        ("You like tea[1][2], yes", "You like tea, yes", (1, 2)),
        ("You like tea.[1]", "You like tea.", (1,)),
        ("since 2023[1].", "since 2023.", (1,)),
        ("tea (green)[1].", "tea (green).", (1,)),
        ('"tea"[1].', '"tea".', (1,)),
        ("\u4f60\u559c\u6b22\u8336[1]\u3002", "\u4f60\u559c\u6b22\u8336\u3002", (1,)),
        ("\u8336[1]\u5f88", "\u8336\u5f88", (1,)),
        ("tea[Memory 2]x", "teax", (2,)),
        ("[1] Tea", "Tea", (1,)),
        ("[1] [2]  Tea", " Tea", (1, 2)),
        ("a\n[1] b", "a\nb", (1,)),
        ("a\n  [1] b", "a\nb", (1,)),
        ("a  \t[1]\n\nb", "a\n\nb", (1,)),
        ("a\n\n[1]", "a\n\n", (1,)),
        ("[1]: you like tea", ": you like tea", (1,)),
        ("an open ` tick [1]\nb [2]", "an open ` tick [1]\nb", (2,)),
        ("`a[1]` [2]", "`a[1]`", (2,)),
        ("```\n[1]\n``` [2]\nc [3]", "```\n[1]\n```\nc", (2, 3)),
        ("```\n[1]\n````\n[2] c", "```\n[1]\n````\nc", (2,)),
        ("```a [1]``` [2]", "```a [1]```", (2,)),
        ("a ~~b~~ [1]", "a ~~b~~", (1,)),
        ("a [1], b [2], c", "a, b, c", (1, 2)),
        ("a [1], [link](u)", "a, [link](u)", (1,)),
        ("[[x [1]", "[[x", (1,)),
        ("arr[0] tea [1]", "arr[0] tea", (1,)),
    ],
)
def test_where_a_marker_stands(text: str, shown: str, numbers: tuple[int, ...]) -> None:
    assert parse_citations(text, 5) == Citations(shown, numbers, "cited")


@pytest.mark.parametrize(
    ("text", "shown", "numbers"),
    [
        ("tea [7].", "tea.", ()),
        ("tea [0].", "tea.", ()),
        ("tea [1, 7].", "tea.", (1,)),
        ("tea [1] and [7].", "tea and.", (1,)),
        ("tea [3-1].", "tea.", ()),
        ("tea [1-999].", "tea.", (1, 2, 3)),
        ("tea [1] [NO_CITE]", "tea", (1,)),
        ("tea [NO_CITE, 1]", "tea", (1,)),
        ("tea [1, 2", "tea", ()),
        ("tea [1", "tea", ()),
        ("tea [2] [1", "tea", (2,)),
        ("tea [[1]", "tea", ()),
        ("tea [Memory", "tea", ()),
        ("tea [NO_CI", "tea", ()),
    ],
)
def test_contradictions_and_half_markers_are_malformed(text: str, shown: str, numbers: tuple[int, ...]) -> None:
    assert parse_citations(text, 3) == Citations(shown, numbers, "malformed")


def test_what_is_open_at_the_end_and_holds_nothing_is_shown() -> None:
    for text in ("tea [", "tea [[ ", "tea [a", "tea ]", "x\\[1"):
        assert parse_citations(text, 3) == Citations(text, (), "silent")


def test_with_nothing_shown_every_number_points_nowhere() -> None:
    assert parse_citations("tea [1]", 0) == Citations("tea", (), "malformed")
    assert parse_citations("tea [NO_CITE]", 0).status == "none"
    assert parse_citations("", 0) == Citations("", (), "silent")


def test_the_stream_holds_back_no_more_than_it_must() -> None:
    reader = CitationStream(3)
    steps = [("You", "You"), (" like", " like"), (" ", ""), ("[", ""), ("1", ""), ("]", ""), (".", "."), (" A", " A")]
    steps += [(" [", ""), ("x", " [x"), ("]", "]"), (" [", ""), ("li", " [li"), ("`", "`"), ("[1]", "[1]"), ("`", "`")]
    steps += [("\n", "\n"), ("[2", ""), ("](", "[2]("), ("[" * 9, "[" * 7), ("[", "["), ("z", "[[z")]
    assert [reader.feed(chunk) for chunk, _ in steps] == [shown for _, shown in steps]
    assert reader.close()[1].numbers == (1,)


@settings(max_examples=100, deadline=None)
@given(ANSWERS)
def test_what_is_held_back_is_bounded(text: str) -> None:
    reader = CitationStream(3)
    for fed in range(len(text)):
        reader.feed(text[fed])
        assert len(reader._held) <= 64 + 4 + 64 + 16


@settings(max_examples=300, deadline=None)
@given(ANSWERS, st.data(), st.integers(0, 4))
def test_cutting_an_answer_changes_nothing(text: str, data: st.DataObject, count: int) -> None:
    whole = parse_citations(text, count)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    chunks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert stream(chunks, count) == (whole.text, whole)
    assert stream(list(text), count) == (whole.text, whole)


@settings(max_examples=200, deadline=None)
@given(ANSWERS, st.integers(0, 4))
def test_citations_keep_their_promises(text: str, count: int) -> None:
    found = parse_citations(text, count)
    assert list(found.numbers) == sorted({n for n in found.numbers if 1 <= n <= count})
    assert (found.status == "cited") <= bool(found.numbers)
    assert not (found.status in ("none", "silent") and found.numbers)
    assert found.text.count("\n") == text.count("\n")
    rest = iter(text)
    assert all(character in rest for character in found.text), "only ever removes"


MARKERS = st.sampled_from(["[1]", "[2, 3]", "[1-2]", "[Memory 3]", "[NO_CITE]", "[9]", "[3-1]", "\u30101\u3011"])
WORDS = st.text(st.characters(categories=["L"]), min_size=2, max_size=8)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(WORDS, MARKERS), min_size=1, max_size=8))
def test_no_marker_survives_in_prose(parts: list[tuple[str, str]]) -> None:
    text = " ".join(f"{word} {marker}" for word, marker in parts)
    assert parse_citations(text, 3).text == " ".join(word for word, _ in parts)


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(exclude_characters="[\u3010\uff3b")), st.data())
def test_text_without_brackets_passes_unchanged(text: str, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(text)))
    assert stream([text[:cut], text[cut:]], 3) == (text, Citations(text, (), "silent"))


@pytest.mark.parametrize(
    "unit", ["[", "[1", "[[1]", "`", "` ", "~\n", " ", "[1] ", "tea", "[mem   1,mem   1,", "\n```"]
)
def test_time_is_linear(unit: str) -> None:
    begin = time.perf_counter()
    parse_citations(unit * (100_000 // len(unit)), 3)
    assert time.perf_counter() - begin < 5


def test_a_very_long_answer_and_a_million_brackets() -> None:
    begin = time.perf_counter()
    assert parse_citations("[" * 1_000_000, 3).text == "[" * 1_000_000
    assert parse_citations("plain words and " * 650_000 + "[1]", 3).numbers == (1,)
    assert time.perf_counter() - begin < 5
