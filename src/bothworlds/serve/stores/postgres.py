"""PostgreSQL: several processes share one store; all lock rows in the same order, so that they cannot deadlock.

A process that is stopped in the middle of a transaction keeps its locks until PostgreSQL ends its session, after
``IDLE_SECONDS``. What it reads in such a transaction comes in parts that fit into the buffers of a connection: the
database could not end a session while it waits for the process to read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, TypeVar

import psycopg
from psycopg import errors

from .database import Database, Row, Session, StoreError, Unstorable, check_schema, create_schema

T = TypeVar("T")
CHUNK = 400  # rows in one result
IDLE_CONNECTIONS = 8
CLOSING_CHECKS, CLOSING_PAUSE = 20, 0.1  # seconds
IDLE_SECONDS, LOCK_SECONDS, STATEMENT_SECONDS = 3, 5, 30  # after which PostgreSQL ends a transaction
ATTEMPTS = 10  # at a transaction that PostgreSQL aborts because of a concurrent one
# A foreign key is violated if a learner is deleted while an event of it is inserted; the next attempt sees that.
RETRIED = (errors.SerializationFailure, errors.DeadlockDetected, errors.ForeignKeyViolation)
APPLICATION = "bothworlds"  # the name of all connections
SCHEMA_LOCK = 0x626F7468  # the advisory lock under which one process creates the tables while the others wait
READ_ONLY = (
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL idle_in_transaction_session_timeout = 0;"
    " SET LOCAL statement_timeout = 0"  # it holds no locks, and may be as slow as its reader
)
SETTINGS = "; ".join(
    (
        "SET synchronous_commit = on",
        f"SET idle_in_transaction_session_timeout = '{IDLE_SECONDS}s'",
        f"SET lock_timeout = '{LOCK_SECONDS}s'",
        f"SET statement_timeout = '{STATEMENT_SECONDS}s'",
    )
)
TYPES = dict.fromkeys(("id", "listed", "context", "visitor", "rewards"), "bytea")
TYPES |= dict.fromkeys(("arm", "settled_by"), "text") | dict.fromkeys(
    ("counted", "shown", "final", "deleted"), "boolean"
)  # of the columns of events; the others are numbers

_OTHERS = (
    "SELECT pid FROM pg_stat_activity"
    " WHERE datname = current_database() AND application_name = ? AND pid <> pg_backend_pid()"
)


@lru_cache(maxsize=256)
def _translated(sql: str) -> str:
    return sql.replace("%", "%%").replace("IN ?", "= ANY(%s)").replace("?", "%s")


def _arrays(columns: Sequence[str]) -> str:
    """Returns rows of these columns as a table, of which each parameter is a column."""
    arrays = ", ".join(f"%b::{TYPES.get(name, 'bigint')}[]" for name in columns)
    return f"unnest({arrays}) AS new ({', '.join(columns)})"


class PostgresSession(Session):
    """A ``Session`` in PostgreSQL."""

    def run(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        cursor = self._connection.execute(_translated(sql), values, binary=True)
        return cursor.fetchall() if cursor.description else []

    def among(self, sql: str, values: Collection[Any]) -> list[Row]:
        chosen = list(values)
        chunks = (chosen[start : start + CHUNK] for start in range(0, len(chosen), CHUNK))
        return [row for chunk in chunks for row in self.run(sql, (chunk,))]

    def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        if len(rows) == 1:
            self._connection.execute(_translated(sql), rows[0])  # without the pipeline of ``executemany``
        elif rows:
            with self._connection.cursor() as cursor:
                cursor.executemany(_translated(sql), rows)

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        sql = f"INSERT INTO {table} ({', '.join(columns)}) SELECT new.* FROM {_arrays(columns)} ON CONFLICT DO NOTHING"
        self._with_arrays(sql, rows)

    def update(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        changes, key = ", ".join(f"{name} = new.{name}" for name in columns[:-1]), columns[-1]
        self._with_arrays(f"UPDATE {table} SET {changes} FROM {_arrays(columns)} WHERE {table}.{key} = new.{key}", rows)

    def _with_arrays(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            self._connection.execute(sql, [list(column) for column in zip(*rows, strict=True)])

    def stream(self, sql: str, values: Sequence[Any] = ()) -> Iterator[Row]:
        name = f"stream{time.monotonic_ns()}"
        with self._connection.cursor(name, binary=True) as cursor:
            cursor.itersize = 1000
            cursor.execute(_translated(sql), values)
            yield from cursor

    def script(self, sql: str) -> None:
        self._connection.execute(sql.replace(" WITHOUT ROWID", ""))

    def lock(self, strength: str) -> str:
        return f" FOR {strength}"

    def has_table(self, name: str) -> bool:
        return bool(self.run("SELECT to_regclass(?) IS NOT NULL", (name,))[0][0])


class ConnectionPool:
    """Idle connections for reuse, at most ``IDLE_CONNECTIONS``; can be used from several threads.

    Connections are created in the calling thread, as many as there are callers. psycopg_pool is not used: it connects
    in background threads, so that a caller of an unreachable database waits for the pool's timeout (10 s in a test,
    instead of 1 ms) and gets an error without the cause (connection refused, wrong password, too many connections).
    """

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]], closed_error: str) -> None:
        self._connect, self._closed_error = connect, closed_error
        self._idle: list[psycopg.Connection[Any]] = []
        self._lock = threading.Lock()
        self._closed = False

    def take(self, begin: Callable[[psycopg.Connection[Any]], T]) -> tuple[psycopg.Connection[Any], T]:
        """Returns a connection on which the call ``begin`` has succeeded, and its result.

        Idle connections that broke, as all do when the database restarts, are closed and replaced. Raises StoreError
        after ``close``, psycopg.OperationalError if a new connection fails.
        """
        while True:
            with self._lock:
                if self._closed:
                    raise StoreError(self._closed_error)
                idle = self._idle.pop() if self._idle else None
            connection = idle or self._connect()
            try:
                return connection, begin(connection)
            except BaseException as error:
                connection.close()
                if idle is None or not isinstance(error, psycopg.OperationalError):
                    raise

    def release(self, connection: psycopg.Connection[Any]) -> None:
        """Keeps a connection for reuse, or closes it if it broke or there are enough."""
        with self._lock:
            if len(self._idle) < IDLE_CONNECTIONS and not self._closed and not connection.closed:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Closes idle connections; those in use are closed when they are released."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


class PostgresDatabase(Database):
    """One PostgreSQL database; after a restart of the server it is used again without being reopened.

    Creates the tables unless ``read_only``; with ``alone``, raises StoreError if another process is connected to it as
    a service is.
    """

    shared = True
    clock = "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"

    def __init__(self, address: str, *, read_only: bool = False, alone: bool = False) -> None:
        super().__init__()
        self._address, self.place, self._read_only = address, _without_password(address), read_only
        self._pool = ConnectionPool(self._connect, f"the store {self.place} has been closed: open it again")
        try:
            if read_only:
                with self.view() as session:
                    check_schema(session, self.place)
            else:
                self.write(self._create_schema)
            if alone:
                self._check_alone()
        except BaseException:
            self.close()
            raise

    def _create_schema(self, session: Session) -> None:
        session.run("SELECT pg_advisory_xact_lock(?)", (SCHEMA_LOCK,))
        create_schema(session, self.place)

    def _check_alone(self) -> None:
        # PostgreSQL may list a connection for a moment after its process has ended.
        for _ in range(CLOSING_CHECKS):
            with self.view() as session:
                if not session.run(_OTHERS, (APPLICATION,)):
                    return
            time.sleep(CLOSING_PAUSE)
        raise StoreError(f"{self.place} is in use by another process: stop all services that use it first")

    def write(self, work: Callable[[Session], T], *, durable: bool = True) -> T:
        begin = "BEGIN" if durable else "BEGIN; SET LOCAL synchronous_commit = off"
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with self._transaction(begin, "COMMIT") as session:
                    return work(session)
            except RETRIED as error:
                if attempt == ATTEMPTS:
                    raise StoreError(f"{self.place} is too busy ({error}): try again, or use fewer workers") from error
                time.sleep(0.005 * attempt)
        raise AssertionError

    @contextmanager
    def view(self) -> Iterator[Session]:
        with self._transaction(READ_ONLY, "ROLLBACK") as session:
            yield session

    def lookup(self, sql: str, values: Collection[Any]) -> list[Row]:
        with translated_errors(self.place):
            connection, rows = self._pool.take(lambda connection: PostgresSession(connection).among(sql, values))
            self._pool.release(connection)
            return rows

    @contextmanager
    def _transaction(self, begin: str, end: str) -> Iterator[PostgresSession]:
        with translated_errors(self.place):
            connection, _ = self._pool.take(lambda connection: connection.execute(begin))
            try:
                yield PostgresSession(connection)
                connection.execute(end)
            except BaseException:
                self._roll_back(connection)
                raise
            self._pool.release(connection)

    def _roll_back(self, connection: psycopg.Connection[Any]) -> None:
        with suppress(psycopg.Error):
            connection.execute("ROLLBACK")
            self._pool.release(connection)
            return
        connection.close()

    def _connect(self) -> psycopg.Connection[Any]:
        connection = psycopg.connect(
            self._address, autocommit=True, connect_timeout=5, tcp_user_timeout=10_000, application_name=APPLICATION
        )
        connection.execute(SETTINGS + ("; SET default_transaction_read_only = on" if self._read_only else ""))
        return connection

    def close(self) -> None:
        self._pool.close()


def _without_password(address: str) -> str:
    """Returns the address without the password, for messages.

    >>> _without_password("postgresql://ann:secret@db.example/shop?sslmode=require")
    'postgresql://ann@db.example/shop'
    """
    try:
        parts = psycopg.conninfo.conninfo_to_dict(address)
    except psycopg.ProgrammingError:
        # The message of the library may contain the password.
        raise StoreError("this is not the address of a database: write postgresql://user:password@host/name") from None
    user = f"{parts['user']}@" if "user" in parts else ""
    return f"postgresql://{user}{parts.get('host', '')}/{parts.get('dbname', '')}"


@contextmanager
def translated_errors(place: str) -> Iterator[None]:
    """Turns errors of PostgreSQL into a StoreError that says what to do, or Unstorable; programming errors pass."""
    try:
        yield
    except RETRIED:
        raise
    except (psycopg.DataError, psycopg.IntegrityError) as error:
        raise Unstorable(f"the database cannot hold this value ({' '.join(str(error).split())})") from error
    except (
        psycopg.OperationalError,
        psycopg.InterfaceError,
        psycopg.InternalError,
        errors.InsufficientPrivilege,
    ) as error:
        raise StoreError(_remedy(place, error)) from error


def _remedy(place: str, error: psycopg.Error) -> str:
    remedies: tuple[tuple[type[psycopg.Error], str], ...] = (
        (errors.DiskFull, "has a full disk: free some space"),
        (errors.ReadOnlySqlTransaction, "is read-only: use the address of the primary server"),
        (errors.InsufficientPrivilege, "does not allow this: grant the user the right to create and change tables"),
        (errors.TooManyConnections, "has no free connection: raise max_connections or use fewer workers"),
        (errors.LockNotAvailable, "is held up by another process: retry"),
        (errors.QueryCanceled, "is too slow: retry"),
        (errors.IdleInTransactionSessionTimeout, "has ended a transaction in which this process stood still: retry"),
    )
    detail = " ".join(str(error).split())
    default = "cannot be reached: start it, or check the address"
    remedy = next((text for kind, text in remedies if isinstance(error, kind)), default)
    return f"the database {place} {remedy} ({detail})"
