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

from .impressions import Impressions

__all__ = ["Dependence", "list_dependence"]

MOST_PAGES = 100_000  # of a larger log, as many pages are tested
KINDS = {"above": "above it", "nearest": "just above it"}

CENTRED = """
WITH rated AS (
    SELECT i.page, i.fold, i.query, i.item, i.position, i.click, coalesce(c.clicked / c.shown, 0.0) AS rate
    FROM impressions AS i LEFT JOIN cells AS c
        ON c.query = i.query AND c.item = i.item AND c.position = i.position AND c.fold = 1 - i.fold
    WHERE hash(i.page, 1) % {every} = 0),
ranked AS (
    SELECT *, sum(rate) OVER higher AS above, lag(rate) OVER page_order AS nearest FROM rated
    WINDOW page_order AS (PARTITION BY page ORDER BY position),
           higher AS (PARTITION BY page ORDER BY position ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)),
cell_means AS (
    SELECT fold, query, item, position, avg(click) AS mean_click, avg(above) AS mean_above,
           avg(nearest) AS mean_nearest, sqrt(count(*) / (count(*) - 1.0)) AS scale  -- means are of the same clicks
    FROM ranked WHERE above IS NOT NULL GROUP BY ALL HAVING count(*) > 1),
centred AS (
    SELECT page, click, scale * (click - mean_click) AS c, above - mean_above AS above,
           nearest - mean_nearest AS nearest
    FROM ranked JOIN cell_means USING (fold, query, item, position) WHERE above IS NOT NULL),
pages AS (
    SELECT sum(c * above) AS t_above, sum(c * nearest) AS t_nearest, sum(above * above) AS x_above,
           sum(nearest * nearest) AS x_nearest, sum(click) AS clicked, count(*) AS shown
    FROM centred GROUP BY page)
SELECT {sums}, sum(clicked) / sum(shown) FROM pages
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
    sums = ", ".join(f"sum(t_{k}), sum(t_{k} ** 2), sum(t_{k} ** 4), sum(x_{k})" for k in KINDS)
    every = math.ceil(impressions.pages / MOST_PAGES)
    row = impressions.connection.execute(CENTRED.format(every=every, sums=sums)).fetchall()[0]
    found = []
    for k, words in enumerate(KINDS.values()):
        total, squares, fourths, spread = row[4 * k : 4 * k + 4]
        if squares and spread and row[-1]:
            error = math.sqrt(squares) / spread
            found.append(Dependence(words, total / spread, error, float(row[-1]), squares**2 / fourths))
    return max(found, key=lambda one: one.far, default=None)
