"""Copying a store to another one, between SQLite and PostgreSQL in either direction, and verifying both."""

from __future__ import annotations

import msgspec

from ...progress import ReportProgress
from ..model import DRAW_KEY
from ..stores.base import StoreError
from ..stores.factory import MOVING
from ..stores.rows import batches
from ..stores.sql_store import TABLES, SqlStore
from .verify import Verification, verify

__all__ = ["Migration", "migrate"]

BATCH = 10_000


class Migration(msgspec.Struct, frozen=True):
    """How many rows were copied, and the verification of both stores."""

    rows: int
    source: Verification
    target: Verification


def migrate(source: SqlStore, target: SqlStore, progress: ReportProgress = lambda amount: None) -> Migration:
    """Copy one snapshot of ``source`` to ``target``, which must be empty, and verify both.

    ``progress`` is called with numbers of rows as they are copied, ``source.count_rows()`` in all. Until the last row
    is copied, the target is marked as incomplete and no service opens it; after an interruption, migrate again to an
    empty target. Raises StoreError if the target is not empty, if it differs from the source, or if a store fails.
    Blocks.
    """
    if not target.is_empty():
        raise StoreError("the target store is not empty: choose a new file or an empty database")
    target.put(MOVING, b"1")
    with source.snapshot():
        *tables, last = TABLES
        for table in tables:
            _copy(source, target, table, progress)
        # The target gets its facts last, and with them the key of its checkpoints.
        migration = Migration(source.count_rows(), verify(source), verify(target, source.get(DRAW_KEY) or b""))
        if migration.source != migration.target or source.count_rows(tables) != target.count_rows(tables):
            raise StoreError("the copy differs from its source: keep the source, remove the copy, and migrate again")
        _copy(source, target, last, progress)
    return migration


def _copy(source: SqlStore, target: SqlStore, table: str, progress: ReportProgress) -> None:
    # A new store has rows of its own in these tables. One transaction replaces them, and with the facts the mark.
    replace = table in ("numbers", "facts")
    columns = source.columns(table)
    copied = source.rows(table, columns)
    for rows in [list(copied)] if replace else batches(copied, BATCH):
        target.fill(table, columns, rows, replace=replace)
        progress(len(rows))
