"""What the text of a memory's evidence shows by itself, whatever is asked."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rmm_core.stores._words import spaced
from rmm_core.types import Matrix, Turn

_TIME = re.compile(
    r"\b(january|february|march|april|may|june|july|august|september|october|november|december"
    r"|monday|tuesday|wednesday|thursday|friday|saturday|sunday"
    r"|yesterday|today|tonight|tomorrow|last|next|ago|week|weekend|month|years?)\b"
)
_FIGURE = re.compile(r"\d")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Traits:
    """See :class:`rmm_core.features.FeatureWeights`.

    Attributes:
        speakers: The words of the names of who says it, case-folded.
    """

    length: float
    question: float
    timed: float
    number: float
    early: float
    speakers: frozenset[str]


def traits(evidence: Sequence[Turn]) -> Traits:
    """The traits of a memory that rests on these turns, in order."""
    text = "\n".join(turn.line for turn in evidence)
    first = evidence[0].index if evidence else 0
    return Traits(
        length=math.log1p(len(text.split())) / 5,
        question=float(text.rstrip().endswith(("?", "\uff1f", "\u061f"))),
        timed=float(_TIME.search(text.lower()) is not None),
        number=float(_FIGURE.search(text) is not None),
        early=4 / (4 + first),
        speakers=frozenset(word for turn in evidence for word in words(turn.speaker)),
    )


def asked_for(query: str, found: Sequence[Traits]) -> Matrix:
    """What each memory's evidence shows, some of it only where the query asks for it; shape ``(K, 6)``."""
    asked = words(query)
    when = float("when" in asked)
    rows = [
        (float(not t.speakers.isdisjoint(asked)), t.length, t.question, t.timed * when, t.number, t.early)
        for t in found
    ]
    return np.asarray(rows, dtype=np.float32).reshape(len(rows), 6)


def words(text: str) -> frozenset[str]:
    """The words of a text, case-folded."""
    return frozenset(_WORD.findall(spaced(text)))
