"""The interface to a database: sessions that run SQL, transactions, and consistent reads.

All statements are written once, with ``?`` for values, in a dialect that SQLite and PostgreSQL both understand.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib import resources
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Row = tuple[Any, ...]

SCHEMA_VERSION = 7  # up to 6, stores had counters instead of learners


class StoreError(Exception):
    """The operation failed (disk full, read-only, database unreachable); everything acknowledged before is safe."""


class Unstorable(ValueError):
    """The database cannot represent a value of the request, or a stored value cannot be read."""


class Session(Protocol):
    """One transaction, or one consistent view for reading."""

    def run(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Runs one statement and returns all rows."""
        ...

    def among(self, sql: str, values: Collection[Any]) -> list[Row]:
        """Runs one statement for any number of values, which take the place of ``IN ?``; returns all rows."""
        ...

    def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Runs one statement for each row of values."""
        ...

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Inserts the rows whose primary key does not exist."""
        ...

    def update(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Updates one row for each row of values; the last column is the primary key."""
        ...

    def stream(self, sql: str, values: Sequence[Any] = ()) -> Iterator[Row]:
        """Yields rows without holding all of them in memory."""
        ...

    def script(self, sql: str) -> None:
        """Runs several statements of the schema inside the transaction of this session."""
        ...

    def has_table(self, name: str) -> bool: ...

    def columns(self, table: str) -> list[str]: ...


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
    def close(self) -> None:
        """Closes all connections; later calls raise StoreError."""

    @property
    def holds_snapshot(self) -> bool:
        """Whether this thread is inside ``snapshot``."""
        return getattr(self._held, "session", None) is not None

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

    def lookup(self, sql: str, values: Collection[Any]) -> list[Row]:
        """Returns the rows of one short statement, as ``Session.among`` does, as fast as possible."""
        with self.reading() as session:
            return session.among(sql, values)

    def lock(self, strength: str) -> str:
        """Returns the clause that locks rows, if other processes may write."""
        return f" FOR {strength}" if self.shared else ""


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
