"""Counts as tables, and which items and positions they make comparable: the connected components."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from ...kernels import Floats, Ints
from ..counts import Counts


class Design(NamedTuple):
    """Counts as tables with one row for every (query, item); rows ``starts[g]`` to ``starts[g + 1]`` are a group.

    A group has its own curve and is fitted separately: it is all rows, or those of one query.
    """

    items: tuple[str, ...]  # of the R rows
    queries: tuple[str, ...]
    groups: tuple[str, ...]  # the query of every group; ("",) if there is one for all
    positions: tuple[int, ...]
    starts: Ints  # (G + 1,)
    group: Ints  # (R,)
    row: Ints  # (K,) the row of every count
    position: Ints  # (K,)
    shown: Floats  # (R, m)
    clicked: Floats  # (R, m)


class Connectivity(NamedTuple):
    """The connected components of items and positions of every group."""

    of_rows: Ints  # (R,) component of each row; -1 if it has none
    of_positions: Ints  # (G, m)
    parts: Ints  # (G,) the number of components
    identified: NDArray[np.bool_]  # (G,)
    pieces: Ints  # (G, m) components of positions if pairs that were clicked every time link nothing


def design_of(counts: Counts, per_query: bool) -> Design:
    """Return the tables of counts. With one query every item has a row, otherwise every (query, item) that was shown.

    Raises ValueError if there are no impressions.
    """
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
    """Return the design with ``prior`` more impressions of every pair that was shown, clicked at the log's mean rate.

    >>> design = design_of(Counts.from_tables([[9, 9], [2, 0]], [[6, 3], [1, 0]]), False)
    >>> smoothed(design, 2.0).shown.tolist(), smoothed(design, 2.0).clicked.tolist()
    ([[11.0, 11.0], [4.0, 0.0]], [[7.0, 4.0], [2.0, 0.0]])
    """
    extra = prior * (design.shown > 0.0)
    rate = design.clicked.sum() / design.shown.sum()
    return design._replace(shown=design.shown + extra, clicked=design.clicked + rate * extra)


def connectivity_of(design: Design) -> Connectivity:
    r"""Return the connected components of the bipartite graph of items and positions that were shown together.

    An item or a position without clicks has probability 0 at the maximum, on any scale, so it links nothing. A pair
    that was clicked every time has the log-likelihood :math:`S (a_i + b_j)`, which has no curvature: it only implies
    that the product is at its limit, so two parts of a design that are linked only by such pairs are not determined
    relative to each other. If a position without clicks was only given to items without clicks, the cause may be
    either. So a group is identified if its positions with clicks are connected by pairs that have missing clicks and
    whose item and position both have clicks, and if every other position that was shown had an item with clicks.

    >>> connectivity_of(design_of(Counts.from_tables([[9, 9], [9, 0]], [[3, 1], [2, 0]]), False)).identified.tolist()
    [True]
    >>> connectivity_of(design_of(Counts.from_tables([[9, 9], [9, 0]], [[3, 0], [2, 0]]), False)).parts.tolist()
    [1]
    >>> connectivity_of(design_of(Counts.from_tables([[9, 0], [0, 9]], [[3, 0], [0, 2]]), False)).parts.tolist()
    [2]
    >>> connectivity_of(design_of(Counts.from_tables([[9, 0], [0, 9]], [[3, 0], [0, 0]]), False)).identified.tolist()
    [False]
    """
    m, groups = len(design.positions), len(design.groups)
    shown, clicked = (table[design.row, design.position] for table in (design.shown, design.clicked))
    column = design.group[design.row] * m + design.position
    seen = shown > 0.0
    has_clicks = clicked > 0.0
    with_clicks = np.zeros(len(design.items), bool), np.zeros(groups * m, bool)
    with_clicks[0][design.row[has_clicks]] = True
    with_clicks[1][column[has_clicks]] = True
    alive = seen & with_clicks[0][design.row] & with_clicks[1][column]
    curved = alive & (shown > clicked)
    label, count = _labels(design, column, alive, with_clicks[1])
    strict, pieces = _labels(design, column, curved, with_clicks[1])
    rows = np.full(len(design.items), -1)
    columns = np.where(with_clicks[1], label, -1)
    # Items and positions without clicks join the component of those with clicks that they were shown with.
    for part, other, index, partner, sure in (
        (rows, columns, design.row, column, with_clicks[1]),
        (columns, rows, column, design.row, with_clicks[0]),
    ):
        known = seen & sure[partner] & (part[index] < 0)
        np.maximum.at(part, index[known], other[partner[known]])
    lost = np.bincount(design.group[design.row], seen & (columns[column] < 0), groups) > 0.0
    strict = np.where(with_clicks[1], strict, -1).reshape(groups, m)
    return Connectivity(rows, columns.reshape(groups, m), count, (count == 1) & (pieces == 1) & ~lost, strict)


def _labels(design: Design, column: Ints, linked: NDArray[np.bool_], alive: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """The component of every column, numbered by its first position within a group, and the number of components."""
    m, groups, rows = len(design.positions), len(design.groups), len(design.items)
    ends = design.row[linked], rows + column[linked]
    size = rows + groups * m
    graph = coo_array((np.ones(ends[0].size, np.int8), ends), shape=(size, size))
    component = connected_components(graph, directed=False)[1][rows:]
    place = np.tile(np.arange(m), groups)
    leader = np.full(component.max() + 1, m)
    np.minimum.at(leader, component[alive], place[alive])
    leads = alive & (leader[component] == place)
    number = np.cumsum(leads.reshape(groups, m), axis=1).ravel() - 1
    first = np.arange(groups).repeat(m) * m + np.minimum(leader[component], m - 1)
    return number[first], leads.reshape(groups, m).sum(axis=1)
