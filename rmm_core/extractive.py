"""Memory without a language model: topics from segments, answers from quotes, credit from overlap."""

from __future__ import annotations

import re
import textwrap
from bisect import bisect_left
from collections.abc import Collection, Sequence

import numpy as np

from rmm_core.flow import Flow, embed
from rmm_core.prompts import when
from rmm_core.recall import Recall
from rmm_core.stopwords import STOP_WORDS
from rmm_core.types import Add, Candidate, Decision, Extracted, Extraction, Matrix, Merge, Session, Shown, Turn, Vector

_END = re.compile(  # not after initials, "Dr." and the like
    r"(?:(?<=[.!?…؟।])|(?<=[.!?…][\"'”\u2019)\]]))(?<!\b[A-Z]\.)(?<!\b[DMS][rst]\.)(?<!\bMrs\.)\s+"
    r"|(?<=[。\uff01\uff1f])|[\r\n]+"
)
_UNSPACED = "\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"  # Thai, kana, Han, Hangul
_RUN = re.compile(rf"[{_UNSPACED}]+|[^\W_{_UNSPACED}]+")
_GREETINGS = _RUN.findall("""hi hey hello hiya bye goodbye goodmorning goodafternoon goodevening goodnight thanks
thank welcome hola gracias buenosdías buenastardes buenasnoches bonjour bonsoir salut merci hallo danke tschüss
gutenmorgen gutentag gutenabend ciao grazie olá obrigado obrigada bomdia привет здравствуйте спасибо مرحبا شكرا
你好 您好 谢谢 再见 こんにちは ありがとう さようなら 안녕하세요 감사합니다""")
_QUESTION_MARKS = ("?", "\uff1f", "؟")
_FILLERS = _RUN.findall("re so much very a lot all and you are again there see later soon take care how is it going")


def split_sentences(text: str, *, longest: int = 400) -> list[str]:
    """Split ``text`` at line breaks and sentence ends, and above ``longest`` characters, so that no quote runs away."""
    return [piece for part in _END.split(text) for piece in textwrap.wrap(part, longest)]


def is_small_talk(text: str, *, names: Collection[str] = ()) -> bool:
    """Whether ``text`` holds nothing but greetings, thanks and goodbyes.

    All words must come from closed lists, and one be a greeting or thanks in itself. In doubt it is not: a bare
    "ok" can be an answer, any other word or number can matter. ``names`` may be greeted: "Hi Ada!".
    """
    words = _RUN.findall(re.sub(r"\b(good|guten?|buen[oa]s|bom|boa) ", r"\1", text.casefold()))
    known = {*_GREETINGS, *_FILLERS, *_RUN.findall(" ".join(names).casefold())}
    return not known.isdisjoint(words) and any(w in _GREETINGS for w in words) and known.issuperset(words)


def segment(
    embeddings: Matrix, questions: Sequence[bool] = (), *, strictness: float = 0.5, longest: int = 4
) -> list[tuple[int, int]]:
    """Group neighbouring turns into topics: ``(start, stop)`` pairs that cover all rows, in order.

    A turn joins while its similarity to the running segment's mean reaches the session's mean similarity of
    neighbours plus ``strictness`` standard deviations. A question is not parted from what follows it.

    Args:
        embeddings: One normalised row per turn, shape ``(n, d)``.
        questions: Which turns end in a question.
        strictness: Higher cuts more often: 2.0 turns each at 0.5, 2.4 at 0, which show less evidence per turn.
        longest: Turns in a segment at most, so that five memories remain readable.
    """
    rows = len(embeddings)
    near = np.einsum("ij,ij->i", embeddings[:-1], embeddings[1:]) if rows > 1 else np.zeros(1)
    threshold = float(near.mean() + strictness * near.std())
    cuts = [0]
    for i in range(1, rows):
        close = _unit(embeddings[cuts[-1] : i].mean(axis=0)) @ embeddings[i] >= threshold
        if i - cuts[-1] >= longest or not (close or any(questions[i - 1 : i])):
            cuts.append(i)
    return list(zip(cuts, [*cuts[1:], rows], strict=True)) if rows else []


def summarise(statements: Sequence[str], vectors: Matrix, centre: Vector, *, count: int = 3) -> str:
    """Join the ``count`` statements that together stand for a segment best, in their order.

    Chosen one by one so that their mean comes closest to ``centre``: they cover it, and do not repeat each other.

    Args:
        statements: The segment's sentences, each with its speaker.
        vectors: Their embeddings, shape ``(n, d)``.
        centre: The segment's mean, shape ``(d,)``.
        count: Three retrieve better than two, and as well as the whole text.
    """
    chosen: list[int] = []
    for _ in range(min(count, len(statements))):
        sums = vectors[chosen].sum(axis=0) + vectors
        fit = (sums @ centre) / np.maximum(np.linalg.norm(sums, axis=1), 1e-9)
        fit[chosen] = -np.inf
        chosen.append(int(fit.argmax()))
    return " ".join(statements[i] for i in sorted(chosen))


def merge_summaries(old: str, new: str, *, alike: float = 0.8, longest: int = 600) -> str:
    """Join two summaries, each statement once; the newer of two wordings stays.

    Args:
        old: The summary so far.
        new: What is added to it.
        alike: Share of common words (of all their words) from which two sentences say the same.
        longest: Characters at most: the oldest sentences go first, since the later state must win.
    """
    kept: dict[str, set[str]] = {}
    for sentence in reversed([*split_sentences(old), *split_sentences(new)]):
        words = set(_RUN.findall(sentence.casefold()))
        if kept and len(sentence) + sum(len(k) + 1 for k in kept) > longest:
            break
        if all(len(words & other) < alike * len(words | other) for other in kept.values()):
            kept[sentence] = words
    return " ".join(reversed(kept))


def is_question(text: str) -> bool:
    """Whether ``text`` only asks: every sentence of it ends in a question mark."""
    sentences = split_sentences(text)
    return bool(sentences) and all(s.endswith(_QUESTION_MARKS) for s in sentences)


def is_bare(text: str) -> bool:
    """Whether ``text`` only asks, in so few content words that it tells nothing: "Where do I live?"."""
    return is_question(text) and len(_terms(text)) <= _TELLING


def is_known(text: str, memories: Sequence[Shown], *, novel: int = 1) -> bool:
    """Whether ``text`` says nothing that ``memories`` do not: at most ``novel`` content words are new."""
    return len(_new_terms(text, memories)) <= novel


def only_asks(text: str, memories: Sequence[Shown], *, names: Collection[str] = ()) -> bool:
    """Whether ``text`` is a question about what ``memories`` hold, and tells nothing by the way.

    Half of its content words may be new, as verbs of a question are; but no name and no figure: "Did I tell you that my
    sister Ida plays the cello?" tells something. ``names`` of those who talk are not new.
    """
    new = _new_terms(text, memories) - _terms(" ".join(names))
    return is_question(text) and len(new) <= max(len(_terms(text)) // 2, 1) and not new & _telling(text)


def _new_terms(text: str, memories: Sequence[Shown]) -> set[str]:
    held = [f"{m.memory.summary} {t.line} {t.at:%Y-%m-%d} {when(t.at)}" for m in memories for t in m.turns]
    return _terms(text) - _terms(" ".join([*held, "said"]))


def _telling(text: str) -> set[str]:
    """Terms of the words that are names or figures: with a capital within a sentence, or a digit."""
    words = [(i, w) for s in split_sentences(text) for i, w in enumerate(_RUN.findall(s))]
    return _terms(" ".join(w for i, w in words if (i and w[0].isupper()) or any(c.isdigit() for c in w)))


class ExtractiveReflector:
    """Finds topics with the embedder alone, and sums them up in the user's own most informative sentences.

    From cosine ``merge_at`` on two topics are one (a lower threshold makes bigger memories, not better ones).
    """

    def __init__(self, *, merge_at: float = 0.9) -> None:
        self.merge_at = merge_at

    def extract(self, session: Session, turns: Sequence[Turn]) -> Flow[Extraction]:
        """Group the turns into topics; small talk, and what the agent says alone, belong to none."""
        names = (session.user_name, session.agent_name)
        new = [t for t in turns if not t.from_memory and not is_small_talk(t.content, names=names)]
        told = [(t, s) for t in new if (s := _statements(t))]
        if not told:
            return Extraction(())
        said = [t.line for t, _ in told]  # means of sentence vectors segment far worse
        users = [i for i, (t, _) in enumerate(told) if t.role == "user"]  # whose sentences make summaries
        rows = yield from embed([*said, *(s for i in users for s in told[i][1])])
        turned, *parts = np.split(rows, np.cumsum([len(told), *(len(told[i][1]) for i in users)])[:-1])
        blocks = dict(zip(users, parts, strict=True))
        memories = []
        for start, stop in segment(turned, [t.text.rstrip().endswith(_QUESTION_MARKS) for t, _ in told]):
            own = users[bisect_left(users, start) : bisect_left(users, stop)]
            if own:  # what the agent says alone is no topic of the user's; it stays findable as unfiled turns
                first = told[own[0]][0]
                name = f"{first.speaker or first.role}: "  # once is enough, where one speaks
                statements = [s.removeprefix(name) for i in own for s in told[i][1]]
                rows_of_own = np.concatenate([blocks[i] for i in own])
                summary = name + summarise(statements, rows_of_own, turned[start:stop].mean(axis=0))
                memories.append(Extracted(summary, tuple(t.index for t, _ in told[start:stop])))
        return Extraction(tuple(memories))

    def decide(self, new: Extracted, turns: Sequence[Turn], similar: Sequence[Candidate]) -> Flow[Decision]:
        """Merge into the most similar topic when it is close enough; ``score`` is the cosine."""
        yield from ()
        index, best = max(enumerate(similar), key=lambda pair: pair[1].score)
        same = best.score >= self.merge_at
        return Decision((Merge(index, merge_summaries(best.memory.summary, new.summary)) if same else Add(),))


def attribute(answer: str, shown: Sequence[Shown], *, share: float = 0.5, least: int = 2) -> tuple[int, ...]:
    """Find the memories whose words an answer without markers repeats.

    Words that more than half of them hold (names, words of the question) do not count: they tell nothing apart.

    Args:
        answer: The answer.
        shown: The memories it was given.
        share: Share of the answer's telling words that a memory must hold.
        least: Telling words in common at least, or all of them when the answer has fewer.
    """
    said = _terms(answer)
    held = [_terms(" ".join([s.memory.summary, *(t.content for t in s.turns)])) & said for s in shown]
    telling = {w for h in held for w in h if len(held) < 3 or 2 * sum(w in o for o in held) <= len(held)}
    needed = max(min(least, len(telling)), share * len(telling), 1)
    return tuple(s.number for s, h in zip(shown, held, strict=True) if len(h & telling) >= needed)


class ExtractiveAnswerer:
    """The :class:`~rmm_core.protocols.Answerer` that quotes instead of writing.

    Nothing below cosine ``floor`` is quoted; a second quote may be less similar than the first by ``second``.
    """

    def __init__(self, *, floor: float = 0.4, second: float = 0.1) -> None:
        self.floor, self.second = floor, second

    def answer(self, recall: Recall, query: str, history: str) -> Flow[str]:
        """Quote the one or two shown sentences closest to ``query``, each with its marker."""
        said = {
            (t.ref, s): (m.number, t)
            for m in reversed(recall.shown)
            for t in m.turns
            for s in _statements(t)
            if len(_terms(s) - _terms(t.speaker)) >= _TELLING
        }
        rows = yield from embed([query, *(s for _, s in said)])
        near = rows[1:] @ rows[0]
        floor = max(self.floor, near.max(initial=-1.0) - self.second)
        best = [i for i in np.argsort(-near, kind="stable")[:2] if near[i] >= floor]
        quotes = [_quote(s, *found) for (_, s), found in (list(said.items())[i] for i in best)]
        return " ".join(quotes) or f"{NOT_FOUND} [NO_CITE]"


NOT_FOUND = "I do not find this in the memories."
"""What the answerer says when there is nothing to quote; it is no memory itself."""

_TELLING = 2  # content words that a sentence must hold to be quoted; "Exactly." answers nothing by itself


def _quote(statement: str, number: int, turn: Turn) -> str:
    """A fenced quote; its brackets and backticks would read as citations and code, its quotes as its end."""
    text = statement.translate(str.maketrans('[]【】\uff3b\uff3d"“”`', "()()()" + 4 * "'"))
    cut = len(turn.speaker or turn.role)
    return f'On {turn.at.date().isoformat()}, {text[:cut]} said: "{text[cut + 2 :]}" [{number}]'


def _statements(turn: Turn) -> list[str]:
    """The sentences of a turn, each with its speaker: "Ada: ..." is found far better than "..."."""
    return [f"{turn.speaker or turn.role}: {s}" for s in split_sentences(turn.content)]


def _unit(vector: Vector) -> Vector:
    return np.asarray(vector / max(float(np.linalg.norm(vector)), 1e-9), dtype=np.float32)


def _terms(text: str) -> set[str]:
    """Content words cut to six letters, a stemmer for all languages; pairs of characters where no spaces are."""
    words = [w for w in _RUN.findall(text.casefold()) if w not in STOP_WORDS]
    pairs = {w[i : i + 2] for w in words if w >= "\u0e00" for i in range(max(len(w) - 1, 1))}
    return pairs | {w[:6] for w in words if w < "\u0e00"}
