"""A little conversation of our own: one user, one assistant, six sessions over a year."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from benchmarks.datasets import Conversation, Question, Sitting
from rmm_core import Attachment, Message, ReflectionReport, ReflectiveMemory, TurnRef

_TALK: tuple[tuple[str, str], ...] = (
    (
        "2024-01-14",
        """
        Hi! I'm Mara, I just moved from Ghent to Lisbon for a job at the oceanarium.
        Welcome, Mara! What will you be doing there?
        I look after the sea otters. My favourite is called Biscuit, she steals my keys.
        That sounds like a lively colleague.
        One thing before you suggest lunch places: I'm allergic to hazelnuts, even traces of them.
        Understood, no hazelnuts.
        My sister Lotte stayed in Ghent, she runs a bakery in the old fish market.
        """,
    ),
    (
        "2024-03-03",
        """
        I'm thinking of buying a second-hand piano for the flat.
        Do you play?
        I did for nine years as a child, mostly Satie. The flat is on the fourth floor without a lift, though.
        A digital one might be easier to carry up.
        True. Oh, and I joined a climbing gym in Alcântara, I go every Tuesday after work.
        Nice, how hard do you climb?
        Only 5c so far, my forearms give up before I do.
        """,
    ),
    (
        "2024-05-19",
        """
        Guess what, I decided against the piano. The music school lets me practise in their cellar for 20 euros a month.
        A practical solution, and no stairs.
        Exactly. My teacher is called Henrique and he makes me play Chopin, which I secretly hate.
        Will you tell him?
        Maybe after the concert on 22 June. By the way, Biscuit had a pup last week!
        Congratulations to Biscuit! Does the pup have a name?
        The children's vote was Pastel, so Pastel it is.
        """,
    ),
    (
        "2024-07-07",
        """
        The concert went fine, although I skipped a page of the nocturne.
        Did anybody notice?
        Only Lotte, who had come by train all the way from Ghent, 31 hours with her sourdough starter in a jar.
        That's devotion to bread.
        She wants to open a second bakery here in Lisbon next spring, near Estrela.
        Would you help her?
        On weekends. I've started a Portuguese course to deal with the paperwork, level B1.
        """,
    ),
    (
        "2024-10-20",
        """
        I climbed my first 6b yesterday! Henrique's brother Rui showed me how to rest on straight arms.
        From 5c to 6b in half a year, well done.
        I hurt my left wrist doing it, the doctor says no climbing until December.
        What will you do on Tuesdays instead?
        Swim. There is a pool next to the oceanarium that opens at six in the morning.
        Early! You are getting used to otter hours.
        """,
    ),
    (
        "2025-01-12",
        """
        I passed the B1 exam with 87 points!
        Parabéns! What comes next?
        Next I need a present for Lotte's birthday on 9 February, she turns forty.
        Any ideas?
        She collects old cake tins, and she would love to see Pastel, who weighs twelve kilos by now.
        """,
    ),
)

_QUESTIONS: tuple[tuple[str, str, tuple[tuple[int, int], ...]], ...] = (
    ("What is Mara allergic to?", "hazelnuts", ((0, 4),)),
    ("Where does Mara practise the piano?", "in the cellar of the music school", ((2, 0),)),
    ("Which animals does Mara look after?", "sea otters", ((0, 2),)),
    ("Why did Mara stop going to the climbing gym?", "she hurt her left wrist", ((4, 2),)),
    ("What must nobody put into Mara's cake?", "hazelnuts", ((0, 4),)),
    ("What is the name of the otter's pup?", "Pastel", ((2, 6),)),
    ("How long did Lotte travel to the concert?", "31 hours", ((3, 2),)),
    ("Whose brother taught Mara to rest on straight arms?", "Henrique's", ((4, 0), (2, 2))),
    ("Which composer does Mara dislike?", "Chopin", ((2, 2),)),
    ("When is Lotte's birthday?", "9 February", ((5, 2),)),
    ("Where will the second bakery open?", "near Estrela in Lisbon", ((3, 4),)),
    ("How well did Mara do in the language exam?", "87 points", ((5, 0),)),
    ("What does Mara do on Tuesdays now?", "she swims", ((4, 4),)),
)


def _sitting(number: int, date: str, talk: str) -> Sitting:
    lines = [line.strip() for line in talk.strip().splitlines()]
    said = [
        Message("agent", line, "Assistant") if i % 2 else Message("user", line, "Mara") for i, line in enumerate(lines)
    ]
    if number == 2:  # a photo travels with its turn, and its caption is searchable
        photo = Attachment("image", "photos/pastel.jpg", "a newborn sea otter asleep on its mother's belly")
        said[6] = replace(said[6], attachments=(photo,))
    at = datetime.fromisoformat(date).replace(hour=18, tzinfo=UTC)
    return Sitting(f"session_{number + 1}", at, tuple(said))


CONVERSATION = Conversation(
    name="mara",
    speakers=("Mara", "Assistant"),
    sittings=tuple(_sitting(i, date, talk) for i, (date, talk) in enumerate(_TALK)),
    questions=tuple(
        Question(f"mara {i}", text, said, "question", frozenset(TurnRef(f"session_{s + 1}", t) for s, t in evidence))
        for i, (text, said, evidence) in enumerate(_QUESTIONS)
    ),
)


def hold(memory: ReflectiveMemory, user_id: str, conversation: Conversation, sitting: Sitting) -> ReflectionReport:
    """One session of a user, as it was held, and what became of it."""
    user_name, agent_name = conversation.speakers
    chat = memory.chat(user_id, session_id=sitting.id, user_name=user_name, agent_name=agent_name, at=sitting.at)
    chat.add(*sitting.messages)
    return chat.end()
