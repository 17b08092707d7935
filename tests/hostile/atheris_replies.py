"""Replies made up by a fuzzer that sees which branches they reach; no part of the test suite.

In an environment of its own, at the root of a checkout (Linux; atheris has no wheels elsewhere)::

    pip install atheris numpy json-repair
    PYTHONPATH=. python tests/hostile/atheris_replies.py parsing -max_total_time=300
    PYTHONPATH=. python tests/hostile/atheris_replies.py citations -max_total_time=300

What comes behind the name of the target is libFuzzer's.
"""

import contextlib
import sys

import atheris

with atheris.instrument_imports(include=["rmm_core", "json_repair"]):
    from rmm_core.citations import CitationStream, parse_citations
    from rmm_core.errors import ReplyError
    from rmm_core.parsing import parse_actions, parse_extraction
    from rmm_core.replies import ReplyReader
    from rmm_core.types import Merge

TURNS = range(10)
ENTRY = '{"summary": "likes tea", "reference": [1, 2]}'
PARSING = (
    *(
        '{"extracted_memories": [',
        ENTRY,
        '"summary": ',
        '"reference": ',
        "NO_TRAIT",
        "```json\n",
        "<think>",
        "</think>",
    ),
    *(
        "Add()",
        "Merge(0, ",
        'Merge(1, "',
        "Merge(99, ",
        '")',
        "merged_summary=",
        "\n- ",
        "1. ",
        "\\u00e9",
        "\\ud800",
        "1-3",
    ),
)
CITATIONS = (
    *(
        "[1]",
        "[2, 3]",
        "[1-2]",
        "[Memory 2]",
        "[NO_CITE]",
        "[[1]]",
        "【1】",
        "[9]",
        "[2023]",
        "](http://a)",
        "[^1]",
        "arr[0]",
    ),
    *("```", "\n```\n", "~~~", "\\[", ", ", "Action Input:", "<execute>", '{"a": ', "]: http://a", "tea", " " * 70),
)
REST = "é茶😀\u200b\u2028\x85\ud83d\u0661؟。"


def text_of(data: bytes, tokens: tuple[str, ...]) -> str:
    """Bytes as characters of ASCII, as what a reply is made of, and as other characters."""
    pieces = (*map(chr, range(128)), *tokens)
    return "".join(pieces[b] if b < len(pieces) else REST[b % len(REST)] for b in data)


def parsing(data: bytes) -> None:
    """A reply to an extraction or an update is read, or refused."""
    text = text_of(data, PARSING)
    with contextlib.suppress(ReplyError):
        for memory in parse_extraction(text, TURNS).memories:
            memory.summary.encode()
            assert memory.summary.strip()
            assert memory.reference
            assert set(memory.reference) <= set(TURNS)
    with contextlib.suppress(ReplyError):
        actions = parse_actions(text, 2).actions
        merged = [action.index for action in actions if isinstance(action, Merge)]
        assert actions
        assert len(merged) == len(set(merged) & {0, 1})


def citations(data: bytes) -> None:
    """An answer in two pieces shows and cites what it does whole."""
    count, cut = (data[0] % 5, data[1]) if len(data) > 1 else (0, 0)
    text = text_of(data[2:], CITATIONS)
    whole = parse_citations(text, count)
    stream = CitationStream(count)
    seen = stream.feed(text[:cut]) + stream.feed(text[cut:])
    tail, read = stream.close()
    assert (seen + tail, read) == (whole.text, whole)
    assert all(1 <= n <= count for n in whole.numbers)
    one, two = ReplyReader(count), ReplyReader(count)
    first = one.feed(text) + one.close()[0]
    second = two.feed(text[:cut]) + two.feed(text[cut:])
    assert first == second + two.close()[0]


if __name__ == "__main__":
    target = {"parsing": parsing, "citations": citations}[sys.argv.pop(1)]
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()
