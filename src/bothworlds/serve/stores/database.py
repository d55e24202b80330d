"""The interface to a database (sessions that run SQL, transactions, consistent reads), and SQLite.

All statements are written once, with ``?`` for values, in a dialect that SQLite and PostgreSQL both understand.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
Row = tuple[Any, ...]

SCHEMA_VERSION = 7  # up to 6, stores had counters instead of learners
CHUNK = 500  # values in one statement; old builds of SQLite allow 999
IDLE_READERS = 8
WRITER_CACHE = 16_384  # KiB; event ids are spread over the whole index
# Pages of the write-ahead log before it is copied into the file: pages of the index of ids are written again and again.
CHECKPOINT = 4_000


class StoreError(Exception):
    """The operation failed (disk full, read-only, database unreachable); everything acknowledged before is safe."""


class Unstorable(ValueError):
    """The database cannot represent a value of the request, or a stored value cannot be read."""


@lru_cache(maxsize=2 * CHUNK)
def _with_values(sql: str, count: int) -> str:
    return sql.replace("IN ?", f"IN ({', '.join('?' * count)})")


class Session:
    """One transaction, or one consistent view for reading; in SQLite."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def run(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Runs one statement and returns all rows."""
        rows: list[Row] = self._connection.execute(sql, values).fetchall()
        return rows

    def among(self, sql: str, values: Collection[Any]) -> list[Row]:
        """Runs one statement for any number of values, which take the place of ``IN ?``; returns all rows."""
        chosen, rows = list(values), []
        for start in range(0, len(chosen), CHUNK):
            chunk = chosen[start : start + CHUNK]
            rows += self.run(_with_values(sql, len(chunk)), chunk)
        return rows

    def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Runs one statement for each row of values."""
        self._connection.executemany(sql, rows)

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Inserts the rows whose primary key does not exist."""
        values = ", ".join("?" * len(columns))
        self.many(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values}) ON CONFLICT DO NOTHING", rows)

    def update(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Updates one row for each row of values; the last column is the primary key."""
        changes = ", ".join(f"{name} = ?" for name in columns[:-1])
        self.many(f"UPDATE {table} SET {changes} WHERE {columns[-1]} = ?", rows)

    def stream(self, sql: str, values: Sequence[Any] = ()) -> Iterator[Row]:
        """Yields rows without holding all of them in memory."""
        cursor = self._connection.execute(sql, values)
        while rows := cursor.fetchmany(1000):
            yield from rows

    def script(self, sql: str) -> None:
        """Runs several statements of the schema inside the transaction of this session."""
        # Connection.executescript would commit first.
        lines = (line for line in sql.splitlines() if not line.startswith("--"))
        for statement in "\n".join(lines).replace("BYTEA", "BLOB").split(";"):
            self._connection.execute(statement)

    def lock(self, strength: str) -> str:
        """Returns the clause that locks rows, if other processes may write."""
        return ""

    def has_table(self, name: str) -> bool:
        return bool(self.run("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)))

    def columns(self, table: str) -> list[str]:
        cursor = self._connection.execute(f"SELECT * FROM {table} LIMIT 0")
        return [column[0] for column in cursor.description]


class Database(ABC):
    """Provides sessions; can be used from several threads."""

    place: str  # its name in messages
    shared: bool  # whether other processes may write at the same time
    clock: str  # the present time in milliseconds, in SQL

    def __init__(self) -> None:
        self._held = threading.local()

    @abstractmethod
    def write(self, work: Callable[[Session], T], *, durable: bool = True) -> T:
        """Runs ``work`` in one transaction and returns its result after the commit.

        ``work`` may be called again if the transaction is retried. Without ``durable`` the commit survives kill -9, but
        is not synced to disk. Raises StoreError if the transaction fails, Unstorable if a value cannot be stored.
        """

    @abstractmethod
    def view(self) -> AbstractContextManager[Session]:
        """Returns a new read-only session with a consistent view."""

    @abstractmethod
    def lookup(self, sql: str, values: Collection[Any]) -> list[Row]:
        """Returns the rows of one short statement, as ``Session.among`` does, as fast as possible; of no snapshot."""

    @abstractmethod
    def close(self) -> None:
        """Closes all connections; later calls raise StoreError."""

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Yields the session of this thread's snapshot, or a new view."""
        held: Session | None = getattr(self._held, "session", None)
        if held is not None:
            yield held
            return
        with self.view() as session:
            yield session

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Inside the block, all reads of this thread see the same state of the database."""
        with self.reading() as session:
            outer, self._held.session = getattr(self._held, "session", None), session
            try:
                yield
            finally:
                self._held.session = outer


def create_schema(session: Session, place: str) -> None:
    """Creates the tables unless they exist; raises StoreError if they have another version."""
    if not _has_schema(session, place):
        session.script(resources.files(__package__).joinpath("schema.sql").read_text(encoding="utf-8"))
        session.run("INSERT INTO facts VALUES ('schema_version', ?)", (b"%d" % SCHEMA_VERSION,))


def check_schema(session: Session, place: str) -> None:
    """Raises StoreError if there is no store, or one of another version."""
    if not _has_schema(session, place):
        raise StoreError(f"there is no store at {place}: check the path")


def _has_schema(session: Session, place: str) -> bool:
    if not session.has_table("facts"):
        return False
    rows = session.run("SELECT value FROM facts WHERE key = 'schema_version'")
    if not rows:
        raise StoreError(f"{place} holds tables of another program: choose another path for the store")
    found = int(bytes(rows[0][0]))
    if found == SCHEMA_VERSION:
        return True
    age = "newer" if found > SCHEMA_VERSION else "older"
    raise StoreError(
        f"{place} was written by a{'n' * (age == 'older')} {age} version of bothworlds (schema {found}, this one knows"
        f" {SCHEMA_VERSION}): use that version, or choose another path for a new store and import an export"
    )


# SQLite: one file that belongs to one process; one connection writes behind a lock, each thread can read


class SqliteDatabase(Database):
    """One SQLite file: its lock, the connection that writes, one for lookups, and idle ones that read.

    Creates the tables unless ``read_only``, which can read a file that a running service uses, unless it has to be
    ``alone``. Raises StoreError.
    """

    shared = False
    clock = "CAST((julianday('now') - 2440587.5) * 86400000 AS BIGINT)"

    def __init__(self, path: Path, *, read_only: bool = False, alone: bool = False) -> None:
        super().__init__()
        # SQLite names its other files after the target of a symbolic link; the lock file must follow it.
        self._path = Path(os.path.realpath(path.expanduser()))
        self.place, self._read_only = str(self._path), read_only
        self._closed = False
        self._write_lock, self._lookup_lock = threading.RLock(), threading.Lock()
        self._readers_lock = threading.Lock()  # of the list; separate, so that reading does not wait for a transaction
        self._writer: sqlite3.Connection | None = None
        self._lookups: sqlite3.Connection | None = None
        self._readers: list[sqlite3.Connection] = []
        if sqlite3.sqlite_version_info < (3, 35):
            raise StoreError(f"SQLite {sqlite3.sqlite_version} is too old: install a Python with SQLite 3.35 or later")
        if read_only and not self._path.exists():
            raise StoreError(f"there is no store at {self._path}: check the path")
        with self._translated_errors():
            self._file_lock = None if read_only and not alone else _locked(self._path)
            try:
                if read_only:
                    with self.view() as session:
                        check_schema(session, self.place)
                else:
                    self.write(lambda session: create_schema(session, self.place))
            except BaseException:
                self.close()
                raise

    def write(self, work: Callable[[Session], T], *, durable: bool = True) -> T:
        with self._write_lock, self._translated_errors():
            if self._writer is None:
                self._writer = self._connect()
                self._writer.execute(f"PRAGMA cache_size = -{WRITER_CACHE}")
                self._writer.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT}")
            connection = self._writer
            # Without a sync the data survives kill -9; the next durable transaction syncs it.
            connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            try:
                connection.execute("BEGIN IMMEDIATE")
                result = work(Session(connection))
                connection.execute("COMMIT")
            except BaseException as error:
                self._recover(connection, error)
                raise
            return result

    def _recover(self, connection: sqlite3.Connection, error: BaseException) -> None:
        with suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        if isinstance(error, sqlite3.OperationalError) or connection.in_transaction:
            # The next transaction opens the file again, which recovers from a disk that was unavailable.
            self._writer = None
            connection.close()

    @contextmanager
    def view(self) -> Iterator[Session]:
        with self._translated_errors():
            connection = self._reader()
            try:
                connection.execute("BEGIN")
                yield Session(connection)
                connection.execute("ROLLBACK")
            except BaseException:
                connection.close()
                raise
            with self._readers_lock:
                if keep := len(self._readers) < IDLE_READERS and not self._closed:
                    self._readers.append(connection)
            if not keep:
                connection.close()

    def lookup(self, sql: str, values: Collection[Any]) -> list[Row]:
        with self._lookup_lock, self._translated_errors():
            if self._lookups is None:
                self._lookups = self._reader()
            try:
                return Session(self._lookups).among(sql, values)
            except BaseException:
                self._lookups.close()
                self._lookups = None
                raise

    def _reader(self) -> sqlite3.Connection:
        try:
            return self._readers.pop()
        except IndexError:
            connection = self._connect()
            connection.execute("PRAGMA query_only = ON")
            return connection

    def _connect(self) -> sqlite3.Connection:
        if self._closed:
            raise StoreError(f"the store {self.place} has been closed: open it again")
        address = f"{self._path.as_uri()}?mode={'ro' if self._read_only else 'rwc'}"
        connection = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False, timeout=5.0)
        try:
            if not self._read_only:
                connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA foreign_keys = ON")
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        with self._write_lock, self._lookup_lock, self._readers_lock:
            self._closed = True
            connections = [self._writer, self._lookups, *self._readers, self._file_lock]
            self._writer = self._lookups = self._file_lock = None
            self._readers = []
        for connection in connections:
            if connection is not None:
                connection.close()

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Turns errors of SQLite into a StoreError that says what to do, or Unstorable."""
        try:
            yield
        except (sqlite3.IntegrityError, OverflowError, UnicodeEncodeError) as error:
            raise Unstorable(f"the database cannot hold this value ({error})") from error
        except sqlite3.DatabaseError as error:
            raise StoreError(_remedy(self._path, error)) from error


def _locked(path: Path) -> sqlite3.Connection:
    """Returns a lock that gives this process the file until it is closed, or the process ends, even by kill -9.

    It is a file beside the database: locks on the database itself belong to SQLite. Raises StoreError.
    """
    if not path.parent.is_dir():
        raise StoreError(f"there is no folder {path.parent}: create it, or choose another path for the store")
    lock = sqlite3.connect(f"{path}.lock", isolation_level=None, check_same_thread=False, timeout=0.0)
    try:
        lock.execute("BEGIN EXCLUSIVE")
        if not path.exists():  # it will hold the secret that signs tokens: only the owner may read it
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        lock.close()
        raise StoreError(f"{path} cannot be opened: {error.strerror}") from error
    except sqlite3.DatabaseError as error:
        lock.close()
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
            raise
        use = "stop it first, or use PostgreSQL, which several processes can share"
        raise StoreError(f"{path} is in use by another process: {use}") from error
    return lock


def _remedy(path: Path, error: sqlite3.DatabaseError) -> str:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    remedies = {
        sqlite3.SQLITE_FULL: f"the disk that holds {path} is full: free some space",
        sqlite3.SQLITE_READONLY: f"{path} cannot be written: give the service write access to the file and its folder",
        sqlite3.SQLITE_CANTOPEN: f"{path} cannot be opened: check that it and its folder exist and can be written",
        sqlite3.SQLITE_BUSY: f"{path} is locked by another program: close it",
        sqlite3.SQLITE_LOCKED: f"{path} is locked by another program: close it",
        sqlite3.SQLITE_IOERR: f"the disk that holds {path} reports an error: check it",
        sqlite3.SQLITE_NOTADB: f"{path} is not a store of bothworlds: choose another file",
        sqlite3.SQLITE_CORRUPT: f"{path} is damaged: stop the service and restore a backup",
    }
    return remedies.get(code, f"{path} cannot be used") + f" ({error})"
