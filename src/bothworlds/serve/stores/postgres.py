"""PostgreSQL: several processes share one store; all lock rows in the same order, so that they cannot deadlock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, TypeVar

import psycopg
from psycopg import errors

from .base import StoreError, Unstorable
from .database import Database, Session
from .migrations import check_version, upgrade
from .rows import EVENT_COLUMNS, Row
from .sql_store import SqlStore

__all__ = ["ConnectionPool", "PostgresDatabase", "open_postgres"]

T = TypeVar("T")
IDLE_CONNECTIONS = 8
CLOSING_CHECKS, CLOSING_PAUSE = 20, 0.1  # seconds
ATTEMPTS = 10  # at a transaction that PostgreSQL aborts because of a concurrent one
# A foreign key is violated if a surface is deleted while an event of it is inserted; the next attempt sees that.
RETRIED = (errors.SerializationFailure, errors.DeadlockDetected, errors.ForeignKeyViolation)
APPLICATION = "bothworlds"  # the name of all connections
UPGRADE_LOCK = 0x626F7468  # the advisory lock under which one process upgrades while the others wait

_TYPES = (
    "bytea, bigint, text, text, text, bigint, bigint, bigint, bytea, bigint, bigint, bigint, text, bigint, bigint, "
    "bytea, bytea, bytea, bigint, bytea, bytea"
)
_ARRAYS = ", ".join(f"%b::{name}[]" for name in _TYPES.split(", "))
_INSERT = (
    f"INSERT INTO events ({EVENT_COLUMNS}) SELECT new.* FROM unnest({_ARRAYS}) AS new ({EVENT_COLUMNS})"
    " WHERE EXISTS (SELECT 1 FROM surfaces WHERE surfaces.id = new.surface_id)"
    " AND NOT EXISTS (SELECT 1 FROM deleted_events AS d WHERE d.id = new.id)"
    " AND NOT EXISTS (SELECT 1 FROM deleted_segments AS d WHERE d.surface_id = new.surface_id"
    " AND d.segment = new.segment AND d.deleted_at >= new.created_at AND new.settled_by <> 'import')"
    " ON CONFLICT (id) DO NOTHING RETURNING id"
)
_UPDATE = (
    "UPDATE events SET clicks = new.clicks, settled_at = new.settled_at, settled_by = new.settled_by, late = new.late,"
    " rewards = new.rewards"
    " FROM unnest(%b::bigint[], %b::bigint[], %b::text[], %b::bigint[], %b::bytea[], %b::bytea[])"
    " AS new (clicks, settled_at, settled_by, late, rewards, id) WHERE events.id = new.id"
)
_OTHERS = (
    "SELECT pid FROM pg_stat_activity"
    " WHERE datname = current_database() AND application_name = ? AND pid <> pg_backend_pid()"
)


def open_postgres(address: str, *, read_only: bool = False, alone: bool = False) -> SqlStore:
    """Opens the store in this database; creates or upgrades its tables unless ``read_only``. Raises StoreError.

    With ``alone``, also if another process is connected to it as a service is.
    """
    return SqlStore(PostgresDatabase(address, read_only=read_only, alone=alone))


@lru_cache(maxsize=256)
def _translated(sql: str) -> str:
    return sql.replace("%", "%%").replace("?", "%s")


class PostgresSession:
    """A ``Session`` on a connection that is in a transaction."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def run(self, sql: str, values: Row = ()) -> list[Row]:
        cursor = self.connection.execute(_translated(sql), values, binary=True)
        return cursor.fetchall() if cursor.description else []

    def many(self, sql: str, rows: Sequence[Row]) -> None:
        if len(rows) == 1:
            self.connection.execute(_translated(sql), rows[0])  # without the pipeline of ``executemany``
        elif rows:
            with self.connection.cursor() as cursor:
                cursor.executemany(_translated(sql), rows)

    def stream(self, sql: str, values: Row = ()) -> Iterator[Row]:
        name = f"stream{time.monotonic_ns()}"
        with self.connection.cursor(name, binary=True) as cursor:
            cursor.itersize = 1000
            cursor.execute(_translated(sql), values)
            yield from cursor

    def script(self, sql: str) -> None:
        self.connection.execute(sql)

    def has_table(self, name: str) -> bool:
        return bool(self.run("SELECT to_regclass(?) IS NOT NULL", (name,))[0][0])

    def columns(self, table: str) -> list[str]:
        cursor = self.connection.execute(f"SELECT * FROM {table} LIMIT 0")
        return [column.name for column in cursor.description or ()]

    def select_events(self, ids: Sequence[bytes], *, lock: bool = False) -> list[Row]:
        order = " ORDER BY id FOR UPDATE" if lock else ""
        return self.run(f"SELECT {EVENT_COLUMNS} FROM events WHERE id = ANY(?){order}", (list(ids),))

    def insert_events(self, rows: Sequence[Row]) -> set[bytes]:
        if not rows:
            return set()
        columns = [list(column) for column in zip(*rows, strict=True)]
        return {row[0] for row in self.connection.execute(_INSERT, columns, binary=True)}

    def update_events(self, rows: Sequence[Row]) -> None:
        if rows:
            self.connection.execute(_UPDATE, [list(column) for column in zip(*rows, strict=True)])

    def load(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        with (
            self.connection.cursor() as cursor,
            cursor.copy(f"COPY {table} ({', '.join(columns)}) FROM STDIN") as copy,
        ):
            for row in rows:
                copy.write_row(row)


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

    def begin(self, sql: str) -> psycopg.Connection[Any]:
        """Returns a connection in a transaction that ``sql`` begins.

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
                connection.execute(sql)
                return connection
            except psycopg.OperationalError:
                connection.close()
                if idle is None:
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
    """One PostgreSQL database; after a restart of the server it is used again without being reopened."""

    shared = True
    skip_locked = " FOR UPDATE SKIP LOCKED"

    def __init__(self, address: str, *, read_only: bool = False, alone: bool = False) -> None:
        super().__init__()
        self.address, self.place, self.read_only = address, _without_password(address), read_only
        self._pool = ConnectionPool(self._connect, f"the store {self.place} has been closed: open it again")
        try:
            self._check_version() if read_only else self.write(self._upgrade)
            if alone:
                self._check_alone()
        except BaseException:
            self.close()
            raise

    def _upgrade(self, session: Session) -> None:
        session.run("SELECT pg_advisory_xact_lock(?)", (UPGRADE_LOCK,))
        upgrade(session, "postgres", self.place)

    def _check_version(self) -> None:
        with self.view() as session:
            check_version(session, self.place)

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
        with self._transaction("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", "ROLLBACK") as session:
            yield session

    @contextmanager
    def _transaction(self, begin: str, end: str) -> Iterator[PostgresSession]:
        with translated_errors(self.place):
            connection = self._pool.begin(begin)
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
            self.address, autocommit=True, connect_timeout=5, tcp_user_timeout=10_000, application_name=APPLICATION
        )
        connection.execute("SET synchronous_commit = on")
        if self.read_only:
            connection.execute("SET default_transaction_read_only = on")
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
    except errors.CheckViolation as error:
        detail = f"a counter in {place} has reached its bound of 2^62: reset the surface or raise its floor"
        raise StoreError(detail) from error
    except psycopg.DataError as error:
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
    )
    detail = " ".join(str(error).split())
    default = "cannot be reached: start it, or check the address"
    remedy = next((text for kind, text in remedies if isinstance(error, kind)), default)
    return f"the database {place} {remedy} ({detail})"
