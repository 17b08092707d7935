"""Every method by name, as the tables and ``--methods`` call it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from benchmarks.banks import Banks, Topics
from benchmarks.methods import Method
from benchmarks.methods.pretraining import PretrainedRetrieval, Pretraining
from benchmarks.methods.published import LDAgent, MemoryBank
from benchmarks.methods.reference import BestOf, LongContext, NoHistory, Oracle
from benchmarks.methods.rmm import RMM
from benchmarks.methods.tuned import TunedRetriever
from benchmarks.methods.units import BM25, Blend, Dense, Size, TurnMax, UnitRetrieval
from rmm_core import RMMConfig
from rmm_core.stopwords import STOP_WORDS


@dataclass(frozen=True)
class Setting:
    """What methods are made of.

    Attributes:
        banks: The banks of the data set; its embedder is everybody's.
        topics: Who extracts, for methods that have topics.
        seed: Of whatever is random.
    """

    banks: Banks
    topics: Topics
    seed: int


@dataclass(frozen=True)
class Entry:
    """A method of the catalogue.

    Attributes:
        label: What tables call it.
        make: Makes one.
        m: How many things it shows.
        topics: Whether it has topics, so that it matters who extracts them.
        seeded: Whether something in it is random.
        recorded: Whether it needs facts that are recorded with the data.
    """

    label: str
    make: Callable[[Setting], Method]
    m: int = 5
    topics: bool = False
    seeded: bool = False
    recorded: bool = False


def _dense(size: Size) -> Callable[[Setting], UnitRetrieval]:
    return lambda s: UnitRetrieval(size, lambda units: Dense(units, s.banks.embedder))


def _bm25(size: Size) -> Callable[[Setting], UnitRetrieval]:
    return lambda s: UnitRetrieval(size, BM25)


def _bm25_content(size: Size) -> Callable[[Setting], UnitRetrieval]:
    return lambda s: UnitRetrieval(size, lambda units: BM25(units, STOP_WORDS))


def _blend(size: Size) -> Callable[[Setting], UnitRetrieval]:
    return lambda s: UnitRetrieval(size, lambda units: Blend(Dense(units, s.banks.embedder), BM25(units)))


def _pretrained(size: Size) -> Callable[[Setting], Method]:
    return lambda s: PretrainedRetrieval(size, Pretraining(s.banks.embedder, seed=s.seed))


def _rmm(
    config: RMMConfig, *, topics: bool = True, learns: bool = True, pretrained: bool = False
) -> Callable[[Setting], Method]:
    def make(s: Setting) -> Method:
        seeded = replace(config, seed=s.seed, prompt_tokens=None)  # a budget is no matter of ranking
        pretraining = Pretraining(s.banks.embedder, seed=s.seed) if pretrained else None
        return RMM(s.banks, seeded, s.topics if topics else "none", learns=learns, pretraining=pretraining)

    return make


_DENSE = RMMConfig(features=False)
_TOPICS = RMMConfig(features=False, unfiled=False)
_PAPER_CALM = RMMConfig.paper(serving="greedy", logit_scale=10.0)
_WIDE = {"top_k": 50, "top_m": 10}

CATALOGUE: dict[str, Entry] = {
    # what there is without a memory
    "no-history": Entry("No History", lambda s: NoHistory()),
    "long-context": Entry("Long Context, 8,000 words", lambda s: LongContext(8000)),
    "oracle": Entry("Oracle", lambda s: Oracle()),
    # retrieval
    "rag-turn": Entry("RAG: turns, dense", _dense("turn")),
    "rag-round": Entry("RAG: rounds, dense", _dense("round")),
    "rag-session": Entry("RAG: sessions, dense", _dense("session")),
    "rag-mixed": Entry("RAG: turns and sessions mixed, dense", _dense("mixed")),
    "rag-fact": Entry("Recorded facts, dense", _dense("fact"), recorded=True),
    "best-of": Entry("Best of turn and session", lambda s: BestOf(_dense("turn")(s), _dense("session")(s))),
    "turn-max": Entry(
        "Sessions by their best turn, dense", lambda s: TurnMax("turn", lambda units: Dense(units, s.banks.embedder))
    ),
    "bm25-turn": Entry("BM25: turns", _bm25("turn")),
    "bm25-session": Entry("BM25: sessions", _bm25("session")),
    "bm25-content-turn": Entry("BM25 without question words: turns", _bm25_content("turn")),
    "bm25-content-session": Entry("BM25 without question words: sessions", _bm25_content("session")),
    "blend-turn": Entry("Dense + BM25: turns", _blend("turn")),
    "blend-session": Entry("Dense + BM25: sessions", _blend("session")),
    "prior-turn": Entry("Turns, our prior", _rmm(RMMConfig(), topics=False, learns=False)),
    "memorybank": Entry("MemoryBank", lambda s: MemoryBank(s.banks.embedder, 5)),
    "ld-agent": Entry("LD-Agent", lambda s: LDAgent(s.banks, s.topics), topics=True),
    # the paper's parts
    "pr": Entry("+PR: topics alone, dense", _rmm(_TOPICS, learns=False), topics=True),
    "pr-unfiled": Entry("+PR with unfiled turns, dense", _rmm(_DENSE, learns=False), topics=True),
    "rr-retriever": Entry(
        "+RR without reranker", lambda s: TunedRetriever("turn", s.banks.embedder, RMMConfig()), seeded=True
    ),
    "rr-retriever-paper": Entry(
        "+RR without reranker, REINFORCE",
        lambda s: TunedRetriever("turn", s.banks.embedder, _PAPER_CALM),
        seeded=True,
    ),
    "rr": Entry("+RR: turns, dense, learned", _rmm(_DENSE, topics=False), seeded=True),
    "rr-prior": Entry("+RR on turns, our prior, learned", _rmm(RMMConfig(), topics=False), seeded=True),
    "pr-rr": Entry("RMM: topics, dense, learned", _rmm(_TOPICS), topics=True, seeded=True),
    "rmm-paper": Entry("RMM, the paper to the letter", _rmm(RMMConfig.paper()), topics=True, seeded=True),
    "rmm-paper-greedy": Entry(
        "RMM, the paper's update, greedy and scaled", _rmm(_PAPER_CALM), topics=True, seeded=True
    ),
    "rmm-topics": Entry(
        "RMM, our default without unfiled turns, before it learns",
        _rmm(RMMConfig(unfiled=False), learns=False),
        topics=True,
    ),
    "rmm-prior": Entry("RMM, our default, before it learns", _rmm(RMMConfig(), learns=False), topics=True),
    "rmm": Entry("RMM, our default", _rmm(RMMConfig()), topics=True, seeded=True),
    # K and M
    "pr-rr-wide": Entry(
        "RMM: topics, dense, learned, K = 50, M = 10", _rmm(replace(_TOPICS, **_WIDE)), m=10, topics=True, seeded=True
    ),
    "rmm-paper-wide": Entry(
        "RMM, the paper to the letter, K = 50, M = 10", _rmm(RMMConfig.paper(**_WIDE)), m=10, topics=True, seeded=True
    ),
    "rmm-wide": Entry("RMM, our default, K = 50, M = 10", _rmm(RMMConfig(**_WIDE)), m=10, topics=True, seeded=True),
    # offline pretraining
    "pretrained-turn": Entry("Turns, pretrained", _pretrained("turn"), seeded=True),
    "pretrained-session": Entry("Sessions, pretrained", _pretrained("session"), seeded=True),
    "pretrained-mixed": Entry("Turns and sessions mixed, pretrained", _pretrained("mixed"), seeded=True),
    "pr-pretrained": Entry("Topics, pretrained, learned", _rmm(_TOPICS, pretrained=True), topics=True, seeded=True),
    "rmm-pretrained": Entry(
        "RMM, our default, pretrained", _rmm(RMMConfig(), pretrained=True), topics=True, seeded=True
    ),
}
