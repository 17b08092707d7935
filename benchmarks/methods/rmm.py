"""This package at work: topics, unfiled turns, the prior, the reranker; each part on or off."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.banks import Banks, Topics
from benchmarks.datasets import Conversation, Question
from benchmarks.methods import Found
from benchmarks.methods.pretraining import Pretraining
from rmm_core import Citations, Recall, ReflectiveMemory, RMMConfig, TurnRef
from rmm_core.reranker import Reranker, Weights
from rmm_core.trainer import Learned


class RMM:
    """A :class:`~rmm_core.ReflectiveMemory`, one user per conversation, one reranker for all of them.

    Args:
        banks: Where its bank comes from.
        config: Its settings; ``unfiled`` also says which bank.
        topics: Who extracts; with ``"none"`` and ``unfiled`` it is a bank of turns.
        learns: Whether citations train the reranker. If not, the prior serves.
        pretraining: Makes the weights that learning starts from.
    """

    def __init__(
        self,
        banks: Banks,
        config: RMMConfig,
        topics: Topics,
        *,
        learns: bool,
        pretraining: Pretraining | None = None,
    ) -> None:
        self.learns = learns
        self.settings = config.to_dict() | ({"pretraining": pretraining.rates()} if pretraining else {})
        self.trained_on: frozenset[str] = frozenset()
        self._banks = banks
        self._config = config
        self._topics = topics
        self._pretraining = pretraining
        self._folder = tempfile.TemporaryDirectory(prefix="rmm-benchmark-")
        self._memory: ReflectiveMemory | None = None
        self._last: Recall | None = None

    def remember(self, conversations: Sequence[Conversation]) -> None:
        """See :class:`benchmarks.methods.Method`."""
        path = Path(self._folder.name) / "memory.db"
        self._banks.copied(conversations, self._topics, self._config.unfiled, path)
        self._memory = ReflectiveMemory.open(path, embedder=self._banks.embedder, config=self._config)
        if self._pretraining is not None:
            held = {c.name: self._memory.memories(c.name) for c in conversations}
            pools = {name: [Found(m.summary, m.evidence) for m in memories] for name, memories in held.items()}
            weights, self.trained_on = self._pretraining(conversations, pools)
            start(self._memory, weights)

    def find(self, conversation: Conversation, question: Question, k: int) -> Sequence[Found]:
        """All candidates in the order of the ranking that serves; the first M are what is shown."""
        self._last = self._opened.recall(conversation.name, question.text)
        return [Found(c.memory.summary, c.memory.evidence) for c in self._last.candidates[:k]]

    def learn(self, cited: tuple[int, ...]) -> None:
        """See :class:`benchmarks.methods.Method`."""
        assert self._last is not None
        self._opened.feedback(self._last, Citations("", cited, "cited" if cited else "none"))

    def reachable(self, conversation: Conversation) -> frozenset[TurnRef]:
        """See :class:`benchmarks.methods.Method`."""
        return frozenset(ref for m in self._opened.memories(conversation.name) for ref in m.evidence)

    def close(self) -> None:
        """See :class:`benchmarks.methods.Method`."""
        if self._memory is not None:
            self._memory.close()
        self._folder.cleanup()

    @property
    def _opened(self) -> ReflectiveMemory:
        assert self._memory is not None, "remember comes first"
        return self._memory


def start(memory: ReflectiveMemory, weights: Weights) -> None:
    """Let learning go on from these weights, as if it had come to them."""
    config = memory.config
    prior = Reranker(Weights.start(len(weights.w_q), config), config.logit_scale)
    learned = Learned(Reranker(weights, config.logit_scale), prior, updates=1)
    memory.store.save_learner_state("store", learned.pack(), base_version=0)
