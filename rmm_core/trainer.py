"""Which reranker serves, and how it keeps up with the learning log.

Feedback is durable before anything is learned from it. A trainer reads the log from where its saved state
stopped, in batches, and saves by compare-and-set: several processes can learn on one store, every
answer is learned from once, in order, and a crash loses nothing.
"""

from __future__ import annotations

import io
import logging
import threading
from collections import OrderedDict
from dataclasses import dataclass, field, replace

import numpy as np

from rmm_core.config import RMMConfig
from rmm_core.errors import ConflictError, InputError
from rmm_core.guard import Guard
from rmm_core.learning import Example, update
from rmm_core.protocols import MemoryStore
from rmm_core.reranker import Reranker, Weights
from rmm_core.types import Feedback

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Learned:
    """The state of one learner.

    Attributes:
        reranker: The learned weights.
        prior: The weights learning started from.
        guard: The comparison of the two so far.
        updates: Steps taken.
        cursor: The last entry of the learning log that was learned from.
        version: What the store knows this state as; 0 for the start.
    """

    reranker: Reranker
    prior: Reranker
    guard: Guard = field(default_factory=Guard)
    updates: int = 0
    cursor: int = 0
    version: int = 0

    def serves(self, config: RMMConfig) -> bool:
        """Whether the learned weights serve, and not the prior."""
        return self.updates > 0 and (not config.guard or self.guard.trusts_learned)

    def pack(self) -> bytes:
        """This state as bytes, the prior left out: the configuration gives it."""
        g = self.guard
        buffer = io.BytesIO()
        numbers = np.asarray([g.count, g.mean, g.square, self.updates, self.cursor], dtype=np.float64)
        np.savez(buffer, reranker=np.frombuffer(self.reranker.state(), dtype=np.uint8), numbers=numbers)
        return buffer.getvalue()

    @classmethod
    def unpack(cls, content: bytes, prior: Reranker, version: int) -> Learned:
        """The state that :meth:`pack` packed.

        Raises:
            InputError: When ``content`` is damaged.
        """
        from zipfile import BadZipFile

        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as packed:
                reranker = Reranker.load(packed["reranker"].tobytes(), prior.logit_scale)
                count, mean, square, updates, cursor = packed["numbers"].tolist()
        except (ValueError, KeyError, OSError, EOFError, BadZipFile) as error:
            raise InputError(f"this is no learner state: {error}") from error
        return cls(reranker, prior, Guard(count, mean, square), int(updates), int(cursor), version)


class Trainer:
    """The learners of one store, by scope: one for all users, or one for each."""

    def __init__(self, store: MemoryStore, config: RMMConfig, *, held: int = 64) -> None:
        self._store = store
        self._config = config
        self._held = held
        self._states: OrderedDict[str, Learned] = OrderedDict()
        self._lock = threading.RLock()  # on the states held: never for long, recalls wait for it
        self._learning = threading.Lock()  # on learning: others' recalls go on meanwhile

    def state(self, user_id: str, width: int) -> Learned:
        """The newest state for a user's queries, whose embeddings have ``width``."""
        scope = self._scope(user_id)
        with self._lock:
            known = self._states.get(scope)
            version = self._store.learner_version(scope)
            if known is None or known.version != version or known.reranker.width != width:
                known = self._load(scope, width)
            self._states[scope] = known
            self._states.move_to_end(scope)
            while len(self._states) > self._held:
                self._states.popitem(last=False)
            return known

    def catch_up(self, user_id: str, width: int) -> int:
        """Learn from all full batches of the log that were not learned from yet; how many steps were taken."""
        steps = 0
        with self._learning:
            while True:
                try:
                    if not self._step(user_id, width):
                        return steps
                    steps += 1
                except ConflictError:
                    logger.info("another process learned first; going on from its state")

    def forget(self, user_id: str) -> None:
        """Let go of what is held of a user."""
        with self._lock:
            self._states.pop(f"user:{user_id}", None)

    def _step(self, user_id: str, width: int) -> bool:
        """Learn from one batch; whether there was one."""
        state = self.state(user_id, width)
        only = user_id if self._config.learner_scope == "user" else None
        batch = self._store.feedback(after=state.cursor, limit=self._config.batch_size, user_id=only)
        if len(batch) < self._config.batch_size:
            return False
        examples = [e for _, feedback in batch if (e := self._example(feedback, width)) is not None]
        guard = state.guard
        for e in examples:
            learned = state.reranker.score(e.query, e.candidates, e.features)
            prior = state.prior.score(e.query, e.candidates, e.features)
            guard = guard.observe(learned, prior, e.shown, e.cited)
        weights = update(state.reranker.weights, examples, state.prior.weights, self._config)
        after = replace(
            state,
            reranker=Reranker(weights, state.reranker.logit_scale),
            guard=guard,
            updates=state.updates + 1,
            cursor=batch[-1][0],
        )
        scope = self._scope(user_id)
        version = self._store.save_learner_state(scope, after.pack(), base_version=state.version)
        with self._lock:
            self._states[scope] = replace(after, version=version)
        if self._config.guard and guard.trusts_learned != state.guard.trusts_learned:
            logger.warning("the %s ranking serves from here on", "learned" if guard.trusts_learned else "prior")
        return True

    def _example(self, feedback: Feedback, width: int) -> Example | None:
        """Feedback with the embeddings it was about; None when too little of that is left."""
        if feedback.embeddings is None:
            entries = self._store.entries(feedback.user_id, feedback.memory_ids)
            held = {name: entry.embedding for name, entry in entries.items()}
        else:
            held = dict(zip(feedback.memory_ids, feedback.embeddings, strict=True))
        left = [i for i, name in enumerate(feedback.memory_ids) if name in held]
        place = {old: new for new, old in enumerate(left)}
        shown = tuple(place[i] for i in feedback.shown if i in place)
        if not shown or len(feedback.embedding) != width:
            return None
        return Example(
            query=feedback.embedding,
            candidates=np.stack([held[feedback.memory_ids[i]] for i in left]),
            features=feedback.features[left],
            noise=feedback.noise[left],
            shown=shown,
            cited=tuple(place[i] for i in feedback.cited if i in place),
        )

    def _load(self, scope: str, width: int) -> Learned:
        """The saved state of a scope; the start when there is none, or it is of another embedder."""
        prior = Reranker(Weights.start(width, self._config), self._config.logit_scale)
        saved = self._store.learner_state(scope)
        if saved is None:
            return Learned(prior, prior)
        try:
            state = Learned.unpack(saved.content, prior, saved.version)
        except InputError:
            logger.exception("the saved learner is damaged: learning starts anew")
            return Learned(prior, prior, version=saved.version)
        if state.reranker.width == width:
            return state
        logger.warning("the embedder's width changed from %d to %d: learning starts anew", state.reranker.width, width)
        return Learned(prior, prior, cursor=state.cursor, version=saved.version)

    def _scope(self, user_id: str) -> str:
        return "store" if self._config.learner_scope == "store" else f"user:{user_id}"
