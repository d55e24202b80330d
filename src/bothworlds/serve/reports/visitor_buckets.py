r"""Clicks per page where pages have visitors: the unit is the visitor, the variance that between buckets of visitors.

Pages of one visitor are alike, and all of them have the same arm. Visitors are hashed into :math:`B` buckets. With
:math:`p_b` pages and :math:`c_b` clicks in bucket b and :math:`y = \sum c_b / \sum p_b`, the variance of y is

.. math::

    v = \frac{B}{B - 1} \sum_b (c_b - y p_b)^2 \Big/ \Big(\sum_b p_b\Big)^2.

A page without a visitor is a unit of its own, and adds the square of its own residual. The sums are kept by the hour. A
time that begins or ends within an hour has the variance per page of all hours that it touches.

The central limit theorem needs many visitors of whom none has most of the pages. All pages count as
:math:`(\sum_b p_b)^2 / \sum_b p_b^2` equally active visitors; at least ``ENOUGH_VISITORS`` are needed in each arm.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...kernels import Floats
from ...statistics.confidence_sequence import Estimate
from ..model import BUCKETS

ENOUGH_VISITORS = 30  # equally active ones that the pages of an arm must count as


class VisitorTotals(NamedTuple):
    """The pages of an arm over whole hours: those of visitors by bucket (``BUCKETS``, pages and clicks), and others.

    ``pages``, ``clicks`` and ``squares`` (of clicks per page) are those of pages without a visitor.
    """

    buckets: Floats
    pages: int = 0
    clicks: float = 0
    squares: float = 0

    @property
    def all_pages(self) -> int:
        """Pages with and without a visitor."""
        return int(self.buckets[:, 0].sum()) + self.pages

    @property
    def rate(self) -> float:
        """Clicks per page of all pages; 0 without pages."""
        return (float(self.buckets[:, 1].sum()) + self.clicks) / max(1, self.all_pages)

    @property
    def page_variance(self) -> float:
        """The variance of the mean of all pages times their number; infinite with fewer than two pages.

        As for pages, the sum of squares is at least that of one click more or less.

        >>> one = visitor_totals({bucket: (20, 20 * (bucket % 2), 0) for bucket in range(BUCKETS)}, 0, 0, 0)
        >>> one.rate, round(BUCKETS * one.page_variance / one.all_pages, 2)  # of a bucket
        (0.5, 0.25)
        """
        pages, rate = self.all_pages, self.rate
        if pages < 2:
            return math.inf
        residuals = self.residuals
        own = self.squares - 2.0 * rate * self.clicks + rate * rate * self.pages
        return max(float(residuals @ residuals) * BUCKETS / (BUCKETS - 1) + own / pages, 1.0 / pages)

    @property
    def residuals(self) -> Floats:
        """By how many clicks each bucket differs from the rate, divided by the root of the number of all pages."""
        residuals: Floats = (self.buckets[:, 1] - self.rate * self.buckets[:, 0]) / math.sqrt(max(1, self.all_pages))
        return residuals

    @property
    def effective_visitors(self) -> float:
        """How many equally active visitors the pages count as.

        >>> round(visitor_totals({0: (20, 0, 0), 1: (20, 0, 0), 2: (400, 0, 0)}, 0, 0, 0).effective_visitors, 2)
        1.2
        """
        pages = self.buckets[:, 0]
        return self.all_pages**2 / max(1.0, float(pages @ pages) + self.pages)

    def plus(self, other: VisitorTotals) -> VisitorTotals:
        """Return the sum of both."""
        counts = (self.pages + other.pages, self.clicks + other.clicks, self.squares + other.squares)
        return VisitorTotals(self.buckets + other.buckets, *counts)


def visitor_totals(
    sums: Mapping[int, tuple[int, float, float]], pages: int, clicks: float, squares: float
) -> VisitorTotals:
    """Return the totals of an arm, from its sums by bucket and the totals of pages without a visitor."""
    buckets = np.zeros((BUCKETS, 2))
    for bucket, (bucket_pages, bucket_clicks, _) in sums.items():
        buckets[bucket] = bucket_pages, bucket_clicks
    return VisitorTotals(buckets, pages, clicks, squares)


def repetition(strata: Sequence[tuple[Estimate, VisitorTotals | None]], weights: Sequence[float]) -> float:
    """Return by what factor the variance of a weighted mean over strata is greater than the sum of their variances.

    Visitors who come in several strata make their rates alike. Their clicks are in the same bucket in all of them, so
    that the residuals of a bucket are added before they are squared. The factor is at least 1.
    """
    total, own = np.zeros(BUCKETS), 0.0
    alone = sum(weight**2 * estimate.variance for weight, (estimate, _) in zip(weights, strata, strict=True))
    for weight, (estimate, by_visitor) in zip(weights, strata, strict=True):
        if by_visitor is not None:
            residuals = weight * by_visitor.residuals / math.sqrt(estimate.units)
            total += residuals
            own += float(residuals @ residuals)
    together = alone + (float(total @ total) - own) * BUCKETS / (BUCKETS - 1)
    return max(1.0, together / alone)
