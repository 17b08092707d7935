"""Words for PostgreSQL's full-text types, cut and stemmed here: the server's parser depends on its locale.

The words are those of :mod:`rmm_core.stores._words`, so that both databases find the same; stemming is Porter's, as in
SQLite. Of positions only their number is kept, which is all that ranking uses.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import lru_cache

from rmm_core.stores._words import query_words, spaced

_WORD = re.compile(r"[^\W_]+")
_MARKS = re.compile("[\u0300-\u036f]+")  # accents of Latin, Greek and Cyrillic letters
_OFTEN = 255  # positions that a tsvector holds of one word
_LONG = 400  # characters of a word; a tsvector takes 2,046 bytes
_BYTES = 900_000  # of a text's words, the most frequent first; a tsvector takes a megabyte


def tsvector(text: str) -> tuple[str, int]:
    """A text as the literal of a ``tsvector``, and how many words it has."""
    words = Counter(_stems(text))
    lexemes, size = [], 0
    for word, often in words.most_common():
        places = range(1, min(often, _OFTEN) + 1)
        size += len(word.encode()) + 2 * len(places) + 8
        if size > _BYTES:
            break
        lexemes.append(f"'{word}':{','.join(map(str, places))}")
    return " ".join(lexemes), words.total()


def tsqueries(text: str) -> list[str]:
    """The telling words of a query, each as the literal of a ``tsquery``."""
    return list(dict.fromkeys(f"'{stem}'" for word in query_words(text) for stem in _stems(word)))


def _stems(text: str) -> list[str]:
    plain = unicodedata.normalize("NFC", _MARKS.sub("", unicodedata.normalize("NFD", spaced(text))))
    return [_stem(word[:_LONG]) for word in _WORD.findall(plain)]


@lru_cache(maxsize=100_000)
def _stem(word: str) -> str:
    from snowballstemmer import stemmer

    return str(stemmer("porter").stemWord(word)) or word  # of a lone "s" nothing is left
