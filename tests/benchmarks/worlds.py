"""A little data set whose right rankings are known."""

from datetime import UTC, datetime

from benchmarks.banks import Banks
from benchmarks.datasets import Conversation, Question, Sitting
from rmm_core import Message, TurnRef
from rmm_core.testing import HashEmbedder
from rmm_core.types import Extracted


def said(*lines):
    return tuple(Message("agent" if i % 2 else "user", line) for i, line in enumerate(lines))


def conversation(name="ada", **changes):
    sittings = (
        Sitting(
            "s1",
            datetime(2024, 1, 5, tzinfo=UTC),
            said("I keep seven bees in Lisbon.", "How lovely!", "My sister Ida plays the cello.", "Where?"),
            facts=(Extracted("Ada keeps bees.", (0,)), Extracted("Ida plays the cello.", (2, 3))),
            summary="Ada talks about bees and her sister.",
        ),
        Sitting(
            "s2",
            datetime(2024, 2, 5, tzinfo=UTC),
            said("The cello concert was in Vienna.", "Did you go?", "The bees swarmed, so no.", "Oh no."),
            facts=(Extracted("The concert was in Vienna.", (0,)),),
        ),
    )
    questions = (
        Question("q1", "Who plays the cello?", "Ida", "one", frozenset({TurnRef("s1", 2)})),
        Question("q2", "What about the bees?", "swarmed", "two", frozenset({TurnRef("s1", 0), TurnRef("s2", 2)})),
        Question("q3", "Which car has Ada?", "", "never said", frozenset({TurnRef("s1", 1)}), abstains=True),
    )
    return Conversation(name, **({"sittings": sittings, "questions": questions} | changes))


def banks(folder, embedder=None):
    return Banks(folder, "little", embedder or HashEmbedder(256), "hash", lambda items, what: items)
