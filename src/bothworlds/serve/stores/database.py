"""The interface to a database: sessions that run SQL, transactions, and consistent reads.

All statements are written once, with ``?`` for values, in a dialect that SQLite and PostgreSQL both understand.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TypeVar

from .rows import Row

__all__ = ["Database", "Session"]

T = TypeVar("T")


class Session(Protocol):
    """One transaction, or one consistent view for reading."""

    def run(self, sql: str, values: Row = ()) -> list[Row]:
        """Runs one statement and returns all rows."""
        ...

    def many(self, sql: str, rows: Sequence[Row]) -> None:
        """Runs one statement for each row of values."""
        ...

    def stream(self, sql: str, values: Row = ()) -> Iterator[Row]:
        """Yields rows without holding all of them in memory."""
        ...

    def script(self, sql: str) -> None:
        """Runs several statements inside the transaction of this session."""
        ...

    def has_table(self, name: str) -> bool: ...

    def columns(self, table: str) -> list[str]: ...

    def select_events(self, ids: Sequence[bytes], *, lock: bool = False) -> list[Row]:
        """Returns the rows of stored events; ``lock`` holds them until the transaction ends."""
        ...

    def insert_events(self, rows: Sequence[Row]) -> set[bytes]:
        """Inserts events that are not stored yet; returns their ids.

        Leaves out events that were deleted, and those of deleted surfaces and segments. An import may use the name of a
        deleted segment for older events.
        """
        ...

    def update_events(self, rows: Sequence[Row]) -> None:
        """Updates events; each row is clicks, settled_at, settled_by, late, id."""
        ...

    def load(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        """Inserts many rows by the fastest way that the database has."""
        ...


class Database(ABC):
    """Provides sessions; can be used from several threads."""

    shared: bool  # whether other processes may write at the same time
    skip_locked: str  # the clause that makes a SELECT lock its rows and skip those that another process has locked

    def __init__(self) -> None:
        self._held = threading.local()

    @abstractmethod
    def write(self, work: Callable[[Session], T], *, durable: bool = True) -> T:
        """Runs ``work`` in one transaction and returns its result after the commit.

        ``work`` may be called again if the transaction is retried. Without ``durable`` the commit is not synced to
        disk. Raises StoreError if the transaction fails.
        """

    @abstractmethod
    def view(self) -> AbstractContextManager[Session]:
        """Returns a new read-only session with a consistent view."""

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

    def event_rows(self, ids: Sequence[bytes]) -> list[Row]:
        """Returns the rows of the stored events among these ids."""
        with self.reading() as session:
            return session.select_events(ids)

    def may_have_event(self, id: bytes) -> bool:
        """Returns False only if no event with this id is stored, now or by another process; does not block."""
        return True

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Inside the block, all reads of this thread see the same state of the database."""
        with self.reading() as session:
            outer, self._held.session = getattr(self._held, "session", None), session
            try:
                yield
            finally:
                self._held.session = outer
