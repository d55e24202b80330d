"""SQLite: one file that belongs to one process; one connection writes behind a lock, each thread can read."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from .database import Database, Row, Session, StoreError, Unstorable, check_schema, create_schema

T = TypeVar("T")
CHUNK = 500  # values in one statement; old builds of SQLite allow 999
IDLE_READERS = 8
WRITER_CACHE = 16_384  # KiB; event ids are spread over the whole index
# Pages of the write-ahead log before it is copied into the file: pages of the index of ids are written again and again.
CHECKPOINT = 4_000


@lru_cache(maxsize=2 * CHUNK)
def _with_values(sql: str, count: int) -> str:
    return sql.replace("IN ?", f"IN ({', '.join('?' * count)})")


class SqliteSession:
    """A ``Session`` on a connection that is in a transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def run(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        return self._connection.execute(sql, values).fetchall()

    def among(self, sql: str, values: Collection[Any]) -> list[Row]:
        chosen, rows = list(values), []
        for start in range(0, len(chosen), CHUNK):
            chunk = chosen[start : start + CHUNK]
            rows += self.run(_with_values(sql, len(chunk)), chunk)
        return rows

    def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        self._connection.executemany(sql, rows)

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        values = ", ".join("?" * len(columns))
        self.many(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values}) ON CONFLICT DO NOTHING", rows)

    def update(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        changes = ", ".join(f"{name} = ?" for name in columns[:-1])
        self.many(f"UPDATE {table} SET {changes} WHERE {columns[-1]} = ?", rows)

    def stream(self, sql: str, values: Sequence[Any] = ()) -> Iterator[Row]:
        cursor = self._connection.execute(sql, values)
        while rows := cursor.fetchmany(1000):
            yield from rows

    def script(self, sql: str) -> None:
        # Connection.executescript would commit first.
        lines = (line for line in sql.splitlines() if not line.startswith("--"))
        for statement in "\n".join(lines).replace("BYTEA", "BLOB").split(";"):
            self._connection.execute(statement)

    def has_table(self, name: str) -> bool:
        return bool(self.run("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)))

    def columns(self, table: str) -> list[str]:
        return [name for (name,) in self.run("SELECT name FROM pragma_table_info(?)", (table,))]


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
                result = work(SqliteSession(connection))
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
                yield SqliteSession(connection)
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
        """Returns the rows of one short statement; without a transaction, and waits for no other reader or writer."""
        if self.holds_snapshot:
            return super().lookup(sql, values)
        with self._lookup_lock, self._translated_errors():
            if self._lookups is None:
                self._lookups = self._reader()
            try:
                return SqliteSession(self._lookups).among(sql, values)
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
