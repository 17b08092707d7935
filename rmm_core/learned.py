"""The state of one learner: all that its answers taught, and what that is measured against."""

from __future__ import annotations

import io
from dataclasses import astuple, dataclass, field, replace

import numpy as np

from rmm_core.config import RMMConfig
from rmm_core.errors import InputError
from rmm_core.features import SCORED_BY
from rmm_core.guard import Guard, RunningMean, Verdict
from rmm_core.places import Places
from rmm_core.regression import RewardRegression
from rmm_core.reranker import Reranker, Weights, start_mix
from rmm_core.types import LearnerStatus


@dataclass(frozen=True, eq=False)
class Learned:
    """The state of one learner.

    Attributes:
        reranker: The learned weights.
        prior: The weights that owe nothing to citations.
        regression: What the weights of the features follow from.
        places: How often memories are cited at each place.
        guard: Whether what was learned may serve.
        updates: Steps taken.
        cursor: The last entry of the learning log that was learned from.
        good_at: After how many updates the last good state was kept; 0 for none.
        version: What the store knows this state as; 0 for the start.
    """

    reranker: Reranker
    prior: Reranker
    regression: RewardRegression
    places: Places = field(default_factory=Places.unknown)
    guard: Guard = field(default_factory=Guard)
    updates: int = 0
    cursor: int = 0
    good_at: int = 0
    version: int = 0

    @classmethod
    def start(cls, width: int, config: RMMConfig, *, version: int = 0) -> Learned:
        """Nothing learned yet."""
        weights = Weights.start(width, config)
        prior = replace(weights, mix=start_mix(config, history=False))
        return cls(
            Reranker(weights, config.logit_scale),
            Reranker(prior, config.logit_scale),
            RewardRegression.empty(len(weights.mix)),
            version=version,
        )

    def verdict(self, config: RMMConfig) -> Verdict:
        """Which ranking serves, and why."""
        if not self.updates:
            return Verdict("prior", f"nothing learned yet: an update takes {config.batch_size} answers")
        return self.guard.verdict if config.guard else Verdict("learned", "the guard is off")

    def status(self, config: RMMConfig) -> LearnerStatus:
        """How it stands, for people."""
        verdict, a, d = self.verdict(config), self.guard.agreement, self.guard.duels
        agreement = a.mean / a.error if a.count else None
        duels = (d.mean, d.error) if d.count else None
        weights = dict(zip(SCORED_BY, self.reranker.weights.mix.tolist(), strict=True))
        return LearnerStatus(self.updates, verdict.ranking, verdict.reason, agreement, duels, weights)

    def for_other_embeddings(self, start: Learned) -> Learned:
        """What of it holds for another embedder: how much each feature counts, and not the adapters."""
        weights = replace(start.reranker.weights, mix=self.reranker.weights.mix)
        return replace(
            start,
            reranker=Reranker(weights, start.reranker.logit_scale),
            regression=self.regression,
            places=self.places,
            updates=self.updates,
            cursor=self.cursor,
        )

    def pack(self) -> bytes:
        """This state as bytes, the prior left out: the configuration gives it."""
        g = self.guard
        numbers = [*astuple(g.agreement), *astuple(g.duels), g.believes, self.updates, self.cursor, self.good_at]
        buffer = io.BytesIO()
        np.savez(
            buffer,
            reranker=np.frombuffer(self.reranker.state(), dtype=np.uint8),
            scatter=self.regression.scatter,
            product=self.regression.product,
            places=np.stack(astuple(self.places)),
            numbers=np.asarray(numbers, dtype=np.float64),
        )
        return buffer.getvalue()

    @classmethod
    def unpack(cls, content: bytes, config: RMMConfig, version: int) -> Learned:
        """The state that :meth:`pack` packed.

        Args:
            content: The bytes.
            config: Gives the prior.
            version: What the store knows the state as.

        Raises:
            InputError: When ``content`` is damaged, or of another version of this package.
        """
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as packed:
                reranker = Reranker.load(packed["reranker"].tobytes(), config.logit_scale)
                regression = RewardRegression(packed["scatter"], packed["product"])
                places = Places(*packed["places"])
                numbers = packed["numbers"].tolist()
            believes, updates, cursor, good_at = map(int, numbers[6:])
            guard = Guard(RunningMean(*numbers[:3]), RunningMean(*numbers[3:6]), bool(believes))
        except Exception as error:  # of damaged bytes, zip and numpy raise a dozen kinds
            raise InputError(f"this is no learner state: {error}") from error
        start = cls.start(reranker.width, config, version=version)
        if regression.product.shape != start.regression.product.shape:
            raise InputError("this learner state has other features than this version's")
        return replace(
            start,
            reranker=reranker,
            regression=regression,
            places=places,
            guard=guard,
            updates=updates,
            cursor=cursor,
            good_at=good_at,
        )
