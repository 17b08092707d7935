"""Which reranker serves, and how it keeps up with the learning log.

Feedback is durable before anything is learned from it. A trainer reads the log from where its saved state
stopped, in batches, and saves by compare-and-set: several processes can learn on one store, every
answer is learned from once, in order, and a crash loses nothing. What is learned follows from the log and the bank, so
that any part of it is taken back by taking entries out of the log and learning anew.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice

import numpy as np

from rmm_core.config import RMMConfig
from rmm_core.errors import ConflictError, InputError
from rmm_core.guard import RunningMean
from rmm_core.learned import Learned
from rmm_core.learning import Example, update
from rmm_core.protocols import LearnerState, MemoryStore
from rmm_core.reranker import Reranker, start_mix
from rmm_core.scoring import rewards
from rmm_core.types import Feedback, LearnerStatus

logger = logging.getLogger(__name__)


class Trainer:
    """The learners of one store, by scope: one for all users, or one for each.

    Args:
        store: Where the learning log and the states are.
        config: Settings.
        held: How many states are kept at hand.
        told: Where it says which ranking serves, and what it goes back to.
    """

    def __init__(self, store: MemoryStore, config: RMMConfig, *, held: int = 64, told: logging.Logger = logger) -> None:
        self._store = store
        self._config = config
        self._held = held
        self._told = told
        self._states: OrderedDict[str, Learned] = OrderedDict()
        self._lock = threading.RLock()  # on the states held: never for long, recalls wait for it
        self._learning = threading.Lock()  # on learning: others' recalls go on meanwhile

    def state(self, user_id: str, width: int) -> Learned:
        """The newest state for a user's queries, whose embeddings have ``width``."""
        return self._state(self._scope(user_id), width)

    def status(self, user_id: str) -> LearnerStatus:
        """How the learner of a user stands, as it was last saved."""
        saved = self._store.learner_state(self._scope(user_id))
        state = None if saved is None else self._unpacked(saved)
        return (state or Learned.start(1, self._config)).status(self._config)

    def catch_up(self, user_id: str, width: int) -> int:
        """Learn from all full batches of the log that were not learned from yet; how many steps were taken."""
        scope, steps = self._scope(user_id), 0
        with self._learning:
            while True:
                before = self._state(scope, width)
                after = before
                for state, _ in islice(self._steps(user_id, before), _STEPS_SAVED_AT_ONCE):
                    after = state
                if after is before:
                    return steps
                try:
                    self._save(scope, after)
                except ConflictError:
                    logger.info("another process learned first; going on from its state")
                else:
                    steps += after.updates - before.updates

    def replayed(self, user_id: str) -> Iterator[tuple[Learned, list[Feedback]]]:
        """The log of a user's learner learned anew from where it begins: each state, and the answers that led to it.

        States that are kept on the way go into the store that this trainer was given: give it one that forgets.
        """
        scope = self._scope(user_id)
        saved = self._store.learner_state(scope)
        state = None if saved is None else self._unpacked(saved)
        if state is None:
            first = self._store.feedback(limit=1, user_id=self._only(user_id))
            state = Learned.start(len(first[0][1].embedding) if first else 1, self._config)
        yield from self._steps(user_id, self._first(scope, state))

    def unlearn(self, last: int, user_id: str | None) -> int:
        """Take the last answers out of the log and learn anew from what is left; how many there were."""
        with self._learning:
            learners = self._learners()  # while those are there who have nothing but these answers
            found = self._store.remove_feedback(last, user_id=user_id)
            begun = [(name, self._begin(name, self._first)) for name in learners if found]
        for name, width in begun:
            if width is not None:
                self.catch_up(name, width)
        return found

    def reembedded(self) -> None:
        """Begin anew with another embedder's vectors, but for how much each feature counts."""
        with self._learning:
            for name in self._learners():
                self._begin(name, self._kept)

    def _learners(self) -> list[str]:
        """A user of each learner that there may be."""
        return [""] if self._config.learner_scope == "store" else list(self._store.users())

    def _begin(self, user_id: str, anew: Callable[[str, Learned], Learned]) -> int | None:
        """Save what ``anew`` makes of a learner's scope and state; the width, None when nothing was learned."""
        scope = self._scope(user_id)
        while True:
            saved = self._store.learner_state(scope)
            state = None if saved is None else self._unpacked(saved)
            if state is None:
                return None
            try:
                self._save(scope, replace(anew(scope, state), version=state.version))
                return state.reranker.width
            except ConflictError:
                logger.info("another process learned meanwhile; once more")

    def _first(self, scope: str, state: Learned) -> Learned:
        """Where the log begins: the start, or what was kept when the embedder changed."""
        base = self._kept_as(f"base:{scope}", state.reranker.width)
        return base or Learned.start(state.reranker.width, self._config)

    def _kept(self, scope: str, state: Learned) -> Learned:
        """What holds for another embedder, noted as where the log, which is empty now, begins."""
        width = self._store.width() or state.reranker.width
        kept = state.for_other_embeddings(Learned.start(width, self._config))
        self._keep(f"base:{scope}", kept)
        return kept

    def _keep(self, name: str, state: Learned) -> None:
        """Save a state beside the learner's own."""
        try:
            self._store.save_learner_state(name, state.pack(), base_version=self._store.learner_version(name))
        except ConflictError:
            logger.info("another process kept a state as %s first", name)

    def _kept_as(self, name: str, width: int) -> Learned | None:
        """The state that was kept under a name, unless its embeddings are of another width."""
        saved = self._store.learner_state(name)
        state = None if saved is None else self._unpacked(saved)
        return state if state is not None and state.reranker.width == width else None

    def forget(self, user_id: str) -> None:
        """Let go of what is held of a user."""
        with self._lock:
            self._states.pop(f"user:{user_id}", None)

    def _steps(self, user_id: str, state: Learned) -> Iterator[tuple[Learned, list[Feedback]]]:
        """The states after each full batch of the log that follows, with its answers."""
        scope, only, size = self._scope(user_id), self._only(user_id), self._config.batch_size
        while len(batch := self._store.feedback(after=state.cursor, limit=size, user_id=only)) == size:
            state = self._step(scope, state, batch)
            yield state, [feedback for _, feedback in batch]

    def _step(self, scope: str, state: Learned, batch: list[tuple[int, Feedback]]) -> Learned:
        """The state after one batch."""
        c = self._config
        examples = [e for _, f in batch if (e := self._example(f, state.reranker.width)) is not None]
        guard, regression, places = state.guard, state.regression, state.places
        serving = state.reranker if state.verdict(c).ranking == "learned" else state.prior
        for e in examples:
            scores = serving.score(e.query, e.candidates, e.features)[list(e.shown)]
            guard = guard.observe(e.shown, e.cited, e.duel, scores=scores, places=places)
            places = places.add([i in e.cited for i in e.shown], scores, forget=c.forget)
            if c.features:
                columns = state.reranker.columns(e.query, e.candidates, e.features)[list(e.shown)]
                regression = regression.add(columns, rewards(e.shown, e.cited), forget=c.forget)
        weights = update(state.reranker.weights, examples, state.places, c)
        if c.features:
            weights = replace(weights, mix=regression.weights(start_mix(c), ridge=c.ridge))
        after = replace(
            state,
            reranker=Reranker(weights, c.logit_scale),
            regression=regression,
            places=places,
            guard=guard,
            updates=state.updates + 1,
            cursor=batch[-1][0],
        )
        return self._guarded(scope, state, after) if c.guard else after

    def _guarded(self, scope: str, before: Learned, after: Learned) -> Learned:
        """The state after a step; when this one loses and the one before did not, an earlier one."""
        if after.guard.loses and not before.guard.loses:
            after = self._back(scope, after)
        elif after.guard.wins and after.updates - after.good_at >= _GOOD_EVERY:
            after = replace(after, good_at=after.updates)
            self._keep(f"good:{scope}", after)
        verdict = after.guard.verdict
        if verdict.ranking != before.guard.verdict.ranking:
            level = logging.INFO if verdict.ranking == "learned" else logging.WARNING
            self._told.log(level, "the %s ranking serves from here on: %s", verdict.ranking, verdict.reason)
        return after

    def _back(self, scope: str, now: Learned) -> Learned:
        """What was learned when it last won, to prove itself anew; where learning began when it never did."""
        good = self._kept_as(f"good:{scope}", now.reranker.width) if now.good_at else None
        earlier = good or self._first(scope, now)
        self._told.warning("the reranker goes back to what it was after %d updates", earlier.updates)
        duels = RunningMean() if good else now.guard.duels
        return replace(
            now,
            reranker=earlier.reranker,
            regression=earlier.regression,
            guard=replace(now.guard, duels=duels),
            good_at=0,
        )

    def _save(self, scope: str, state: Learned) -> None:
        version = self._store.save_learner_state(scope, state.pack(), base_version=state.version)
        with self._lock:
            self._states[scope] = replace(state, version=version)

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
            duel=tuple(side for i, side in zip(feedback.shown, feedback.duel, strict=False) if i in place),
        )

    def _state(self, scope: str, width: int) -> Learned:
        """The newest state of a scope."""
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

    def _load(self, scope: str, width: int) -> Learned:
        """The saved state of a scope; the start when there is none."""
        start = Learned.start(width, self._config)
        saved = self._store.learner_state(scope)
        if saved is None:
            return start
        state = self._unpacked(saved)
        if state is None:
            return replace(start, version=saved.version)
        if state.reranker.width == width:
            return state
        logger.warning("embeddings are %d wide and were %d: the adapters start anew", width, state.reranker.width)
        return state.for_other_embeddings(replace(start, version=saved.version))

    def _unpacked(self, saved: LearnerState) -> Learned | None:
        """The state that was saved; None when it is damaged."""
        try:
            return Learned.unpack(saved.content, self._config, saved.version)
        except InputError:
            logger.exception("the saved learner is damaged: learning starts anew")
            return None

    def _scope(self, user_id: str) -> str:
        return "store" if self._config.learner_scope == "store" else f"user:{user_id}"

    def _only(self, user_id: str) -> str | None:
        """Whose answers the learner of a user learns from; None for everybody's."""
        return None if self._config.learner_scope == "store" else user_id


_STEPS_SAVED_AT_ONCE = 64
_GOOD_EVERY = 25  # updates between states kept as good
