"""The recent window is long enough to compare the arms, and leaves the exploration at the start out."""

from __future__ import annotations

import pytest

from bothworlds.serve.reports.inputs import DAY, HOUR, MINUTE
from bothworlds.serve.reports.recent_window import WindowRequest, recent_window


class SteadyHistory:
    """A history with the same number of pages every minute since ``start``."""

    def __init__(self, start, pages, clicks):
        self.start, self.pages, self.clicks = start, pages, clicks

    def history(self, surface_id, since, until, step):
        minutes = len(range(max(since, self.start), until, MINUTE))
        return [
            {"at": since, "segment": segment, "arm": arm, "settled": minutes * self.pages, "clicks": clicks}
            for segment in ("", "mobile")
            for arm in ("learner", "holdout")
            for clicks in [int(minutes * self.clicks)]
        ]


NOW = 40 * DAY


@pytest.mark.parametrize(
    ("age", "clicks", "length"),
    [(MINUTE, 50, MINUTE), (3 * MINUTE, 50, MINUTE), (11 * MINUTE, 50, 5 * MINUTE), (3 * HOUR, 50, HOUR),
     (3 * DAY, 50, DAY), (39 * DAY, 50, DAY), (39 * DAY, 0.02, 7 * DAY), (3 * DAY, 0.02, DAY),
     (39 * DAY, 0.001, 7 * DAY)],
)  # fmt: skip
def test_the_recent_window_is_the_longest_that_has_at_most_half_of_the_pages(age, clicks, length):
    store = SteadyHistory(NOW - age, 100, clicks)
    window = recent_window(store, WindowRequest(1, "mobile", NOW, 100 * age // MINUTE, True))
    assert window.length == length
    assert window.since == NOW - length
    assert window.learner.pages == 100 * min(length, age) // MINUTE


def test_without_a_holdout_the_window_is_never_longer_than_a_day():
    window = recent_window(SteadyHistory(0, 100, 0.001), WindowRequest(1, None, NOW, 2 * 100 * 40 * 1440, False))
    assert window.length == DAY
