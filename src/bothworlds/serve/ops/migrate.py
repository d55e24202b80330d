"""From one store to another, in either direction: everything is copied, and then both are verified."""

from __future__ import annotations

import msgspec

from ...progress import Report
from ..stores.base import StoreError
from ..stores.factory import MOVING
from ..stores.rows import batches
from ..stores.sql_store import TABLES, SqlStore
from .verify import Verification, verify

__all__ = ["Moved", "migrate"]

BATCH = 10_000


class Moved(msgspec.Struct, frozen=True):
    """How much was copied, and what verifying both stores found."""

    rows: int
    source: Verification
    target: Verification


def migrate(source: SqlStore, target: SqlStore, progress: Report = lambda amount: None) -> Moved:
    """Copy all of ``source`` to ``target``, which must be empty.

    ``progress`` hears of rows as they are copied, ``source.count_rows()`` in all. What is copied is of one moment.
    Until the last row is there, the target is marked, and cannot be opened by a service: a move that was interrupted is
    started again on an empty target.
    """
    if not target.is_empty():
        raise StoreError("the store to move to is not empty: choose a new file or an empty database")
    target.put(MOVING, b"1")
    with source.snapshot():
        *tables, last = TABLES
        for table in tables:
            _copy(source, target, table, progress)
        moved = Moved(source.count_rows(), verify(source), verify(target))
        if moved.source != moved.target or source.count_rows(tables) != target.count_rows(tables):
            raise StoreError("the copy differs from its source: keep the source, remove the copy, and migrate again")
        _copy(source, target, last, progress)
    return moved


def _copy(source: SqlStore, target: SqlStore, table: str, progress: Report) -> None:
    # A new store already has numbers and facts of its own. They go at one stroke: with the facts goes the mark.
    replace = table in ("numbers", "facts")
    columns = source.columns(table)
    found = source.rows(table, columns)
    for rows in [list(found)] if replace else batches(found, BATCH):
        target.fill(table, columns, rows, replace=replace)
        progress(len(rows))
