"""Pages as arrays, to teach a policy with.

A log without pages (one impression a row) is put together: page k is the k-th impression of every position in order of
time. Under the item-position model that changes nothing that matters: given the items, clicks at different positions
are independent, so a page made of three users' impressions has the law of a page seen by one. Only pages that would
show an item twice cannot be used; they are dropped and counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ...kernels import Floats, Ints
from ..reading.duckdb_relations import run
from .impressions import Impressions

__all__ = ["Batch", "batches", "usable"]

PAGES = 10_000  # of a batch: between two batches, progress is reported and Ctrl-C is heard
COMPLETE = "count(*) = {m} AND count(DISTINCT position) = {m} AND count(DISTINCT item) = {m}"


class Batch(NamedTuple):
    """Pages in order of time: item indices, propensities (NaN where there is none) and clicks, each (pages, m)."""

    ranking: Ints
    propensity: Floats
    clicks: Floats


def usable(impressions: Impressions) -> tuple[Ints, int]:
    """How many pages of each fold (2,) can be learned from, and how many there are."""
    rows = impressions.connection.execute(
        f"""SELECT fold, sum(good::INT), count(*)
        FROM (SELECT any_value(fold) AS fold, {_condition(impressions)} AS good FROM impressions GROUP BY page)
        GROUP BY fold"""
    ).fetchall()
    good = np.zeros(2, np.int64)
    for fold, count, _ in rows:
        good[fold] = count
    return good, sum(total for _, _, total in rows)


def batches(impressions: Impressions, fold: int | None = None, progress: bool | None = False) -> Iterator[Batch]:
    """The complete pages of a fold, or of both, a batch of at most ``PAGES`` at a time; they are sorted at once.

    They are sorted into a table, because DuckDB ends the making of a table on Ctrl-C, but not that of a stream.
    """
    where, table = ("", "sorted_pages") if fold is None else (f"WHERE fold = {int(fold)}", f"sorted_pages_{int(fold)}")
    impressions.connection.register("numbers", _numbers(impressions))
    run(
        impressions.connection,
        f"""CREATE TABLE IF NOT EXISTS {table} AS
        SELECT list(code ORDER BY position), list(propensity ORDER BY position), list(click ORDER BY position)
        FROM impressions JOIN numbers USING (item) {where}
        GROUP BY page HAVING {_condition(impressions)} ORDER BY min(timestamp), min(ordinal)""",
        "sorting pages",
        progress,
    )
    return _slices(impressions, table)


def _slices(impressions: Impressions, table: str) -> Iterator[Batch]:
    import pyarrow

    pages = impressions.connection.cursor().sql(f"FROM {table}")  # a cursor that other statements do not interrupt
    # The one way to read in batches that all releases of DuckDB share.
    for batch in pyarrow.RecordBatchReader.from_stream(pages):
        for start in range(0, batch.num_rows, PAGES):
            yield _as_arrays(batch.slice(start, PAGES), len(impressions.positions))


def _condition(impressions: Impressions) -> str:
    m = len(impressions.positions)
    return COMPLETE.format(m=m) + (f" AND count(propensity) = {m}" if impressions.weighable else "")


def _numbers(impressions: Impressions) -> Any:
    import pyarrow

    return pyarrow.table({"item": list(impressions.items), "code": np.arange(len(impressions.items))})


def _as_arrays(batch: Any, m: int) -> Batch:
    ranking, propensity, clicks = (column.flatten().to_numpy(zero_copy_only=False) for column in batch.columns)
    return Batch(
        np.ascontiguousarray(ranking, np.int64).reshape(-1, m),
        np.ascontiguousarray(propensity, np.float64).reshape(-1, m),
        np.ascontiguousarray(clicks, np.float64).reshape(-1, m),
    )
