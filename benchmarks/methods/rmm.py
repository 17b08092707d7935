"""This package at work: topics, unfiled turns, the prior, the reranker; each part on or off."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.banks import Banks, Topics
from benchmarks.datasets import Conversation, Question
from benchmarks.methods import Found
from benchmarks.methods.pretraining import Pretraining
from rmm_core import Candidate, Citations, MemoryStore, Recall, ReflectiveMemory, RMMConfig, TurnRef
from rmm_core.features import FEATURES
from rmm_core.learned import Learned
from rmm_core.reranker import Reranker, Weights
from rmm_core.stores import open_store


class RMM:
    """A :class:`~rmm_core.ReflectiveMemory`, one user per conversation, one reranker for all of them.

    Args:
        banks: Where its bank comes from.
        config: Its settings; ``unfiled`` also says which bank.
        topics: Who extracts; with ``"none"`` and ``unfiled`` it is a bank of turns.
        learns: Whether citations train the reranker. If not, the prior serves.
        pretraining: Makes the weights that learning starts from, and that serve from the first question on: a guard,
            which waits for citations, is off then.
        hidden: Features that are 0 for every memory, to see what they are good for.
    """

    def __init__(
        self,
        banks: Banks,
        config: RMMConfig,
        topics: Topics,
        *,
        learns: bool,
        pretraining: Pretraining | None = None,
        hidden: Collection[str] = (),
    ) -> None:
        if pretraining is not None:
            config = replace(config, guard=False)
        self.learns = learns
        self.settings = config.to_dict() | ({"pretraining": pretraining.rates()} if pretraining else {})
        self.trained_on: frozenset[str] = frozenset()
        self._banks = banks
        self._config = config
        self._topics = topics
        self._pretraining = pretraining
        self._hidden = hidden
        self._folder = tempfile.TemporaryDirectory(prefix="rmm-benchmark-")
        self._memory: ReflectiveMemory | None = None
        self._last: Recall | None = None

    def remember(self, conversations: Sequence[Conversation]) -> None:
        """See :class:`benchmarks.methods.Method`."""
        path = Path(self._folder.name) / "memory.db"
        self._banks.copied(conversations, self._topics, self._config.unfiled, path)
        store = _Hiding(open_store(path, self._config), self._hidden)
        self._memory = ReflectiveMemory(store, embedder=self._banks.embedder, config=self._config)
        if self._pretraining is not None:
            held = {c.name: self._memory.memories(c.name) for c in conversations}
            pools = {name: [Found(m.summary, m.evidence) for m in memories] for name, memories in held.items()}
            weights, self.trained_on = self._pretraining(conversations, pools)
            start(self._memory, weights)

    def find(self, conversation: Conversation, question: Question, k: int) -> Sequence[Found]:
        """What is shown, then the other candidates in the order of the ranking that serves."""
        self._last = self.memory.recall(conversation.name, question.text)
        order = {m.id: m for m in [*(s.memory for s in self._last.shown), *(c.memory for c in self._last.candidates)]}
        return [Found(m.summary, m.evidence) for m in order.values()][:k]

    def learn(self, cited: tuple[int, ...]) -> None:
        """See :class:`benchmarks.methods.Method`."""
        assert self._last is not None
        self.memory.feedback(self._last, Citations("", cited, "cited" if cited else "none"))

    @property
    def ranking(self) -> str:
        """Which ranking served last."""
        assert self._last is not None
        return self._last.ranking

    def reachable(self, conversation: Conversation) -> frozenset[TurnRef]:
        """See :class:`benchmarks.methods.Method`."""
        return frozenset(ref for m in self.memory.memories(conversation.name) for ref in m.evidence)

    def close(self) -> None:
        """See :class:`benchmarks.methods.Method`."""
        if self._memory is not None:
            self._memory.close()
        self._folder.cleanup()

    @property
    def memory(self) -> ReflectiveMemory:
        """The memory, once it remembers something."""
        assert self._memory is not None, "remember comes first"
        return self._memory


class _Hiding:
    """A store that does not tell some features."""

    def __init__(self, store: MemoryStore, hidden: Collection[str]) -> None:
        self._store = store
        self._hidden = [FEATURES.index(name) for name in hidden]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def search(self, *arguments: Any, **options: Any) -> tuple[Candidate, ...]:
        """See :class:`rmm_core.MemoryStore`."""
        found = self._store.search(*arguments, **options)
        for candidate in found:
            candidate.features[self._hidden] = 0.0
        return found


def start(memory: ReflectiveMemory, weights: Weights) -> None:
    """Let learning go on from these weights, as if it had come to them."""
    fresh = Learned.start(len(weights.w_q), memory.config)
    learned = replace(fresh, reranker=Reranker(weights, memory.config.logit_scale), updates=1)
    memory.store.save_learner_state("store", learned.pack(), base_version=0)
