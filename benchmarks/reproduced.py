"""What others, or our own prototype, reported, beside what comes out here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from benchmarks.records import Row
from benchmarks.scores import answerable, mean, with_evidence
from benchmarks.tables import DataSet, markdown, share


def reproduction_table(d: DataSet) -> str:
    """What others, or our own prototype, reported, and what comes out here."""
    rows = _REPRODUCED[d.name](d) if d.name in _REPRODUCED else ()
    table = markdown(("figure", "reported", "here", "n"), [list(r) for r in rows])
    return f"{table}\n\n{_STEMMED}" if "*" in table else table


_STEMMED = (
    "Reported on all questions (n = 419), with * on these 200 without stemming; ours stems. In brackets: questions "
    "whose evidence the assistant said count as missed."
)


def _locomo_reproduced(d: DataSet) -> Sequence[tuple[str, str, str, str]]:
    if not d.has("rag-turn", "rag-fact", "bm25-turn", "blend-turn"):
        return ()
    covered = d.results.questions("rag-fact", lambda row: answerable(row) and row.reachable > 0)
    turns, facts = d.results.scores("rag-turn"), d.results.scores("rag-fact")
    found = [
        ("turns, dense: R@5", "0.362", share(mean(turns)), str(len(turns))),
        (
            "facts, dense: R@5 of questions that some fact covers",
            "0.638",
            share(mean(facts, covered)),
            str(len(covered)),
        ),
    ]
    for label, name, reported in (("BM25", "bm25-turn", "0.55"), ("min-max blend", "blend-turn", "0.59")):
        scores = d.results.scores(name, "any", asked=with_evidence)
        found.append(
            (f"turns, {label}: any@5, adversarial ones included", reported, share(mean(scores)), str(len(scores)))
        )
    return found


def _longmemeval_reproduced(d: DataSet) -> Sequence[tuple[str, str, str, str]]:
    found = []
    for label, name, level, reported in (
        ("sessions, dense", "rag-session", "session", "0.852"),
        ("sessions by their best turn, dense", "turn-max", "session", "-"),
        ("sessions, BM25", "bm25-session", "session", "0.765*"),
        ("sessions, BM25 without question words", "bm25-content-session", "session", "-"),
        ("sessions, hybrid", "blend-session", "session", "0.876"),
        ("turns, dense", "rag-turn", "turn", "0.511"),
        ("turns, BM25", "bm25-turn", "turn", "0.580*"),
        ("turns, BM25 without question words", "bm25-content-turn", "turn", "-"),
        ("turns, hybrid", "blend-turn", "turn", "0.668"),
        ("turns, our prior", "prior-turn", "turn", "-"),
        ("turns, our prior, learned", "rr-prior", "turn", "-"),
    ):
        if d.has(name):
            narrow = d.results.scores(name, "all", level=level)
            strict = d.results.means(
                name, lambda row, level=level: row.at(5, level).all if row.evidence else 0.0, asked=_not_abstaining
            )
            found.append(
                (
                    f"{label}: recall_all@5",
                    reported,
                    f"{share(mean(narrow))} ({share(mean(strict))})",
                    f"{len(narrow)} ({len(strict)})",
                )
            )
    return found


def _not_abstaining(row: Row) -> bool:
    return not row.abstains


_REPRODUCED: Mapping[str, Callable[[DataSet], Sequence[tuple[str, str, str, str]]]] = {
    "locomo": _locomo_reproduced,
    "longmemeval": _longmemeval_reproduced,
}
