"""Words for full-text search, in any script.

SQLite's tokenizers split at spaces, which Chinese, Japanese, Thai, Lao, Khmer and Burmese do not
write between words. Runs of those scripts are cut into overlapping pairs of characters first, in
what is indexed and in what is asked, so that any word of two characters or more is found.
"""

from __future__ import annotations

import re
import unicodedata

from rmm_core.stopwords import STOP_WORDS

TOKENIZER = "porter unicode61 remove_diacritics 2"
"""English stemming over words with their accents removed."""

_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f]+"
)
_WORD = re.compile(r"\w+")


def spaced(text: str) -> str:
    """``text`` case-folded and in compatibility form, runs of unspaced scripts as overlapping pairs."""
    if text.isascii():  # the same, at once
        return text.lower()
    return _UNSPACED.sub(_pairs, unicodedata.normalize("NFKC", text).casefold())


def _pairs(match: re.Match[str]) -> str:
    run = match.group()
    return " " + " ".join(run[i : i + 2] for i in range(max(len(run) - 1, 1))) + " "


def query_words(query: str, limit: int = 64) -> list[str]:
    """The query's telling words; all of them when none tells anything.

    Args:
        query: What the user asked.
        limit: How many different words are used, from the first; a bound on what a pasted document costs.
    """
    words = list(dict.fromkeys(_WORD.findall(spaced(query))))
    return ([w for w in words if w not in STOP_WORDS] or words)[:limit]


def match_expression(query: str) -> str:
    """SQLite's full-text expression for any of the query's telling words; empty when it has no words at all."""
    return " OR ".join(f'"{word}"' for word in query_words(query))
