"""The tables, each a function from results to Markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks import paper
from benchmarks.methods.catalogue import CATALOGUE
from benchmarks.metrics import Difference
from benchmarks.records import Phase
from benchmarks.scores import WINDOW, Measure, Results, answerable, cited_share, compared, mean


@dataclass(frozen=True)
class DataSet:
    """One data set's results, and what its tables call it.

    Attributes:
        topics: Whose topics the methods with topics have here.
        whole: Whether what has no topics is in its tables: once for all sources of topics is enough.
    """

    name: str
    title: str
    topics: str
    results: Results
    whole: bool = True

    def key(self, method: str) -> str:
        """What a method's runs are filed under."""
        return f"{method}.{self.topics}" if CATALOGUE[method].topics else method

    def has(self, *methods: str) -> bool:
        """Whether all of these were run."""
        return all(self.key(m) in self.results for m in methods)


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table, the first column on the left, figures on the right; empty when it has no rows."""
    marks = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, marks, *rows)) if rows else ""


def share(value: float) -> str:
    """A mean of measures."""
    return f"{value:.3f}"


def percent(value: float | None) -> str:
    """A figure of the paper; a dash where it has none."""
    return "-" if value is None else f"{value:.1f}"


def signed(d: Difference) -> str:
    """A difference and its interval; a dash where nothing was compared."""
    if math.isnan(d.mean):
        return "-"
    return f"{d.mean:+.3f} [{d.low:+.3f}, {d.high:+.3f}]"


def setting(d: DataSet) -> str:
    """What the tables of a data set rest on, in one paragraph."""
    run = d.results.runs["rag-turn"][0] if "rag-turn" in d.results else next(iter(d.results.runs.values()))[0]
    about = run.about
    odds = about["citations"]
    counted = sum(map(answerable, run.first))
    seeds = max(len(runs) for runs in d.results.runs.values())
    return (
        f"{about['conversations']} conversations, {about['questions']:,} questions; counted are {counted:,} that can "
        f"be answered from turns which the data name, unless a table says otherwise. Embedder: {about['embedder']}. "
        f"Citations are simulated: what covers evidence is cited in {odds['recall']:.1%} of cases, anything else in "
        f"{odds['false']:.0%}. What learns is the mean over seeds ({seeds}), each with its own order of questions; R@5 "
        f"is taken before a question is learned from."
    )


def summary(d: DataSet) -> str:
    """The results in short, for the README."""
    wanted: Sequence[tuple[str, str, Phase]] = (
        ("single turns by embedding: a plain vector memory", "rag-turn", "first"),
        ("single turns by BM25", "bm25-turn", "first"),
        ("single turns by both, min-max blend", "blend-turn", "first"),
        ("whole sessions by both", "blend-session", "first"),
        ("single turns under our prior", "prior-turn", "first"),
        ("topics alone by embedding: +PR", "pr", "first"),
        ("the paper's settings, to the letter", "rmm-paper", "first"),
        ("this memory, before it learns", "rmm-prior", "first"),
        ("this memory, while it learns", "rmm", "first"),
        ("this memory, asked again", "rmm", "again"),
    )
    rows = []
    for label, name, phase in wanted:
        if d.has(name) and (d.whole or CATALOGUE[name].topics):
            key = d.key(name)
            figures = (mean(d.results.scores(key, m, phase=phase)) for m in MEASURES)
            _, words = turns_and_words(d, key, phase)
            rows.append([label, *map(share, figures), words])
    head = (f"{d.title}, {d.topics} topics", "R@5", "any@5", "all@5", "words shown")
    verdicts: dict[str, list[str]] = {}
    for claim, gap in claims(d):
        verdicts.setdefault(verdict(gap), []).append(f"{claim} ({gap.mean:+.3f})")
    order = "; ".join(f"*{word}*: {', '.join(found)}" for word, found in verdicts.items())
    return (
        f"{markdown(head, rows)}\n\nThe order of the paper's ablation here: {order}." if order else markdown(head, rows)
    )


MEASURES: tuple[Measure, ...] = ("coverage", "any", "all")


def main_table(d: DataSet) -> str:
    """Table 1: methods, with everything measured."""
    names = (
        "no-history",
        "long-context",
        "rag-turn",
        "rag-round",
        "rag-session",
        "rag-mixed",
        "turn-max",
        "bm25-turn",
        "bm25-content-turn",
        "blend-turn",
        "bm25-session",
        "bm25-content-session",
        "blend-session",
        "prior-turn",
        "rr-prior",
        "memorybank",
        "ld-agent",
        "rmm-paper",
        "pr-rr",
        "rmm-prior",
        "rmm",
        "best-of",
        "oracle",
    )
    head = ["method", "R@5", "any@5", "all@5", "nDCG@5", "R@10", "all@10", "sessions all@5", "turns", "words"]
    reported = paper.LONGMEMEVAL_R5 if d.name == "longmemeval" else {}
    if reported:
        head.append(PAPER)
    rows = []
    for name in filter(d.has, names):
        key = d.key(name)
        figures = [
            mean(d.results.scores(key, measure, k, level=level))
            for measure, k, level in (
                ("coverage", 5, "turn"),
                ("any", 5, "turn"),
                ("all", 5, "turn"),
                ("ndcg", 5, "turn"),
                ("coverage", 10, "turn"),
                ("all", 10, "turn"),
                ("all", 5, "session"),
            )
        ]
        told = [percent(reported.get(name))] * bool(reported)
        rows.append([CATALOGUE[name].label, *map(share, figures), *turns_and_words(d, key), *told])
    return markdown(head, rows)


def turns_and_words(d: DataSet, key: str, phase: Phase = "first") -> tuple[str, str]:
    """How many turns are shown to a question, and how many words these have; means."""
    turns = mean(d.results.means(key, lambda row: row.turns, phase=phase))
    words = mean(d.results.means(key, lambda row: row.words, phase=phase))
    return f"{turns:.1f}", f"{words:.0f}"


def ablation_table(d: DataSet) -> str:
    """Table 2: the paper's parts one by one, each against plain retrieval of turns."""
    names = (
        "rag-turn",
        "pr",
        "pr-unfiled",
        "rr-retriever",
        "rr-retriever-paper",
        "rr",
        "pr-rr",
        "rmm-paper",
        "rmm-paper-greedy",
        "rmm-topics",
        "rmm-prior",
        "rmm",
    )
    head = ("method", "R@5", "asked again", "against RAG, 95 % interval", "words", PAPER)
    base = d.results.scores("rag-turn") if d.has("rag-turn") else {}
    rows = []
    for name in filter(d.has, names):
        key = d.key(name)
        first = d.results.scores(key)
        again = share(mean(d.results.scores(key, phase="again"))) if d.results.runs[key][0].again else "-"
        gain = signed(compared(first, base)) if base and name != "rag-turn" else "-"
        _, words = turns_and_words(d, key)
        rows.append(
            [CATALOGUE[name].label, share(mean(first)), again, gain, words, percent(paper.ABLATION_R5.get(name))]
        )
    return markdown(head, rows)


CLAIMS: tuple[tuple[str, str, str], ...] = (
    ("RAG < +PR", "pr", "rag-turn"),
    ("+RR without reranker < RAG", "rag-turn", "rr-retriever"),
    ("+RR without reranker, by REINFORCE < RAG", "rag-turn", "rr-retriever-paper"),
    ("RAG < +RR", "rr", "rag-turn"),
    ("+PR < RMM", "pr-rr", "pr"),
    ("+RR < RMM", "pr-rr", "rr"),
    ("unfiled turns add to +PR", "pr-unfiled", "pr"),
    ("unfiled turns add to our prior", "rmm-prior", "rmm-topics"),
    ("our default < our default, learned", "rmm", "rmm-prior"),
    ("RMM < our default", "rmm", "pr-rr"),
)


def claims(d: DataSet) -> list[tuple[str, Difference]]:
    """The claims that were run here, and by how much the better is better."""
    return [
        (claim, compared(d.results.scores(d.key(better)), d.results.scores(d.key(worse))))
        for claim, better, worse in CLAIMS
        if d.has(better, worse) and (d.whole or CATALOGUE[better].topics or CATALOGUE[worse].topics)
    ]


def claims_table(d: DataSet) -> str:
    """Whether the paper's order holds here."""
    rows = [[claim, signed(gap), verdict(gap)] for claim, gap in claims(d)]
    return markdown(("claim", "difference, 95 % interval", "here"), rows)


def verdict(d: Difference) -> str:
    """What an interval says of a claim that the difference is above 0."""
    return "shown" if d.low > 0 else "refuted" if d.high < 0 else "not told apart"


def granularity_table(d: DataSet) -> str:
    """Table 4: what is retrieved, and what it weighs (figure 4)."""
    rows = []
    for name in filter(
        d.has, ("rag-turn", "rag-round", "rag-session", "turn-max", "blend-session", "rag-mixed", "pr", "best-of")
    ):
        key = d.key(name)
        rows.append(
            [
                CATALOGUE[name].label,
                share(mean(d.results.scores(key))),
                share(mean(d.results.scores(key, "any"))),
                *turns_and_words(d, key),
                percent(paper.GRANULARITY_R5.get(name)),
            ]
        )
    return markdown(("unit", "R@5", "any@5", "turns", "words", PAPER), rows)


def k_and_m_table(d: DataSet) -> str:
    """Table 5: K = 20, M = 5 against K = 50, M = 10."""
    rows = []
    for name in ("pr-rr", "rmm-paper", "rmm"):
        if d.has(name, f"{name}-wide"):
            narrow, wide = d.key(name), d.key(f"{name}-wide")
            five, ten = d.results.scores(narrow), d.results.scores(wide, k=10)
            rows.append([CATALOGUE[name].label, share(mean(five)), share(mean(ten)), signed(compared(ten, five))])
    if not rows:
        return ""
    rows.append([f"{PAPER}, Contriever", *map(percent, paper.K_AND_M.values()), "-"])
    return markdown(("method", "R@5, K = 20, M = 5", "R@10, K = 50, M = 10", "difference"), rows)


def pretraining_table(d: DataSet) -> str:
    """Table 6: offline pretraining, on the questions held out from it in some seed (figure 5).

    *Without* is without any training; what learns afterwards does so from the held-out questions alone, in their order.
    """
    pairs = (
        ("rag-turn", "pretrained-turn"),
        ("rag-session", "pretrained-session"),
        ("rag-mixed", "pretrained-mixed"),
        ("pr", "pr-pretrained"),
        ("rmm-prior", "rmm-pretrained"),
    )
    rows = []
    for plain, trained in pairs:
        if d.has(plain, trained):
            after, before = d.results.scores(d.key(trained)), d.results.scores(d.key(plain))
            held = frozenset(after)
            rows.append(
                [
                    CATALOGUE[trained].label,
                    str(len(held)),
                    share(mean(before, held)),
                    share(mean(after)),
                    signed(compared(after, before)),
                    percent(paper.GRANULARITY_R5.get(plain)),
                    percent(paper.PRETRAINED_R5.get(trained)),
                ]
            )
    head = ("method", "questions", "R@5 without", "with", "difference", f"{PAPER}, without", "with")
    return markdown(head, rows)


PAPER = "paper, LongMemEval"
"""Above the paper's figures, which are of all of LongMemEval, with other models."""

CURVES = ("rr", "pr-rr", "rmm-paper", "rmm")
"""Methods whose learning is drawn."""


def curve_table(d: DataSet) -> str:
    """Table 7: the share of shown memories that were cited, as learning goes on (figure 6)."""
    found: dict[str, Mapping[int, float]] = {}
    for name in filter(d.has, CURVES):
        steps, shares = cited_share(d.results.runs[d.key(name)])
        found[CATALOGUE[name].label] = dict(zip(steps.tolist(), shares.tolist(), strict=True))
    places = [n for n in (100, 200, 500, 800, 1000, 1500) if any(n in curve for curve in found.values())]
    if not places:
        return ""
    found["the paper, a real model citing"] = paper.CITED_SHARE
    rows = [[label, *(share(curve[n]) if n in curve else "-" for n in places)] for label, curve in found.items()]
    return markdown((f"share cited (simulated) in the {WINDOW} questions up to", *map(str, places)), rows)


def kinds_table(d: DataSet) -> str:
    """Table 9: by type of question."""
    names = [
        n
        for n in ("rag-turn", "blend-turn", "rag-session", "prior-turn", "pr", "pr-rr", "rmm-prior", "rmm")
        if d.has(n)
    ]
    if not names:
        return ""
    kinds: dict[str, list[str]] = {}
    for row in d.results.runs[d.key(names[0])][0].first:
        if answerable(row):
            kinds.setdefault(row.kind, []).append(row.question)
    rows = []
    for name in names:
        scores = d.results.scores(d.key(name))
        rows.append([CATALOGUE[name].label, *(share(mean(scores, frozenset(kinds[k]))) for k in sorted(kinds))])
    return markdown(("R@5", *(f"{k} ({len(kinds[k])})" for k in sorted(kinds))), rows)
