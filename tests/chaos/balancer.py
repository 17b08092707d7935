"""A load balancer without sticky sessions, and somebody who kills its workers.

Whoever is free gets the next step of whichever user has waited longest. What a worker had not answered when it died
goes to the next one, under the same key.
"""

import json
import os
import random
import selectors
import subprocess
import sys
import time
from collections import Counter, deque
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.chaos.scenario import SECONDS_BETWEEN_KILLS, USERS, WORKERS, script

ROOT = Path(__file__).parents[2]
LONGEST = 240.0  # seconds; then something hangs
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # for each of four processes on two cores


@dataclass
class Run:
    """What happened.

    Attributes:
        seconds: From the first worker's start to the last answer.
        counts: Of kills, retries, conflicts and the like.
        reflections: ``(user, session, status)`` of each that was told of.
        unseen: Questions that did not find what had been committed before.
        errors: What workers logged as errors.
    """

    seconds: float = 0.0
    counts: Counter = field(default_factory=Counter)
    reflections: list = field(default_factory=list)
    unseen: list = field(default_factory=list)
    errors: list = field(default_factory=list)


class Worker:
    """A process.

    Attributes:
        step: What it was asked for and has not answered; None when it is free.
        expects: Whether what the step asks for was in the bank already.
        ready: Whether it has started.
        killed: Whether it was.
        recalled: When it first recalled for each user, and so began to hold an index of their bank.
    """

    def __init__(self, place):
        command = [sys.executable, "-m", "tests.chaos.worker", place]
        pipe, env = subprocess.PIPE, os.environ | ONE_THREAD
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, env=env)
        self.step = None
        self.expects = self.ready = self.killed = False
        self.recalled = {}
        self._unread = b""

    def ask(self, step, *, expects, again):
        """Hand a step over."""
        self.step, self.expects = step, expects
        with suppress(BrokenPipeError):  # it was just killed, which is noticed where its answers are read
            asked = {"step": asdict(step), "expects": expects, "again": again}
            self.process.stdin.write(json.dumps(asked).encode() + b"\n")
            self.process.stdin.flush()

    def told(self):
        """What it wrote since the last time; None when it is dead and all was read."""
        read = os.read(self.process.stdout.fileno(), 1 << 16)
        *lines, self._unread = (self._unread + read).split(b"\n")
        return [json.loads(line) for line in lines] if read else None

    def kill(self):
        """Kill it, and say what it was at."""
        self.process.kill()
        self.killed = True
        if self.step is None:
            return "idle" if self.ready else "starting"
        return "recording" if self.step.said else "reflecting"

    def close(self):
        """Ask it to end."""
        with suppress(BrokenPipeError):
            self.process.stdin.close()

    def buried(self):
        """How it ended."""
        self.close()
        self.process.stdout.close()
        return self.process.wait(timeout=30)


class Balancer:
    """Plays the whole script on the store at a place.

    Args:
        place: Where the workers open their memory.
        seed: Of who is killed.
    """

    def __init__(self, place, *, seed=0):
        self._place = place
        self._rng = random.Random(seed)
        self._run = Run()
        self._scripts = {user: deque(script(user)) for user in USERS}
        self._waiting = deque()  # steps that no worker has
        self._again = set()  # steps whose worker died
        self._known = {}  # sessions that were reflected: when, and by whom
        self._workers = []
        self._pipes = selectors.DefaultSelector()

    def play(self):
        """Everything that the users do, to the end."""
        started = time.monotonic()
        next_kill = started + SECONDS_BETWEEN_KILLS
        try:
            for _ in range(WORKERS):
                self._start()
            for user in USERS:
                self._go_on(user)
            while self._waiting or any(w.step for w in self._workers):
                self._hand_out()
                self._listen(next_kill - time.monotonic())
                if time.monotonic() >= next_kill:
                    next_kill += SECONDS_BETWEEN_KILLS
                    self._kill(self._rng.choice([w for w in self._workers if not w.killed]))
                assert time.monotonic() < started + LONGEST, f"something hangs: {self._run.counts}"
            self._run.seconds = time.monotonic() - started
            self._close()
        finally:
            self._end()
        return self._run

    def _start(self):
        worker = Worker(self._place)
        self._workers.append(worker)
        self._pipes.register(worker.process.stdout, selectors.EVENT_READ, worker)

    def _go_on(self, user):
        """Send all that the user does up to the next step that has to be waited for."""
        steps = self._scripts[user]
        while steps:
            self._waiting.append(steps.popleft())
            if self._waiting[-1].awaited:
                break

    def _hand_out(self):
        for worker in self._workers:
            if worker.ready and worker.step is None and self._waiting:
                step = self._waiting.popleft()
                worker.ask(step, expects=(step.user, step.about) in self._known, again=step in self._again)

    def _listen(self, seconds):
        for key, _ in self._pipes.select(max(0.0, seconds)):
            told = key.data.told()
            if told is None:
                self._replace(key.data)
            for line in told or ():
                self._note(key.data, line)

    def _note(self, worker, line):
        """Take in one line of a worker's."""
        if "reflection" in line:
            session = line["user"], line["session"]
            self._run.reflections.append((*session, line["reflection"]))
            if line["reflection"] in ("reflected", "nothing", "already"):
                self._known.setdefault(session, (time.monotonic(), worker))
            return
        self._run.counts.update(line["counts"])
        self._run.errors += line["errors"]
        worker.ready = True
        if worker.step is not None:
            self._answered(worker, line)

    def _answered(self, worker, line):
        step, worker.step = worker.step, None
        self._run.counts["stored_before_the_retry"] += line["known"]
        if worker.expects:
            at, by = self._known[step.user, step.about]
            if not line["found"]:
                self._run.unseen.append(step)
            if by is not worker and worker.recalled.get(step.user, at) < at:
                self._run.counts["recalls_that_followed_another"] += 1
        if step.said:
            worker.recalled.setdefault(step.user, time.monotonic())
        if step.awaited:
            self._go_on(step.user)

    def _kill(self, worker):
        self._run.counts["kills"] += 1
        self._run.counts[f"kills_while_{worker.kill()}"] += 1

    def _replace(self, worker):
        """Bury a worker, and have another do what it was at."""
        self._leave(worker)
        code = worker.buried()
        assert worker.killed, f"a worker ended by itself, with {code}; see what it wrote to stderr"
        if worker.step is not None:
            self._run.counts["retries"] += 1
            self._again.add(worker.step)
            self._waiting.appendleft(worker.step)
        self._start()

    def _close(self):
        """When all is said: half of the workers die, the others end in peace."""
        for worker in self._workers[: WORKERS // 2]:
            self._kill(worker)
        for worker in list(self._workers):
            worker.close()
            while (told := worker.told()) is not None:
                for line in told:
                    self._note(worker, line)
            self._leave(worker)
            code = worker.buried()
            assert code == 0 or worker.killed, f"a worker ended with {code}"

    def _leave(self, worker):
        self._workers.remove(worker)
        self._pipes.unregister(worker.process.stdout)

    def _end(self):
        """Leave no process behind, whatever happened."""
        for worker in list(self._workers):
            worker.kill()
            self._leave(worker)
            worker.buried()
        self._pipes.close()
