"""A store in tables: the same statements on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

from .database import Database, Session
from .rows import Row
from .sql_events import EventTables
from .sql_notes import NoteTables
from .sql_surfaces import SurfaceTables

__all__ = ["TABLES", "SqlStore"]

# In the order in which they can be filled: what is referred to comes first, facts, which say that all is there, last.
TABLES = (
    "numbers", "surfaces", "segments", "counters", "adjustments", "audit", "api_keys", "policies", "history", "events",
    "facts",
)  # fmt: skip


class SqlStore(EventTables, SurfaceTables, NoteTables):
    """Keeps all promises of ``Store``; what differs between databases is in ``Database``."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def close(self) -> None:
        self.database.close()

    def snapshot(self) -> AbstractContextManager[None]:
        """Within it, all that this thread reads is of one moment."""
        return self.database.snapshot()

    # Whole tables, for moving to another store.

    def is_empty(self) -> bool:
        with self.database.reading() as session:
            used = (
                session.run(f"SELECT 1 FROM {name} LIMIT 1") for name in ("surfaces", "events", "api_keys", "audit")
            )
            return not any(used)

    def count_rows(self, tables: Sequence[str] = TABLES) -> int:
        with self.database.reading() as session:
            return sum(session.run(f"SELECT count(*) FROM {name}")[0][0] for name in tables)

    def columns(self, table: str) -> list[str]:
        with self.database.reading() as session:
            return session.columns(table)

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[Row]:
        with self.database.reading() as session:
            yield from session.stream(f"SELECT {', '.join(columns)} FROM {table}")

    def fill(self, table: str, columns: Sequence[str], rows: Sequence[Row], *, replace: bool = False) -> None:
        """Insert rows as they are, instead of what is there if ``replace``."""

        def work(session: Session) -> None:
            if replace:
                session.run(f"DELETE FROM {table}")
            session.load(table, columns, rows)

        self.database.write(work)
