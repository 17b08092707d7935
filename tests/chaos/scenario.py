"""What the users say, and the models that read it: all of it follows from the constants here.

A user has two sessions at a time, say on a phone and on a laptop, sends one message at a time to either of them, ends
both, and goes on with the next two at once, without waiting for them to be reflected; only the first two are waited
for, so that every later question finds a bank. So sessions of one user are reflected at the same time, and in any
order, and what the bank holds in the end must not depend on it: the model merges all facts about a subject into one
summary, which lists them sorted. A merge changes no embedding either (numbers have none), so that what an answer
teaches is the same whenever it is learned from.
"""

import asyncio
import json
import random
import re
import time
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from rmm_core import ReflectiveMemory, RMMConfig
from rmm_core.features import FEATURES
from rmm_core.testing import HashEmbedder

WORKERS = 4
USERS = ("ada", "ben", "cyd", "dee", "eli", "fay", "gus", "hal")
ROUNDS, EXCHANGES = 10, 25  # of a user, and in a round; an exchange is two turns: 500 turns a user
SECONDS_BETWEEN_KILLS = 1.0
LEASE_SECONDS = 1.5
MODEL_SECONDS = 0.01  # for a reply
ANSWER_SECONDS = 0.005  # until an app has told its user: who dies meanwhile has stored what nobody knows is stored
QUESTIONS = 0.4  # share of what is said from the second round on
SUBJECTS = "plums violins Graz bicycles chess bees cedars ferries maps onions quartz rugby".split()
T0 = datetime(2024, 3, 1, 9, 0, tzinfo=UTC)
OWN = FEATURES.index("own")
CONFIG = RMMConfig(speakers=("user",), neighbours=len(SUBJECTS), lease_minutes=LEASE_SECONDS / 60)


@dataclass(frozen=True)
class Step:
    """One thing that a user does and that a worker is asked for.

    Attributes:
        at: When, as text.
        said: The message; empty for the end of the session.
        reply: The answer without its citations.
        number: Which exchange of its session it is.
        asks: The fact that is asked for; empty when nothing is.
        about: The session that told it.
        awaited: Whether the user waits for it.
    """

    user: str
    session: str
    at: str
    said: str = ""
    reply: str = ""
    number: int = 0
    asks: str = ""
    about: str = ""
    awaited: bool = True

    @property
    def key(self):
        """What the exchange is called, by whichever worker it is stored."""
        return f"{self.session}/{self.number}"

    @property
    def when(self):
        return datetime.fromisoformat(self.at)


def script(user):
    """Everything that a user does, in order."""
    rng = random.Random(user)
    steps, known = [], []
    for number in range(ROUNDS):
        at = T0 + timedelta(days=number)
        sessions = (f"s{number:02}-laptop", f"s{number:02}-phone")
        exchanges, facts = _round(rng, user, sessions, at, known)
        known += facts
        ended = (at + timedelta(minutes=EXCHANGES)).isoformat()
        steps += [*exchanges, *(Step(user, name, ended, awaited=number == 0) for name in sessions)]
    return steps


def _round(rng, user, sessions, at, known):
    """The exchanges of two sessions, mixed, and the facts they tell; questions are about what is known from before."""
    counts = dict.fromkeys(sessions, 0)
    exchanges, facts = [], []
    for i in range(EXCHANGES):
        session = sessions[i] if i < len(sessions) else rng.choice(sessions)
        word = f"{USERS.index(user)}{(at - T0).days:02}{i:02}"  # tells this exchange from all others
        if known and rng.random() < QUESTIONS:
            fact, subject, about = rng.choice(known[-EXCHANGES:] if rng.random() < 0.5 else known)
            said = f"Was there anything about {subject}, such as {fact}? I ask for q{word}."
            reply = f"I looked for q{word} and have put item r{word} on top."
        else:
            fact = about = ""
            facts.append((f"f{word}", rng.choice(SUBJECTS), session))
            told = " on ".join(facts[-1][:2])
            said, reply = f"Please keep {told}.", f"I keep {told}."
        when = (at + timedelta(minutes=i)).isoformat()
        exchanges.append(Step(user, session, when, said, reply, counts[session], asks=fact, about=about))
        counts[session] += 1
    return exchanges, facts


class Reader:
    """A language model whose replies follow from the prompt alone.

    Attributes:
        extractions: How often it was asked what a piece of a session tells.
    """

    def __init__(self, seconds=0.0):
        self.extractions = 0
        self._seconds = seconds

    def complete(self, prompt, *, schema=None):
        time.sleep(self._seconds)
        asked = prompt.rpartition("Now the real one.")[2]
        if "history_summaries:" in asked:
            return _decided(asked)
        self.extractions += 1
        return _extracted(asked)

    async def acomplete(self, prompt, *, schema=None):
        return await asyncio.to_thread(self.complete, prompt, schema=schema)


def _extracted(asked):
    """One memory for each subject, which rests on all turns that tell something about it."""
    facts = defaultdict(list)
    for number, fact, subject in re.findall(r"^\[(\d+)\] .*\b(f\d+) on (\w+)", asked, re.MULTILINE):
        facts[subject].append((int(number), fact))
    memories = [
        {"summary": _summary(f"User about {subject}", {f for _, f in told}), "reference": [n for n, _ in told]}
        for subject, told in facts.items()
    ]
    return json.dumps({"extracted_memories": memories}) if memories else "NO_TRAIT"


def _decided(asked):
    """A merge into the memory of the same subject, where there is one."""
    held, new = (json.loads(re.search(rf"^{name}: (.*)$", asked, re.MULTILINE)[1]) for name in _ASKED)
    subject = new.partition(":")[0]
    for number, text in enumerate(held):
        if text.startswith(f"{number}: {subject}:"):
            return f"Merge({number}, {_summary(subject, {*_FACT.findall(text), *_FACT.findall(new)})})"
    return "Add()"


def _summary(subject, facts):
    return f"{subject}: {' '.join(sorted(facts))}"


_ASKED = ("history_summaries", "new_summary")
_FACT = re.compile(r"\bf\d+\b")


class Words(HashEmbedder):
    """Embeds words, and no numbers: what is said about one subject is all alike."""

    def embed(self, texts):
        return super().embed([re.sub(r"\w*\d\w*", "", text) for text in texts])


class Clock:
    """Stands where the script says."""

    def __init__(self):
        self.now = T0

    def __call__(self):
        return self.now


def opened(place, clock, *, llm=None, on_reflection=None):
    """The memory at a place, as every worker opens it."""
    return ReflectiveMemory.open(
        place, llm=llm or Reader(), embedder=Words(), config=CONFIG, clock=clock, on_reflection=on_reflection
    )


def serve(memory, clock, step):
    """Do one step as an app would."""
    clock.now = step.when
    chat = memory.chat(step.user, session_id=step.session)
    if not step.said:
        while chat.end().status in ("elsewhere", "pending") and step.awaited:
            time.sleep(LEASE_SECONDS / 10)
        return
    recall = chat.recall(step.said)
    reply = step.reply
    if step.asks:
        cited = [f"[{s.number}]" for s in recall.shown if step.asks in s.memory.summary]
        reply += " " + ("".join(cited) or "[NO_CITE]")
    chat.record(step.said, reply, recall, key=step.key)


def finds(memory, step):
    """Whether the memory that a question asks for is found by its words, which the index alone knows."""
    found = memory.recall(step.user, step.asks).candidates
    return any(c.features[OWN] > 0 and c.memory.kind == "topic" and step.asks in c.memory.summary for c in found)
