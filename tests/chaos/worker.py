"""One worker of an app: ``python -m tests.chaos.worker PLACE``.

Reads what it is asked for as lines of JSON, one at a time, and writes what happens as lines of JSON, each at once: what
was not written when it is killed, nobody was told.
"""

import json
import logging
import sys
import time
from collections import Counter

from tests.chaos.scenario import ANSWER_SECONDS, MODEL_SECONDS, Clock, Reader, Step, finds, opened, serve

CONFLICTS = {
    "the bank of a user moved during reflection; deciding again": "banks_decided_anew",
    "another process learned first; going on from its state": "learners_gone_on",
}


class Heard(logging.Handler):
    """Counts what the library says of conflicts, and keeps what it says of errors."""

    def __init__(self):
        super().__init__(logging.INFO)
        self.counts = Counter()
        self.errors = []

    def emit(self, record):
        if record.levelno >= logging.ERROR:
            self.errors.append(logging.Formatter().format(record))
        elif record.msg in CONFLICTS:
            self.counts[CONFLICTS[record.msg]] += 1

    def taken(self, llm):
        """What was heard since the last time, and how often a model was asked."""
        told = {"counts": self.counts | {"extractions_asked_for": llm.extractions}, "errors": self.errors}
        self.counts, self.errors, llm.extractions = Counter(), [], 0
        return told


def tell(**what):
    """Write a line that is out when this returns."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def reflected(report):
    """Tell what became of a reflection."""
    tell(user=report.user_id, session=report.session_id, reflection=report.status)


def stored(memory, step):
    """Whether an exchange that comes again was stored before: its worker died before it could say so."""
    turns = {s.id: s.turns for s in memory.store.sessions(step.user)}
    return bool(step.said) and turns.get(step.session, 0) > 2 * step.number


def main(place):
    heard = Heard()
    logging.getLogger("rmm_core").addHandler(heard)
    logging.getLogger("rmm_core").setLevel(logging.INFO)
    clock, llm = Clock(), Reader(MODEL_SECONDS)
    with opened(place, clock, llm=llm, on_reflection=reflected) as memory:
        memory.reflect_pending()
        tell(**heard.taken(llm))
        for line in sys.stdin:
            asked = json.loads(line)
            step = Step(**asked["step"])
            known = asked["again"] and stored(memory, step)
            found = not asked["expects"] or finds(memory, step)
            serve(memory, clock, step)
            time.sleep(ANSWER_SECONDS)
            tell(found=found, known=known, **heard.taken(llm))
    tell(**heard.taken(llm))


if __name__ == "__main__":
    main(*sys.argv[1:])
