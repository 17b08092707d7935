"""The tables of answers: what they cite and how good they are, as Markdown."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks import paper
from benchmarks.answer_metrics import PRF, citation_quality, kappa
from benchmarks.answer_records import AnswerRow, AnswerRun
from benchmarks.methods.catalogue import CATALOGUE
from benchmarks.metrics import Difference
from benchmarks.scores import Scores, compared, mean
from benchmarks.tables import markdown, percent

Column: TypeAlias = tuple[str, Callable[[AnswerRun], str]]
"""A heading, and what stands below it for a method."""


def of_answers(folder: Path, dataset: str) -> str:
    """The tables of the answers on a data set, one pair for each sample and model; empty when there are none.

    Args:
        folder: Of the results of all data sets.
        dataset: Its name.

    Raises:
        ValueError: When a file holds no answers.
    """
    runs = [AnswerRun.load(path) for path in sorted((folder / dataset / "answers").glob("*.json"))]
    alike: dict[str, list[AnswerRun]] = {}
    for name in CATALOGUE:
        for run in runs:
            if run.method == name and run.rows:
                alike.setdefault(_alike(run), []).append(run)
    parts = []
    for group in alike.values():
        about, cited = group[0].about, citations_table(group)
        if cited:
            parts.append(f"### 3. Citations\n\n{asked(about)} {_CITED}\n\n{cited}")
        parts.append(f"### 8. Answers\n\n{asked(about)} {_scored(about)}\n\n{answers_table(group)}")
        parts += filter(None, [agreement(group)])
    return "\n\n".join(parts)


def asked(about: dict[str, Any]) -> str:
    """Who answered how many questions, and what was learned from."""
    who = about["llm"] or "quotes of what was shown, without a language model"
    return (
        f"{about['questions']} questions, spread evenly over {about['of']:,} that can be asked, answered by {who}; "
        f"feedback is real: what learns, learns from the citations of these answers."
    )


_CITED = (
    "Useful is a memory whose turns in the prompt hold evidence. Precision / recall / F1 in percent; the last column "
    "counts answers that cite, that say that nothing helps, that do neither, and that cite what is not there."
)


def _scored(about: dict[str, Any]) -> str:
    judge = f"Yes is the verdict of {about['judge']}." if about["judge"] else "Nobody judged."
    return (
        f"{judge} Contains: the rule finds all content words of the right answer. Prompts have "
        f"{about['budget_words']:,} words at most, whatever was found. BERTScore: {about['bert']}, comparable here "
        f"alone. In percent; differences are paired over questions, with 95 % intervals."
    )


def _alike(run: AnswerRun) -> str:
    """What runs have in common that may stand in one table."""
    own = ("m", "settings", "topics")
    return json.dumps({k: v for k, v in run.about.items() if k not in own}, sort_keys=True)


def _label(run: AnswerRun) -> str:
    topics = f", {run.about['topics']} topics" if "topics" in run.about else ""
    return f"{CATALOGUE[run.method].label}{topics}"


def citations_table(runs: Sequence[AnswerRun]) -> str:
    """Table 3: whether answers cite what is useful; of methods that showed both useful memories and others."""
    rows = []
    for run in runs:
        told = [row for row in run.rows if row.useful]
        if len({flag for row in told for flag in row.useful or ()}) == 2:
            quality = citation_quality((row.useful or (), row.cited) for row in told)
            ways = Counter(row.status for row in told)
            counts = " / ".join(str(ways[way]) for way in ("cited", "none", "silent", "malformed"))
            measured = (quality.useful, quality.useless, quality.overall)
            rows.append([_label(run), str(quality.overall.support), *map(_prf, measured), counts])
    if not rows:
        return ""
    reported = (" / ".join(map(percent, figures)) for figures in paper.CITATIONS.values())
    rows.append(["the paper", "-", *reported, "-"])
    head = ("method", "memories shown", *paper.CITATIONS, "cites / none / silent / malformed")
    return markdown(head, rows)


def _prf(measured: PRF) -> str:
    return " / ".join(f"{100 * value:.1f}" for value in (measured.precision, measured.recall, measured.f1))


def answers_table(runs: Sequence[AnswerRun]) -> str:
    """Table 8: how good answers are, each method against plain retrieval of turns."""
    columns = [*_own(runs), *_against(runs), *_reported(runs)]
    head = [name for name, _ in columns]
    return markdown(head, [[cell(run) for _, cell in columns] for run in runs])


def _own(runs: Sequence[AnswerRun]) -> list[Column]:
    """The figures of the answers themselves."""
    judged = [("judge: Yes", _judge)] if runs[0].about["judge"] else []
    return [
        ("method", _label),
        ("n", lambda run: str(len(run.rows))),
        (runs[0].about["meteor"], _mean(_meteor)),
        ("BERTScore", _mean(lambda row: row.bert)),
        ("EM", _mean(lambda row: row.em)),
        ("F1", _mean(lambda row: row.f1)),
        *judged,
        ("contains", _mean(lambda row: row.contains)),
        ("words of answer", _mean(lambda row: row.words_answer, 1, 0)),
        ("words of prompt", _mean(lambda row: row.words_prompt, 1, 0)),
    ]


def _against(runs: Sequence[AnswerRun]) -> list[Column]:
    """Differences from plain retrieval of turns, where that was run."""
    base = next((run for run in runs if run.method == "rag-turn"), None)
    if base is None:
        return []

    def column(title: str, scores: Callable[[AnswerRun], Scores]) -> Column:
        return title, lambda run: "-" if run is base else _gap(scores(run), scores(base))

    judged = [column("judge against RAG", _verdicts)] if base.about["judge"] else []
    return [column("METEOR against RAG", lambda run: _each(run, _meteor)), *judged]


def _reported(runs: Sequence[AnswerRun]) -> list[Column]:
    """What the paper has for the same data set."""
    if runs[0].about["dataset"] != "msc":
        return []
    both = (None, None)
    judged = [("paper: Yes", lambda run: percent(paper.MSC_JUDGE.get(run.method)))] if runs[0].about["judge"] else []
    return [
        ("paper: METEOR", lambda run: percent(paper.MSC.get(run.method, both)[0])),
        ("paper: BERTScore", lambda run: percent(paper.MSC.get(run.method, both)[1])),
        *judged,
    ]


def _meteor(row: AnswerRow) -> float:
    return row.meteor


def _each(run: AnswerRun, value: Callable[[AnswerRow], float], times: float = 100.0) -> Scores:
    """A figure of every question, in percent unless told otherwise."""
    return {row.question: times * value(row) for row in run.rows}


def _verdicts(run: AnswerRun) -> Scores:
    return {row.question: 100.0 * row.judge for row in run.rows if row.judge is not None}


def _mean(value: Callable[[AnswerRow], float], times: float = 100.0, digits: int = 1) -> Callable[[AnswerRun], str]:
    return lambda run: f"{mean(_each(run, value, times)):.{digits}f}"


def _judge(run: AnswerRun) -> str:
    """The share of Yes; of how many verdicts, where some replies were none."""
    verdicts = _verdicts(run)
    if not verdicts:
        return "-"
    return f"{mean(verdicts):.1f}" + (f" of {len(verdicts)}" if len(verdicts) < len(run.rows) else "")


def _gap(a: Scores, b: Scores) -> str:
    """A difference and its interval; a dash where there is nothing to compare."""
    if a.keys().isdisjoint(b.keys()):
        return "-"
    gap: Difference = compared(a, b)
    return f"{gap.mean:+.1f} [{gap.low:+.1f}, {gap.high:+.1f}]"


def agreement(runs: Sequence[AnswerRun]) -> str:
    """How far judge and rule agree on answers of which one is right; empty when nothing was judged by both."""
    both = [row for run in runs for row in run.rows if row.judge is not None and not row.open_ended]
    if not both:
        return ""
    found = kappa([bool(row.judge) for row in both], [row.contains for row in both])
    reported = ", ".join(f"{who} {value:.2f}" for who, value in paper.KAPPA.items())
    return f"Cohen's kappa of judge and rule: {found:.2f}, over {len(both)} answers. In the paper: {reported}."
