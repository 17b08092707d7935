"""Connections to PostgreSQL: a pool, transactions that know whose rows they touch, the schema brought up to date."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, cast

from rmm_core.errors import ConfigError, MissingDependencyError, StoreClosedError, StoreError
from rmm_core.stores._pg_schema import MIGRATIONS, nearest_index, partitions, row_security
from rmm_core.stores._sql import Rows
from rmm_core.types import Vector

try:
    import pgvector
    import psycopg
    from pgvector import psycopg as pgvector_psycopg
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
    from psycopg.pq import TransactionStatus
    from psycopg_pool import ConnectionPool, PoolTimeout
except ImportError as error:
    raise MissingDependencyError("a memory on PostgreSQL", "postgres") from error


class Transaction:
    """A connection inside a transaction; a :class:`~rmm_core.stores._sql.Sql`."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Rows:
        """Run a statement whose values stand as ``?``."""
        return self._connection.execute(_marked(statement), values, binary=True)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> None:
        """Run a statement once for each row of values."""
        with self._connection.cursor() as cursor:
            cursor.executemany(_marked(statement), rows)

    def named(self, statement: str, values: dict[str, Any]) -> Rows:
        """Run a statement whose values stand as ``%(name)s``."""
        return self._connection.execute(cast(Any, statement), values, binary=True)

    def next_number(self) -> int:
        """A number that never comes again in this database."""
        return int(self.execute("SELECT nextval('numbers')").fetchone()[0])

    def alone(self, what: str, *, shared: bool = False) -> None:
        """Wait until nobody else is at this, and keep others waiting until this transaction ends.

        Args:
            what: Names it.
            shared: Wait for those alone who asked without it, and keep only them waiting.
        """
        lock = "pg_advisory_xact_lock_shared" if shared else "pg_advisory_xact_lock"
        self.execute(f"SELECT {lock}(hashtextextended(?, ?))", (what, _LOCKS))


class Pool:
    """The connections of one store.

    Args:
        url: ``postgresql://user:password@host/database``; libpq's parameters go with it. Everything lies in the schema
            ``rmm``, or in the first of the ``search_path`` that the URL's ``options`` name.
        connections: How many at most.
        partitions: Of each table, in a database that is new.
        row_security: Whether the server, too, holds every transaction to its user's rows.
        seconds: How long to wait for the server, and for a connection that others use.

    Raises:
        ConfigError: When the URL cannot be read.
        StoreError: When the server cannot be reached, lacks pgvector, or holds a newer schema.
    """

    def __init__(
        self, url: str, *, connections: int, partitions: int, row_security: bool, seconds: float = 10.0
    ) -> None:
        self._row_security = row_security
        try:
            told = conninfo_to_dict(url)
        except psycopg.Error:  # whose words may quote the password
            raise ConfigError(
                "this is no URL of a PostgreSQL database: postgresql://user:password@host/database, where a password's"
                " %, @, /, # and spaces are written %25, %40, %2F, %23 and %20"
            ) from None
        where = "{host}/{dbname}".format(**{"host": "localhost", "dbname": "", **told})
        self._where = "..." if "@" in where else where  # a part of a password that was not written so
        self._url = url
        place = make_conninfo(url, connect_timeout=told.get("connect_timeout", int(seconds)))
        with self._translated(), psycopg.connect(place) as connection:
            prepared = {} if _direct(connection) else {"prepare_threshold": None}
            self._schemas = self._migrate(Transaction(connection), schemas_of(told), partitions)
        self._pool: ConnectionPool[Any] | None = ConnectionPool(
            place,
            kwargs=prepared,
            min_size=1,
            max_size=connections,
            timeout=seconds,
            open=True,
            configure=self._configure,
            check=ConnectionPool.check_connection,  # a server that was restarted costs no user an error
        )

    @contextmanager
    def read(self, user_id: str | None = None) -> Iterator[Transaction]:
        """A transaction that sees one state of the database: one user's rows, or for None everybody's."""
        with self._transaction(user_id, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY; ") as db:
            yield db

    @contextmanager
    def write(self, user_id: str | None = None) -> Iterator[Transaction]:
        """A transaction that commits at the end, or leaves no trace; one at a time for each user."""
        with self._transaction(user_id) as db:
            if user_id is not None:
                db.alone(f"user {user_id}")
            yield db

    def close(self) -> None:
        """Close all connections; doing so twice is fine."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    @contextmanager
    def _transaction(self, user_id: str | None, first: str = "") -> Iterator[Transaction]:
        if self._pool is None:
            raise StoreClosedError("this memory is closed; open it again with ReflectiveMemory.open")
        with self._translated(), self._pool.connection() as connection:
            # nothing is left behind on a connection: a pooler may give each transaction another one
            connection.execute(cast(Any, f"{first}{_looking_in(self._schemas)}"), prepare=False)
            db = Transaction(connection)
            if self._row_security:
                name, value = ("rmm.everybody", "on") if user_id is None else ("rmm.user", user_id)
                db.execute("SELECT set_config(?, ?, TRUE)", (name, value))
            yield db
            if connection.info.transaction_status is TransactionStatus.INERROR:
                raise StoreError(f"PostgreSQL at {self._where}: a statement failed, and nothing was stored")

    def _configure(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute(cast(Any, _looking_in(self._schemas)), prepare=False)
        pgvector_psycopg.register_vector(connection)
        connection.commit()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """What the server and the driver raise, as ours; never with a password in it."""
        try:
            yield
        except (psycopg.Error, PoolTimeout, UnicodeEncodeError) as error:
            raise StoreError(f"PostgreSQL at {self._where}: {_secret_free(error, self._url)}") from error

    def _migrate(self, db: Transaction, schemas: list[str], count: int) -> list[str]:
        """Bring the database up to this version's schema; where everything is looked up, extensions too."""
        db.alone("schema")
        db.execute(f"CREATE SCHEMA IF NOT EXISTS {_quoted(schemas[0])}")
        for extension in ("vector", "btree_gin"):
            if not db.execute("SELECT 1 FROM pg_extension WHERE extname = ?", (extension,)).fetchone():
                db.execute(f"CREATE EXTENSION IF NOT EXISTS {extension} SCHEMA public")
        beside = db.execute(
            "SELECT DISTINCT nspname FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace"
            " WHERE extname IN ('vector', 'btree_gin')"
        )
        schemas = list(dict.fromkeys([*schemas, *(name for (name,) in beside)]))
        db.execute(_looking_in(schemas))
        db.execute("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL, partitions INTEGER NOT NULL)")
        row = db.execute("SELECT version, partitions FROM schema_version").fetchone()
        version, held = row or (0, count)
        if version > len(MIGRATIONS):
            raise StoreError(
                f"this database has schema {version} and this version knows {len(MIGRATIONS)}: upgrade"
                " reflective-memory"
            )
        for step in MIGRATIONS[version:]:
            for statement in step.split(";"):
                if statement.strip():
                    db.execute(statement)
        if version == 0:
            for statement in partitions(held):
                db.execute(statement)
            db.execute("INSERT INTO schema_version VALUES (?, ?)", (len(MIGRATIONS), held))
        elif version < len(MIGRATIONS):
            db.execute("UPDATE schema_version SET version = ?", (len(MIGRATIONS),))
        if self._row_security:
            if db.execute("SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user").fetchone()[0]:
                raise ConfigError("row security does not bind a role with SUPERUSER or BYPASSRLS: connect as another")
            for statement in row_security(held):
                db.execute(statement)
        return schemas


def schemas_of(told: Mapping[str, Any]) -> list[str]:
    """Where names are looked up, the first of it where tables are made: as the ``options`` of a URL have it, or ours.

    Raises:
        ConfigError: When the first of them is no name of a schema.
    """
    named = _SEARCH_PATH.search(str(told.get("options", "")))
    if named is None:
        return ["rmm", "public"]
    path = re.sub(r"\\(.)", r"\1", named[1])
    found = [quoted.replace('""', '"') or plain.lower() for quoted, plain in _IDENTIFIER.findall(path)]
    if not found or found[0] == "$user":
        raise ConfigError(f"search_path={path}: name a schema first, as in options=-c%20search_path=rmm,public")
    return found


def holds_memory(url: str, seconds: int = 5) -> bool:
    """Whether there are tables of ours in a database, or may be: nothing is made there.

    Returns:
        False when it was asked and has none; True otherwise, and whoever opens it is told what is wrong.
    """
    try:
        told = conninfo_to_dict(url)
        with psycopg.connect(make_conninfo(url, connect_timeout=seconds)) as connection:
            statement = "SELECT 1 FROM pg_tables WHERE tablename = 'schema_version' AND schemaname = ?"
            return Transaction(connection).execute(statement, schemas_of(told)[:1]).fetchone() is not None
    except (psycopg.Error, ConfigError):
        return True


def index_width(db: Transaction, width: int) -> None:
    """Index embeddings of this width from here on."""
    for statement in nearest_index(width):
        db.execute(statement)


def packed(vector: Vector) -> Any:
    """An embedding as pgvector holds it."""
    return _PACKED(vector)


def _direct(connection: psycopg.Connection[Any]) -> bool:
    """Whether the server itself is at the other end, and not a pooler, which tells of a process that is none."""
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    return row is not None and int(row[0]) == connection.info.backend_pid


def _looking_in(schemas: Iterable[str]) -> str:
    """The statement after which a transaction looks names up there."""
    return f"SET LOCAL search_path TO {', '.join(map(_quoted, schemas))}"


def _quoted(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))


@lru_cache(maxsize=512)
def _marked(statement: str) -> Any:
    """A statement with psycopg's marks."""
    return statement.replace("?", "%s")


def _secret_free(error: BaseException, url: str) -> str:
    """What an error says first: without the URL, which may hold a password, and little of what users said."""
    return str(error).replace(url, "...").strip()[:200]


_SEARCH_PATH = re.compile(r"(?:^|\s)(?:-c\s*|--)search[_-]path=((?:\\.|\S)*)")
_IDENTIFIER = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([^",\s]+))\s*(?:,|$)')
_PACKED: Any = getattr(pgvector, "Vector", None) or getattr(pgvector_psycopg, "Vector", None)  # before 0.4: there
_LOCKS = 0x524D4D  # sets our locks apart from an app's own
