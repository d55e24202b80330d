"""The impressions of a log in a DuckDB database, which selects, sorts and counts them; the log is read once.

DuckDB adds up integers only. Its sums of other numbers depend on the order in which its threads finish, so all
statistics are computed with NumPy, on rows in a fixed order: the same call returns the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ...extras import import_extra
from ...kernels import Floats, Ints
from ..log import Log, read
from ..reading.database import run
from ..reading.errors import plural

# Pages are identified by a hash, which is shorter than their names, and whose last bit assigns the fold.
PAGED = "SELECT hash(query, event) AS page, * FROM ordered"
# The k-th impressions of all positions form page k; the module `pages` explains why this is valid.
SINGLE = "SELECT row_number() OVER (PARTITION BY position ORDER BY timestamp, ordinal)::UBIGINT AS page, * FROM ordered"


class Rows(NamedTuple):
    """Impressions as arrays, sorted by page and position."""

    page: Ints  # 0, 1, ...
    fold: Ints
    item: Ints  # index in Impressions.items
    place: Ints  # index in Impressions.positions
    click: Floats
    propensity: Floats  # NaN if missing

    def those(self, chosen: Any) -> Rows:
        """Return some of the rows."""
        parts: list[Any] = [part[chosen] for part in self]
        return Rows(*parts)


@dataclass(frozen=True)
class Impressions:
    """An open log. Its connection has the tables ``impressions`` (one row each), ``cells`` (their counts), ``codes``.

    ``codes`` has the columns item and code, its index in ``items``. ``impressions`` has the
    columns page, fold (0 or 1, the same for a whole page), query, item, position, click, propensity (NULL if missing),
    timestamp, untimed (a timestamp that is neither a date nor a number) and ordinal (the order of the file).
    """

    connection: Any
    items: tuple[str, ...]  # a policy knows items by their index here
    positions: tuple[int, ...]  # numbered as in the log, in increasing order
    queries: int
    has_pages: bool
    total: int  # impressions
    weighable: int  # of these, with a propensity
    pages: int  # if the log has no pages, the impressions of its most frequent position
    reach: Floats  # (n_positions,) the share of pages that have the position; 1 if the log has no pages
    notes: tuple[str, ...] = ()  # sentences about rows that were left out or changed while reading

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.items), len(self.positions)

    @cached_property
    def rows(self) -> Rows:
        """All impressions as arrays, about 50 bytes each."""
        found = self.connection.execute(
            "SELECT page, fold, code, position, click, propensity FROM impressions JOIN codes USING (item) "
            "ORDER BY page, position, ordinal"
        ).fetchnumpy()
        return Rows(
            page_numbers(found["page"]),
            found["fold"],
            found["code"],
            np.searchsorted(self.positions, found["position"]),
            found["click"],
            np.ma.filled(found["propensity"], np.nan),
        )


@contextmanager
def open_impressions(log: Any, progress: bool | None = False) -> Iterator[Impressions]:
    """Open a log, or a path or table that `read` accepts; its tables are removed afterwards.

    Raises ValueError for a log that has no rows with one result each.
    """
    opened = log if isinstance(log, Log) else read(log, progress=progress)
    if opened.layout in ("counts", "relpred", "yandex") or opened.number != "1":
        raise ValueError(
            f"{opened.origin} is in the format {opened.layout}, which has no row with a propensity for every result: "
            "fit a model to it instead, and evaluate rankings and policies in its world"
        )
    with opened.database.cursor() as connection:
        yield _impressions(opened, connection, progress)


def _impressions(log: Log, connection: Any, progress: bool | None) -> Impressions:
    notes = (*log.notes, *_make_tables(log, connection, progress))
    total, weighable, queries = connection.execute(
        "SELECT coalesce(sum(shown), 0), coalesce(sum(weighable), 0), count(DISTINCT query) FROM cells"
    ).fetchall()[0]
    if not total:
        raise ValueError("the log has no impressions, or its filters remove them all")
    items = _column(connection, "item", "TRY_CAST(item AS BIGINT) NULLS LAST, item")
    connection.register("codes", import_extra("pyarrow").table({"item": list(items), "code": np.arange(len(items))}))
    positions = _column(connection, "position", "position")
    pages, reach = _reach(connection, log.has_pages)
    numbers = int(total), int(weighable), pages
    return Impressions(connection, items, positions, queries, log.has_pages, *numbers, reach, tuple(notes))


def _make_tables(log: Log, connection: Any, progress: bool | None) -> tuple[str, ...]:
    """Create the tables of impressions and of cells; return a note if timestamps cannot be used for their order."""
    notes: tuple[str, ...] = ()
    _make_impressions(log, connection, log.time or "NULL::DOUBLE", progress)
    untimed, example = connection.execute("SELECT count(untimed), min(untimed) FROM impressions").fetchall()[0]
    if untimed:
        _make_impressions(log, connection, "NULL::DOUBLE", progress)
        notes = (
            f"{plural(untimed, 'timestamp')}, such as {example!r}, neither number nor date: impressions are read in "
            "the order of the log.",
        )
    connection.execute(
        """CREATE TEMP TABLE cells AS
        SELECT query, fold, item, position, count(*) AS shown, sum(click) AS clicked, count(propensity) AS weighable
        FROM impressions GROUP BY ALL"""
    )
    return notes


def _make_impressions(log: Log, connection: Any, time: str, progress: bool | None) -> None:
    event = "event::VARCHAR" if log.has_pages else "NULL::VARCHAR"
    propensity = "propensity" if log.has_propensities else "NULL::DOUBLE"
    timestamp = "timestamp::VARCHAR" if log.time else "NULL::VARCHAR"
    run(
        connection,
        f"""CREATE OR REPLACE TEMP TABLE impressions AS
        WITH ordered AS (SELECT {event} AS event, query, item, position::INTEGER AS position, click::DOUBLE AS click,
                                {propensity} AS propensity, {time} AS timestamp, rowid AS ordinal,
                                CASE WHEN {time} IS NULL THEN {timestamp} END AS untimed
                         FROM rows WHERE {log.where}),
             paged AS ({PAGED if log.has_pages else SINGLE})
        SELECT page, (hash(page) % 2)::TINYINT AS fold, query, item, position, click, propensity, timestamp,
               nullif(untimed, '') AS untimed, ordinal
        FROM paged""",
        "reading impressions",
        progress,
    )


def _reach(connection: Any, has_pages: bool) -> tuple[int, Floats]:
    """The number of pages, and the share of pages that have each position."""
    counted = "SELECT position, sum(shown) AS shown FROM cells GROUP BY position ORDER BY position"
    shown = np.array([n for _, n in connection.execute(counted).fetchall()], dtype=np.float64)
    if not has_pages:
        return int(shown.max()), np.ones(shown.size)
    pages = connection.execute("SELECT count(DISTINCT page) FROM impressions").fetchall()[0][0]
    return int(pages), shown / pages


def page_length_variance(impressions: Impressions, value: Floats) -> Floats:
    r"""(m + 1,) the variance of reach times value due to the lengths of pages, per position and for the whole page.

    A page has position j with probability :math:`e_j`, so that the average over n pages of :math:`v_j` on those that
    have it has the variance :math:`v_j^2 e_j (1 - e_j) / n`.
    """
    reach = impressions.reach
    alone = value**2 * reach * (1.0 - reach) / impressions.pages
    if (reach == 1.0).all() or not np.isfinite(value).all():
        return np.append(alone, alone.sum())
    rows = impressions.rows
    whole = np.bincount(rows.page, value[rows.place]).var()
    return np.append(alone, whole / impressions.pages)


def page_numbers(pages: Ints) -> Ints:
    """Number sorted pages 0, 1, ..., each as often as it occurs.

    >>> page_numbers(np.array([4, 4, 7, 9, 9])).tolist()
    [0, 0, 1, 2, 2]
    """
    return np.cumsum(np.append(False, pages[1:] != pages[:-1]))


def _column(connection: Any, name: str, order: str) -> tuple[Any, ...]:
    rows = connection.execute(f"SELECT {name} FROM (SELECT DISTINCT {name} FROM cells) ORDER BY {order}").fetchall()
    return tuple(value for (value,) in rows)


@dataclass(frozen=True, eq=False)
class CellCounts:
    """The counts of one fold, of all queries together, as tables (n_items, n_positions)."""

    shown: Floats
    clicked: Floats
    weighable: Floats


def cell_counts(impressions: Impressions, fold: int) -> CellCounts:
    """Return the counts of a fold."""
    rows = impressions.connection.execute(
        "SELECT code, position, sum(shown), sum(clicked), sum(weighable) FROM cells JOIN codes USING (item) "
        "WHERE fold = ? GROUP BY ALL",
        [fold],
    ).fetchnumpy()
    i, places, *counts = rows.values()
    j = np.searchsorted(impressions.positions, places)
    tables = np.zeros((3, *impressions.shape))
    for table, count in zip(tables, counts):
        table[i, j] = count
    return CellCounts(*tables)


def fold_shares(cells: tuple[CellCounts, CellCounts]) -> Floats:
    """(2, n_positions) the share of a position's impressions that is in each fold."""
    shown = np.array([fold.shown.sum(axis=0) for fold in cells])
    return np.asarray(shown / shown.sum(axis=0))
