"""The SQLite schema as numbered steps; step n takes a file from ``user_version`` n - 1 to n.

All steps a file still needs run in one transaction: a crash in between leaves it as it was.
A step that was released is never changed, a new one is added.
"""

from __future__ import annotations

import sqlite3

from rmm_core.errors import StoreError

APPLICATION_ID = 0x524D4D31  # "RMM1": tells our files from other SQLite files

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE settings (name TEXT PRIMARY KEY, value) WITHOUT ROWID;

    CREATE TABLE sessions (
        user_id TEXT NOT NULL, id TEXT NOT NULL,
        user_name TEXT NOT NULL, agent_name TEXT NOT NULL,
        started_at TEXT NOT NULL, last_at TEXT NOT NULL,
        turns INTEGER NOT NULL DEFAULT 0, reflected INTEGER NOT NULL DEFAULT 0,
        ended INTEGER NOT NULL DEFAULT 0, attempts INTEGER NOT NULL DEFAULT 0, error TEXT NOT NULL DEFAULT '',
        born INTEGER NOT NULL,
        PRIMARY KEY (user_id, id)
    ) WITHOUT ROWID;
    CREATE INDEX sessions_waiting ON sessions (last_at) WHERE reflected < turns;

    CREATE TABLE turns (
        user_id TEXT NOT NULL, session_id TEXT NOT NULL, position INTEGER NOT NULL,
        role TEXT NOT NULL, speaker TEXT NOT NULL, text TEXT NOT NULL, at TEXT NOT NULL, attachments TEXT NOT NULL,
        from_memory INTEGER NOT NULL,
        PRIMARY KEY (user_id, session_id, position)
    ) WITHOUT ROWID;

    CREATE TABLE banks (
        user_id TEXT PRIMARY KEY,
        version INTEGER NOT NULL,
        reset INTEGER NOT NULL
    ) WITHOUT ROWID;

    CREATE TABLE memories (
        user_id TEXT NOT NULL, id TEXT NOT NULL, kind TEXT NOT NULL, summary TEXT NOT NULL,
        created_at TEXT NOT NULL, updated_at TEXT NOT NULL,
        embedding BLOB NOT NULL, version INTEGER NOT NULL,
        PRIMARY KEY (user_id, id)
    );
    CREATE INDEX memories_changed ON memories (user_id, version);

    CREATE TABLE evidence (
        user_id TEXT NOT NULL, memory_id TEXT NOT NULL, session_id TEXT NOT NULL, position INTEGER NOT NULL,
        PRIMARY KEY (user_id, memory_id, session_id, position)
    ) WITHOUT ROWID;
    CREATE INDEX evidence_of_turn ON evidence (user_id, session_id, position);

    CREATE TABLE revisions (
        user_id TEXT NOT NULL, memory_id TEXT NOT NULL, position INTEGER NOT NULL,
        summary TEXT NOT NULL, replaced_at TEXT NOT NULL,
        PRIMARY KEY (user_id, memory_id, position)
    ) WITHOUT ROWID;

    CREATE TABLE feedback (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        user_id TEXT NOT NULL, recall_id TEXT NOT NULL, at TEXT NOT NULL,
        embedding BLOB NOT NULL, memory_ids TEXT NOT NULL, features BLOB NOT NULL, noise BLOB NOT NULL,
        shown TEXT NOT NULL, cited TEXT NOT NULL,
        UNIQUE (user_id, recall_id)
    );

    CREATE TABLE learners (scope TEXT PRIMARY KEY, version INTEGER NOT NULL, content BLOB NOT NULL) WITHOUT ROWID;
    """,
    """
    ALTER TABLE turns ADD COLUMN key TEXT;
    CREATE UNIQUE INDEX turns_by_key ON turns (user_id, session_id, key) WHERE key IS NOT NULL;
    ALTER TABLE feedback ADD COLUMN embeddings BLOB;
    """,
    """
    ALTER TABLE feedback ADD COLUMN duel TEXT NOT NULL DEFAULT '[]';
    CREATE INDEX feedback_by_user ON feedback (user_id);
    """,
    """
    ALTER TABLE sessions ADD COLUMN holder TEXT NOT NULL DEFAULT '';
    ALTER TABLE sessions ADD COLUMN held_until REAL NOT NULL DEFAULT 0;
    ALTER TABLE memories ADD COLUMN cited_at TEXT;
    CREATE TABLE declined (user_id TEXT PRIMARY KEY) WITHOUT ROWID;
    """,
    """
    ALTER TABLE feedback ADD COLUMN asked_session TEXT;
    ALTER TABLE feedback ADD COLUMN asked_position INTEGER;
    """,
)


def refuse_foreign(db: sqlite3.Connection) -> None:
    """Make sure that a file is ours, or new, before anything of it is changed, its journal included.

    Raises:
        StoreError: When it is another program's.
    """
    db.execute("BEGIN")  # one state of the file: another process may be making it
    try:
        (application,) = db.execute("PRAGMA application_id").fetchone()
        if application != APPLICATION_ID and db.execute("SELECT count(*) FROM sqlite_schema").fetchone() != (0,):
            raise StoreError("this SQLite file was not written by reflective-memory")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def migrate(db: sqlite3.Connection) -> None:
    """Bring an open database, new or of ours, up to this version's schema.

    Raises:
        StoreError: When the file was written by a newer version.
    """
    db.execute("BEGIN IMMEDIATE")
    try:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version > len(MIGRATIONS):
            raise StoreError(
                f"this file has schema {version} and this version knows {len(MIGRATIONS)}: upgrade reflective-memory"
            )
        for number in range(version, len(MIGRATIONS)):
            for statement in MIGRATIONS[number].split(";"):
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {number + 1:d}")
        db.execute(f"PRAGMA application_id = {APPLICATION_ID:d}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # a full disk has rolled back by itself, and must not be hidden by that
            db.execute("ROLLBACK")
        raise
