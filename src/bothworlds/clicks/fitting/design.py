"""What a log lets one compare: its rows, its tables, and the components of items and positions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from ...kernels import Floats, Ints
from ..counts import Counts

__all__ = ["Design", "Links", "design_of", "links_of", "smoothed"]


class Design(NamedTuple):
    """Counts as tables with one row for every (query, item); rows ``starts[g]`` to ``starts[g + 1]`` are a group.

    A group is fitted on its own, with a curve of its own: all rows, or those of a query.
    """

    items: tuple[str, ...]  # of the R rows
    queries: tuple[str, ...]
    groups: tuple[str, ...]  # the query of every group; ("",) if there is one for all
    positions: tuple[int, ...]
    starts: Ints  # (G + 1,)
    group: Ints  # (R,)
    row: Ints  # (K,) of every count
    position: Ints  # (K,)
    shown: Floats  # (R, m)
    clicked: Floats  # (R, m)


class Links(NamedTuple):
    """Which items and positions can be compared, group by group."""

    of_rows: Ints  # (R,) component; -1 for what no component has a say on
    of_positions: Ints  # (G, m)
    parts: Ints  # (G,) how many components there are
    identified: NDArray[np.bool_]  # (G,)
    pieces: Ints  # (G, m) components of positions without the pairs that were clicked every time


def design_of(counts: Counts, per_query: bool) -> Design:
    """The tables of counts. With one query every item has a row, otherwise those that were shown for a query."""
    n, m = len(counts.items), len(counts.positions)
    if not len(counts) or not counts.shown.any():
        raise ValueError(f"there is nothing to fit: no impressions{f' in {counts.origin}' if counts.origin else ''}")
    key = counts.query * n + counts.item
    if len(counts.queries) == 1:
        pairs, row = np.arange(n), counts.item
    else:
        pairs, row = np.unique(key, return_inverse=True)
    of_query = pairs // n
    present, starts = np.unique(of_query, return_index=True) if per_query else (np.zeros(1, np.int64), np.zeros(1))
    starts = np.append(starts, pairs.size).astype(np.int64)
    tables = np.zeros((2, pairs.size, m))
    tables[0, row, counts.position], tables[1, row, counts.position] = counts.shown, counts.clicked
    return Design(
        items=tuple(counts.items[i] for i in (pairs % n).tolist()),
        queries=tuple(counts.queries[q] for q in of_query.tolist()),
        groups=tuple(counts.queries[q] for q in present.tolist()) if per_query else ("",),
        positions=counts.positions,
        starts=starts,
        group=np.repeat(np.arange(starts.size - 1), np.diff(starts)),
        row=row.astype(np.int64),
        position=counts.position,
        shown=tables[0],
        clicked=tables[1],
    )


def smoothed(design: Design, prior: float) -> Design:
    """The design with ``prior`` impressions more for every pair that was shown, clicked at the mean rate of the log.

    >>> design = design_of(Counts.from_tables([[9, 9], [2, 0]], [[6, 3], [1, 0]]), False)
    >>> smoothed(design, 2.0).shown.tolist(), smoothed(design, 2.0).clicked.tolist()
    ([[11.0, 11.0], [4.0, 0.0]], [[7.0, 4.0], [2.0, 0.0]])
    """
    extra = prior * (design.shown > 0.0)
    rate = design.clicked.sum() / design.shown.sum()
    return design._replace(shown=design.shown + extra, clicked=design.clicked + rate * extra)


def links_of(design: Design) -> Links:
    r"""The components of the graph of pairs that were shown, and whether there is only one.

    An item or a position without clicks has probability 0 at the maximum, whatever the scale: it links nothing. A pair
    that was clicked every time has a log-likelihood without curvature, :math:`S (a_i + b_j)`: it says that the product
    is at its limit, and two halves of a design that only such pairs hold together can slide against each other. A
    position without clicks that was only ever given to items without clicks may be to blame for that, or they. So a
    group is identified if all its positions with clicks hang together by pairs with both clicks missed and a row and a
    column that have some, and if at all others that were shown there was an item with clicks.

    >>> links_of(design_of(Counts.from_tables([[9, 9], [9, 0]], [[3, 1], [2, 0]]), False)).identified.tolist()
    [True]
    >>> links_of(design_of(Counts.from_tables([[9, 9], [9, 0]], [[3, 0], [2, 0]]), False)).parts.tolist()
    [1]
    >>> links_of(design_of(Counts.from_tables([[9, 0], [0, 9]], [[3, 0], [0, 2]]), False)).parts.tolist()
    [2]
    >>> links_of(design_of(Counts.from_tables([[9, 0], [0, 9]], [[3, 0], [0, 0]]), False)).identified.tolist()
    [False]
    """
    m, groups = len(design.positions), len(design.groups)
    shown, clicked = (table[design.row, design.position] for table in (design.shown, design.clicked))
    column = design.group[design.row] * m + design.position
    seen = shown > 0.0
    liked = clicked > 0.0
    with_clicks = np.zeros(len(design.items), bool), np.zeros(groups * m, bool)
    with_clicks[0][design.row[liked]] = True
    with_clicks[1][column[liked]] = True
    alive = seen & with_clicks[0][design.row] & with_clicks[1][column]
    curved = alive & (shown > clicked)
    label, count = _labels(design, column, alive, with_clicks[1])
    strict, pieces = _labels(design, column, curved, with_clicks[1])
    rows = np.full(len(design.items), -1)
    columns = np.where(with_clicks[1], label, -1)
    # Whoever has no clicks goes with the company it was shown in, of those that have.
    for part, other, index, partner, sure in (
        (rows, columns, design.row, column, with_clicks[1]),
        (columns, rows, column, design.row, with_clicks[0]),
    ):
        known = seen & sure[partner] & (part[index] < 0)
        np.maximum.at(part, index[known], other[partner[known]])
    lost = np.bincount(design.group[design.row], seen & (columns[column] < 0), groups) > 0.0
    strict = np.where(with_clicks[1], strict, -1).reshape(groups, m)
    return Links(rows, columns.reshape(groups, m), count, (count == 1) & (pieces == 1) & ~lost, strict)


def _labels(design: Design, column: Ints, linked: NDArray[np.bool_], alive: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """The component of every column, numbered from the first position of a group on, and the number of components."""
    m, groups, rows = len(design.positions), len(design.groups), len(design.items)
    ends = design.row[linked], rows + column[linked]
    size = rows + groups * m
    graph = coo_array((np.ones(ends[0].size, np.int8), ends), shape=(size, size))
    found = connected_components(graph, directed=False)[1][rows:]
    place = np.tile(np.arange(m), groups)
    leader = np.full(found.max() + 1, m)
    np.minimum.at(leader, found[alive], place[alive])
    leads = alive & (leader[found] == place)
    number = np.cumsum(leads.reshape(groups, m), axis=1).ravel() - 1
    first = np.arange(groups).repeat(m) * m + np.minimum(leader[found], m - 1)
    return number[first], leads.reshape(groups, m).sum(axis=1)
