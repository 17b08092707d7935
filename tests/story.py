"""One story, told once: whatever host plays it, the user sees the same and the bank holds the same."""

import re
from dataclasses import dataclass

USER = "ann"


def citing(sentence, word):
    """A reply that cites the memory which holds ``word``, whatever its number in the prompt is."""

    def reply(prompt):
        blocks = re.findall(r'<memory number="(\d+)"[^>]*>\n(.*?)\n</memory>', prompt, re.DOTALL)
        numbers = [number for number, text in blocks if word in text]
        assert numbers, f"no memory about {word!r} among {len(blocks)}"
        return sentence.format(f"[{numbers[0]}]")

    return reply


@dataclass(frozen=True)
class Line:
    """What the user says, what the model replies, what the user sees, and what that cites."""

    said: str
    reply: object
    seen: str
    cites: str = ""


STORY = (
    (
        Line(
            "I am allergic to hazelnuts, even traces of them.", "Understood, no hazelnuts.", "Understood, no hazelnuts."
        ),
        Line("My sister Ida plays the cello in Vienna.", "How lovely [sic].", "How lovely [sic]."),
    ),
    (
        Line(
            "What should I never eat?",
            citing("Keep away from hazelnuts {0}, traces included {0}. See [a list](https://a.example).", "hazelnuts"),
            "Keep away from hazelnuts, traces included. See [a list](https://a.example).",
            "hazelnuts",
        ),
        Line("I moved to Graz in May.", "Good to know! [NO_CITE]", "Good to know!"),
    ),
    (
        Line("Where does Ida play?", citing("The cello, in Vienna {0}.", "cello"), "The cello, in Vienna.", "cello"),
        Line("And where do I live now?", citing("In Graz, since May {0}.", "Graz"), "In Graz, since May.", "Graz"),
        Line("Thank you!", "You are welcome.", "You are welcome."),
    ),
)


def play(host, memory, model):
    """Play the story through a host, and check on the way what the user sees.

    Args:
        host: Has ``say(session_id, text)``, which returns what the user saw, and ``end(session_id)``.
        memory: The memory.
        model: A scripted model: ``enqueue(reply)`` with a text or a function of the prompt.
    """
    for number, lines in enumerate(STORY, start=1):
        for line in lines:
            model.enqueue(line.reply)
            assert host.say(f"s{number}", line.said) == line.seen
        host.end(f"s{number}")


def rests_on(memory, memory_id):
    """The words of the turns that a memory rests on."""
    turns = memory.store.turns_at(USER, memory.get(USER, memory_id).evidence)
    return " ".join(turn.text for turn in turns.values())


def outcome(memory):
    """Everything a host could have got wrong: turns, memories, what was cited, what was learned."""
    turns = [
        (s.id, t.index, t.role, t.text, t.from_memory)
        for s in memory.status(USER).sessions
        for t in memory.store.turns(USER, s.id)
    ]
    bank = [(m.kind, m.summary, m.evidence) for m in memory.memories(USER)]
    cited = [[memory.get(USER, f.memory_ids[i]).summary for i in f.cited] for _, f in memory.store.feedback(limit=50)]
    status = memory.status(USER)
    return {"turns": turns, "bank": bank, "cited": cited, "updates": status.learner.updates, "pending": status.pending}


def check(memory):
    """What must hold at the end, said without any host."""
    told = outcome(memory)
    assert [t[3] for t in told["turns"]] == [text for lines in STORY for x in lines for text in (x.said, x.seen)]
    wanted = [x.cites for lines in STORY for x in lines if x.cites or "NO_CITE" in str(x.reply)]
    assert len(told["cited"]) == len(wanted) == told["updates"]
    for memories, word in zip(told["cited"], wanted, strict=True):
        assert len(memories) == bool(word)
        assert all(word in text for text in memories)
    assert told["pending"] == ()
    topics = " ".join(summary for kind, summary, _ in told["bank"] if kind == "topic")
    assert all(word in topics for word in ("hazelnuts", "Ida", "Graz"))
    assert "Keep away" not in " ".join(summary for _, summary, _ in told["bank"])  # the memory does not remember itself
