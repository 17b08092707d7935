"""A bank small enough to answer thousands of questions from, and of which is known what is relevant to each."""

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from rmm_core import ReflectiveMemory, RMMConfig
from rmm_core.protocols import BankChange, Entry
from rmm_core.types import Citations, Memory, Message, Session, TurnRef

T0 = datetime(2024, 3, 1, tzinfo=UTC)
USER = "ann"
WIDTH = 16
SESSIONS, TURNS = 10, 8
QUESTIONS = 120


def unit(rows):
    return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True), dtype=np.float32)


class Known:
    """An embedder that was told the embedding of each text."""

    def __init__(self, rows):
        self.rows = rows

    def embed(self, texts):
        return np.stack([self.rows[t] for t in texts])

    async def aembed(self, texts):
        return self.embed(texts)


@dataclass(frozen=True)
class World:
    """Texts and embeddings; ``relevant`` holds the ids of the memories that each question asks for."""

    turns: tuple[tuple[str, ...], ...]
    memories: dict[str, np.ndarray]
    questions: tuple[str, ...]
    relevant: tuple[frozenset[str], ...]
    rows: dict[str, np.ndarray]


def world(seed=0, noise=1.0):
    """Memories about as many subjects as there are sessions; a question is near one or two of them, and shares words.

    Args:
        seed: Of all of it.
        noise: How far a question is from what it asks for; memories of a session are about 0.8 apart.
    """
    rng = np.random.default_rng(seed)
    vocabulary = [f"word{i}" for i in range(150)]
    subjects = unit(rng.normal(size=(SESSIONS, WIDTH)))
    memories, turns, said = {}, [], {}
    for s in range(SESSIONS):
        texts = []
        for t in range(TURNS):
            name = f"m{s:02}.{t:02}"
            memories[name] = unit(subjects[s] + 0.8 * unit(rng.normal(size=WIDTH)))
            said[name] = [str(w) for w in rng.choice(vocabulary, size=int(rng.integers(3, 9)))]
            texts.append(" ".join(said[name]) + ("?" if rng.random() < 0.2 else "."))
        turns.append(tuple(texts))
    questions, relevant, rows, names = [], [], dict(memories), sorted(memories)
    for i in range(QUESTIONS):
        wanted = [str(n) for n in rng.choice(names, size=1 + int(rng.random() < 0.3), replace=False)]
        near = unit(sum(memories[n] for n in wanted))
        shared = [w for n in wanted for w in said[n] if rng.random() < 0.2]
        text = " ".join([f"ask{i}", *shared, *map(str, rng.choice(vocabulary, size=3))])
        rows[text] = unit(near + noise * unit(rng.normal(size=WIDTH)))
        questions.append(text)
        relevant.append(frozenset(wanted))
    return World(tuple(turns), memories, tuple(questions), tuple(relevant), rows)


def opened(w, place=":memory:", **settings):
    """A memory that holds the world's bank."""
    memory = ReflectiveMemory.open(place, embedder=Known(w.rows), config=RMMConfig(**settings), clock=lambda: T0)
    if not memory.users():
        for s, texts in enumerate(w.turns):
            memory.store.open_session(Session(USER, f"s{s:02}", "Ann", "Bot", T0, T0))
            memory.store.append(USER, f"s{s:02}", [Message("user", text) for text in texts], at=T0)
        entries = []
        for name, row in w.memories.items():
            place_ = TurnRef(f"s{name[1:3]}", int(name[4:]))
            entries.append(Entry(Memory(name, USER, "topic", name, (place_,), T0, T0), row))
        memory.store.commit(USER, BankChange(0, tuple(entries)))
    return memory


def answer(memory, w, question, cites):
    """Ask a question, and have the answer cite what ``cites`` says of (the shown ids, the relevant ids)."""
    recall = memory.recall(USER, w.questions[question])
    shown = [s.memory.id for s in recall.shown]
    numbers = tuple(n for n, c in enumerate(cites(shown, w.relevant[question]), start=1) if c)
    memory.feedback(recall, Citations("", numbers, "cited" if numbers else "none"))
    return recall


def recall_at_5(memory, w):
    """What is served, over all questions: the share of what is relevant that is shown, without any duel."""
    found = []
    for question, relevant in zip(w.questions, w.relevant, strict=True):
        shown = {s.memory.id for s in memory.recall(USER, question).shown}
        found.append(len(shown & relevant) / len(relevant))
    return float(np.mean(found))
