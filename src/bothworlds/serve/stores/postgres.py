"""PostgreSQL: any number of processes write to one store, and lock rows in one order, so that none waits forever."""

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
from .sql import SqlStore

__all__ = ["PostgresDatabase", "open_postgres"]

T = TypeVar("T")
IDLE_CONNECTIONS = 8
ATTEMPTS = 10  # at a transaction that another one has made impossible
UPGRADE_LOCK = 0x626F7468  # one process upgrades, the others wait for it

_TYPES = (
    "bytea, bigint, text, text, text, bigint, bigint, bigint, bytea, bigint, bigint, bigint, text, bigint, bigint, "
    "bytea"
)
_ARRAYS = ", ".join(f"%b::{name}[]" for name in _TYPES.split(", "))
_INSERT = (
    f"INSERT INTO events ({EVENT_COLUMNS}) SELECT * FROM unnest({_ARRAYS}) ON CONFLICT (id) DO NOTHING RETURNING id"
)
_UPDATE = (
    "UPDATE events SET clicks = new.clicks, settled_at = new.settled_at, settled_by = new.settled_by, late = new.late"
    " FROM unnest(%b::bigint[], %b::bigint[], %b::text[], %b::bigint[], %b::bytea[])"
    " AS new (clicks, settled_at, settled_by, late, id) WHERE events.id = new.id"
)


def open_postgres(address: str, *, read_only: bool = False) -> SqlStore:
    """The store in this database, whose tables are made if they are not there."""
    return SqlStore(PostgresDatabase(address, read_only=read_only))


@lru_cache(maxsize=256)
def _translated(sql: str) -> str:
    return sql.replace("%", "%%").replace("?", "%s")


class PostgresSession:
    """A connection with a transaction under way."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def run(self, sql: str, values: Row = ()) -> list[Row]:
        cursor = self.connection.execute(_translated(sql), values, binary=True)
        return cursor.fetchall() if cursor.description else []

    def many(self, sql: str, rows: Sequence[Row]) -> None:
        if rows:
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


class PostgresDatabase(Database):
    """Connections to one database; those that broke are replaced, so that a database that comes back is used again."""

    shared = True
    skip_locked = " FOR UPDATE SKIP LOCKED"

    def __init__(self, address: str, *, read_only: bool = False) -> None:
        super().__init__()
        self.address, self.place, self.read_only = address, _without_password(address), read_only
        self._idle: list[psycopg.Connection[Any]] = []
        self._guard = threading.Lock()
        self._closed = False
        try:
            self._look() if read_only else self.write(self._upgraded)
        except BaseException:
            self.close()
            raise

    def _upgraded(self, session: Session) -> None:
        session.run("SELECT pg_advisory_xact_lock(?)", (UPGRADE_LOCK,))
        upgrade(session, "postgres", self.place)

    def _look(self) -> None:
        with self.view() as session:
            check_version(session, self.place)

    def write(self, work: Callable[[Session], T], *, durable: bool = True) -> T:
        begin = "BEGIN" if durable else "BEGIN; SET LOCAL synchronous_commit = off"
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with self._transaction(begin, "COMMIT") as session:
                    return work(session)
            except (errors.SerializationFailure, errors.DeadlockDetected) as error:
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
        with explained(self.place):
            connection = self._begun(begin)
            try:
                yield PostgresSession(connection)
                connection.execute(end)
            except BaseException:
                self._rolled_back(connection)
                raise
            self._keep(connection)

    def _begun(self, begin: str) -> psycopg.Connection[Any]:
        """A connection in a new transaction; a database that was restarted has broken all that were idle."""
        while True:
            with self._guard:
                if self._closed:
                    raise StoreError(f"the store {self.place} has been closed: open it again")
                known = self._idle.pop() if self._idle else None
            connection = known or self._connect()
            try:
                connection.execute(begin)
                return connection
            except psycopg.OperationalError:
                connection.close()
                if known is None:
                    raise

    def _rolled_back(self, connection: psycopg.Connection[Any]) -> None:
        with suppress(psycopg.Error):
            connection.execute("ROLLBACK")
            self._keep(connection)
            return
        connection.close()

    def _keep(self, connection: psycopg.Connection[Any]) -> None:
        with self._guard:
            if len(self._idle) < IDLE_CONNECTIONS and not self._closed and not connection.closed:
                self._idle.append(connection)
                return
        connection.close()

    def _connect(self) -> psycopg.Connection[Any]:
        connection = psycopg.connect(
            self.address, autocommit=True, connect_timeout=5, tcp_user_timeout=10_000, application_name="bothworlds"
        )
        connection.execute("SET synchronous_commit = on")
        if self.read_only:
            connection.execute("SET default_transaction_read_only = on")
        return connection

    def close(self) -> None:
        with self._guard:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


def _without_password(address: str) -> str:
    """The address as it may be shown.

    >>> _without_password("postgresql://ann:secret@db.example/shop?sslmode=require")
    'postgresql://ann@db.example/shop'
    """
    try:
        parts = psycopg.conninfo.conninfo_to_dict(address)
    except psycopg.ProgrammingError:
        # What the library says may hold the password.
        raise StoreError("the address is not one of a database: write postgresql://user:password@host/name") from None
    user = f"{parts['user']}@" if "user" in parts else ""
    return f"postgresql://{user}{parts.get('host', '')}/{parts.get('dbname', '')}"


@contextmanager
def explained(place: str) -> Iterator[None]:
    """Turn what PostgreSQL reports into a sentence that says what to do; mistakes of ours stay what they are."""
    try:
        yield
    except (errors.SerializationFailure, errors.DeadlockDetected):
        raise
    except errors.CheckViolation as error:
        reached = f"a counter in {place} has reached its bound of 2^62: reset the surface or raise its floor"
        raise StoreError(reached) from error
    except psycopg.DataError as error:
        raise Unstorable(f"the database cannot hold this value ({' '.join(str(error).split())})") from error
    except (
        psycopg.OperationalError,
        psycopg.InterfaceError,
        psycopg.InternalError,
        errors.InsufficientPrivilege,
    ) as error:
        raise StoreError(_sentence(place, error)) from error


def _sentence(place: str, error: psycopg.Error) -> str:
    remedies: tuple[tuple[type[psycopg.Error], str], ...] = (
        (errors.DiskFull, "has no room left on its disk: make room"),
        (errors.ReadOnlySqlTransaction, "only allows reading: use the address of the primary server"),
        (errors.InsufficientPrivilege, "does not allow this: give the user the right to make and change tables"),
        (errors.TooManyConnections, "has no connection left: raise max_connections or use fewer workers"),
    )
    said = " ".join(str(error).split())
    otherwise = "cannot be reached: start it, or check the address"
    remedy = next((text for kind, text in remedies if isinstance(error, kind)), otherwise)
    return f"the database {place} {remedy} ({said})"
