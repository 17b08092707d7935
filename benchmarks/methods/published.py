"""The paper's published baselines, as it describes them: one flat pool of summaries and details, ranked with time.

Both are rebuilt from their descriptions. Where no summary is recorded with the data set, it is the sentences that stand
for a session best; key phrases are its content words, stemmed by their first letters. Time is what they are named for:
a memory fades by exp(-age / time constant), the constant being LD-Agent's 10^7 seconds (116 days) in both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime

import numpy as np

from benchmarks.banks import Banks, Topics
from benchmarks.datasets import Conversation, Question, Sitting
from benchmarks.methods import Found
from benchmarks.methods.units import Dense, UnitRetrieval, rounds
from rmm_core import Embedder, TurnRef
from rmm_core.extractive import split_sentences, summarise
from rmm_core.stopwords import STOP_WORDS

TIME_CONSTANT = 1e7
"""Seconds in which a memory fades to 1/e."""


def summaries(conversation: Conversation, embedder: Embedder) -> list[Found]:
    """One summary a session: the recorded one, or its most telling sentences."""
    return [
        Found(s.summary or _summary(conversation, s, embedder), tuple(TurnRef(s.id, i) for i in range(len(s.messages))))
        for s in conversation.sittings
        if s.messages
    ]


def _summary(conversation: Conversation, sitting: Sitting, embedder: Embedder) -> str:
    lines = [conversation.line(m) for m in sitting.messages]
    said = [f"{line.split(':', 1)[0]}: {s}" for line in lines for s in split_sentences(line.split(":", 1)[1].strip())]
    if not said:
        return " ".join(lines)
    centre = embedder.embed(lines).mean(axis=0)
    return summarise(said, embedder.embed(said), centre)


class MemoryBank(UnitRetrieval):
    """Summaries and rounds; what is recalled is remembered longer (Zhong et al., AAAI 2024).

    Retention is exp(-age / (time constant x strength)); a recall makes a memory stronger by one and young again.
    Ours multiplies the similarity by the retention, where MemoryBank throws memories away by it. The first ``m`` are
    what is recalled; it knows no citations, and what is found depends on what was asked before.
    """

    def __init__(self, embedder: Embedder, m: int) -> None:
        super().__init__("round", lambda units: Dense(units, embedder))
        self._embedder = embedder
        self._m = m
        self.settings = {"time_constant": TIME_CONSTANT}
        self._strength: dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]] = {}
        self._since: dict[str, list[datetime]] = {}

    def remember(self, conversations: Sequence[Conversation]) -> None:
        """See :class:`benchmarks.methods.Method`."""
        for c in conversations:
            pool = Dense([*rounds(c), *summaries(c, self._embedder)], self._embedder)
            self.pools[c.name] = pool
            self._strength[c.name] = np.ones(len(pool.units))
            self._since[c.name] = said_at(c, pool.units)

    def find(self, conversation: Conversation, question: Question, k: int) -> Sequence[Found]:
        """See :class:`benchmarks.methods.Method`."""
        name = conversation.name
        now = asked_at(conversation, question)
        age = np.array([(now - at).total_seconds() for at in self._since[name]])
        retention = np.exp(-np.maximum(age, 0.0) / (TIME_CONSTANT * self._strength[name]))
        order = np.argsort(-self.pools[name].scores(question.text) * retention, kind="stable")[:k].tolist()
        recalled = order[: self._m]
        self._strength[name][recalled] += 1.0
        for place in recalled:
            self._since[name][place] = max(now, self._since[name][place])
        return [self.pools[name].units[i] for i in order]


class LDAgent(UnitRetrieval):
    """Facts and summaries; similarity and shared key phrases, faded by age (Li et al., NAACL 2025)."""

    def __init__(self, banks: Banks, topics: Topics) -> None:
        super().__init__("session", lambda units: Dense(units, banks.embedder))
        self._banks = banks
        self._topics = topics
        self.settings = {"time_constant": TIME_CONSTANT}
        self._phrases: dict[str, list[frozenset[str]]] = {}
        self._said: dict[str, list[datetime]] = {}

    def remember(self, conversations: Sequence[Conversation]) -> None:
        """See :class:`benchmarks.methods.Method`."""
        facts = self._banks.topics(conversations, self._topics)
        for c in conversations:
            units = [Found(m.summary, m.evidence) for m in facts[c.name]]
            units += summaries(c, self._banks.embedder)
            self.pools[c.name] = Dense(units, self._banks.embedder)
            self._phrases[c.name] = [key_phrases(u.text) for u in units]
            self._said[c.name] = said_at(c, units)

    def ranked(self, conversation: Conversation, question: Question) -> list[Found]:
        """See :class:`benchmarks.methods.units.UnitRetrieval`."""
        pool = self.pools[conversation.name]
        now = asked_at(conversation, question)
        asked = key_phrases(question.text)
        scores = pool.scores(question.text)
        for place, (phrases, at) in enumerate(
            zip(self._phrases[conversation.name], self._said[conversation.name], strict=True)
        ):
            common = len(asked & phrases)
            overlap = common and 0.5 * (common / len(asked) + common / len(phrases))
            faded = math.exp(-max((now - at).total_seconds(), 0.0) / TIME_CONSTANT)
            scores[place] = faded * (scores[place] + overlap)
        return [pool.units[i] for i in np.argsort(-scores, kind="stable")]


def key_phrases(text: str) -> frozenset[str]:
    """The content words of a text, each cut to six letters."""
    words = "".join(c if c.isalnum() else " " for c in text.casefold()).split()
    return frozenset(w[:6] for w in words if w not in STOP_WORDS)


def said_at(conversation: Conversation, units: Sequence[Found]) -> list[datetime]:
    """When the session of each unit was."""
    at = {s.id: s.at for s in conversation.sittings}
    return [max(at[ref.session_id] for ref in u.turns) for u in units]


def asked_at(conversation: Conversation, question: Question) -> datetime:
    """When a question is asked: after the last session, where the data set does not say."""
    return question.asked_at or conversation.sittings[-1].at
