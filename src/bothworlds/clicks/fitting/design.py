"""The design of a log-linear fit: cells of a (query, item) and a level of every factor, such as positions and windows.

A factor of pages is a label for every result: its position; a window of time; or, for the user browsing model, its
position and that of the last click above. Examination and levels are shared by all queries, attraction is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ...kernels import Floats, Ints
from ...statistics import log_linear
from ...statistics.click_users import columns_of, ranks_of_column
from ..counts import Counts
from ..model.model import ClickModel
from ..pages import Pages, different_keys


class Factor(NamedTuple):
    """A factor: the labels of its levels, and the level of every result, or of every row of counts."""

    labels: tuple[Any, ...]
    level: Ints


class Design(NamedTuple):
    """K cells with their impressions and clicks; a row is a (query, item).

    ``fit()`` returns a :class:`bothworlds.statistics.log_linear.LogLinear`, whose methods take rows and levels:

    - ``predict(row, columns)``, the click probabilities of cells;
    - ``determined(row, columns)``, whether the log determines them, and ``null``, the null space of the reduced matrix;
    - ``variance(row, columns)`` of their logarithms;
    - ``influence(row, columns, slope)``, what an impression adds to a function of them.

    Examples
    --------
    The clicks per page of the list (b, a), its standard error, by the influence of every page:

    >>> pages = Pages.from_arrays([["a", "b"], ["b", "a"]] * 2, [[1, 0], [0, 1], [0, 1], [0, 0]], count=[50, 9, 20, 40])
    >>> design = design_of_pages(pages, [positions_of(pages)])
    >>> fitted, placed = design.fit(), ([1, 0], [[0], [1]])
    >>> r = fitted.predict(*placed)
    >>> terms = np.bincount(pages.of_page(), fitted.influence(*placed, r)[pages.click, design.cell])
    >>> round(float(r.sum()), 3), round(float(np.sqrt(pages.count @ terms**2)), 3)
    (0.572, 0.066)
    """

    items: tuple[str, ...]  # of the R rows
    queries: tuple[str, ...]
    pairs: Ints  # (R,) query * (number of items) + item, by their indices in the log; increasing
    labels: tuple[tuple[Any, ...], ...]  # of the levels of every factor
    row: Ints  # (K,)
    columns: Ints  # (K, factors)
    shown: Floats  # (K,)
    clicked: Floats  # (K,)
    cell: Ints  # (results,) the cell of every result of the pages, or of every row of the counts

    @property
    def row_counts(self) -> Ints:
        """(2, R) impressions and clicks of every row."""
        return self._sums(self.row, len(self.items))

    def level_counts(self, factor: int = 0) -> Ints:
        """(2, levels) impressions and clicks of every level of a factor."""
        return self._sums(self.columns[:, factor], len(self.labels[factor]))

    def _sums(self, code: Ints, size: int) -> Ints:
        return np.array([np.bincount(code, part, size) for part in (self.shown, self.clicked)]).astype(np.int64)

    def fit(self, prior: float = 0.0) -> log_linear.LogLinear:
        """Return the maximum-likelihood fit; ``prior`` is a number of impressions at the mean rate for every cell."""
        sizes = [len(labels) for labels in self.labels]
        return log_linear.fit(
            self.row, self.columns, self.shown, self.clicked, prior=prior, rows=len(self.items), levels=sizes
        )


def positions_of(log: Pages | Counts) -> Factor:
    """Return the positions as a factor."""
    return Factor(log.positions, np.asarray(log.position, np.int64))


def last_clicks_of(pages: Pages) -> Factor:
    """Return the factor of the user browsing model: the position, and the position of the last click above."""
    m, positions = len(pages.positions), pages.positions
    ranks = [ranks_of_column(column) for column in range(m * (m + 1) // 2)]
    labels = tuple(f"{positions[k - 1]} after {positions[last - 1] if last else 'none'}" for k, last in ranks)
    return Factor(labels, columns_of(pages.starts, pages.position, pages.click))


def design_of_pages(pages: Pages, factors: Sequence[Factor]) -> Design:
    """Return the cells of pages for factors of results, as :func:`positions_of`."""
    page = pages.of_page()
    weight = pages.count[page]
    return _design(pages, pages.query[page], pages.item, factors, weight, weight * pages.click)


def design_of_counts(counts: Counts, factors: Sequence[Factor] = ()) -> Design:
    """Return the cells of counts for factors of their rows; by default for positions."""
    return _design(counts, counts.query, counts.item, factors or [positions_of(counts)], counts.shown, counts.clicked)


def _design(
    log: Pages | Counts, query: Ints, item: ArrayLike, factors: Sequence[Factor], shown: Ints, clicked: Ints
) -> Design:
    if not shown.any():
        raise ValueError(f"there is nothing to fit: no impressions{f' in {log.origin}' if log.origin else ''}")
    n = len(log.items)
    pairs, row = different_keys(query * n + np.asarray(item, np.int64), len(log.queries) * n)
    if len(log.queries) == 1:  # items that were never shown have a row, but no cell
        pairs, row = np.arange(n), pairs[row]
    key, bound = row, pairs.size
    for labels, level in factors:
        key, bound = key * len(labels) + level, bound * len(labels)
    keys, cell = different_keys(key, bound)
    columns, codes = np.empty((keys.size, len(factors)), np.int64), keys
    for f in reversed(range(len(factors))):
        codes, columns[:, f] = np.divmod(codes, len(factors[f].labels))
    return Design(
        items=tuple(log.items[i] for i in (pairs % n).tolist()),
        queries=tuple(log.queries[q] for q in (pairs // n).tolist()),
        pairs=pairs,
        labels=tuple(tuple(labels) for labels, _ in factors),
        row=codes,
        columns=columns,
        shown=np.bincount(cell, shown, keys.size).astype(np.float64),
        clicked=np.bincount(cell, clicked, keys.size).astype(np.float64),
        cell=cell,
    )


def fitted_model(design: Design, log: Pages | Counts, name: str, prior: float, **fitted: Any) -> ClickModel:
    """Return a model with what it has of its design and its log, besides what was fitted."""
    return ClickModel(
        model=name,
        items=design.items,
        queries=design.queries,
        positions=log.positions,
        item_counts=design.row_counts,
        pages=log.pages,
        prior=float(prior),
        origin=log.origin,
        **fitted,
    )
