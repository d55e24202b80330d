"""SQLite: one file that belongs to one process; one connection writes behind a lock, each thread can read."""

from __future__ import annotations

import os
import re
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from .base import StoreError
from .database import Database, Session
from .event_filter import EventFilter
from .migrations import check_version, upgrade
from .rows import EVENT_COLUMNS, Row
from .sql_store import SqlStore

if sys.platform != "win32":
    import fcntl

__all__ = ["SqliteDatabase", "open_sqlite"]

T = TypeVar("T")
CHUNK = 500  # values in one statement; old builds of SQLite allow 999
VALUES = 1 << 14  # in a statement that writes many rows; SQLite 3.32 and later allow 32766
IDS_PER_PAGE = 20_000  # read at a time for the filter of event ids
IDLE_READERS = 8
WRITER_CACHE = 16_384  # KiB; event ids are spread over the whole index

_INSERT = f"INSERT INTO events ({EVENT_COLUMNS}) VALUES ({', '.join('?' * len(EVENT_COLUMNS.split(', ')))})"
_UPDATE = (
    "WITH new (clicks, settled_at, settled_by, late, rewards, id) AS (VALUES (?, ?, ?, ?, ?, ?))"
    " UPDATE events SET clicks = new.clicks, settled_at = new.settled_at, settled_by = new.settled_by, late = new.late,"
    " rewards = new.rewards FROM new WHERE events.id = new.id"
)
_PAGE = "SELECT group_concat(hex(id)), max(id), count(*) FROM (SELECT id FROM events WHERE id > ? ORDER BY id LIMIT ?)"
_ONE_ROW = re.compile(r"VALUES (\((?:\?, )*\?\))")
_DELETED = "SELECT id FROM deleted_events WHERE id IN"


def open_sqlite(path: str | Path, *, read_only: bool = False, alone: bool = False) -> SqlStore:
    """Opens the store in this file; creates or upgrades it unless ``read_only``. Raises StoreError.

    ``read_only`` can read a file that a running service uses, unless it has to be ``alone``.
    """
    # SQLite names its other files after the target of a symbolic link; the lock file must follow it.
    real = Path(os.path.realpath(Path(path).expanduser()))
    return SqlStore(SqliteDatabase(real, read_only=read_only, alone=alone))


@lru_cache(maxsize=256)
def _with_rows(sql: str, count: int) -> str:
    """Returns a statement of one row of ``VALUES`` with as many rows as given.

    >>> _with_rows("INSERT INTO facts VALUES (?, ?)", 2)
    'INSERT INTO facts VALUES (?, ?), (?, ?)'
    """
    return _ONE_ROW.sub(lambda row: "VALUES " + ", ".join([row[1]] * count), sql)


class SqliteSession:
    """A ``Session`` on a connection that is in a transaction; ``event_ids`` gets the ids of inserted events."""

    def __init__(self, connection: sqlite3.Connection, event_ids: EventFilter) -> None:
        self.connection, self._event_ids = connection, event_ids

    def run(self, sql: str, values: Row = ()) -> list[Row]:
        return self.connection.execute(sql, values).fetchall()

    def many(self, sql: str, rows: Sequence[Row]) -> None:
        if not _ONE_ROW.search(sql):
            self.connection.executemany(sql, rows)
            return
        start = 0
        while start < len(rows):
            # One statement for many rows: each statement releases the interpreter lock and has to wait for it again.
            # Powers of two, so that SQLite caches few prepared statements.
            size = 1 << (min(len(rows) - start, VALUES // len(rows[start])).bit_length() - 1)
            values = [value for row in rows[start : start + size] for value in row]
            self.connection.execute(_with_rows(sql, size), values)
            start += size

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
        ids = [row[0] for row in rows]
        known = {row[0] for row in self.select_events([id for id in ids if self._event_ids.may_contain(id)])}
        new = self._not_deleted([row for row in rows if row[0] not in known])
        self._event_ids.add([row[0] for row in new])
        self.many(_INSERT, new)
        return {row[0] for row in new}

    def _not_deleted(self, rows: Sequence[Row]) -> list[Row]:
        """Returns the rows of events that may be inserted; see ``Session.insert_events``."""
        surfaces = {id for id in {row[1] for row in rows} if self.run("SELECT 1 FROM surfaces WHERE id = ?", (id,))}
        deleted: set[bytes] = set()
        for start in range(0, len(rows), CHUNK):
            ids = [row[0] for row in rows[start : start + CHUNK]]
            deleted |= {id for (id,) in self.run(f"{_DELETED} ({', '.join('?' * len(ids))})", ids)}
        segments = {(row[0], row[1]): row[2] for row in self.run("SELECT * FROM deleted_segments")}
        return [
            row
            for row in rows
            if row[1] in surfaces
            and row[0] not in deleted
            and (row[12] == "import" or row[5] > segments.get((row[1], row[2]), -1))
        ]

    def update_events(self, rows: Sequence[Row]) -> None:
        self.many(_UPDATE, rows)

    def load(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        if table == "events":
            self._event_ids.add([row[columns.index("id")] for row in rows])
        self.many(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})", rows)


class SqliteDatabase(Database):
    """One SQLite file: its lock, the connection that writes and idle connections that read."""

    shared = False
    skip_locked = ""

    def __init__(self, path: Path, *, read_only: bool = False, alone: bool = False) -> None:
        super().__init__()
        self.path, self.read_only = path, read_only
        self._closed = False
        self._write_lock = threading.RLock()
        self._readers_lock = (
            threading.Lock()
        )  # guards the list of readers; separate, so that reading does not wait for a transaction
        self._writer: sqlite3.Connection | None = None
        self._readers: list[sqlite3.Connection] = []
        self._event_ids = EventFilter()
        self._id_reader = threading.Thread(target=self._read_ids, name="bothworlds event ids", daemon=True)
        self._id_reader_started = read_only  # another process may write
        if sqlite3.sqlite_version_info < (3, 35):
            raise StoreError(f"SQLite {sqlite3.sqlite_version} is too old: install a Python with SQLite 3.35 or later")
        if read_only and not path.exists():
            raise StoreError(f"there is no store at {path}: check the path")
        with translated_errors(path):
            self._lock = _FileLock(path) if alone or not read_only else None
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
        with self._write_lock, translated_errors(self.path):
            if self._writer is None:
                self._writer = self._connect()
                self._writer.execute(f"PRAGMA cache_size = -{WRITER_CACHE}")
            connection = self._writer
            # Without a sync the data survives kill -9; the next durable transaction syncs it.
            connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            try:
                connection.execute("BEGIN IMMEDIATE")
                result = work(SqliteSession(connection, self._event_ids))
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
        with translated_errors(self.path):
            connection = self._reader()
            try:
                connection.execute("BEGIN")
                yield SqliteSession(connection, self._event_ids)
                connection.execute("ROLLBACK")
            except BaseException:
                connection.close()
                raise
            self._keep(connection)

    def may_have_event(self, id: bytes) -> bool:
        """Returns False only if no event with this id is stored; the first call starts to read the stored ids."""
        if not self._id_reader_started:
            self._id_reader_started = True
            self._id_reader.start()
        return self._event_ids.may_contain(id)

    def _read_ids(self) -> None:
        """Adds all stored ids to the filter, in the order of ids; after an error, the filter stays incomplete."""
        last, count = b"", IDS_PER_PAGE
        with suppress(StoreError):
            while count == IDS_PER_PAGE:
                with self.view() as session:
                    # One row: each row that is read releases the interpreter lock and has to wait for it again.
                    ((ids, last, count),) = session.run(_PAGE, (last, IDS_PER_PAGE))
                if count:
                    self._event_ids.add([bytes.fromhex(id) for id in ids.split(",")])
            self._event_ids.complete = True

    def _keep(self, connection: sqlite3.Connection) -> None:
        with self._readers_lock:
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
        with self._write_lock, self._readers_lock:
            self._closed = True
            lock, self._lock = self._lock, None
            connections = [self._writer, *self._readers, lock]
            self._writer, self._readers = None, []
        for connection in connections:
            if connection is not None:
                connection.close()


class _FileLock:
    """Exclusive ownership of a database file until ``close`` or the end of the process, even by kill -9.

    The lock file beside the database works on every system, but depends on the name of the database. On POSIX systems
    the database file itself is locked as well, so that it has one owner even if it is renamed or linked while in use.
    A file with several hard links is refused even if it is not in use: SQLite keeps recent changes in a file named
    after the database, and would not find them under the other name.
    """

    def __init__(self, path: Path) -> None:
        with _opening_errors(path):
            _check_path(path)
        self._lock_file = _lock_beside(path)
        try:
            # Opened only under the first lock: closing any descriptor of a file releases SQLite's own locks on it.
            self._database_file = _lock_database(path)
        except BaseException:
            self._lock_file.close()
            raise

    def close(self) -> None:
        os.close(self._database_file)
        self._lock_file.close()


@contextmanager
def _opening_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"{path} cannot be opened: {error.strerror}") from error


def _check_path(path: Path) -> None:
    if not path.parent.is_dir():
        raise StoreError(f"there is no folder {path.parent}: create it, or choose another path for the store")
    links = path.stat().st_nlink if path.exists() else 1
    if links > 1:
        raise StoreError(
            f"{path} has {links} names (hard links), and a store must have one: remove the others, or copy the file"
        )


def _lock_beside(path: Path) -> sqlite3.Connection:
    lock = sqlite3.connect(f"{path}.lock", isolation_level=None, check_same_thread=False, timeout=0.0)
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.DatabaseError as error:
        lock.close()
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
            raise
        raise _in_use(path) from error
    return lock


def _lock_database(path: Path) -> int:
    """Opens the database file, creates it if it does not exist, and locks it; returns the descriptor."""
    with _opening_errors(path):
        # The file will hold the secret that signs tokens: only the owner may read it.
        file = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    if sys.platform != "win32":
        try:
            # Not lockf: SQLite uses the same kind of lock and releases it when it closes the file.
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
def translated_errors(path: Path) -> Iterator[None]:
    """Turns errors of SQLite into a StoreError that says what to do."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise StoreError(_remedy(path, error)) from error


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
    if "counters_within_bounds" in str(error):
        return f"a counter in {path} has reached its bound of 2^62: reset the surface or raise its floor"
    return remedies.get(code, f"{path} cannot be used") + f" ({error})"
