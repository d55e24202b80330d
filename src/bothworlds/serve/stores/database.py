"""What the two databases have in common: sessions that run SQL, and transactions.

All statements are written once, with ``?`` for values, in a dialect that both understand.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TypeVar

from .additions import HISTORY_COLUMNS, Additions
from .rows import Row

__all__ = ["Database", "Session", "add_history"]

T = TypeVar("T")


class Session(Protocol):
    """One transaction, or one consistent view for reading."""

    def run(self, sql: str, values: Row = ()) -> list[Row]: ...
    def many(self, sql: str, rows: Sequence[Row]) -> None: ...
    def stream(self, sql: str, values: Row = ()) -> Iterator[Row]: ...
    def script(self, sql: str) -> None: ...
    def has_table(self, name: str) -> bool: ...
    def columns(self, table: str) -> list[str]: ...
    def select_events(self, ids: Sequence[bytes], *, lock: bool = False) -> list[Row]: ...
    def insert_events(self, rows: Sequence[Row]) -> set[bytes]: ...  # the ids that were not there before
    def update_events(self, rows: Sequence[Row]) -> None: ...  # clicks, settled_at, settled_by, late, id
    def load(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None: ...


class Database(ABC):
    """Hands out sessions; safe from several threads."""

    shared: bool  # may other processes write at the same time?
    skip_locked: str  # what follows a SELECT of rows that another process may be settling

    def __init__(self) -> None:
        self._held = threading.local()

    @abstractmethod
    def write(self, work: Callable[[Session], T], *, durable: bool = True) -> T:
        """Run ``work`` in one transaction, which has been committed when this returns."""

    @abstractmethod
    def view(self) -> AbstractContextManager[Session]:
        """A session of its own in which nothing changes."""

    @abstractmethod
    def close(self) -> None: ...

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """The session of the snapshot that this thread is in, or one for this use alone."""
        held: Session | None = getattr(self._held, "session", None)
        if held is not None:
            yield held
            return
        with self.view() as session:
            yield session

    def event_rows(self, ids: Sequence[bytes]) -> list[Row]:
        """The rows of these events, those that are there."""
        with self.reading() as session:
            return session.select_events(ids)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let all that this thread reads be of one moment, however much is written meanwhile."""
        with self.reading() as session:
            outer, self._held.session = getattr(self._held, "session", None), session
            try:
                yield
            finally:
                self._held.session = outer


def add_history(session: Session, additions: Additions) -> None:
    """Add to the buckets of minutes, in sorted order, so that two processes never wait for each other in a circle."""
    sums = ", ".join(f"{name} = history.{name} + excluded.{name}" for name in HISTORY_COLUMNS)
    rows = [(s, segment, arm, minute, *sums) for (s, minute, segment, arm), sums in sorted(additions.history.items())]
    session.many(
        "INSERT INTO history (surface_id, segment, arm, minute, events, settled, shows, clicks, clicked, squares, late)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        f" ON CONFLICT (surface_id, minute, segment, arm) DO UPDATE SET {sums}",
        rows,
    )
