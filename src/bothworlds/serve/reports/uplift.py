"""Clicks per page of the learner and of the holdout, compared: how far apart they are, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from .. import schemas

__all__ = ["Z95", "Pages", "change_of", "of_segment", "summed", "told_of", "total_of", "uplift_of"]

Z95 = 1.959963984540054
ENOUGH_CLICKS = 100  # of each arm, before they are compared
ALARM_Z = 4.0  # one in 16,000 by chance
ALARM_PAGES = 200  # of the recent hour, at least


class Pages(NamedTuple):
    """Settled pages of an arm, their clicks, and the sum of squares of clicks per page."""

    pages: int = 0
    clicks: int = 0
    squares: int = 0

    @property
    def rate(self) -> float:
        return self.clicks / self.pages if self.pages else 0.0

    @property
    def variance(self) -> float:
        """Of the mean number of clicks per page.

        Pages that are all alike do not show that others would be: one is counted as if it had a click more or less.

        >>> Pages(100, 100, 100).variance > 0.0
        True
        """
        if self.pages < 2:
            return math.inf
        squares = max(self.squares - self.clicks * self.rate, 1.0)
        return squares / (self.pages - 1) / self.pages


def of_segment(rows: Iterable[dict[str, Any]], segment: str | None) -> list[dict[str, Any]]:
    """The rows of a segment; of all segments if it is None."""
    return [row for row in rows if segment is None or row["segment"] == segment]


def total_of(rows: Iterable[Mapping[str, Any]], arm: str) -> Pages:
    """The pages of an arm."""
    return summed((row for row in rows if row["arm"] == arm), "arm").get((arm,), Pages())


def summed(rows: Iterable[Mapping[str, Any]], *keys: str) -> dict[tuple[Any, ...], Pages]:
    """The pages of all rows of a history that have the same values of ``keys``."""
    sums: dict[tuple[Any, ...], Pages] = {}
    for row in rows:
        key = tuple(row[name] for name in keys)
        old = sums.get(key, Pages())
        # Without squares, take every clicked page to have one click: the least they can be.
        squares = row.get("squares", row["clicks"])
        sums[key] = Pages(old.pages + row["settled"], old.clicks + row["clicks"], old.squares + squares)
    return sums


def told_of(pages: Pages) -> schemas.Pages:
    """Clicks per page with a 95% interval, once there are a few pages."""
    half = Z95 * math.sqrt(pages.variance)
    return {
        "pages": pages.pages,
        "clicks_per_page": pages.rate if pages.pages else None,
        "interval": (max(0.0, pages.rate - half), pages.rate + half) if math.isfinite(half) and pages.clicks else None,
    }


def uplift_of(learner: Pages, holdout: Pages) -> schemas.Uplift:
    """By how much the learner is ahead of the holdout, relatively, with a 95% interval.

    The interval is that of the logarithm of the ratio (delta method), which needs some clicks in both arms.

    >>> told = uplift_of(Pages(2000, 1200, 1200), Pages(2000, 1000, 1000))
    >>> round(told["relative"], 3), told["enough"], told["low"] > 0.0
    (0.2, True, True)
    >>> uplift_of(Pages(2000, 1200, 1200), Pages(20, 10, 10))["needed_pages"]
    200
    """
    fewest = min(learner.clicks, holdout.clicks)
    rate = holdout.rate or learner.rate
    needed = math.ceil(ENOUGH_CLICKS / rate) if rate else 1000
    told: schemas.Uplift = {"relative": None, "low": None, "high": None, "enough": False, "needed_pages": needed}
    if not fewest:
        return told
    ratio = learner.rate / holdout.rate
    spread = Z95 * math.sqrt(sum(arm.variance / arm.rate**2 for arm in (learner, holdout)))
    if not math.isfinite(spread):
        return told
    low, high = ratio * math.exp(-min(spread, 50.0)) - 1.0, ratio * math.exp(min(spread, 50.0)) - 1.0
    return {**told, "relative": ratio - 1.0, "low": low, "high": high, "enough": fewest >= ENOUGH_CLICKS}


def change_of(recent: Pages, long_run: Pages) -> dict[str, Any]:
    """Whether visitors click as they used to, and if not, by how many standard errors.

    >>> change_of(Pages(1000, 500, 500), Pages(9000, 4400, 4400))["alarm"]
    False
    >>> change_of(Pages(1000, 300, 300), Pages(9000, 4400, 4400))["alarm"]
    True
    """
    told = {
        "alarm": False,
        "recent": recent.rate if recent.pages else None,
        "long_run": long_run.rate if long_run.pages else None,
        "z": None,
        "note": "",
    }
    if min(recent.pages, long_run.pages) < ALARM_PAGES:
        return {**told, "note": f"not enough data: {ALARM_PAGES} pages are needed in the last hour and before"}
    z = (recent.rate - long_run.rate) / math.sqrt(recent.variance + long_run.variance)
    way = "more" if z > 0.0 else "less"
    note = f"visitors click {way} than in the week before" if abs(z) > ALARM_Z else "visitors click as they used to"
    return {**told, "alarm": abs(z) > ALARM_Z, "z": z, "note": f"{note} (alarm beyond {ALARM_Z:g} standard errors)"}
