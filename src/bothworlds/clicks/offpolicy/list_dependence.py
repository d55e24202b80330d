r"""A test of what all estimates assume: that a click depends on its own item and position only.

Clicks at the same item and position are compared between pages that differ in the items above. With :math:`A` the
clicks that are expected on results above, and with bars for means over a query, an item and a position,

.. math::

    T = \sum (c - \bar c)(A - \bar A)

has mean 0 if clicks do not depend on the rest of the page. Its standard error comes from the sums over single pages, so
that clicks of one page may go together for another reason: some users click more than others, which does not bias the
estimates. Expected clicks are click rates of the other half of the log.

There are two statistics, with the results above together and with the nearest one only: after a click, users may
examine what is just below it more often, and what is far below less often.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...kernels import Floats, Ints, kernel
from .impressions import Impressions, page_numbers

MOST_PAGES = 100_000  # of a larger log, as many pages are tested
WORDS = ("above it", "just above it")

RATED = """
SELECT i.page, own.rowid AS cell, i.click, coalesce(c.clicked / c.shown, 0.0) AS rate
FROM impressions AS i JOIN cells AS own USING (fold, query, item, position) LEFT JOIN cells AS c
    ON c.query = i.query AND c.item = i.item AND c.position = i.position AND c.fold = 1 - i.fold
WHERE hash(i.page, 1) % {every} = 0 ORDER BY i.page, i.position, i.ordinal
"""


class Dependence(NamedTuple):
    """How click rates change with the clicks that are expected above: per expected click, if the change were linear."""

    of: str  # which results are meant
    slope: float
    error: float  # standard error of the slope
    rate: float  # mean click rate of the results that were compared
    effective_pages: float  # as many pages of equal weight have this standard error

    @property
    def far(self) -> float:
        """The distance of the slope from 0 in standard errors."""
        return abs(self.slope) / self.error


def list_dependence(impressions: Impressions) -> Dependence | None:
    """Return the more significant of the two statistics; None if no pages can be compared."""
    if not impressions.has_pages or len(impressions.positions) < 2:
        return None
    every = math.ceil(impressions.pages / MOST_PAGES)
    rows = impressions.connection.execute(RATED.format(every=every)).fetchnumpy()
    page, rate = page_numbers(rows["page"]), rows["rate"]
    below = np.flatnonzero(page[1:] == page[:-1]) + 1  # results that have one above them
    above = np.zeros(page.size)
    _add_rates_above(page, rate, above)
    cell, count = np.unique(rows["cell"][below], return_inverse=True, return_counts=True)[1:]
    compared = count[cell] > 1
    below, cell = below[compared], cell[compared]
    click, page = rows["click"][below], page[below]
    scale = np.sqrt(count / np.maximum(count - 1.0, 1.0))[cell]  # means are of the same clicks
    c = scale * _centred(click, cell, count)
    found = []
    for words, expected in zip(WORDS, (above[below], rate[below - 1])):
        x = _centred(expected, cell, count)
        terms, spread = np.bincount(page, c * x), (x * x).sum()
        squares = (terms**2).sum()
        if squares > 0.0 and click.any():
            error, fourths = math.sqrt(squares) / spread, (terms**4).sum()
            found.append(
                Dependence(
                    words, float(terms.sum() / spread), float(error), float(click.mean()), float(squares**2 / fourths)
                )
            )
    return max(found, key=lambda one: one.far, default=None)


@kernel
def _add_rates_above(page: Ints, rate: Floats, above: Floats) -> None:
    """Add up the rates of the results above each result on its page."""
    for k in range(1, page.size):
        if page[k] == page[k - 1]:
            above[k] = above[k - 1] + rate[k - 1]


def _centred(values: Floats, cell: Ints, count: Ints) -> Floats:
    """Values minus the means of their cells; exactly 0 in cells of equal values."""
    one = np.zeros(count.size)
    one[cell] = values
    values = values - one[cell]
    return values - (np.bincount(cell, values, minlength=count.size) / count)[cell]
