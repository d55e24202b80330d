"""The uplift: clicks per page of the learner compared with those of the holdout.

Comparisons are confidence sequences: they hold at all times at once, so that whoever watches the dashboard all day is
told something false with probability at most ``ALPHA`` over the whole life of a surface. The error is divided between
what is compared. Intervals of a single rate hold for one look.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

from ...statistics.confidence_sequence import Estimate, half_width, interval, log_ratio
from ..model import BASELINE_ARM, LOSS_UNIT
from ..schemas import Pages, Shift, Uplift
from .visitor_buckets import ENOUGH_VISITORS, VisitorTotals, repetition

__all__ = [
    "ALPHA",
    "ARMS_ALPHA",
    "GUARD_ALPHA",
    "RECENT_ALPHA",
    "SHIFT_ALPHA",
    "WHOLE_ALPHA",
    "Z95",
    "ArmPair",
    "PageTotals",
    "arm_summary",
    "arm_total",
    "comparable",
    "learned_total",
    "segment_rows",
    "shift_between",
    "spent",
    "sum_rows",
    "uplift_of",
]

Z95 = 1.959963984540054
ALPHA = 0.05  # of all comparisons of learner and holdout together
WHOLE_ALPHA, RECENT_ALPHA, GUARD_ALPHA = 0.02, 0.02, 0.01  # since the start, in recent windows, of the guard
ARMS_ALPHA = 0.02  # of all comparisons of arms with the first one
SHIFT_ALPHA = 0.01  # of all alarms that visitors have changed
ENOUGH_CLICKS = 30  # of each arm, before they are compared
ALARM_PAGES = 200  # at least, both recently and before
ALARM_CLICKS = 50  # expected at least in the recent pages


class PageTotals(NamedTuple):
    """Settled pages of an arm, their clicks, and the sum of squares of clicks per page.

    If some pages have visitors, ``by_visitor`` has the same pages by visitors, over whole hours; arms are then compared
    by these. If ``reward_rows`` of the history had rewards, clicks are rewards.
    """

    pages: int = 0
    clicks: float = 0
    squares: float = 0
    by_visitor: VisitorTotals | None = None
    reward_rows: int = 0

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
        return max(self.deviations, 1.0) / (self.pages - 1) / self.pages

    @property
    def deviations(self) -> float:
        """The sum of squares of the deviations from the mean of clicks per page."""
        return self.squares - self.clicks * self.rate

    @property
    def effective_clicks(self) -> float:
        """How many clicks these pages have for the central limit theorem.

        Rare large rewards among frequent small ones must have been seen: rewards count by their deviations from the
        mean. Those of a page with at most one click are about as many as the clicks.

        >>> PageTotals(1000, 100, 100).effective_clicks, PageTotals(1000, 100.0, 10.0, reward_rows=1).effective_clicks
        (100, 0.0)
        """
        return min(self.clicks, self.deviations) if self.reward_rows else self.clicks

    @property
    def estimate(self) -> Estimate:
        """Clicks per page with the variance of the mean, over visitors if some pages have them."""
        if self.by_visitor is not None:
            return self.by_visitor.estimate
        return Estimate(self.rate, self.variance, float(self.pages))

    @property
    def is_enough(self) -> bool:
        """Whether there are enough clicks, and enough visitors, to compare the arm with others."""
        if self.by_visitor is None:
            return self.effective_clicks >= ENOUGH_CLICKS
        clicks = min(self.by_visitor.all_clicks, self.effective_clicks)
        return clicks >= ENOUGH_CLICKS and self.by_visitor.units >= ENOUGH_VISITORS


def segment_rows(rows: Iterable[dict[str, Any]], segment: str | None) -> list[dict[str, Any]]:
    """Return the rows of a history that belong to a segment, or all rows if it is None."""
    return [row for row in rows if segment is None or row["segment"] == segment]


def arm_total(rows: Iterable[Mapping[str, Any]], arm: str) -> PageTotals:
    """Return the totals of an arm over all rows of a history."""
    return sum_rows((row for row in rows if row["arm"] == arm), "arm").get((arm,), PageTotals())


def learned_total(rows: Iterable[Mapping[str, Any]]) -> PageTotals:
    """Return the totals of all arms but the holdout over all rows of a history."""
    return sum_rows(row for row in rows if row["arm"] != BASELINE_ARM).get((), PageTotals())


def sum_rows(rows: Iterable[Mapping[str, Any]], *keys: str) -> dict[tuple[Any, ...], PageTotals]:
    """Return the totals of the rows of a history, grouped by the values of ``keys``."""
    sums: dict[tuple[Any, ...], PageTotals] = {}
    for row in rows:
        key = tuple(row[name] for name in keys)
        old = sums.get(key, PageTotals())
        # Histories of old stores have no squares: assume one click per clicked page, which is the smallest sum.
        clicks, squares, rewarded = row["clicks"], row.get("squares", row["clicks"]), bool(row.get("rewards"))
        if rewarded:  # without any reward there are no clicks either
            clicks, squares = row["rewards"] / LOSS_UNIT, row["reward_squares"] / LOSS_UNIT
        sums[key] = PageTotals(
            old.pages + row["settled"], old.clicks + clicks, old.squares + squares, None, old.reward_rows + rewarded
        )
    return sums


def arm_summary(total: PageTotals) -> Pages:
    """Return clicks per page with a 95% interval for one look, in the form that reports have."""
    half = Z95 * math.sqrt(total.variance if total.by_visitor is None else total.by_visitor.estimate.variance)
    return {
        "pages": total.pages,
        "clicks_per_page": total.rate if total.pages else None,
        "interval": (max(0.0, total.rate - half), total.rate + half) if math.isfinite(half) and total.clicks else None,
    }


ArmPair = tuple[PageTotals, PageTotals]  # learner and holdout, over a time in which their shares did not change


def spent(alpha: float, number: int) -> float:
    """Return the error of the ``number``-th of infinitely many sequences, from 1 on; together they have ``alpha``.

    >>> round(sum(spent(0.05, k) for k in range(1, 100_000)), 4)
    0.05
    """
    return alpha / (number * (number + 1))


def comparable(strata: Iterable[ArmPair]) -> list[tuple[Estimate, Estimate]]:
    """Return the rates of both arms in the strata in which each arm has enough clicks.

    Variances include that the same visitors may come in several strata.
    """
    pairs = [pair for pair in strata if pair[0].is_enough and pair[1].is_enough]
    if len(pairs) < 2 or all(total.by_visitor is None for pair in pairs for total in pair):
        return [(learner.estimate, holdout.estimate) for learner, holdout in pairs]
    known = [[(pair[arm].estimate, pair[arm].by_visitor) for pair in pairs] for arm in range(2)]
    weights = [learner.units + holdout.units for (learner, _), (holdout, _) in zip(*known)]
    first, second = (
        [one._replace(variance=factor * one.variance) for one, _ in strata_of_arm]
        for strata_of_arm in known
        for factor in [repetition(strata_of_arm, weights)]
    )
    return list(zip(first, second))


def uplift_of(strata: Sequence[ArmPair], alpha: float, since: int) -> Uplift:
    """Return by what fraction the learner gets more clicks per page than the holdout, as a confidence sequence.

    It is that of the logarithm of the ratio. Without enough clicks in both arms of any stratum, there is an estimate
    without an interval. If some pages have visitors, only whole hours are compared.

    >>> uplift = uplift_of([(PageTotals(4000, 2400, 2400), PageTotals(4000, 2000, 2000))], 0.05, 0)
    >>> round(uplift["relative"], 3), uplift["enough"], uplift["low"] > 0.0
    (0.2, True, True)
    >>> uplift_of([(PageTotals(2000, 1200, 1200), PageTotals(20, 10, 10))], 0.05, 0)["needed_pages"]
    60
    """
    last = strata[-1] if strata else (PageTotals(), PageTotals())
    informative = next((arm for arm in reversed(last) if arm.effective_clicks > 0.0), None)
    needed = math.ceil(ENOUGH_CLICKS / (informative.effective_clicks / informative.pages)) if informative else 1000
    unknown: Uplift = {
        "relative": None,
        "low": None,
        "high": None,
        "enough": False,
        "needed_pages": needed,
        "since": since,
    }
    counted = comparable(strata)
    if not counted:
        ratio = last[0].rate / last[1].rate if last[1].clicks else None
        return unknown if ratio is None else {**unknown, "relative": ratio - 1.0}
    estimate = log_ratio(*counted)
    low, high = (math.exp(min(max(end, -50.0), 50.0)) - 1.0 for end in interval(estimate, alpha))
    return {**unknown, "relative": math.exp(estimate.value) - 1.0, "low": low, "high": high, "enough": True}


def shift_between(recent: PageTotals, long_run: PageTotals, alpha: float) -> Shift:
    """Return whether clicks per page have changed, and by how many standard errors.

    The recent pages start at a time chosen in advance, and are compared with all pages before at all times at once.

    >>> shift_between(PageTotals(1000, 500, 500), PageTotals(9000, 4400, 4400), 0.001)["alarm"]
    False
    >>> shift_between(PageTotals(1000, 300, 300), PageTotals(9000, 4400, 4400), 0.001)["alarm"]
    True
    """
    unknown: Shift = {
        "alarm": False,
        "recent": recent.rate if recent.pages else None,
        "long_run": long_run.rate if long_run.pages else None,
        "z": None,
        "note": f"not enough data: {ALARM_PAGES} pages and {ALARM_CLICKS} clicks are needed recently and before",
    }
    expected = min(recent.pages, long_run.pages) * (long_run.effective_clicks / max(1, long_run.pages))
    if min(recent.pages, long_run.pages) < ALARM_PAGES or expected < ALARM_CLICKS:
        return unknown
    visitors = [total.by_visitor.units for total in (recent, long_run) if total.by_visitor is not None]
    if visitors and min(visitors) < ENOUGH_VISITORS:
        return {**unknown, "note": f"not enough data: {ENOUGH_VISITORS} visitors are needed recently and before"}
    # The variance of pages before: with few recent pages, their own variance is small just when their clicks are few.
    # With visitors it includes that pages of one visitor are alike.
    variance = long_run.estimate.variance
    change = Estimate(recent.rate - long_run.rate, variance * long_run.pages / recent.pages, float(recent.pages))
    before = NormalDist().inv_cdf(1.0 - alpha / 4.0) * math.sqrt(variance)
    alarm = abs(change.value) > half_width(change, alpha / 2.0) + before
    way = "more" if change.value > 0.0 else "less"
    what = "pages earn" if long_run.reward_rows else "visitors click"
    note = f"{what} {way} than in the week before" if alarm else f"{what} as before"
    return {**unknown, "alarm": alarm, "z": change.value / math.sqrt(change.variance + variance), "note": note}
