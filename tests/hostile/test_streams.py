"""Answers that stream in: however they are cut, the same is shown and cited, and no piece of a marker is ever seen."""

# ruff: noqa: RUF001 -- brackets of other scripts are part of the subject

import re

from hypothesis import given
from hypothesis import strategies as st

from rmm_core.citations import CitationStream, parse_citations
from rmm_core.replies import ReplyReader
from tests.hostile import scaled

MARKERS = (
    "[1]",
    "[1, 2]",
    "[2-3]",
    "[Memory 2]",
    "[NO_CITE]",
    "[[1]]",
    "[1][2]",
    "[9]",
    "[3-1]",
    "【1】",
    "［2］",
    "[#1]",
)
AROUND = (
    "tea ",
    "so. ",
    "\n",
    "[",
    "]",
    "(",
    ")",
    "`",
    "```\n",
    "~~~",
    "arr[0]",
    "[2023]",
    "[a](b)",
    "[1](u)",
    "[^1]",
    "\\[1]",
)
WORDS = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=5)
ANSWERS = st.lists(st.sampled_from(MARKERS + AROUND) | WORDS, max_size=12).map("".join)
PROSE = st.lists(st.tuples(WORDS, st.sampled_from(MARKERS)), min_size=1, max_size=5).map(
    lambda parts: " ".join(f"{word} {marker}." for word, marker in parts)
)


def fed(reader, chunks):
    """All that was seen after each chunk, and what was cited."""
    seen, so_far = [], ""
    for chunk in chunks:
        so_far += reader.feed(chunk)
        seen.append(so_far)
    tail, citations = reader.close()
    return [*seen, so_far + tail], citations


def cuts(text):
    """The text in two pieces, at every position; in pieces of one to four characters."""
    yield from ([text[:i], text[i:]] for i in range(len(text) + 1))
    yield from ([text[i : i + n] for i in range(0, len(text), n)] for n in range(1, 5))


@scaled(60)
@given(text=ANSWERS, count=st.integers(0, 4))
def test_an_answer_cut_anywhere_is_the_whole_answer(text, count):
    whole = parse_citations(text, count)
    for chunks in cuts(text):
        seen, citations = fed(CitationStream(count), chunks)
        assert (seen[-1], citations) == (whole.text, whole)
        assert all(whole.text.startswith(part) for part in seen), "something shown was taken back"


@scaled(60)
@given(text=ANSWERS, count=st.integers(0, 4), ours=st.booleans())
def test_a_reply_cut_anywhere_is_the_whole_reply(text, count, ours):
    (*_, whole), cited = fed(ReplyReader(count, ours=ours), [text])
    for chunks in cuts(text):
        seen, citations = fed(ReplyReader(count, ours=ours), chunks)
        assert (seen[-1], citations) == (whole, cited)
        assert all(whole.startswith(part) for part in seen)


@scaled(60)
@given(text=PROSE)
def test_no_piece_of_a_marker_is_ever_seen(text):
    for chunks in cuts(text):
        for part in fed(CitationStream(3), chunks)[0]:
            assert not re.search(r"[\[\]【】［］#]|NO_CITE|Memory", part)


@scaled(100)
@given(text=st.text(max_size=60), data=st.data())
def test_any_text_cut_anyhow(text, data):
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    chunks = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
    whole = parse_citations(text, 3)
    assert fed(CitationStream(3), chunks)[0][-1] == whole.text
    assert fed(CitationStream(3), chunks)[1] == whole
