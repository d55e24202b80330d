"""The recent window of a surface: clicks per page now, without the exploration at the start.

A window starts at a time that is chosen in advance: a multiple of its length, such as midnight. A window whose start
moves on with every look would be a new comparison at every look. Each start has a confidence sequence of its own, and
the error is divided between all of them: among the lengths, and among the starts of one length, of which the k-th since
the comparison started gets 1 / (k (k + 1)).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..model import Surface
from ..schemas import RecentWindow
from ..stores import Store
from .inputs import DAY, HOUR, MINUTE, segment_alpha
from .strata import arm_totals, pair_of, sum_of
from .uplift import RECENT_ALPHA, SHORT, ArmPair, PageTotals, arm_summary, spent, uplift_of

LENGTHS = (DAY, 6 * HOUR, HOUR, 15 * MINUTE, 5 * MINUTE, MINUTE)
DAY_WEIGHT, OTHER_WEIGHT = 1 / 2, 1 / 10  # of the error: days are what most surfaces are compared by


class WindowTotals(NamedTuple):
    """The pages of both arms since ``since``, by stratum, and the error of their comparison."""

    since: int
    until: int
    strata: Sequence[ArmPair]
    alpha: float

    @property
    def learner(self) -> PageTotals:
        """The settled pages of the learner."""
        return sum_of(pair[0] for pair in self.strata)

    @property
    def holdout(self) -> PageTotals:
        """The settled pages of the holdout."""
        return sum_of(pair[1] for pair in self.strata)


def window_start(length: int, until: int) -> int:
    """Return the last but one multiple of the length: a window has between one and two lengths.

    >>> window_start(HOUR, 10 * HOUR + 5) // HOUR
    9
    """
    return until // length * length - length


def window_alpha(length: int, since: int, started: int) -> float:
    """Return the error of the window of this length that starts at ``since``.

    >>> starts = range(-DAY, 1000 * DAY, DAY)    # of a comparison that started at 0
    >>> round(sum(window_alpha(DAY, since, 0) for since in starts) / RECENT_ALPHA, 2)
    0.5
    """
    number = (since - window_start(length, started)) // length + 1
    return spent(RECENT_ALPHA * (DAY_WEIGHT if length == DAY else OTHER_WEIGHT), max(1, number))


def recent_window(
    store: Store,
    surface: Surface,
    segment: str | None,
    until: int,
    rounds: int,
) -> WindowTotals:
    """Return the longest window of at most a day or two that has at most half of the ``rounds`` learned from.

    So at least half of the pages, and the expensive exploration among them, come before it. If even the last minutes
    have more than half of all pages, the window is these minutes. Raises StoreError.
    """

    def last(length: int) -> WindowTotals:
        since = window_start(length, until)
        alpha = window_alpha(length, since, surface.compared_since) * segment_alpha(segment)
        since = max(since, surface.compared_since)
        pairs = [pair_of(totals) for totals in arm_totals(store, surface, segment, since, until)]
        return WindowTotals(since, until, pairs, alpha)

    return next((window for window in map(last, LENGTHS) if 2 * window.learner.pages <= rounds), None) or last(MINUTE)


def window_summary(window: WindowTotals, has_holdout: bool) -> RecentWindow:
    """Return the window in the form that reports have."""
    return {
        "window_seconds": (window.until - window.since) // 1000,
        "since": window.since,
        "until": window.until,
        "headline": arm_summary(window.learner),
        "holdout": arm_summary(window.holdout) if has_holdout else None,
        "uplift": uplift_of(window.strata, window.alpha, window.since, narrowest_at=SHORT) if has_holdout else None,
    }
