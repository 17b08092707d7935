"""Answer questions from what methods find, and score the answers; one JSON file per method, without any text in it.

    python -m benchmarks.answers --dataset msc --llm local --gguf model.gguf --questions 100
    python -m benchmarks.answers --dataset locomo --llm URL --model NAME --methods rag-turn,rmm
    python -m benchmarks.answers --dataset jsonl --data my.jsonl --llm none        quotes, without a language model

Feedback is real here: what learns, learns from the citations of its own answers. The questions are a sample, spread
evenly over the data set. What was run before is not run again, and what was interrupted goes on: replies are kept too.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from benchmarks.answer_metrics import bundled_model, meteor_variant
from benchmarks.answer_records import AnswerRow, AnswerRun
from benchmarks.answering import BUDGET_WORDS, Reply, answered, quoted, score_answers
from benchmarks.datasets import Conversation, Question
from benchmarks.evaluation import Asked
from benchmarks.methods import Found, Method
from benchmarks.methods.catalogue import CATALOGUE
from benchmarks.options import checked, opened, parser_with, told
from benchmarks.replies import CachedLLM
from benchmarks.run import DEFAULT_EMBEDDER, Bench, file_name, spread
from benchmarks.screen import Screen
from rmm_core import LLM

Answer: TypeAlias = Callable[[Conversation, Question, Sequence[Found], int], Reply]
"""Answers a question with the first of the found things."""

Given: TypeAlias = tuple[Conversation, Question, Reply, bool]
"""An answer, and whether it taught the method something."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what the options name."""
    options = parse(arguments)
    with told(), opened(options) as llm:
        exam = Exam.open(options, Screen(), llm)
        if options.texts is not None:
            options.texts.parent.mkdir(parents=True, exist_ok=True)
            options.texts.write_text("", encoding="utf-8")
        for name in options.methods:
            exam.run(name, options.texts)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options."""
    methods = "no-history,long-context,rag-turn,pr,rmm"
    parser = parser_with(__doc__, methods=methods, llm="who answers, judges, and extracts for --topics llm")
    add = parser.add_argument
    add("--no-judge", action="store_true", help="do not ask the language model whether answers are right")
    add("--questions", type=int, default=20, metavar="N", help="how many are asked")
    add("--seed", type=int, default=0, metavar="N", help="of their order and of whatever is random")
    add("--bert", metavar="MODEL", help="the model of BERTScore; all-MiniLM-L6-v2 when left out")
    add("--bert-layers", type=int, metavar="N", help="its layer, for a model whose best one is not known")
    add("--texts", type=Path, metavar="FILE", help="write answers beside the right ones, to read; asks what was asked")
    options = checked(parser, arguments)
    if options.questions < 1:
        parser.error(f"--questions is a number from 1; got {options.questions}")
    if options.bert_layers and not options.bert:
        parser.error("--bert-layers needs --bert MODEL")
    return options


def sampled(conversations: Sequence[Conversation], count: int) -> tuple[list[Asked], int]:
    """A sample of the questions that have an answer, and how many have one; where evidence is told, with evidence.

    Raises:
        ValueError: When no question has one.
    """
    evidence = any(q.evidence for c in conversations for q in c.questions)
    asked = [
        (c, q)
        for c in conversations
        for q in c.questions
        if q.answer and (not evidence or (q.evidence and not q.abstains))
    ]
    if not asked:
        raise ValueError("no question here has both an answer and evidence; without answers, run benchmarks.run alone")
    return spread(asked, count), len(asked)


def teach(method: Method, found: Sequence[Found], reply: Reply) -> bool:
    """Let a method learn from the citations of an answer to what it found; whether it did.

    Malformed and missing citations say nothing. Nor is anything learned when one of the found things was cut from the
    prompt: that nobody cited it would count against it.
    """
    learned = method.learns and reply.status in ("cited", "none") and 0 < len(reply.shown) == len(found)
    if learned:
        method.learn(reply.cited)
    return learned


def open_ended(dataset: str, question: Question) -> bool:
    """Whether no single answer is right: any reply in a chat, and LongMemEval's questions for advice."""
    return dataset == "msc" or question.kind == "single-session-preference"


@dataclass(frozen=True)
class Exam:
    """Questions, and who answers and judges.

    Attributes:
        about: What its runs have in common, beside what those of the data set have.
        bert: The model of BERTScore, and its layer.
    """

    bench: Bench
    sample: list[Asked]
    answer: Answer
    judge: LLM | None
    bert: tuple[str | Path, int | None]
    seed: int
    about: dict[str, Any]

    @classmethod
    def open(cls, options: argparse.Namespace, screen: Screen, llm: CachedLLM | None) -> Exam:
        """Read the data set, choose the questions and load the embedder.

        Raises:
            ValueError: When the data set is not there, something else or without answers, or a model is missing.
        """
        bench = Bench.open(options, screen, llm)
        sample, count = sampled(bench.conversations, options.questions)
        bert = (options.bert, options.bert_layers) if options.bert else bundled_model()
        layer = f", layer {bert[1]}" if bert[1] else ""
        judge = None if options.no_judge else llm
        about = {
            "questions": len(sample),
            "of": count,
            "llm": llm.name if llm else None,
            "judge": judge.name if judge else None,
            "meteor": meteor_variant(),
            "bert": (Path(options.bert).name if options.bert else DEFAULT_EMBEDDER) + layer,
            "budget_words": BUDGET_WORDS,
            "citations": {"simulated": False},
        }
        answer = partial(answered, llm) if llm else partial(quoted, bench.banks.embedder)
        return cls(bench, sample, answer, judge, bert, options.seed, about)

    def run(self, name: str, texts: Path | None = None) -> AnswerRun | None:
        """The answers of a method: read when they were given before, else given, scored and written.

        Args:
            name: Of the catalogue.
            texts: Where they are written to be read; what was given before is then given again.
        """
        bench, entry = self.bench, CATALOGUE[name]
        method = bench.method(name, self.seed)
        if method is None:
            return None
        try:
            about = bench.about_run(name, method, self.seed, **self.about)
            path = bench.results / "answers" / file_name(name, entry, None, bench.topics, bench.about["embedder"])
            asked_before = texts is None and path.exists() and not bench.again
            if asked_before and (known := AnswerRun.load(path)).about == about:
                bench.screen.before(path.stem, known.made, bench.made)
                return known
            started = time.monotonic()
            given = self._given(method, entry.m)
        finally:
            method.close()
        rows = self._scored(given)
        found = AnswerRun(name, about, rows, bench.made | {"seconds": round(time.monotonic() - started, 1)})
        found.save(path)
        bench.screen.say(f"{path.stem}: {len(rows)} answers, {found.made['seconds']:.0f} s")
        if texts is not None:
            with texts.open("a", encoding="utf-8") as file:
                file.writelines(map(partial(_readable, path.stem), given, rows))
        return found

    def _given(self, method: Method, m: int) -> list[Given]:
        """The answers, in the seed's order; a method learns from each before the next question."""
        method.remember(list({c.name: c for c, _ in self.sample}.values()))
        asked = [(c, q) for c, q in self.sample if q.id not in method.trained_on]
        order = [asked[i] for i in np.random.default_rng(self.seed).permutation(len(asked))]
        given = []
        for conversation, question in self.bench.screen.track(order, "Answering"):
            found = method.find(conversation, question, m)[:m]
            reply = self.answer(conversation, question, found, m)
            given.append((conversation, question, reply, teach(method, found, reply)))
        return given

    def _scored(self, given: Sequence[Given]) -> tuple[AnswerRow, ...]:
        """A row per answer."""
        scores: dict[str, dict[str, Any]] = {}
        fits = {q.id: open_ended(self.bench.about["dataset"], q) for _, q, _, _ in given}
        for fit in (False, True):
            part = [(c, q, reply) for c, q, reply, _ in given if fits[q.id] == fit]
            found = score_answers(part, bert=self.bert, judge=self.judge, open_ended=fit)
            scores |= {q.id: score for (_, q, _), score in zip(part, found, strict=True)}
        return tuple(AnswerRow.of(q, fits[q.id], reply, learned, scores[q.id]) for _, q, reply, learned in given)


def _readable(name: str, given: Given, row: AnswerRow) -> str:
    """An answer beside the right one."""
    _, question, reply, _ = given
    cited = ", ".join(map(str, reply.cited)) or reply.status
    said = {True: "Yes", False: "No", None: "-"}
    return (
        f"{name}, {row.question} ({row.kind})\nQ: {question.text}\nright: {question.answer}\n"
        f"answer: {reply.text} [{cited}]\n"
        f"judge: {said[row.judge]}, rule: {said[row.contains]}, METEOR: {row.meteor:.3f}\n\n"
    )


if __name__ == "__main__":
    main()
