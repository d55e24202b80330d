"""Copying a store to another one, between SQLite and PostgreSQL in either direction, and verifying the copy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

import msgspec

from ...progress import ReportProgress
from ..stores import MOVING, TABLES, Store, StoreError
from .verify import Verification, verify

BATCH = 10_000
T = TypeVar("T")


class Migration(msgspec.Struct, frozen=True):
    """How many rows were copied, and the verification of both stores, which is the same."""

    rows: int
    verification: Verification


def migrate(source: Store, target: Store, progress: ReportProgress = lambda amount: None) -> Migration:
    """Copy one snapshot of ``source`` to ``target``, which must be empty, and verify both.

    ``progress`` is called with numbers of rows as they are copied, ``source.count_rows()`` in all. Until the last row
    is copied, the target is marked as incomplete and no service opens it; after an interruption, migrate again to an
    empty target. Raises StoreError if the target is not empty, if it differs from the source, or if a store fails.
    Blocks.
    """
    if not target.is_empty():
        raise StoreError("the target store is not empty: choose a new file or an empty database")
    target.put(MOVING, b"1")
    with source.consistent_reads():
        *tables, last = TABLES
        for table in tables:
            _copy(source, target, table, progress)
        verification = verify(source)
        if verification != verify(target) or source.count_rows(tables) != target.count_rows(tables):
            raise StoreError("the copy differs from its source: keep the source, remove the copy, and migrate again")
        migration = Migration(source.count_rows(), verification)
        _copy(source, target, last, progress)
    return migration


def _copy(source: Store, target: Store, table: str, progress: ReportProgress) -> None:
    # A new store has rows of its own in these tables. One transaction replaces them, and with the facts the mark.
    replace = table in ("numbers", "lease", "facts")
    columns = source.columns(table)
    copied = source.rows(table, columns)
    for rows in [list(copied)] if replace else _batches(copied):
        target.fill(table, columns, rows, replace=replace)
        progress(len(rows))


def _batches(rows: Iterable[T]) -> Iterator[list[T]]:
    iterator = iter(rows)
    while batch := list(islice(iterator, BATCH)):
        yield batch
