"""What must hold of the store when all is over, whatever happened on the way."""

import time
from collections import Counter, defaultdict
from contextlib import contextmanager
from dataclasses import replace

from rmm_core.learned import Learned
from rmm_core.prospective import pieces
from rmm_core.stores import open_store
from rmm_core.trainer import Trainer
from tests.chaos.scenario import CONFIG, LEASE_SECONDS, T0, USERS, WORKERS, Clock, opened, script, serve

PATIENCE = 20 * LEASE_SECONDS
LAPSED = 0.1  # share of sessions whose worker may be so slow that another takes it for dead
PIECES = CONFIG.piece_turns, CONFIG.piece_overlap, CONFIG.piece_characters


def settle(memory):
    """Reflect until nothing waits, and learn what the last workers to die had left; what was reflected."""
    until = time.monotonic() + PATIENCE
    reports = memory.reflect_pending()
    while any(memory.status(user).pending for user in USERS):
        assert time.monotonic() < until, f"sessions wait for ever: {reports}"
        time.sleep(LEASE_SECONDS / 10)
        reports += memory.reflect_pending()
    memory.run(memory.learning(memory.recall(USERS[0], "Is anything left to learn?")))
    return [(r.user_id, r.session_id, r.status) for r in reports]


def alone():
    """A memory of one process in which the same was done in order, and nobody died."""
    clock = Clock()
    memory = opened(":memory:", clock)
    with one_thread():
        for user in USERS:
            for step in script(user):
                serve(memory, clock, step)
    clock.now = T0
    settle(memory)
    return memory


@contextmanager
def one_thread():
    """Keep FAISS from waiting for its own threads, which doubles what small searches take on busy cores."""
    import faiss

    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(threads)


def check_turns(memory):
    """Every turn is stored once, in order, as it was said."""
    for user in USERS:
        said = defaultdict(list)
        for step in (s for s in script(user) if s.said):
            said[step.session] += [("user", step.said, step.when), ("agent", step.reply, step.when)]
        held = {s.id: memory.store.turns(user, s.id) for s in memory.store.sessions(user)}
        assert {name: [(t.role, t.text, t.at) for t in turns] for name, turns in held.items()} == said
        assert all([t.index for t in turns] == list(range(len(turns))) for turns in held.values())
        assert memory.status(user).turns == sum(map(len, said.values()))


def check_sessions(run, memory):
    """Every session ended and was reflected: to its last turn, by one worker, and no model was asked in vain."""
    needed = 0
    for user in USERS:
        sessions = memory.store.sessions(user)
        assert all((s.ended, s.reflected, s.attempts, s.error) == (True, s.turns, 0, "") for s in sessions)
        needed += sum(len(pieces(memory.store.turns(user, s.id), *PIECES)) for s in sessions)
    done = Counter((user, session) for user, session, status in run.reflections if status == "reflected")
    assert not [name for name, times in done.items() if times > 1]
    assert run.counts["extractions_asked_for"] <= needed * (1 + LAPSED)


def check_bank(memory):
    """Every turn is in the bank, and no memory is there twice."""
    for user in USERS:
        topics, unfiled = (memory.memories(user, kind=kind) for kind in ("topic", "unfiled"))
        subjects = Counter(m.summary.partition(":")[0] for m in topics)
        alone_at = Counter(m.evidence for m in unfiled)
        assert {*subjects.values(), *alone_at.values()} == {1}, (subjects, alone_at)
        filed = {ref for m in topics for ref in m.evidence}
        left = {ref for m in unfiled for ref in m.evidence}
        said = {t.ref for s in memory.store.sessions(user) for t in memory.store.turns(user, s.id)}
        assert filed | left == said
        assert not filed & left


def check_same_bank(memory, other):
    """What two memories hold is the same; which of two sessions a topic began with may differ, and its id with it."""
    for user in USERS:
        assert content(memory, user) == content(other, user)


def content(memory, user):
    """A bank without ids, and with the number of earlier summaries in place of these."""
    memories = memory.memories(user)
    entries = memory.store.entries(user, [m.id for m in memories])
    return sorted(
        (m.kind, m.summary, m.evidence, m.created_at, m.updated_at, len(m.history), entries[m.id].embedding.tolist())
        for m in memories
    )


def check_log(memory):
    """Every answered question is in the learning log once, and nothing else is."""
    asked = Counter((user, step.when) for user in USERS for step in script(user) if step.asks)
    assert Counter((f.user_id, f.at) for _, f in log(memory)) == asked


def check_learner(memory):
    """What was learned is what one process learns from the whole log, in order: to the bit."""
    held = Learned.unpack(memory.store.learner_state("store").content, CONFIG, 0)
    answers = len(log(memory))
    assert held.updates == memory.status(USERS[0]).learner.updates == answers // CONFIG.batch_size
    again = relearned(memory)
    assert memory.status(USERS[0]).learner == again.status(CONFIG)
    assert replace(held, cursor=0).pack() == replace(again, cursor=0).pack()  # numbers of a log may have gaps


def log(memory):
    """The learning log."""
    return memory.store.feedback(limit=1_000_000)


def relearned(memory):
    """The learner of a new store with the same banks and the same log."""
    store = open_store(":memory:", CONFIG)
    for user in USERS:
        sessions = memory.store.sessions(user)
        turns = [t for s in sessions for t in memory.store.turns(user, s.id)]
        entries = memory.store.entries(user, [m.id for m in memory.memories(user)])
        store.restore_user(user, sessions, turns, list(entries.values()))
    for _, feedback in log(memory):
        store.add_feedback(feedback)
    trainer = Trainer(store, CONFIG)
    trainer.catch_up(USERS[0], memory.store.width())
    state = trainer.state(USERS[0], memory.store.width())
    store.close()
    return state


def figures(run, memory):
    """The run in numbers, for people."""
    turns = sum(memory.status(user).turns for user in USERS)
    learner = memory.status(USERS[0]).learner
    return {
        "workers": WORKERS,
        "users": len(USERS),
        "turns": turns,
        "seconds": round(run.seconds, 1),
        "turns_per_second": round(turns / run.seconds, 1),
        **dict(sorted(run.counts.items())),
        **Counter(f"reflections_told_{status}" for _, _, status in sorted(run.reflections)),
        "memories": sum(len(memory.memories(user)) for user in USERS),
        "answers_learned_from": len(log(memory)),
        "updates": learner.updates,
        "ranking": learner.ranking,
    }


def everything(run, memory, other):
    """All of it: of a run, the memory at its place, and one in which nobody died."""
    check_run(run)
    check_turns(memory)
    check_sessions(run, memory)
    check_bank(memory)
    check_same_bank(memory, other)
    check_log(memory)
    check_learner(memory)


def check_run(run):
    """Nothing failed, no worker missed what others had committed, and there was something to miss."""
    assert (run.errors, run.unseen) == ([], [])
    assert run.counts["retries"]
    assert run.counts["recalls_that_followed_another"]
