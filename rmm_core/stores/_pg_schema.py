"""The PostgreSQL schema as numbered steps, each taken in one transaction, by one worker at a time.

What is kept is what the SQLite file keeps, under the same names. Beside it stand what searches read: the vectors with
their HNSW index, and ``documents``, made anew from the rest by every commit that changes what they say. Tables are
partitioned by the hash of the user, whose rows then all lie in one partition of each.

A step that was released is never changed, a new one is added.
"""

from __future__ import annotations

from collections.abc import Iterator

PARTITIONED = ("sessions", "turns", "memories", "evidence", "revisions", "documents", "feedback")

_NAME = 'TEXT COLLATE "C" NOT NULL'  # compared and sorted by code points, as Python does

MIGRATIONS: tuple[str, ...] = (
    f"""
    CREATE TABLE settings (name TEXT PRIMARY KEY, value BIGINT NOT NULL);
    CREATE SEQUENCE numbers;

    CREATE TABLE sessions (
        user_id {_NAME}, id {_NAME},
        user_name TEXT NOT NULL, agent_name TEXT NOT NULL,
        started_at TIMESTAMPTZ NOT NULL, last_at TIMESTAMPTZ NOT NULL,
        turns INTEGER NOT NULL, reflected INTEGER NOT NULL,
        ended BOOLEAN NOT NULL, attempts INTEGER NOT NULL, error TEXT NOT NULL,
        born BIGINT NOT NULL,
        holder TEXT NOT NULL DEFAULT '', held_until DOUBLE PRECISION NOT NULL DEFAULT 0,
        words TSVECTOR, words_length INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (user_id, id)
    ) PARTITION BY HASH (user_id);
    CREATE INDEX sessions_waiting ON sessions (last_at) WHERE reflected < turns;

    CREATE TABLE turns (
        user_id {_NAME}, session_id {_NAME}, position INTEGER NOT NULL,
        role TEXT NOT NULL, speaker TEXT NOT NULL, text TEXT NOT NULL, at TIMESTAMPTZ NOT NULL,
        attachments TEXT NOT NULL, from_memory BOOLEAN NOT NULL, key TEXT,
        PRIMARY KEY (user_id, session_id, position)
    ) PARTITION BY HASH (user_id);
    CREATE UNIQUE INDEX turns_by_key ON turns (user_id, session_id, key) WHERE key IS NOT NULL;

    CREATE TABLE banks (
        user_id {_NAME} PRIMARY KEY,
        version BIGINT NOT NULL, reset BIGINT NOT NULL,
        memories INTEGER NOT NULL DEFAULT 0, own_length BIGINT NOT NULL DEFAULT 0,
        around_length BIGINT NOT NULL DEFAULT 0,
        sessions INTEGER NOT NULL DEFAULT 0, session_length BIGINT NOT NULL DEFAULT 0
    );

    CREATE TABLE memories (
        user_id {_NAME}, id {_NAME}, kind TEXT NOT NULL, summary TEXT NOT NULL,
        created_at TIMESTAMPTZ NOT NULL, updated_at TIMESTAMPTZ NOT NULL,
        embedding vector NOT NULL, version BIGINT NOT NULL, cited_at TIMESTAMPTZ,
        PRIMARY KEY (user_id, id)
    ) PARTITION BY HASH (user_id);
    ALTER TABLE memories ALTER COLUMN embedding SET STORAGE MAIN;

    CREATE TABLE evidence (
        user_id {_NAME}, memory_id {_NAME}, session_id {_NAME}, position INTEGER NOT NULL,
        PRIMARY KEY (user_id, memory_id, session_id, position)
    ) PARTITION BY HASH (user_id);
    CREATE INDEX evidence_of_turn ON evidence (user_id, session_id, position);

    CREATE TABLE revisions (
        user_id {_NAME}, memory_id {_NAME}, position INTEGER NOT NULL,
        summary TEXT NOT NULL, replaced_at TIMESTAMPTZ NOT NULL,
        PRIMARY KEY (user_id, memory_id, position)
    ) PARTITION BY HASH (user_id);

    CREATE TABLE documents (
        user_id {_NAME}, memory_id {_NAME}, kind TEXT NOT NULL,
        own TSVECTOR NOT NULL, own_length INTEGER NOT NULL,
        around TSVECTOR NOT NULL, around_length INTEGER NOT NULL,
        length REAL NOT NULL, question REAL NOT NULL, timed REAL NOT NULL, number REAL NOT NULL, early REAL NOT NULL,
        speakers TEXT[] NOT NULL,
        PRIMARY KEY (user_id, memory_id),
        FOREIGN KEY (user_id, memory_id) REFERENCES memories (user_id, id) ON DELETE CASCADE
    ) PARTITION BY HASH (user_id);
    CREATE INDEX documents_own ON documents USING gin (user_id, own);
    CREATE INDEX documents_around ON documents USING gin (user_id, around);

    CREATE TABLE feedback (
        number BIGINT NOT NULL DEFAULT nextval('numbers'),
        user_id {_NAME}, recall_id {_NAME}, at TIMESTAMPTZ NOT NULL,
        embedding BYTEA NOT NULL, memory_ids TEXT NOT NULL, features BYTEA NOT NULL, noise BYTEA NOT NULL,
        shown TEXT NOT NULL, cited TEXT NOT NULL, embeddings BYTEA, duel TEXT NOT NULL,
        PRIMARY KEY (user_id, number),
        UNIQUE (user_id, recall_id)
    ) PARTITION BY HASH (user_id);
    CREATE INDEX feedback_in_order ON feedback (number);

    CREATE TABLE declined (user_id {_NAME} PRIMARY KEY);

    CREATE TABLE learners (scope {_NAME} PRIMARY KEY, version BIGINT NOT NULL, content BYTEA NOT NULL);
    """,
    """
    ALTER TABLE feedback ADD COLUMN asked_session TEXT COLLATE "C";
    ALTER TABLE feedback ADD COLUMN asked_position INTEGER;
    """,
)


def partitions(count: int) -> Iterator[str]:
    """Statements that make the partitions of a new database."""
    for table in PARTITIONED:
        for i in range(count):
            yield (
                f"CREATE TABLE {table}_{i} PARTITION OF {table} FOR VALUES WITH (MODULUS {count:d}, REMAINDER {i:d})"
            )


def row_security(count: int) -> Iterator[str]:
    """Statements after which a transaction sees the rows of the user that it named, and of nobody else."""
    tables = [name for table in PARTITIONED for name in (table, *(f"{table}_{i}" for i in range(count)))]
    for table in ("banks", "declined", *tables):
        yield f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY"
        yield f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY"
        yield f"DROP POLICY IF EXISTS by_user ON {table}"
        yield (
            f"CREATE POLICY by_user ON {table} USING (user_id = current_setting('rmm.user', TRUE)"
            " OR current_setting('rmm.everybody', TRUE) = 'on')"
        )


def nearest_index(width: int) -> Iterator[str]:
    """Statements that index embeddings of a width; pgvector's HNSW takes up to 2,000 numbers."""
    yield "DROP INDEX IF EXISTS memories_nearest"
    if width <= HNSW_WIDTH:
        yield (f"CREATE INDEX memories_nearest ON memories USING hnsw ((embedding::vector({width:d})) vector_ip_ops)")


HNSW_WIDTH = 2000
