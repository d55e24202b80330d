r"""A test of whether a click depends on its own item and position only.

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

from ...kernels import Floats, Ints
from ..fitting.design import Design
from .logged import LoggedPages

MOST_PAGES = 100_000  # of a larger log, as many pages are tested
WORDS = ("above it", "just above it")
FAR = 4.0  # standard errors that count as more than chance
FEWEST_PAGES = 100  # effective


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

    @property
    def fires(self) -> bool:
        """Whether clicks depend on the items above by more than chance."""
        return self.effective_pages >= FEWEST_PAGES and self.far >= FAR

    @property
    def sensitive(self) -> bool:
        """Whether the test would notice users who leave with their first click."""
        return self.effective_pages >= FEWEST_PAGES and FAR * self.error <= self.rate


def list_dependence(logged: LoggedPages, design: Design, seed: int = 0) -> Dependence | None:
    """Return the more significant of the two statistics; None if no pages can be compared.

    ``design`` has the cells of (query, item) and position of the pages.
    """
    pages = logged.pages
    if not logged.has_pages or len(pages.positions) < 2:
        return None
    rng = np.random.default_rng([seed, 0xDE9])
    count = pages.count
    if pages.pages > MOST_PAGES:
        count = rng.binomial(count, MOST_PAGES / pages.pages)
    half = rng.binomial(count, 0.5)
    below = np.flatnonzero(logged.page[1:] == logged.page[:-1]) + 1  # results that have one above them
    halves = [_half(logged, design, below, *both) for both in ((half, count - half), (count - half, half))]
    click, number, cell, page, above, nearest = (np.concatenate(part) for part in zip(*halves))
    cell = cell + np.repeat([0, design.shown.size], [one[0].size for one in halves])
    shown = np.bincount(cell, number)[cell] if cell.size else number
    scale = np.sqrt(shown / np.maximum(shown - 1.0, 1.0))  # means are of the same clicks
    c = scale * _centred(click, number, cell)
    page = page + np.repeat([0, len(pages)], [one[0].size for one in halves])
    often = np.concatenate([half, count - half])
    found = []
    for words, expected in zip(WORDS, (above, nearest)):
        x = _centred(expected, number, cell)
        terms, spread = np.bincount(page, c * x, often.size), float(number @ (x * x))
        squares = float(often @ terms**2)
        if squares > 0.0 and click.any():
            error, fourths = math.sqrt(squares) / spread, float(often @ terms**4)
            rate = float(number @ click / number.sum())
            found.append(Dependence(words, float(often @ terms) / spread, error, rate, squares**2 / fourths))
    return max(found, key=lambda one: one.far, default=None)


def _half(
    logged: LoggedPages, design: Design, below: Ints, own: Ints, other: Ints
) -> tuple[Floats, Floats, Ints, Ints, Floats, Floats]:
    """Results of a half that have others above: clicks, numbers, cells, pages; clicks expected above and just above."""
    pages, page = logged.pages, logged.page
    shown = np.bincount(design.cell, other[page], design.shown.size)
    clicked = np.bincount(design.cell, other[page] * pages.click, design.shown.size)
    rate = (clicked / np.maximum(shown, 1.0))[design.cell]
    before = np.cumsum(rate) - rate
    kept = below[own[page[below]] > 0]
    of_page = page[kept]
    above = before[kept] - before[pages.starts[of_page]]
    return (
        pages.click[kept].astype(np.float64),
        own[of_page].astype(np.float64),
        design.cell[kept],
        of_page,
        above,
        rate[kept - 1],
    )


def _centred(values: Floats, number: Floats, cell: Ints) -> Floats:
    """Values minus the means of their cells; exactly 0 in cells of equal values."""
    if not cell.size:
        return values
    one = np.zeros(int(cell.max()) + 1)
    one[cell] = values
    values = values - one[cell]
    values = np.where(np.abs(values) < 1e-12, 0.0, values)  # rounding of cumulated sums
    mean = np.bincount(cell, number * values) / np.maximum(np.bincount(cell, number), 1.0)
    return np.asarray(values - mean[cell])
