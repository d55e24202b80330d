"""A week of looks every quarter of an hour: nothing false is said, and the analyst would notice if it were.

Few looks and weeks here, to be quick; ``python -m tests.serve.sceptical_analyst --weeks 100`` looks every five minutes
of many.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
import pytest

from bothworlds.serve.engine import housekeeping
from bothworlds.serve.reports import strata
from bothworlds.statistics import confidence_sequence
from tests.serve.sceptical_analyst import (
    WEEK,
    Week,
    better,
    changed_share,
    false_statements,
    identified_visitors,
    lost_feedback,
    repeated_visitors,
    same,
    seasonal,
    unequal_visitors,
)

pytestmark = pytest.mark.slow


@dataclass
class Weeks:
    said: list[set[str]]

    def false(self, *allowed: str) -> int:
        """How many weeks had a false statement."""
        return sum(bool(kinds - {"found", *allowed}) for kinds in self.said)


def looked_at(make, weeks, every=15) -> Weeks:
    rngs = (np.random.default_rng([7, k]) for k in range(weeks))
    return Weeks([set(false_statements(make(rng), every)) for rng in rngs])


def test_without_a_difference_nothing_is_said():
    assert looked_at(same, 3).false() <= 1  # each week has one with probability 5% at most


def test_fixed_intervals_would_say_something_false(monkeypatch):
    monkeypatch.setattr(confidence_sequence, "standard_errors", lambda *_: 1.96)
    assert looked_at(same, 3).false() >= 2


def test_a_real_difference_is_found_and_nothing_else_is_said():
    weeks = looked_at(better, 2)
    assert weeks.false() == 0
    assert all("found" in kinds for kinds in weeks.said)


def test_a_changed_share_makes_no_difference():
    assert looked_at(changed_share, 2).false() == 0


def test_without_strata_a_changed_share_makes_a_false_difference(monkeypatch):
    between = strata.strata_between
    monkeypatch.setattr(
        strata,
        "strata_between",
        lambda surface, *range: between(msgspec.structs.replace(surface, earlier_shares=()), *range),
    )
    # The sample ratio would notice, and hide the uplift.
    monkeypatch.setattr(housekeeping, "updated_ratio", lambda store, surface, record, now: record)
    weeks = looked_at(changed_share, 2, every=60)
    assert all("uplift from the start" in kinds for kinds in weeks.said)


def test_repeated_visitors_without_ids_make_no_difference():
    assert looked_at(repeated_visitors, 2).false() == 0


def test_pages_of_one_visitor_in_one_arm_would_make_a_false_difference():
    """The unit would then be the visitor; intervals over pages are too narrow."""
    weeks = looked_at(lambda rng: repeated_visitors(rng, by_visitor=True), 6, every=60)
    assert weeks.false("sample ratio") >= 2


def test_visitors_with_ids_who_stay_in_their_arm_make_no_difference():
    """The same visitors as before: the unit is the visitor."""
    assert looked_at(identified_visitors, 3, every=180).false() <= 1  # each with probability 5% at most


def test_visitors_with_very_different_numbers_of_pages_make_no_difference():
    assert looked_at(unequal_visitors, 3, every=180).false() <= 1


def test_a_daily_season_is_no_change_of_visitors():
    assert looked_at(seasonal, 2).false() == 0


def test_lost_feedback_of_one_arm_is_found_within_a_day():
    def first_day(rng):
        week = lost_feedback(rng)
        return Week(week.minutes[: WEEK // 7], *week[1:])

    assert all("sample ratio" in kinds for kinds in looked_at(first_day, 2).said)
