"""The recent window starts at a time chosen in advance, and leaves the exploration at the start out."""

from __future__ import annotations

import msgspec
import pytest

from bothworlds.serve.reports.inputs import DAY, HOUR, MINUTE
from bothworlds.serve.reports.recent_window import (
    LENGTHS,
    recent_window,
    window_alpha,
    window_start,
)
from bothworlds.serve.reports.uplift import RECENT_ALPHA
from tests.serve.samples import surface_of


class SteadyHistory:
    """A history with the same number of pages every minute since ``start``."""

    def __init__(self, start, pages, clicks):
        self.start, self.pages, self.clicks = start, pages, clicks

    def history(self, surface_id, since, until, step):
        minutes = len(range(max(since, self.start), until, MINUTE))
        return [
            {
                "at": since,
                "segment": segment,
                "arm": arm,
                "settled": minutes * self.pages,
                "clicks": clicks,
                "squares": clicks,
            }
            for segment in ("", "mobile")
            for arm in ("learner", "holdout")
            for clicks in [int(minutes * self.clicks)]
        ]

    def visitor_sums(self, surface_id, segment, since, until):
        return {}


NOW = 60 * DAY + 7 * HOUR + 20 * MINUTE


def window_of(age, clicks, now=NOW):
    surface = msgspec.structs.replace(surface_of(), created_at=now - age)
    store = SteadyHistory(now - age, 100, clicks)
    return recent_window(store, surface, "mobile", now, 100 * age // MINUTE)


@pytest.mark.parametrize(
    ("age", "clicks", "length"),
    [(MINUTE, 50, MINUTE), (3 * MINUTE, 50, MINUTE), (20 * MINUTE, 50, 5 * MINUTE), (5 * HOUR, 50, HOUR),
     (3 * DAY, 50, DAY), (39 * DAY, 50, DAY), (39 * DAY, 0.001, DAY)],
)  # fmt: skip
def test_the_recent_window_is_the_longest_that_has_at_most_half_of_the_pages(age, clicks, length):
    window = window_of(age, clicks)
    assert window.since == NOW // length * length - length
    assert window.learner.pages == 100 * min(NOW - window.since, age) // MINUTE


def test_the_start_of_a_window_does_not_move_with_every_look():
    looks = [window_of(30 * DAY + minutes * MINUTE, 50, now=NOW + minutes * MINUTE) for minutes in range(0, 2880, 5)]
    starts = {window.since for window in looks}
    assert len(starts) == 3
    assert all(start % DAY == 0 for start in starts)


def test_the_errors_of_all_windows_together_are_at_most_that_of_recent_windows():
    created = 5 * DAY + 3 * HOUR + 7 * MINUTE
    total = sum(
        window_alpha(length, since, created)
        for length in LENGTHS
        for since in range(window_start(length, created), window_start(length, created + 20 * DAY) + 1, length)
    )
    assert 0.9 * RECENT_ALPHA < total <= RECENT_ALPHA
