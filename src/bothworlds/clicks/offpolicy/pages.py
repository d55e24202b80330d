"""Complete pages as arrays, to train a policy with.

In a log without pages, page k consists of the k-th impressions of all positions in order of time. This is valid under
the item-position model: given the items, clicks at different positions are independent, so a page composed of the
impressions of three users has the distribution of a page seen by one. Pages that would show an item twice are dropped
and counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ...extras import import_extra
from ...kernels import Floats, Ints
from ..reading.database import run
from .impressions import Impressions

PAGES = 10_000  # per batch: progress is reported and Ctrl+C is handled between batches
COMPLETE = "count(*) = {m} AND count(DISTINCT position) = {m} AND count(DISTINCT item) = {m}"


class PageBatch(NamedTuple):
    """Pages in order of time: item indices, propensities (NaN if missing) and clicks, each (pages, m)."""

    ranking: Ints
    propensity: Floats
    clicks: Floats


def count_complete_pages(impressions: Impressions) -> tuple[Ints, int]:
    """Return the number of complete pages of each fold (2,), and the number of all pages."""
    rows = impressions.connection.execute(
        f"""SELECT fold, sum(good::INT), count(*)
        FROM (SELECT any_value(fold) AS fold, {_condition(impressions)} AS good FROM impressions GROUP BY page)
        GROUP BY fold"""
    ).fetchall()
    good = np.zeros(2, np.int64)
    for fold, count, _ in rows:
        good[fold] = count
    return good, sum(total for _, _, total in rows)


def page_batches(
    impressions: Impressions, fold: int | None = None, progress: bool | None = False
) -> Iterator[PageBatch]:
    """Return an iterator over the complete pages of a fold, or of both, in batches of at most ``PAGES``.

    Pages are sorted by time before this returns, into a table: DuckDB handles Ctrl+C while it creates a table, but not
    while it produces a stream.
    """
    where, table = ("", "sorted_pages") if fold is None else (f"WHERE fold = {int(fold)}", f"sorted_pages_{int(fold)}")
    run(
        impressions.connection,
        f"""CREATE TEMP TABLE IF NOT EXISTS {table} AS
        SELECT list(code ORDER BY position), list(propensity ORDER BY position), list(click ORDER BY position)
        FROM impressions JOIN codes USING (item) {where}
        GROUP BY page HAVING {_condition(impressions)} ORDER BY min(timestamp), min(ordinal)""",
        "sorting pages",
        progress,
    )
    return _slices(impressions, table)


def _slices(impressions: Impressions, table: str) -> Iterator[PageBatch]:
    ((size,),) = run(impressions.connection, f"SELECT count(*) FROM {table}")
    for start in range(0, size, PAGES):
        some = f"FROM {table} WHERE rowid >= {start} AND rowid < {start + PAGES} ORDER BY rowid"
        # The only way to read Arrow that all supported releases of DuckDB share.
        batch = import_extra("pyarrow").RecordBatchReader.from_stream(impressions.connection.sql(some)).read_all()
        yield _as_arrays(batch, len(impressions.positions))


def _condition(impressions: Impressions) -> str:
    m = len(impressions.positions)
    return COMPLETE.format(m=m) + (f" AND count(propensity) = {m}" if impressions.weighable else "")


def _as_arrays(batch: Any, m: int) -> PageBatch:
    ranking, propensity, clicks = (
        column.combine_chunks().flatten().to_numpy(zero_copy_only=False) for column in batch.columns
    )
    return PageBatch(
        np.ascontiguousarray(ranking, np.int64).reshape(-1, m),
        np.ascontiguousarray(propensity, np.float64).reshape(-1, m),
        np.ascontiguousarray(clicks, np.float64).reshape(-1, m),
    )
