"""The recent window of a surface: clicks per page now, without the exploration at the start."""

from __future__ import annotations

from itertools import takewhile
from typing import NamedTuple

from ..schemas import RecentWindow
from ..stores.base import Store
from .inputs import DAY, HOUR, MINUTE
from .uplift import PageTotals, arm_summary, arm_total, segment_rows, uplift_of

__all__ = ["WindowRequest", "WindowTotals", "recent_window", "window_summary"]

LENGTHS = (DAY, 6 * HOUR, HOUR, 15 * MINUTE, 5 * MINUTE, MINUTE)
LONG_LENGTHS = (7 * DAY, 30 * DAY)  # for surfaces with few clicks a day


class WindowRequest(NamedTuple):
    """Which window is requested: it ends at ``until``; ``rounds`` pages have been learned from in all."""

    surface_id: int
    segment: str | None
    until: int
    rounds: int
    has_holdout: bool


class WindowTotals(NamedTuple):
    """The pages of both arms in the last ``length`` milliseconds; ``since`` is rounded down to a whole minute."""

    length: int
    since: int
    until: int
    learner: PageTotals
    holdout: PageTotals


def recent_window(store: Store, request: WindowRequest) -> WindowTotals:
    """Return the longest window of at most a day that has at most half of the pages learned from.

    So at least half of the pages, and the expensive exploration among them, come before it. If a day has too few
    clicks to compare the arms, the window is 7 or 30 days long, provided that it has at most half of the pages. If
    even the last minute has more than half of all pages, the window is that minute. Raises StoreError.
    """

    def last(length: int) -> WindowTotals:
        since = (request.until - length) // MINUTE * MINUTE
        rows = segment_rows(store.history(request.surface_id, since, request.until, length), request.segment)
        return WindowTotals(length, since, request.until, arm_total(rows, "learner"), arm_total(rows, "holdout"))

    def is_recent(window: WindowTotals) -> bool:
        return 2 * window.learner.pages <= request.rounds

    window = next(filter(is_recent, map(last, LENGTHS)), None) or last(MINUTE)
    if window.length == DAY and request.has_holdout and not _is_enough(window):
        for window in takewhile(is_recent, map(last, LONG_LENGTHS)):
            if _is_enough(window):
                break
    return window


def _is_enough(window: WindowTotals) -> bool:
    return uplift_of(window.learner, window.holdout)["enough"]


def window_summary(window: WindowTotals, has_holdout: bool) -> RecentWindow:
    """Return the window in the form that reports have."""
    return {
        "window_seconds": window.length // 1000,
        "since": window.since,
        "until": window.until,
        "headline": arm_summary(window.learner),
        "holdout": arm_summary(window.holdout) if has_holdout else None,
        "uplift": uplift_of(window.learner, window.holdout) if has_holdout else None,
    }
