"""The uplift: clicks per page of the learner compared with those of the holdout.

Comparisons are confidence sequences: they hold at all times at once, so that whoever watches the dashboard all day is
told something false with probability at most ``ALPHA`` over the whole life of a surface. The error is divided between
what is compared. Intervals of a single rate hold for one look.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...statistics.confidence_sequence import NARROWEST_AT, Estimate, half_width, interval, log_ratio
from ..model import LOSS_UNIT
from ..schemas import Pages, Shift, Uplift
from .visitor_buckets import ENOUGH_VISITORS, VisitorTotals, repetition

Z95 = 1.959963984540054
ALPHA = 0.05  # of all comparisons of learner and holdout together
WHOLE_ALPHA, RECENT_ALPHA, GUARD_ALPHA = 0.02, 0.02, 0.01  # since the start, in recent windows, of the guard
ARMS_ALPHA = 0.02  # of all comparisons of arms with the first one
SHIFT_ALPHA = 0.01  # of all alarms that visitors have changed
# Pages at which short sequences are narrowest: recent windows, the guard, which must see a large loss soon, and alarms.
SHORT = 5000.0
ENOUGH_CLICKS = 30  # of each arm, before they are compared
UNTRUSTED = "pages or feedback of some arms are missing"
ALARM_PAGES = 200  # at least, both recently and before
ALARM_CLICKS = 50  # expected at least in the recent pages


class PageTotals(NamedTuple):
    """Settled pages of an arm, their clicks, and the sum of squares of clicks per page.

    If some pages have visitors, ``by_visitor`` has the pages of all hours that these pages are in, by visitors; the
    variance comes from them. If ``reward_rows`` of the history had rewards, clicks are rewards.
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

        It is over visitors if some pages have them. It is never 0: if all pages so far have the same number of clicks,
        the variance is computed as if one of them had one click more or less.

        >>> PageTotals(100, 100, 100).variance > 0.0
        True
        """
        if self.pages < 2:
            return math.inf
        if self.by_visitor is not None:
            return self.by_visitor.page_variance / self.pages
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
        """Clicks per page with the variance of the mean."""
        return Estimate(self.rate, self.variance, float(self.pages))

    @property
    def effective_visitors(self) -> float:
        """How many equally active visitors these pages count as; infinite if no page has a visitor.

        Of the hours that they are in, these pages count by their share of the pages.
        """
        if self.by_visitor is None:
            return math.inf
        return self.by_visitor.effective_visitors * min(1.0, self.pages / max(1, self.by_visitor.all_pages))

    @property
    def has_enough_visitors(self) -> bool:
        """Whether there are enough visitors, none of whom has most of the pages, for an interval."""
        return self.effective_visitors >= ENOUGH_VISITORS

    @property
    def is_enough(self) -> bool:
        """Whether there are enough clicks, and enough visitors, to compare the arm with others."""
        return self.effective_clicks >= ENOUGH_CLICKS and self.has_enough_visitors

    def missing(self, name: str) -> str:
        """Return what the arm with this name still needs to be compared; empty if nothing.

        >>> PageTotals(100, 12, 12).missing("the holdout"), PageTotals(100, 40, 40).missing("the holdout")
        ('the holdout has 12 of the 30 clicks needed', '')
        """
        if self.clicks < ENOUGH_CLICKS:
            of = f"{self.clicks:.1f} of the reward of" if self.reward_rows else f"{self.clicks} of the"
            return f"{name} has {of} {ENOUGH_CLICKS}{'' if self.reward_rows else ' clicks'} needed"
        if self.effective_clicks < ENOUGH_CLICKS:
            return (
                f"the rewards of {name} vary little: their squared deviations from the mean add up to "
                f"{self.effective_clicks:.1f} of the {ENOUGH_CLICKS} needed"
            )
        if not self.has_enough_visitors:
            visitors = math.floor(self.effective_visitors)
            return (
                f"the pages of {name} count as those of {visitors} equally active visitors, "
                f"and {ENOUGH_VISITORS} are needed"
            )
        return ""


def segment_rows(rows: Iterable[dict[str, Any]], segment: str | None) -> list[dict[str, Any]]:
    """Return the rows of a history that belong to a segment, or all rows if it is None."""
    return [row for row in rows if segment is None or row["segment"] == segment]


def sum_rows(rows: Iterable[Mapping[str, Any]], *keys: str) -> dict[tuple[Any, ...], PageTotals]:
    """Return the totals of the rows of a history, grouped by the values of ``keys``."""
    sums: dict[tuple[Any, ...], PageTotals] = {}
    for row in rows:
        key = tuple(row[name] for name in keys)
        old = sums.get(key, PageTotals())
        clicks, squares, rewarded = row["clicks"], row["squares"], bool(row.get("rewards"))
        if rewarded:  # without any reward there are no clicks either
            clicks, squares = row["rewards"] / LOSS_UNIT, row["reward_squares"] / LOSS_UNIT
        sums[key] = PageTotals(
            old.pages + row["settled"], old.clicks + clicks, old.squares + squares, None, old.reward_rows + rewarded
        )
    return sums


def design_effect(total: PageTotals) -> float | None:
    """Return how many times the variance of clicks per page is that of a Poisson count, at least 1.

    It is 1 if no page has a visitor, and None if there are too few visitors to tell.
    """
    if total.by_visitor is None or not total.clicks:
        return 1.0
    return max(1.0, total.variance * total.pages / total.rate) if total.has_enough_visitors else None


def arm_summary(total: PageTotals) -> Pages:
    """Return clicks per page with a 95% interval for one look, in the form that reports have."""
    half = Z95 * math.sqrt(total.variance)
    known = math.isfinite(half) and total.clicks and total.has_enough_visitors
    return {
        "pages": total.pages,
        "clicks_per_page": total.rate if total.pages else None,
        "interval": (max(0.0, total.rate - half), total.rate + half) if known else None,
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


def uplift_of(
    strata: Sequence[ArmPair],
    alpha: float,
    since: int,
    names: tuple[str, str] = ("the learned order", "the holdout"),
    narrowest_at: float = NARROWEST_AT,
) -> Uplift:
    """Return by what fraction the learner gets more clicks per page than the holdout, as a confidence sequence.

    It is that of the logarithm of the ratio. Without enough clicks and visitors in both arms of any stratum, there is
    an estimate without an interval, and ``missing`` says what the arms, called ``names``, still need. The sequence is
    narrowest at ``narrowest_at`` pages.

    >>> uplift = uplift_of([(PageTotals(4000, 2400, 2400), PageTotals(4000, 2000, 2000))], 0.05, 0)
    >>> round(uplift["relative"], 3), uplift["enough"], uplift["low"] > 0.0
    (0.2, True, True)
    >>> few = uplift_of([(PageTotals(2000, 1200, 1200), PageTotals(20, 10, 10))], 0.05, 0)
    >>> few["needed_pages"], few["missing"]
    (60, 'the holdout has 10 of the 30 clicks needed')
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
        "missing": "",
    }
    counted = comparable(strata)
    if not counted:
        unknown["missing"] = "; ".join(filter(None, map(PageTotals.missing, last, names)))
        ratio = last[0].rate / last[1].rate if last[1].clicks else None
        return unknown if ratio is None else {**unknown, "relative": ratio - 1.0}
    estimate = log_ratio(*counted)
    low, high = (math.exp(min(max(end, -50.0), 50.0)) - 1.0 for end in interval(estimate, alpha, narrowest_at))
    return {**unknown, "relative": math.exp(estimate.value) - 1.0, "low": low, "high": high, "enough": True}


def untrusted(uplift: Uplift) -> Uplift:
    """Return a comparison without its figures: pages or feedback of some arm are missing."""
    return {**uplift, "relative": None, "low": None, "high": None, "enough": False, "missing": UNTRUSTED}


def shift_between(recent: PageTotals, before: PageTotals, alpha: float) -> Shift:
    """Return whether clicks per page have changed, and by how many standard errors.

    The recent pages start at a time chosen in advance, and are compared at all times at once with those of the same
    hours of earlier days.

    >>> shift_between(PageTotals(1000, 500, 500), PageTotals(7000, 3400, 3400), 0.001)["alarm"]
    False
    >>> shift_between(PageTotals(1000, 300, 300), PageTotals(7000, 3400, 3400), 0.001)["alarm"]
    True
    """
    unknown: Shift = {
        "alarm": False,
        "recent": recent.rate if recent.pages else None,
        "long_run": before.rate if before.pages else None,
        "z": None,
        "note": f"not enough data: {ALARM_PAGES} pages and {ALARM_CLICKS} clicks are needed in the last one to two "
        "hours, and as many at the same hours of earlier days",
    }
    expected = min(recent.pages, before.pages) * (before.effective_clicks / max(1, before.pages))
    if min(recent.pages, before.pages) < ALARM_PAGES or expected < ALARM_CLICKS:
        return unknown
    if not (recent.has_enough_visitors and before.has_enough_visitors):
        note = f"not enough data: {ENOUGH_VISITORS} equally active visitors are needed recently and before"
        return {**unknown, "note": note}
    # The variance of pages before: with few recent pages, their own variance is small just when their clicks are few.
    # With visitors it includes that pages of one visitor are alike.
    variance = before.variance * (1.0 + before.pages / recent.pages)
    change = Estimate(recent.rate - before.rate, variance, float(recent.pages + before.pages))
    alarm = abs(change.value) > half_width(change, alpha, SHORT)
    way = "more" if change.value > 0.0 else "less"
    what = "pages earn" if before.reward_rows else "visitors click"
    note = f"{what} {way} than at the same hours of earlier days" if alarm else f"{what} as before"
    return {**unknown, "alarm": alarm, "z": change.value / math.sqrt(variance), "note": note}
