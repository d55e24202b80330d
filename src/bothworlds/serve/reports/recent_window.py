"""The recent window of a surface: what it earns now, apart from what exploration cost at the start."""

from __future__ import annotations

from itertools import takewhile
from typing import NamedTuple

from ..schemas import RecentWindow
from ..stores.base import Store
from .item_rates import MINUTE
from .uplift import Pages, of_segment, told_of, total_of, uplift_of

__all__ = ["DAY", "HOUR", "Recency", "Window", "recent_of", "window_of"]

HOUR, DAY = 60 * MINUTE, 1440 * MINUTE
LENGTHS = (DAY, 6 * HOUR, HOUR, 15 * MINUTE, 5 * MINUTE, MINUTE)
LONGER = (7 * DAY, 30 * DAY)  # for surfaces with few clicks a day


class Recency(NamedTuple):
    """Which window is asked for: it ends at ``until``, and ``rounds`` pages have been learned from in all."""

    surface_id: int
    segment: str | None
    until: int
    rounds: int
    held_out: bool


class Window(NamedTuple):
    """The pages of both arms in the last ``length`` milliseconds, rounded up to whole minutes from ``since`` on."""

    length: int
    since: int
    until: int
    learner: Pages
    holdout: Pages


def window_of(store: Store, asked: Recency) -> Window:
    """The longest window of at most a day that has at most half of the pages learned from.

    Half of the pages come before it, and the costly ones among them. If a day has too few clicks to compare the arms,
    the window is 7 or 30 days long, as long as that is at most half of the pages. A surface on which even the last
    minute is more than half of all pages gets that minute.
    """

    def last(length: int) -> Window:
        since = (asked.until - length) // MINUTE * MINUTE
        rows = of_segment(store.history(asked.surface_id, since, asked.until, length), asked.segment)
        return Window(length, since, asked.until, total_of(rows, "learner"), total_of(rows, "holdout"))

    def is_recent(window: Window) -> bool:
        return 2 * window.learner.pages <= asked.rounds

    window = next(filter(is_recent, map(last, LENGTHS)), None) or last(MINUTE)
    if window.length == DAY and asked.held_out and not _is_enough(window):
        for window in takewhile(is_recent, map(last, LONGER)):
            if _is_enough(window):
                break
    return window


def _is_enough(window: Window) -> bool:
    return bool(uplift_of(window.learner, window.holdout)["enough"])


def recent_of(window: Window, held_out: bool) -> RecentWindow:
    """The window as it is reported."""
    return {
        "window_seconds": window.length // 1000,
        "since": window.since,
        "until": window.until,
        "headline": told_of(window.learner),
        "holdout": told_of(window.holdout) if held_out else None,
        "uplift": uplift_of(window.learner, window.holdout) if held_out else None,
    }
