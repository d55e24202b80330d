"""What the two databases have in common: sessions that run SQL, transactions, and a schema that is brought up to date.

All statements are written once, with ``?`` for values, in a dialect that both understand.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib import resources
from typing import Protocol, TypeVar

from .adding import HISTORY_COLUMNS, Additions
from .base import StoreError
from .rows import EVENT_COLUMNS, Row, batches, event_of

__all__ = ["SCHEMA_VERSION", "Database", "Session", "add_history", "look_at", "upgrade", "versions_of"]

SCHEMA_VERSION = 3
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


def versions_of(dialect: str) -> dict[int, str]:
    """The numbered steps of a dialect's schema, from its file of SQL.

    >>> sorted(versions_of("sqlite")) == sorted(versions_of("postgres")) == list(range(1, SCHEMA_VERSION + 1))
    True
    """
    text = resources.files(__package__).joinpath(f"{dialect}.sql").read_text(encoding="utf-8")
    steps = text.split("-- version ")[1:]
    return {int(step.split(maxsplit=1)[0].rstrip(":")): "-- " + step for step in steps}


def look_at(session: Session, place: str) -> None:
    """Refuse what cannot be read without being upgraded."""
    found = schema_version(session, place)
    if found == 0:
        raise StoreError(f"there is no store at {place}: check where it is")
    if found < SCHEMA_VERSION:
        raise StoreError(f"{place} was written by an older version of bothworlds: start the service once to upgrade it")


def upgrade(session: Session, dialect: str, place: str) -> None:
    """Bring the schema up to date, all steps in the transaction of this session."""
    found = schema_version(session, place)
    missing = {version: sql for version, sql in sorted(versions_of(dialect).items()) if version > found}
    for sql in missing.values():
        session.script(sql)
    for version in missing:
        for step in _AFTER.get(version, ()):
            step(session)
    if found < SCHEMA_VERSION:
        session.run("DELETE FROM facts WHERE key = 'schema_version'")
        session.run("INSERT INTO facts VALUES ('schema_version', ?)", (str(SCHEMA_VERSION).encode(),))


def schema_version(session: Session, place: str) -> int:
    """The version of the schema that is there; 0 if there is none."""
    if not session.has_table("facts"):
        return 0
    rows = session.run("SELECT value FROM facts WHERE key = 'schema_version'")
    if not rows:
        raise StoreError(f"{place} holds tables that are not of bothworlds: choose another place for the store")
    found = int(bytes(rows[0][0]))
    if found > SCHEMA_VERSION:
        raise StoreError(
            f"{place} was written by a newer version of bothworlds (schema {found}, this one knows {SCHEMA_VERSION}): "
            "install that version or a later one"
        )
    return found


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


def _fill_history(session: Session) -> None:
    for events in batches(map(event_of, session.stream(f"SELECT {EVENT_COLUMNS} FROM events")), 10_000):
        additions = Additions()
        for event in events:
            additions.arrived(event)
            if event.settled_at is not None:
                additions.turned(None, event)
        add_history(session, additions)


# What has to be computed once all steps have made their tables.
_AFTER: dict[int, tuple[Callable[[Session], None], ...]] = {2: (_fill_history,)}
