"""The answers of one method as one JSON file: their scores and citations, and none of their words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.answering import Reply
from benchmarks.datasets import Question
from benchmarks.records import write_whole
from rmm_core.types import CitationStatus


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """What came of one question.

    Attributes:
        question: Its id.
        kind: Its type.
        open_ended: Whether no single answer is right: judged is then whether it fits.
        status: How the answer cites; see :class:`rmm_core.Citations`.
        cited: The numbers cited, from 1.
        shown: How many things stood in the prompt.
        useful: Whether the turns shown of each hold evidence; None where the data set does not say.
        learned: Whether its citations taught the method something.
        em: 1 when it is the right answer but for case, punctuation and articles.
        f1: How far its words are those of the right answer.
        meteor: The variant of the run's ``about``.
        bert: BERTScore by the model of ``about``.
        judge: The verdict of the language model; None without one.
        contains: That of the rule.
        words_prompt: How many words the prompt had.
        words_answer: How many the answer has.
    """

    question: str
    kind: str
    open_ended: bool
    status: CitationStatus
    cited: tuple[int, ...]
    shown: int
    useful: tuple[bool, ...] | None
    learned: bool
    em: float
    f1: float
    meteor: float
    bert: float
    judge: bool | None
    contains: bool
    words_prompt: int
    words_answer: int

    @classmethod
    def of(
        cls, question: Question, open_ended: bool, reply: Reply, learned: bool, scores: Mapping[str, Any]
    ) -> AnswerRow:
        """The row of an answer with its scores, as :func:`benchmarks.answering.score_answers` gives them."""
        return cls(
            question=question.id,
            kind=question.kind,
            open_ended=open_ended,
            status=reply.status,
            cited=reply.cited,
            shown=len(reply.shown),
            useful=tuple(not question.evidence.isdisjoint(t) for t in reply.shown) if question.evidence else None,
            learned=learned,
            **{name: round(value, 4) if isinstance(value, float) else value for name, value in scores.items()},
        )


@dataclass(frozen=True)
class AnswerRun:
    """The answers of a method.

    Attributes:
        method: Its name in the catalogue.
        about: All that the outcome depends on: data, sample, models, settings, seed.
        rows: A row per question, in the order asked.
        made: When, where and how long; does not tell runs apart.
    """

    method: str
    about: dict[str, Any]
    rows: tuple[AnswerRow, ...]
    made: dict[str, Any] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all; a row a line."""
        head = {"method": self.method, "about": self.about, "made": self.made}
        rows = ",\n".join(f"  {json.dumps(asdict(row))}" for row in self.rows)
        write_whole(path, f'{json.dumps(head, indent=1, sort_keys=True)[:-2]},\n "rows": [\n{rows}\n ]\n}}\n')

    @classmethod
    def load(cls, path: Path) -> AnswerRun:
        """The answers of a file.

        Raises:
            ValueError: When the file is something else, or of another version of this program.
        """
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            rows = tuple(_row(row) for row in content["rows"])
            return cls(content["method"], content["about"], rows, content["made"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} holds no answers of this benchmark ({error}); delete it and run again") from error


def _row(values: dict[str, Any]) -> AnswerRow:
    useful = values["useful"]
    lists = {"cited": tuple(values["cited"]), "useful": None if useful is None else tuple(useful)}
    return AnswerRow(**(values | lists))
