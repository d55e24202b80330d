"""A log opened for evaluation: one pass over the file, then a table of impressions that everything else asks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...kernels import Floats
from ..sources import connect

__all__ = ["Cells", "Impressions", "cells_of", "opened", "share_of_folds"]

# Pages are known by a hash: it is shorter than their names, and its last bit tosses the coin between two folds.
PAGED = "SELECT hash(query, event) AS page, * FROM ordered"
# The k-th impression of every position makes up page k; see the module `pages` for why that may be done.
SINGLE = "SELECT row_number() OVER (PARTITION BY position ORDER BY timestamp, ordinal)::UBIGINT AS page, * FROM ordered"


@dataclass(frozen=True)
class Impressions:
    """An open log. Its connection has the tables ``impressions`` (a row each) and ``cells`` (their counts).

    ``impressions`` has the columns page, fold (0 or 1, the same for a whole page), query, item, position, click,
    propensity (NULL where the log states none), timestamp and ordinal (the order of the file).
    """

    connection: Any
    items: tuple[str, ...]  # numbered as policies number them
    positions: tuple[int, ...]  # as the log numbers them, in order
    queries: int
    has_pages: bool
    total: int  # impressions
    weighable: int  # of these, with a propensity

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.items), len(self.positions)


@contextmanager
def opened(log: Any) -> Iterator[Impressions]:
    """Open a log, or the log at a path, in a database of its own, which moves to disk what does not fit into memory."""
    if isinstance(log, (str, Path)):
        from .. import read

        log = read(log)
    with connect() as connection:
        yield _impressions(log, connection)


def _impressions(log: Any, connection: Any) -> Impressions:
    log.rows(connection).create_view("logged")
    connection.execute(
        f"""CREATE TABLE impressions AS
        WITH ordered AS (SELECT *, row_number() OVER () AS ordinal FROM logged),
             paged AS ({PAGED if log.has_pages else SINGLE})
        SELECT page, (hash(page) % 2)::TINYINT AS fold, coalesce(query, '') AS query, item::VARCHAR AS item, position,
               click::DOUBLE AS click, propensity, timestamp, ordinal
        FROM paged"""
    )
    connection.execute(
        """CREATE TABLE cells AS
        SELECT query, fold, item, position, count(*) AS shown, sum(click) AS clicked, count(propensity) AS weighable
        FROM impressions GROUP BY ALL"""
    )
    total, weighable, queries = connection.execute(
        "SELECT coalesce(sum(shown), 0), coalesce(sum(weighable), 0), count(DISTINCT query) FROM cells"
    ).fetchone()
    if not total:
        raise ValueError("the log has no impressions, or its filters leave none")
    items = _column(connection, "item", "TRY_CAST(item AS BIGINT) NULLS LAST, item")
    positions = _column(connection, "position", "position")
    return Impressions(connection, items, positions, queries, bool(log.has_pages), int(total), int(weighable))


def _column(connection: Any, name: str, order: str) -> tuple[Any, ...]:
    found = connection.execute(f"SELECT {name} FROM (SELECT DISTINCT {name} FROM cells) ORDER BY {order}").fetchall()
    return tuple(value for (value,) in found)


@dataclass(frozen=True, eq=False)
class Cells:
    """Counts of one fold, all queries together, as tables (n_items, n_positions)."""

    shown: Floats
    clicked: Floats
    weighable: Floats


def cells_of(impressions: Impressions, fold: int) -> Cells:
    """The counts of a fold."""
    rows = impressions.connection.execute(
        "SELECT item, position, sum(shown), sum(clicked), sum(weighable) FROM cells WHERE fold = ? GROUP BY ALL", [fold]
    ).fetchnumpy()
    item_of = {item: i for i, item in enumerate(impressions.items)}
    position_of = {position: j for j, position in enumerate(impressions.positions)}
    names, places, *counts = rows.values()
    i = [item_of[name] for name in names.tolist()]
    j = [position_of[place] for place in places.tolist()]
    tables = np.zeros((3, *impressions.shape))
    for table, count in zip(tables, counts):
        table[i, j] = count
    return Cells(*tables)


def share_of_folds(cells: tuple[Cells, Cells]) -> Floats:
    """(2, n_positions) the share of a position's impressions that is in each fold."""
    shown = np.array([fold.shown.sum(axis=0) for fold in cells])
    return np.asarray(shown / shown.sum(axis=0))
