"""Every knob, with its measured default and the paper's value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, astuple, dataclass, field, fields
from typing import Any, Literal, Self

from rmm_core.errors import ConfigError
from rmm_core.features import FeatureWeights
from rmm_core.types import Role


@dataclass(frozen=True, kw_only=True)
class RMMConfig:
    """Settings of one memory; ``RMMConfig()`` is the measured default.

    ``RMMConfig.paper()`` gives the settings and the sampling of the paper's section 5 to the
    letter, for research: with normalised embeddings they retrieve worse than no reranker at all
    (see ``docs/architecture.md``).

    Retrieval:
        top_k: K, how many each list of candidates brings to the reranker.
        top_m: M, how many memories the model is shown.
        features: Whether candidates also come from, and are scored by, what is known beside their embeddings: words
            they share with the query, what stands around them, what earlier answers cited. Off in the paper.
        prior: What each of these counts before anything is learned, in units of cosine similarity.
        floor: Candidates scoring below this are not shown at all; None shows the best M
            whatever they score. In units of cosine similarity plus weighted features.
        prompt_tokens: Budget of the memory block, at four characters a token; the lowest
            ranked memories are left out until it fits. None sets no bound.

    Ranking and learning (paper section 4):
        logit_scale: What scores are multiplied by before noise and softmax; cosines lie in
            [-1, 1] and mean nothing to either. The paper has none, which is 1.
        serving: ``"greedy"`` shows the best M; ``"sampled"`` draws them with Gumbel noise (eq. 2).
        temperature: tau of the selection probabilities.
        baseline: b of eq. 3.
        estimator: How the two matrices learn. ``"contrast"``: cited against shown and not cited. ``"listwise"``:
            likelihood of the cited under a softmax over the shown. ``"reinforce"``: eq. 3.
        learning_rate: Step for the two matrices. 0 leaves them out: a learner is 7 kB then, and not 2 d² floats.
        ridge: How much answers must say before the weights of the features move; see :mod:`rmm_core.regression`.
        forget: Share by which the weight of all earlier answers shrinks with every answer.
        batch_size: Answers per update.
        anchor: Share by which every update also pulls the matrices back to zero, and keeps them within reach of it:
            none adds more than twice its length to a vector. 0 does neither.
        guard: Whether the prior ranking serves unless citations can be believed and the learned one does not lose.
        duels: Share of the answers before which the two rankings, where they disagree on what to show, share the
            places by the toss of a coin. It is how the guard learns which of them is better.
        learner_scope: ``"store"``: all users of a store train one reranker. ``"user"``: each
            user has their own, and nobody's citations move anybody else's ranking.
        attribution: What an answer without any marker means. ``"markers"``: nothing is learned.
            ``"overlap"``: the memories whose words it repeats count as cited. ``"auto"``: overlap
            when the memory has no language model, markers otherwise.

    Reflection (paper section 3):
        speakers: Whose facts are extracted, in this order, one model call each.
        neighbours: How many similar memories the update decision is shown.
        merge_floor: Only memories at least this similar (cosine) are offered for a merge, and a new memory with
            none is added without asking. It saves calls, and keeps a small model, which would rather
            merge than add, from making one memory of everything; 0.6 suits all-MiniLM-L6-v2. None offers
            the most similar whatever they are, as the paper does.
        piece_turns: Sessions longer than this are extracted in pieces of this many turns;
            None never cuts.
        piece_overlap: Turns that neighbouring pieces share.
        piece_characters: A piece also ends before it would grow past this.
        unfiled: Whether turns no topic refers to stay reachable. Off in the paper.

    Sessions:
        idle_minutes: A session silent for longer counts as ended.
        session_turns: A session is reflected on its way whenever this many turns have come
            together; None waits for its end.
        lease_minutes: A worker that reflects a session and has asked no model for longer counts as dead, and
            another may take the session up. Longer than the longest reply takes.

    Retention:
        expire_days: A memory that nothing was added to for longer is not shown any more, and deleted by
            ``memory.purge()``, with what was said before; None keeps it.
        expire_uncited_days: The same for one that no answer cited for longer, nor anything was added to.

    Other:
        seed: Of all randomness.
        cache_bytes: Bound on the per-user search indexes kept in memory.
        trace_content: Whether spans name users and hold questions; ids of recalls and sessions they hold anyway.
    """

    top_k: int = 20
    top_m: int = 5
    features: bool = True
    prior: FeatureWeights = field(default_factory=FeatureWeights)
    floor: float | None = None
    prompt_tokens: int | None = 4000

    logit_scale: float = 10.0
    serving: Literal["greedy", "sampled"] = "greedy"
    temperature: float = 0.5
    baseline: float = 0.5
    estimator: Literal["contrast", "listwise", "reinforce"] = "contrast"
    learning_rate: float = 0.015
    ridge: float = 3.0
    forget: float = 1e-3
    batch_size: int = 4
    anchor: float = 1e-3
    guard: bool = True
    duels: float = 0.1
    learner_scope: Literal["store", "user"] = "store"
    attribution: Literal["auto", "markers", "overlap"] = "auto"

    speakers: tuple[Role, ...] = ("user", "agent")
    neighbours: int = 5
    merge_floor: float | None = None
    piece_turns: int | None = 20
    piece_overlap: int = 2
    piece_characters: int = 12_000
    unfiled: bool = True

    idle_minutes: float = 30.0
    session_turns: int | None = 200
    lease_minutes: float = 10.0

    expire_days: float | None = None
    expire_uncited_days: float | None = None

    seed: int = 0
    cache_bytes: int = 256 * 1024 * 1024
    trace_content: bool = False

    def __new__(cls, **given: Any) -> Self:
        """Refuse unknown settings before the generated ``__init__`` sees them."""
        known = [f.name for f in fields(cls)]
        for name in given:
            if name not in known:
                import difflib  # for a mistake only

                close = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(known))}"
                raise ConfigError(f"RMMConfig has no setting {name!r}; {hint}")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if value not in allowed:
                raise ConfigError(f"{name} is one of {', '.join(map(repr, allowed))}; got {value!r}")
        for name, rule, test in _RULES:
            value = getattr(self, name)
            if not _holds(test, value):
                raise ConfigError(f"{name} must be {rule}; got {value!r}")
        if not isinstance(self.speakers, tuple) or not {*self.speakers} <= {"user", "agent"} or not self.speakers:
            raise ConfigError(f"speakers is a tuple that holds 'user', 'agent' or both; got {self.speakers!r}")
        for name in ("features", "guard", "unfiled", "trace_content"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name} is True or False; got {getattr(self, name)!r}")
        if not isinstance(self.prior, FeatureWeights) or not all(map(_finite, astuple(self.prior))):
            raise ConfigError(f"prior is FeatureWeights(...) of finite numbers; got {self.prior!r}")
        if self.piece_turns is not None and self.piece_overlap >= self.piece_turns:
            raise ConfigError(f"piece_overlap ({self.piece_overlap}) must be below piece_turns ({self.piece_turns})")
        if self.top_m > self.top_k:
            raise ConfigError(f"top_m ({self.top_m}) must not be above top_k ({self.top_k})")

    @classmethod
    def paper(cls, **changes: Any) -> Self:
        """The settings of the paper (its section 5): K = 20, M = 5, sampled serving, REINFORCE."""
        settings: dict[str, Any] = {
            "top_k": 20,
            "top_m": 5,
            "features": False,
            "prompt_tokens": None,
            "logit_scale": 1.0,
            "serving": "sampled",
            "temperature": 0.5,
            "baseline": 0.5,
            "estimator": "reinforce",
            "learning_rate": 1e-3,
            "batch_size": 4,
            "anchor": 0.0,
            "guard": False,
            "neighbours": 20,
            "piece_turns": None,
            "unfiled": False,
        }
        return cls(**(settings | changes))

    def to_dict(self) -> dict[str, Any]:
        """All settings by name, for logs and benchmark records."""
        return asdict(self)


_CHOICES: dict[str, tuple[str, ...]] = {
    "serving": ("greedy", "sampled"),
    "estimator": ("contrast", "listwise", "reinforce"),
    "learner_scope": ("store", "user"),
    "attribution": ("auto", "markers", "overlap"),
}


def _holds(test: Callable[[Any], bool], value: Any) -> bool:
    """Whether ``value`` passes ``test``; a value of the wrong type does not."""
    try:
        return not isinstance(value, bool) and test(value)
    except TypeError:
        return False


def _count(value: Any) -> bool:
    return isinstance(value, int) and value >= 1


def _at_least_0(value: Any) -> bool:
    return bool(0 <= value < float("inf"))


def _above_0(value: Any) -> bool:
    return bool(0 < value < float("inf"))


def _finite(value: Any) -> bool:
    return bool(abs(value) < float("inf"))


_RULES: tuple[tuple[str, str, Callable[[Any], bool]], ...] = (
    ("top_k", "a whole number of at least 1", _count),
    ("top_m", "a whole number of at least 1", _count),
    ("neighbours", "a whole number of at least 1", _count),
    ("batch_size", "a whole number of at least 1", _count),
    ("piece_characters", "a whole number of at least 1", _count),
    ("piece_turns", "None or a whole number of at least 1", lambda v: v is None or _count(v)),
    ("session_turns", "None or a whole number of at least 1", lambda v: v is None or _count(v)),
    ("prompt_tokens", "None or a whole number of at least 1", lambda v: v is None or _count(v)),
    ("piece_overlap", "a whole number of at least 0", lambda v: isinstance(v, int) and v >= 0),
    ("floor", "None or a finite number", lambda v: v is None or _finite(v)),
    ("merge_floor", "None or a finite number", lambda v: v is None or _finite(v)),
    ("baseline", "a finite number", _finite),
    ("seed", "a whole number of at least 0", lambda v: isinstance(v, int) and v >= 0),
    ("cache_bytes", "a finite number of at least 0", _at_least_0),
    ("logit_scale", "a finite number above 0", _above_0),
    ("temperature", "a finite number above 0", _above_0),
    ("learning_rate", "a finite number of at least 0", _at_least_0),
    ("ridge", "a finite number above 0", _above_0),
    ("forget", "at least 0 and below 1", lambda v: 0 <= v < 1),
    ("anchor", "at least 0 and below 1", lambda v: 0 <= v < 1),
    ("duels", "between 0 and 1", lambda v: 0 <= v <= 1),
    ("idle_minutes", "a finite number of at least 0", _at_least_0),
    ("expire_days", "None or a finite number above 0", lambda v: v is None or _above_0(v)),
    ("expire_uncited_days", "None or a finite number above 0", lambda v: v is None or _above_0(v)),
    ("lease_minutes", "a finite number above 0", _above_0),
)
