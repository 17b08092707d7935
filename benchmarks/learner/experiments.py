"""The experiments: each gives what its JSON file holds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from benchmarks.banks import Banks
from benchmarks.datasets import Conversation
from benchmarks.evaluation import Asked, Citer, Examiner
from benchmarks.feedback import SimulatedCitations
from benchmarks.learner.pools import FIXED, Pool, Sheet, splits
from benchmarks.methods.rmm import RMM
from rmm_core import FeatureWeights, RMMConfig
from rmm_core.features import SCORED_BY

Say: TypeAlias = Callable[[str], None]
SEEDS = (0, 1, 2)
CHECKPOINTS = (0, 25, 50, 100, 200, 400, 800, 1600)
ANSWERS = 2000


@dataclass(frozen=True)
class Corpus:
    """A data set read, with its banks."""

    conversations: Sequence[Conversation]
    banks: Banks

    def opened(
        self, pool: Pool, config: RMMConfig, *, learns: bool = True, hidden: Collection[str] = ()
    ) -> tuple[RMM, Examiner]:
        """A memory of all conversations, and who asks it."""
        method = pool.method(self.banks, config, learns=learns, hidden=hidden)
        return method, Examiner(method, self.conversations, config.top_m)

    def fixed(self, pool: Pool, weights: FeatureWeights, hidden: Collection[str] = ()) -> Sheet:
        """What a ranking that does not learn brings up."""
        method, examiner = self.opened(pool, RMMConfig(prior=weights), learns=False, hidden=hidden)
        sheet = Sheet(pool)
        ask(examiner, examiner.asked, sheet)
        method.close()
        return sheet


def ask(examiner: Examiner, asked: Sequence[Asked], sheet: Sheet, citer: Citer | None = None) -> None:
    """Note what comes up for questions, in this order; what ``citer`` cites is learned from."""
    for conversation, question in asked:
        sheet.add(conversation.name, examiner.ask(conversation, question, citer))


def of(examiner: Examiner, group: frozenset[str]) -> list[Asked]:
    """The questions of a group of users."""
    return [a for a in examiner.asked if a[0].name in group]


def unseen(corpus: Corpus, pool: Pool, config: RMMConfig, say: Say) -> dict[str, Any]:
    """Learned from other users' questions: each fifth of the users is held out once, and learns nothing itself."""
    prior, held, known = corpus.fixed(pool, config.prior), Sheet(pool), Sheet(pool)
    weights = []
    for seed in SEEDS:
        for group in splits([c.name for c in corpus.conversations]):
            method, examiner = corpus.opened(pool, replace(config, seed=seed))
            others = shuffled([a for a in examiner.asked if a[0].name not in group], seed)
            citer = SimulatedCitations(np.random.default_rng(seed)).cited
            ask(examiner, others, known, citer)
            ask(examiner, of(examiner, group), held)
            weights.append(_mix(method))
            method.close()
        say(f"unseen, {pool.label}, seed {seed}: {held.summary()['coverage@5']['mean']:.3f}")
    fixed = {name: corpus.fixed(pool, w) for name, w in FIXED.items()}
    return {
        "fixed": {name: sheet.summary() for name, sheet in fixed.items()},
        "prior": prior.summary(),
        "learned": held.summary(),
        "gain": held.ahead_of(prior),
        "gain over fixed": {name: held.ahead_of(sheet) for name, sheet in fixed.items()},
        "while learning": known.summary(),
        "weights": _named(_mean(weights)),
    }


def recurring(corpus: Corpus, pool: Pool, config: RMMConfig, say: Say) -> dict[str, Any]:
    """One pass over all questions, each scored before it is learned from, and the same asked again."""
    prior, first, again = corpus.fixed(pool, config.prior), Sheet(pool), Sheet(pool)
    for seed in SEEDS:
        _pass(corpus, pool, replace(config, seed=seed), first, again)
        say(f"recurring, {pool.label}, seed {seed}: again {again.summary()['coverage@5']['mean']:.3f}")
    return {
        "prior": prior.summary(),
        "first": first.summary(),
        "again": again.summary(),
        "gain at first": first.ahead_of(prior),
        "gain again": again.ahead_of(prior),
    }


def transfer(source: Corpus, origin: Pool, target: Corpus, pool: Pool, say: Say) -> dict[str, Any]:
    """Weights learned on one corpus where learning starts on another: how many answers until they fit."""
    method, examiner = source.opened(origin, RMMConfig())
    citer = SimulatedCitations(np.random.default_rng(0)).cited
    ask(examiner, shuffled(examiner.asked, 0), Sheet(origin), citer)
    start = _mix(method)
    method.close()
    fixed = {name: target.fixed(pool, w) for name, w in FIXED.items()} | {
        "our default": target.fixed(pool, FeatureWeights()),
        "what the other corpus taught": target.fixed(pool, start),
    }
    reached: dict[int, Sheet] = {n: Sheet(pool) for n in CHECKPOINTS}
    for seed in SEEDS:
        for group in splits([c.name for c in target.conversations]):
            method, examiner = target.opened(pool, RMMConfig(prior=start, seed=seed, guard=False))
            others = shuffled([a for a in examiner.asked if a[0].name not in group and not a[1].abstains], seed)
            citer = SimulatedCitations(np.random.default_rng(seed)).cited
            for n in CHECKPOINTS:
                if n > len(others):
                    break
                ask(examiner, others[max((k for k in CHECKPOINTS if k < n), default=0) : n], Sheet(pool), citer)
                ask(examiner, of(examiner, group), reached[n])
            method.close()
        say(f"transfer to {pool.label}, seed {seed}")
    return {
        "start": _named(start),
        "fixed": {name: sheet.summary() for name, sheet in fixed.items()},
        "answers": {str(n): sheet.summary() for n, sheet in reached.items() if sheet.rows},
    }


def variants(corpus: Corpus, pool: Pool, say: Say) -> dict[str, Any]:
    """Our default with one part left out at a time."""
    found: dict[str, Any] = {}
    whole: dict[str, Sheet] = {}
    for name, (config, hidden) in VARIANTS.items():
        sheets = {phase: Sheet(pool) for phase in ("prior", "first", "again")}
        sheets["prior"] = corpus.fixed(pool, config.prior, hidden)
        for seed in SEEDS:
            _pass(corpus, pool, replace(config, seed=seed), sheets["first"], sheets["again"], hidden)
        whole = whole or sheets
        found[name] = {phase: sheet.summary() for phase, sheet in sheets.items()}
        if sheets is not whole:
            found[name] |= {f"{phase} ahead": sheet.ahead_of(whole[phase]) for phase, sheet in sheets.items()}
        figures = (f"{phase} {s.summary()['coverage@5']['mean']:.3f}" for phase, s in sheets.items())
        say(f"{name}, {pool.label}: {', '.join(figures)}")
    return found


def harm(corpus: Corpus, pool: Pool, say: Say) -> dict[str, Any]:
    """Citations of all kinds, many answers, and what is served after them; questions come up several times."""
    found = {}
    prior = corpus.fixed(pool, RMMConfig().prior)
    before = prior.values("coverage@5")
    for name, guarded in [(name, True) for name in CITERS] + [("useful", False), ("random, 2 in 10", False)]:
        method, examiner = corpus.opened(pool, RMMConfig(guard=guarded))
        rng = np.random.default_rng(0)
        citer = CITERS[name](rng)
        asked = [a for a in examiner.asked if a[1].evidence and not a[1].abstains]
        order = [i for _ in range(-(-ANSWERS // len(asked))) for i in rng.permutation(len(asked))][:ANSWERS]
        trace: list[tuple[float, str]] = []
        for c, q in (asked[i] for i in order):
            row = examiner.ask(c, q, citer)
            trace.append((row.at(5).coverage - before[c.name, q.id], method.ranking))
        after = Sheet(pool)
        ask(examiner, asked, after)
        status = method.memory.status(asked[0][0].name).learner
        method.close()
        key = name if guarded else f"{name}, without the guard"
        found[key] = {
            "after": after.summary(),
            "ahead of the prior": after.ahead_of(prior),
            "ranking": status.ranking,
            "reason": status.reason,
            "served": [
                {
                    "answers": start + WINDOW,
                    "ahead": round(float(np.mean([v for v, _ in trace[start : start + WINDOW]])), 4),
                    "learned": round(float(np.mean([r == "learned" for _, r in trace[start : start + WINDOW]])), 4),
                }
                for start in range(0, len(trace), WINDOW)
            ],
        }
        say(f"{key}: {found[key]['after']['coverage@5']['mean']:.3f}, {status.ranking}: {status.reason}")
    return {"prior": prior.summary(), "citations": found}


def _pass(
    corpus: Corpus, pool: Pool, config: RMMConfig, first: Sheet, again: Sheet, hidden: Collection[str] = ()
) -> None:
    """All questions in the seed's order, and once more."""
    method, examiner = corpus.opened(pool, config, hidden=hidden)
    asked = shuffled(examiner.asked, config.seed)
    citer = SimulatedCitations(np.random.default_rng(config.seed)).cited
    ask(examiner, asked, first, citer)
    ask(examiner, asked, again)
    method.close()


def shuffled(asked: Sequence[Asked], seed: int) -> list[Asked]:
    """Questions in the order of a seed."""
    return [asked[i] for i in np.random.default_rng(seed).permutation(len(asked))]


def _mix(method: RMM) -> FeatureWeights:
    """What a memory learned to weigh, in units of similarity."""
    users = method.memory.users()
    weights = method.memory.status(users[0]).learner.weights
    return FeatureWeights(**{name: weight / weights["similarity"] for name, weight in weights.items()})


def _named(weights: FeatureWeights) -> dict[str, float]:
    return {name: round(float(w), 3) for name, w in asdict(weights).items()}


def _mean(all_weights: Sequence[FeatureWeights]) -> FeatureWeights:
    return FeatureWeights(**{name: float(np.mean([asdict(w)[name] for w in all_weights])) for name in SCORED_BY})


def _without(*names: str) -> tuple[RMMConfig, tuple[str, ...]]:
    return RMMConfig(prior=replace(FeatureWeights(), **dict.fromkeys(names, 0.0))), names


VARIANTS: dict[str, tuple[RMMConfig, tuple[str, ...]]] = {
    "our default": (RMMConfig(), ()),
    "weights of the features do not learn": (RMMConfig(ridge=1e9), ()),
    "adapters do not learn": (RMMConfig(learning_rate=0.0), ()),
    "adapters by listwise": (RMMConfig(estimator="listwise"), ()),
    "adapters by REINFORCE": (RMMConfig(estimator="reinforce", learning_rate=1e-3), ()),
    "without earlier answers": _without("cited", "passed_over"),
    "without words": _without("own", "window", "session"),
    "without what stands around": _without("session_similarity", "neighbours"),
    "without who says it": _without("speaker"),
    "without length": _without("length"),
    "without question, time, figures": _without("question", "dated", "number"),
    "without how early": _without("early"),
    "without the guard": (RMMConfig(guard=False), ()),
}
WINDOW = 100
CITERS: dict[str, Callable[[np.random.Generator], Citer]] = {
    "useful": lambda rng: SimulatedCitations(rng).cited,
    "random, 2 in 10": lambda rng: SimulatedCitations(rng, recall=0.2, false=0.2).cited,
    "random, 5 in 10": lambda rng: SimulatedCitations(rng, recall=0.5, false=0.5).cited,
    "always the last": lambda rng: lambda useful: (len(useful),),
    "always the first": lambda rng: lambda useful: (1,),
    "always all": lambda rng: lambda useful: tuple(range(1, len(useful) + 1)),
    "always none": lambda rng: lambda useful: (),
}
