"""From what a method finds to an answer and its scores: one prompt for all methods, so that they differ in finds alone.

Found things are shown to the model as :mod:`rmm_core` shows memories: numbered, a summary with its turns beneath, each
with speaker and date. Where a text says nothing beside its turns, as that of a turn or a whole session, it is left out.

A prompt has a budget of words, since models have a window. What does not fit is cut: the lowest ranked first, of each
found thing its oldest turns first, as the paper cuts Long Context. Turns are cut as a whole. But no text may take more
than about half of the budget: of a longer one its beginning is shown, so that a pasted document hides nothing else.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.answer_metrics import bert_scores, exact_match, f1, meteor
from benchmarks.datasets import Conversation, Question
from benchmarks.judge import contains, declines, fit_prompt, judge_prompt, judged
from benchmarks.methods import Found
from rmm_core import LLM, Embedder, Memory, Recall, Shown, Turn, TurnRef, parse_citations
from rmm_core.drivers import Services, run
from rmm_core.extractive import ExtractiveAnswerer
from rmm_core.prompts import answer_prompt, as_data, shortened, when
from rmm_core.types import CitationStatus, Kind

BUDGET_WORDS = 4000
"""What fits a window of 8,192 tokens, with room for the answer."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """An answering prompt.

    Attributes:
        shown: What stands in it, by number, with the turns that were not cut.
    """

    text: str
    shown: tuple[Shown, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer.

    Attributes:
        text: The answer without its markers.
        cited: The numbers it cites, from 1.
        status: How it cites; see :class:`rmm_core.Citations`. From ``"malformed"`` nothing may be learned.
        shown: The turns that stood in the prompt under each number: a memory is useful when these hold evidence.
        words_prompt: How many words the prompt had.
        words_answer: How many the answer has.
    """

    text: str
    cited: tuple[int, ...]
    status: CitationStatus
    shown: tuple[frozenset[TurnRef], ...]
    words_prompt: int
    words_answer: int


def prompt_for(
    conversation: Conversation,
    question: Question,
    found: Sequence[Found],
    m: int,
    *,
    budget_words: int = BUDGET_WORDS,
) -> Prompt:
    """The prompt that asks a question with the first ``m`` found things; without any, a plain one.

    The date of asking stands before the question, where the data set has one.

    Raises:
        ValueError: When the budget is too small for the rules, the session so far and the question.
    """
    query = f"(Today is {when(question.asked_at)}.) {question.text}" if question.asked_at else question.text
    history = rendered_history(conversation, question)
    memories = [_as_shown(conversation, f, number, 3 * budget_words) for number, f in enumerate(found[:m], start=1)]

    def prompt(pieces: int) -> Prompt:
        shown = _first(memories, pieces)
        return Prompt(answer_prompt(query, shown, history=history) if memories else _plain(query, history), shown)

    pieces = range(sum(_pieces(shown) for shown in memories) + 1)
    fitting = bisect_right(pieces, budget_words, key=lambda n: _words(prompt(n).text))
    if not fitting:
        raise ValueError(
            f"budget_words is {budget_words}, and the prompt has {_words(prompt(0).text)} words before any memory; "
            "give a greater budget"
        )
    return prompt(fitting - 1)


def rendered_history(conversation: Conversation, question: Question) -> str:
    """What was said in the session of the question before it, as prompts show it."""
    return "\n".join(as_data(conversation.line(message)) for message in question.history)


def answered(
    llm: LLM,
    conversation: Conversation,
    question: Question,
    found: Sequence[Found],
    m: int,
    *,
    budget_words: int = BUDGET_WORDS,
) -> Reply:
    """Ask a question with the first ``m`` found things.

    Raises:
        LLMError: When the model cannot be asked.
        ValueError: When the budget is too small.
    """
    prompt = prompt_for(conversation, question, found, m, budget_words=budget_words)
    return as_reply(prompt, llm.complete(prompt.text))


def quoted(embedder: Embedder, conversation: Conversation, question: Question, found: Sequence[Found], m: int) -> Reply:
    """Answer without a language model: quote the one or two sentences closest to the question, of what it is shown."""
    prompt = prompt_for(conversation, question, found, m)
    nothing = np.zeros(0, dtype=np.float32)
    recall = Recall("", conversation.name, question.text, nothing, (), nothing, prompt.shown)
    return as_reply(prompt, run(ExtractiveAnswerer().answer(recall, question.text, ""), Services(None, embedder)))


def as_reply(prompt: Prompt, text: str) -> Reply:
    """What somebody wrote to a prompt, its markers read and removed."""
    citations = parse_citations(text, len(prompt.shown))
    text = citations.text.strip()
    turns = tuple(frozenset(t.ref for t in shown.turns) for shown in prompt.shown)
    return Reply(text, citations.numbers, citations.status, turns, _words(prompt.text), _words(text))


def score_answers(
    rows: Sequence[tuple[Conversation, Question, Reply]],
    *,
    bert: tuple[str | Path, int | None],
    judge: LLM | None = None,
    open_ended: bool = False,
) -> list[dict[str, Any]]:
    """The scores of each answer, by name.

    ``em``, ``f1``, ``meteor``, ``bert``: see :mod:`benchmarks.answer_metrics`. ``judge``: the verdict, None without a
    judge or a verdict; an empty answer is wrong without being judged. ``contains``: that of the rule.

    Args:
        bert: The model of BERTScore, and its layer.
        judge: The model that judges.
        open_ended: Whether no single answer is right: judged is then whether it fits.
    """
    similar = bert_scores([r.text for _, _, r in rows], [q.answer for _, q, _ in rows], *bert)
    return [
        {
            "em": exact_match(reply.text, question.answer),
            "f1": f1(reply.text, question.answer),
            "meteor": meteor(reply.text, question.answer),
            "bert": similarity,
            "judge": None if judge is None else _judged(judge, conversation, question, reply.text, open_ended),
            "contains": declines(reply.text) if question.abstains else contains(reply.text, question.answer),
            "words_prompt": reply.words_prompt,
            "words_answer": reply.words_answer,
        }
        for (conversation, question, reply), similarity in zip(rows, similar, strict=True)
    ]


def _judged(judge: LLM, conversation: Conversation, question: Question, text: str, open_ended: bool) -> bool | None:
    if not text:
        return False
    if open_ended:
        history = rendered_history(conversation, question)
        return judged(judge, fit_prompt(question.text, question.answer, text, history))
    return judged(judge, judge_prompt(question.text, question.answer, text, question.abstains))


def _plain(query: str, history: str) -> str:
    """The question alone, for a model that remembers nothing."""
    earlier = f"\nEarlier in this session:\n{history}\n" if history else ""
    return f"""\
You are talking with a user. Answer fluently and briefly. You know nothing of earlier sessions: when the answer needs \
something that was said there, say that you do not have that information.
{earlier}
Question: {as_data(query)}
Answer:"""


def _as_shown(conversation: Conversation, found: Found, number: int, longest: int) -> Shown:
    """A found thing as a memory with its turns, oldest first; no text of it longer than so many characters."""
    turns = sorted((_turn(conversation, ref, longest) for ref in found.turns), key=lambda t: (t.at, t.ref))
    lines = " ".join(conversation.line(conversation.message(ref)) for ref in found.turns)
    kind: Kind = "unfiled" if turns and found.text.split() in ([], lines.split()) else "topic"
    summary = shortened(found.text, longest)
    return Shown(number, Memory("", "", kind, summary, found.turns, _UNDATED, _UNDATED), tuple(turns))


_UNDATED = datetime.min.replace(tzinfo=UTC)  # a prompt shows the dates of turns alone


def _turn(conversation: Conversation, ref: TurnRef, longest: int) -> Turn:
    message = conversation.message(ref)
    sitting = next(s for s in conversation.sittings if s.id == ref.session_id)
    speaker = message.speaker or conversation.speakers[message.role != "user"]
    text = shortened(message.text, longest)
    return Turn(ref.session_id, ref.index, message.role, speaker, text, sitting.at, message.attachments)


def _pieces(shown: Shown) -> int:
    """What a memory can be cut into: its turns, and its summary, which stays longest."""
    return len(shown.turns) + (shown.memory.kind == "topic")


def _first(memories: Sequence[Shown], pieces: int) -> tuple[Shown, ...]:
    """So many pieces of the memories: the highest ranked first, of each its newest turns first."""
    kept = []
    for shown in memories:
        if pieces <= 0:
            break
        turns = pieces - (shown.memory.kind == "topic")
        kept.append(replace(shown, turns=shown.turns[max(0, len(shown.turns) - turns) :]))
        pieces -= _pieces(shown)
    return tuple(kept)


def _words(text: str) -> int:
    return len(text.split())
