"""Where a benchmark's topics come from, when neither a language model nor the extractive mode makes them."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.datasets import Sitting
from rmm_core import Session, Turn
from rmm_core.flow import Flow
from rmm_core.types import Add, Candidate, Decision, Extracted, Extraction


class RecordedReflector:
    """The facts that ship with a data set; every fact is a topic of its own. Without facts, turns are all there is."""

    def __init__(self, sittings: Sequence[Sitting]) -> None:
        self._facts = {s.id: s.facts for s in sittings}

    def extract(self, session: Session, turns: Sequence[Turn]) -> Flow[Extraction]:
        """See :class:`rmm_core.Reflector`."""
        yield from ()
        return Extraction(self._facts.get(session.id, ()))

    def decide(self, new: Extracted, turns: Sequence[Turn], similar: Sequence[Candidate]) -> Flow[Decision]:
        """See :class:`rmm_core.Reflector`."""
        yield from ()
        return Decision((Add(),))
