"""One SQLite file: one writing connection behind a lock, as many readers as there are threads, one process."""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from .base import StoreError
from .database import Database, Session
from .migrations import check_version, upgrade
from .rows import EVENT_COLUMNS, Row
from .sql import SqlStore

if sys.platform != "win32":
    import fcntl

__all__ = ["SqliteDatabase", "open_sqlite"]

T = TypeVar("T")
CHUNK = 500  # values in one statement; old builds of SQLite allow 999
ROWS = 512  # of sixteen values; since 3.32 a statement may have 32766
IDLE_READERS = 8
WRITER_CACHE = 16_384  # KiB; ids of events are spread over the whole index

_INSERT = f"INSERT INTO events ({EVENT_COLUMNS})"
_VALUES = f"({', '.join('?' * len(EVENT_COLUMNS.split(', ')))})"
_SELECT_ONE = f"SELECT {EVENT_COLUMNS} FROM events WHERE id = ?"


def open_sqlite(path: str | Path, *, read_only: bool = False) -> SqlStore:
    """The store in this file, which is made if it is not there; ``read_only`` looks at one that a service is using."""
    # SQLite names its other files after the target of a symbolic link, and so must the lock be.
    return SqlStore(SqliteDatabase(Path(os.path.realpath(Path(path).expanduser())), read_only=read_only))


class SqliteSession:
    """A connection with a transaction under way."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def run(self, sql: str, values: Row = ()) -> list[Row]:
        return self.connection.execute(sql, values).fetchall()

    def many(self, sql: str, rows: Sequence[Row]) -> None:
        self.connection.executemany(sql, rows)

    def stream(self, sql: str, values: Row = ()) -> Iterator[Row]:
        cursor = self.connection.execute(sql, values)
        while rows := cursor.fetchmany(1000):
            yield from rows

    def script(self, sql: str) -> None:
        # Connection.executescript would commit first.
        lines = (line for line in sql.splitlines() if not line.startswith("--"))
        for statement in "\n".join(lines).split(";"):
            self.connection.execute(statement)

    def has_table(self, name: str) -> bool:
        return bool(self.run("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)))

    def columns(self, table: str) -> list[str]:
        return [name for (name,) in self.run("SELECT name FROM pragma_table_info(?)", (table,))]

    def select_events(self, ids: Sequence[bytes], *, lock: bool = False) -> list[Row]:
        rows: list[Row] = []
        for start in range(0, len(ids), CHUNK):
            chunk = ids[start : start + CHUNK]
            rows += self.run(f"SELECT {EVENT_COLUMNS} FROM events WHERE id IN ({', '.join('?' * len(chunk))})", chunk)
        return rows

    def insert_events(self, rows: Sequence[Row]) -> set[bytes]:
        known = {row[0] for row in self.select_events([row[0] for row in rows])}
        new = [row for row in rows if row[0] not in known]
        start = 0
        while start < len(new):
            # One statement for many rows: between statements the thread would have to wait for its turn every time.
            # Powers of two, so that there are few different ones to be kept.
            size = min(ROWS, 1 << ((len(new) - start).bit_length() - 1))
            values = [value for row in new[start : start + size] for value in row]
            self.run(f"{_INSERT} VALUES {', '.join([_VALUES] * size)}", values)
            start += size
        return {row[0] for row in new}

    def update_events(self, rows: Sequence[Row]) -> None:
        self.many("UPDATE events SET clicks = ?, settled_at = ?, settled_by = ?, late = ? WHERE id = ?", rows)

    def load(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        self.many(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})", rows)


class SqliteDatabase(Database):
    """The file, its lock, its writer and its readers."""

    shared = False
    skip_locked = ""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        super().__init__()
        self.path, self.read_only = path, read_only
        self._closed = False
        self._writing = threading.RLock()
        self._listing = threading.Lock()  # of the list of readers: nobody who reads waits for a transaction
        self._writer: sqlite3.Connection | None = None
        self._readers: list[sqlite3.Connection] = []
        if sqlite3.sqlite_version_info < (3, 35):
            raise StoreError(f"SQLite {sqlite3.sqlite_version} is too old: install a Python with SQLite 3.35 or later")
        if read_only and not path.exists():
            raise StoreError(f"there is no store at {path}: check where it is")
        with explained(path):
            self._claim = None if read_only else _Claim(path)
            try:
                self._prepare()
            except BaseException:
                self.close()
                raise

    def _prepare(self) -> None:
        if not self.read_only:
            self.write(lambda session: upgrade(session, "sqlite", str(self.path)))
            return
        with self.view() as session:
            check_version(session, str(self.path))

    def write(self, work: Callable[[Session], T], *, durable: bool = True) -> T:
        with self._writing, explained(self.path):
            if self._writer is None:
                self._writer = self._connect()
                self._writer.execute(f"PRAGMA cache_size = -{WRITER_CACHE}")
            connection = self._writer
            # Without a sync here, what is written is safe from kill -9 and is synced by the next durable transaction.
            connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            try:
                connection.execute("BEGIN IMMEDIATE")
                result = work(SqliteSession(connection))
                connection.execute("COMMIT")
            except BaseException as error:
                self._give_up(connection, error)
                raise
            return result

    def _give_up(self, connection: sqlite3.Connection, error: BaseException) -> None:
        with suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        if isinstance(error, sqlite3.OperationalError) or connection.in_transaction:
            # The next transaction opens the file anew, which is what recovers from a disk that was away.
            self._writer = None
            connection.close()

    @contextmanager
    def view(self) -> Iterator[Session]:
        with explained(self.path):
            connection = self._reader()
            try:
                connection.execute("BEGIN")
                yield SqliteSession(connection)
                connection.execute("ROLLBACK")
            except BaseException:
                connection.close()
                raise
            self._keep(connection)

    def event_rows(self, ids: Sequence[bytes]) -> list[Row]:
        """One event, which every ranking looks for, without a transaction of its own."""
        if len(ids) != 1 or getattr(self._held, "session", None) is not None:
            return super().event_rows(ids)
        connection = None
        try:
            connection = self._reader()
            rows = connection.execute(_SELECT_ONE, ids).fetchall()
        except sqlite3.DatabaseError as error:
            if connection is not None:
                connection.close()
            raise StoreError(_sentence(self.path, error)) from error
        self._keep(connection)
        return rows

    def _keep(self, connection: sqlite3.Connection) -> None:
        with self._listing:
            if keep := len(self._readers) < IDLE_READERS and not self._closed:
                self._readers.append(connection)
        if not keep:
            connection.close()

    def _reader(self) -> sqlite3.Connection:
        try:
            return self._readers.pop()
        except IndexError:
            connection = self._connect()
            connection.execute("PRAGMA query_only = ON")
            return connection

    def _connect(self) -> sqlite3.Connection:
        if self._closed:
            raise StoreError(f"the store {self.path} has been closed: open it again")
        address = f"{self.path.as_uri()}?mode={'ro' if self.read_only else 'rwc'}"
        connection = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False, timeout=5.0)
        try:
            if not self.read_only:
                connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA foreign_keys = ON")
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        with self._writing, self._listing:
            self._closed = True
            claim, self._claim = self._claim, None
            connections = [self._writer, *self._readers, claim]
            self._writer, self._readers = None, []
        for connection in connections:
            if connection is not None:
                connection.close()


class _Claim:
    """Sole ownership of a database file; it ends with ``close`` or with the process, however that ends.

    The lock beside the file works on every system, but belongs to one name of the file. On POSIX systems the file
    itself is locked as well, so that a file that was renamed, or linked, while it is in use has one owner. More than
    one hard link is refused even if nobody uses the file: SQLite keeps recent changes in a file that is named after the
    database, and would not find them under the other name.
    """

    def __init__(self, path: Path) -> None:
        with _opening(path):
            _check_place(path)
        self._lock = _locked_beside(path)
        try:
            # Opened only under the first lock: closing any descriptor of a file drops SQLite's own locks on it.
            self._file = _locked_file(path)
        except BaseException:
            self._lock.close()
            raise

    def close(self) -> None:
        os.close(self._file)
        self._lock.close()


@contextmanager
def _opening(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"{path} cannot be opened: {error.strerror}") from error


def _check_place(path: Path) -> None:
    if not path.parent.is_dir():
        raise StoreError(f"there is no folder {path.parent}: make it, or choose another place for the store")
    links = path.stat().st_nlink if path.exists() else 1
    if links > 1:
        raise StoreError(
            f"{path} has {links} names (hard links), and a store must have one: remove the others, or copy the file"
        )


def _locked_beside(path: Path) -> sqlite3.Connection:
    lock = sqlite3.connect(f"{path}.lock", isolation_level=None, check_same_thread=False, timeout=0.0)
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.DatabaseError as error:
        lock.close()
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
            raise
        raise _in_use(path) from error
    return lock


def _locked_file(path: Path) -> int:
    """A descriptor of the file, which is made if it is not there, with a lock on the file itself."""
    with _opening(path):
        # It will hold the secret that signs tokens: for its owner alone.
        file = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    if sys.platform != "win32":
        try:
            # Not lockf: its locks are SQLite's own, and are dropped when SQLite closes the file.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(file)
            raise _in_use(path) from error
    return file


def _in_use(path: Path) -> StoreError:
    return StoreError(
        f"{path} is in use by another process: stop it first, or use PostgreSQL, which several processes can share"
    )


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what SQLite reports into a sentence that says what to do."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise StoreError(_sentence(path, error)) from error


def _sentence(path: Path, error: sqlite3.DatabaseError) -> str:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    remedies = {
        sqlite3.SQLITE_FULL: f"the disk that holds {path} is full: make room on it",
        sqlite3.SQLITE_READONLY: f"{path} cannot be written: give the service write access to the file and its folder",
        sqlite3.SQLITE_CANTOPEN: f"{path} cannot be opened: check that it and its folder are there and may be written",
        sqlite3.SQLITE_BUSY: f"{path} is locked by another program: close it",
        sqlite3.SQLITE_LOCKED: f"{path} is locked by another program: close it",
        sqlite3.SQLITE_IOERR: f"the disk that holds {path} reports an error: check it",
        sqlite3.SQLITE_NOTADB: f"{path} is not a store of bothworlds: choose another file",
        sqlite3.SQLITE_CORRUPT: f"{path} is damaged: stop the service and go back to a backup",
    }
    if "counters_within_bounds" in str(error):
        return f"a counter in {path} has reached its bound of 2^62: reset the surface or raise its floor"
    return remedies.get(code, f"{path} cannot be used") + f" ({error})"
