"""The uplift: clicks per page of the learner compared with those of the holdout, with 95% intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..schemas import Pages, Shift, Uplift

__all__ = ["Z95", "PageTotals", "arm_summary", "arm_total", "segment_rows", "shift_between", "sum_rows", "uplift_of"]

Z95 = 1.959963984540054
ENOUGH_CLICKS = 100  # of each arm, before they are compared
ALARM_Z = 4.0  # one false alarm in 16,000
ALARM_PAGES = 200  # at least, both in the last hour and before


class PageTotals(NamedTuple):
    """Settled pages of an arm, their clicks, and the sum of squares of clicks per page."""

    pages: int = 0
    clicks: int = 0
    squares: int = 0

    @property
    def rate(self) -> float:
        """Clicks per page; 0 without pages."""
        return self.clicks / self.pages if self.pages else 0.0

    @property
    def variance(self) -> float:
        """The variance of the mean number of clicks per page; infinite with fewer than two pages.

        It is never 0: if all pages so far have the same number of clicks, the variance is computed as if one of them
        had one click more or less.

        >>> PageTotals(100, 100, 100).variance > 0.0
        True
        """
        if self.pages < 2:
            return math.inf
        squares = max(self.squares - self.clicks * self.rate, 1.0)
        return squares / (self.pages - 1) / self.pages


def segment_rows(rows: Iterable[dict[str, Any]], segment: str | None) -> list[dict[str, Any]]:
    """Return the rows of a history that belong to a segment, or all rows if it is None."""
    return [row for row in rows if segment is None or row["segment"] == segment]


def arm_total(rows: Iterable[Mapping[str, Any]], arm: str) -> PageTotals:
    """Return the totals of an arm over all rows of a history."""
    return sum_rows((row for row in rows if row["arm"] == arm), "arm").get((arm,), PageTotals())


def sum_rows(rows: Iterable[Mapping[str, Any]], *keys: str) -> dict[tuple[Any, ...], PageTotals]:
    """Return the totals of the rows of a history, grouped by the values of ``keys``."""
    sums: dict[tuple[Any, ...], PageTotals] = {}
    for row in rows:
        key = tuple(row[name] for name in keys)
        old = sums.get(key, PageTotals())
        # Histories of old stores have no squares: assume one click per clicked page, which is the smallest sum.
        squares = row.get("squares", row["clicks"])
        sums[key] = PageTotals(old.pages + row["settled"], old.clicks + row["clicks"], old.squares + squares)
    return sums


def arm_summary(total: PageTotals) -> Pages:
    """Return clicks per page with a 95% interval, in the form that reports have."""
    half = Z95 * math.sqrt(total.variance)
    return {
        "pages": total.pages,
        "clicks_per_page": total.rate if total.pages else None,
        "interval": (max(0.0, total.rate - half), total.rate + half) if math.isfinite(half) and total.clicks else None,
    }


def uplift_of(learner: PageTotals, holdout: PageTotals) -> Uplift:
    """Return by what fraction the learner gets more clicks per page than the holdout, with a 95% interval.

    The interval is that of the logarithm of the ratio (delta method). It requires clicks in both arms.

    >>> uplift = uplift_of(PageTotals(2000, 1200, 1200), PageTotals(2000, 1000, 1000))
    >>> round(uplift["relative"], 3), uplift["enough"], uplift["low"] > 0.0
    (0.2, True, True)
    >>> uplift_of(PageTotals(2000, 1200, 1200), PageTotals(20, 10, 10))["needed_pages"]
    200
    """
    fewest = min(learner.clicks, holdout.clicks)
    rate = holdout.rate or learner.rate
    needed = math.ceil(ENOUGH_CLICKS / rate) if rate else 1000
    unknown: Uplift = {"relative": None, "low": None, "high": None, "enough": False, "needed_pages": needed}
    if not fewest:
        return unknown
    ratio = learner.rate / holdout.rate
    spread = Z95 * math.sqrt(sum(arm.variance / arm.rate**2 for arm in (learner, holdout)))
    if not math.isfinite(spread):
        return unknown
    low, high = ratio * math.exp(-min(spread, 50.0)) - 1.0, ratio * math.exp(min(spread, 50.0)) - 1.0
    return {**unknown, "relative": ratio - 1.0, "low": low, "high": high, "enough": fewest >= ENOUGH_CLICKS}


def shift_between(recent: PageTotals, long_run: PageTotals) -> Shift:
    """Return whether clicks per page have changed, and by how many standard errors.

    >>> shift_between(PageTotals(1000, 500, 500), PageTotals(9000, 4400, 4400))["alarm"]
    False
    >>> shift_between(PageTotals(1000, 300, 300), PageTotals(9000, 4400, 4400))["alarm"]
    True
    """
    unknown: Shift = {
        "alarm": False,
        "recent": recent.rate if recent.pages else None,
        "long_run": long_run.rate if long_run.pages else None,
        "z": None,
        "note": f"not enough data: {ALARM_PAGES} pages are needed in the last hour and before",
    }
    if min(recent.pages, long_run.pages) < ALARM_PAGES:
        return unknown
    z = (recent.rate - long_run.rate) / math.sqrt(recent.variance + long_run.variance)
    way = "more" if z > 0.0 else "less"
    note = f"visitors click {way} than in the week before" if abs(z) > ALARM_Z else "visitors click as before"
    return {**unknown, "alarm": abs(z) > ALARM_Z, "z": z, "note": f"{note} (alarm beyond {ALARM_Z:g} standard errors)"}
