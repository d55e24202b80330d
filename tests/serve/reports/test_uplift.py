"""The uplift while it is watched: A/A surfaces, real differences, changed shares."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bothworlds.serve.model import BUCKETS, LOSS_UNIT, Surface
from bothworlds.serve.reports.inputs import DAY, MINUTE
from bothworlds.serve.reports.recent_window import window_alpha, window_start
from bothworlds.serve.reports.strata import ArmHistory, arm_totals, strata_between
from bothworlds.serve.reports.uplift import SHORT, WHOLE_ALPHA, Z95, PageTotals, shift_between, sum_rows, uplift_of
from bothworlds.serve.reports.visitor_buckets import visitor_totals
from bothworlds.statistics.confidence_sequence import standard_errors
from tests.serve.running import answer, refreshed, with_engine

RATE, SLOTS = 0.12, 3  # clicks per slot
LOOKS, STEP = 200, 100  # pages between two looks
DAYS = 10  # that these looks take


def watched(rng, surfaces, holdout, uplift=0.0):
    """Pages, clicks and squares of both arms at every look: (surfaces, looks, arms, 3), summed from the start."""
    held = rng.binomial(STEP, holdout, (surfaces, LOOKS))
    sums = np.zeros((surfaces, LOOKS, 2, 3), np.int64)
    for arm, (pages, rate) in enumerate(((STEP - held, RATE * (1.0 + uplift)), (held, RATE))):
        chances = [math.comb(SLOTS, k) * rate**k * (1.0 - rate) ** (SLOTS - k) for k in range(SLOTS + 1)]
        kinds = rng.multinomial(pages, chances)  # pages with 0, 1, 2 and 3 clicks
        sums[:, :, arm] = np.stack([pages, kinds @ np.arange(4), kinds @ np.arange(4) ** 2], axis=-1)
    return sums.cumsum(axis=1)


def pair(sums):
    return tuple(PageTotals(*arm) for arm in sums.tolist())


def claims(uplift):
    return uplift["enough"] and not uplift["low"] <= 0.0 <= uplift["high"]


def standardised(sums):
    """The logarithm of the ratio of both rates in standard errors; sums are (looks, arms, 3)."""
    pages, clicked, squares = np.moveaxis(sums.astype(float), -1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = clicked / pages
        variances = (squares - clicked * rates) / (pages - 1.0) / pages
        return np.log(rates[:, 0] / rates[:, 1]) / np.sqrt((variances / rates**2).sum(axis=1))


def is_claimed(surface):
    """Whether the report on a surface claims a difference at some look, from the start or recently.

    Sequences are wider than two standard errors, so only looks beyond that are computed.
    """
    times = np.arange(1, LOOKS + 1) * DAYS * DAY // LOOKS
    if any(
        claims(uplift_of([pair(surface[k])], WHOLE_ALPHA, 0)) for k in np.flatnonzero(abs(standardised(surface)) > 2)
    ):
        return True
    starts = window_start(DAY, times)
    first = starts * LOOKS // (DAYS * DAY) - 1  # the last look before the window
    looks = np.flatnonzero(first >= 0)  # earlier windows have more than half of the pages
    recent = surface[looks] - surface[first[looks]]
    for k in np.flatnonzero(abs(standardised(recent)) > 2):
        since = int(starts[looks[k]])
        if claims(uplift_of([pair(recent[k])], window_alpha(DAY, since, 0), since, narrowest_at=SHORT)):
            return True
    return False


def is_claimed_by_fixed_intervals(surface, clicks=100):
    """The broken twin: 1.96 standard errors at every look with so many clicks in each arm."""
    return bool(((abs(standardised(surface)) > Z95) & (surface[:, :, 1].min(axis=1) >= clicks)).any())


@pytest.mark.slow
def test_of_a_thousand_surfaces_without_a_difference_at_most_one_in_twenty_claims_one_under_continuous_looking(rng):
    surfaces = np.concatenate([watched(rng, 250, holdout) for holdout in (0.05, 0.1, 0.2, 0.5)])
    claimed = np.mean([is_claimed(surface) for surface in surfaces])
    assert claimed <= 0.05
    assert np.mean([is_claimed_by_fixed_intervals(surface) for surface in surfaces]) > 0.2


def test_a_real_difference_is_found(rng):
    found = [is_claimed(surface) for surface in watched(rng, 50, 0.1, uplift=0.2)]
    assert np.mean(found) > 0.9


def test_a_small_difference_is_seen_sooner_than_if_the_sequence_were_narrowest_at_5000_pages(rng):
    """Of a true 5% with a holdout of 10%: at a median of 105,500 pages instead of 128,500, of 300 surfaces."""
    step, looks, surfaces = 2000, 150, 60
    held = rng.binomial(step, 0.1, (surfaces, looks))
    pages, clicked, squares = np.zeros((3, surfaces, looks, 2))
    for arm, (count, rate) in enumerate(((step - held, 1.05 * RATE), (held, RATE))):
        chances = [math.comb(SLOTS, k) * rate**k * (1.0 - rate) ** (SLOTS - k) for k in range(SLOTS + 1)]
        kinds = rng.multinomial(count, chances)
        for column, sums in ((pages, count), (clicked, kinds @ np.arange(4)), (squares, kinds @ np.arange(4) ** 2)):
            column[:, :, arm] = sums.cumsum(axis=1)

    def seen(**options):
        """The pages until a difference is claimed, in the median."""
        boundary = [standard_errors(step * (look + 1), WHOLE_ALPHA, **options) for look in range(looks)]
        found = [(standardised(np.stack(one, axis=-1)) > boundary).tolist() for one in zip(pages, clicked, squares)]
        return step * np.median([(*claimed, True).index(True) + 1 for claimed in found])

    assert seen() < 0.9 * seen(narrowest_at=5000.0)


@pytest.mark.slow
def test_the_sequence_covers_a_real_difference_at_all_looks(rng):
    missed = 0
    for surface in watched(rng, 150, 0.2, uplift=0.2):
        uplifts = [uplift_of([pair(surface[look])], 0.05, 0) for look in range(LOOKS)]
        missed += any(u["enough"] and not u["low"] <= 0.2 <= u["high"] for u in uplifts)
    assert missed / 150 <= 0.05 + 3.0 * math.sqrt(0.05 * 0.95 / 150)


# Rewards


def watched_rewards(rng, surfaces, holdout):
    """Sums as of ``watched``, of pages that earn 0.3, and sometimes 3: rare rewards are ten times the others."""
    held = rng.binomial(STEP, holdout, (surfaces, LOOKS))
    sums = np.zeros((surfaces, LOOKS, 2, 3))
    for arm, pages in enumerate((STEP - held, held)):
        rare = rng.binomial(pages, 0.01)
        sums[:, :, arm] = np.stack([pages, 0.3 * pages + 2.7 * rare, 0.09 * pages + 8.91 * rare], axis=-1)
    return sums.cumsum(axis=1)


def claims_of_rewards(surface, rule):
    """Whether a comparison of rewards claims a difference at some look; ``rule`` is 0 for clicks, 1 for rewards."""
    looks = np.flatnonzero(abs(standardised(surface)) > 2)
    pairs = (tuple(PageTotals(*arm, None, rule) for arm in surface[look].tolist()) for look in looks)
    return any(claims(uplift_of([pair], WHOLE_ALPHA, 0)) for pair in pairs)


@pytest.mark.slow
def test_rare_large_rewards_make_no_false_differences(rng):
    surfaces = watched_rewards(rng, 300, 0.05)
    assert np.mean([claims_of_rewards(surface, 1) for surface in surfaces]) <= WHOLE_ALPHA
    # The broken twin waits for a sum of 30, which the frequent small rewards reach before a large one is seen.
    assert np.mean([claims_of_rewards(surface, 0) for surface in surfaces]) > 0.05


def test_a_row_with_rewards_is_read_in_fixed_point():
    row = {"arm": "learner", "settled": 4, "clicks": 3, "squares": 5, "rewards": LOSS_UNIT, "reward_squares": LOSS_UNIT}
    assert sum_rows([row], "arm") == {("learner",): PageTotals(4, 1.0, 1.0, reward_rows=1)}
    clicks = row | {"rewards": 0, "reward_squares": 0}
    assert sum_rows([clicks, row], "arm") == {("learner",): PageTotals(8, 4.0, 6.0, reward_rows=1)}


# Changes of the share of the holdout


@with_engine(holdout=0.1)
async def test_a_changed_share_starts_a_new_stratum(engine, store, clock):
    created = clock.at
    clock.at += 10 * MINUTE
    await engine.administration.patch_surface("home", {"holdout": 0.5, "floor": 0.01}, actor="test")
    clock.at += 10 * MINUTE
    await engine.administration.patch_surface("home", {"floor": 0.02}, actor="test")
    clock.at += 10 * MINUTE
    await engine.administration.put_surface("home", {"holdout": 0.2, "items": ["new"]}, actor="test")
    clock.at += 10 * MINUTE
    strata = strata_between(engine.registry.surface("home"), created, clock.at)
    assert [stratum.shares for stratum in strata] == [{"holdout": share} for share in (0.1, 0.5, 0.2)]
    for stratum, (start, end) in zip(strata, ((0, 10), (10, 30), (30, 40))):
        assert created + start * MINUTE <= stratum.since + MINUTE
        assert stratum.until <= created + end * MINUTE
        assert stratum.until - stratum.since >= (end - start - 2) * MINUTE


class CountingStore:
    """Counts the minutes of history that are read."""

    def __init__(self, store):
        self._store, self.minutes = store, 0

    def history(self, surface_id, since, until, step):
        self.minutes += (until - since) // MINUTE
        return self._store.history(surface_id, since, until, step)

    def visitor_sums(self, surface_id, segment, since, until):
        return self._store.visitor_sums(surface_id, segment, since, until)


@with_engine(holdout=0.3)
async def test_cached_totals_are_those_of_the_whole_history(engine, store, clock):
    for number in range(60):
        ranked = await engine.rank("home", f"v{number}")
        await answer(engine, ranked, [0] if number % 3 else [])
        clock.at += DAY // 10
        if number == 30:
            await engine.administration.patch_surface("home", {"holdout": 0.6}, actor="test")
            clock.at += DAY // 10
    await refreshed(engine)
    surface: Surface = engine.registry.surface("home")
    cached, counting = ArmHistory(), CountingStore(store)
    for number in range(20):
        fresh = arm_totals(store, surface, None, surface.created_at, clock.at + 1)
        assert cached.arms_since_start(counting, surface, None, clock.at + 1, clock.at) == fresh
        assert sum(arm.pages for stratum in fresh for arm in stratum.values()) >= 59 + number
        if number == 0:
            whole, counting.minutes = counting.minutes, 0
        ranked = await engine.rank("home", f"w{number}")
        await answer(engine, ranked, [1])
        await refreshed(engine)
        clock.at += MINUTE // 4
    assert counting.minutes / 19 < whole / 2


# Have visitors changed?


def pages_of_visitors(rng, visitors, factor=1.0):
    """Sixty pages each of visitors with very different habits."""
    habit = np.minimum(factor * rng.beta(0.3, 1.2, visitors), 1.0)
    clicks = rng.binomial(60, habit)
    bucket = rng.integers(0, BUCKETS, visitors)
    pages_in, clicks_in = (np.bincount(bucket, column, BUCKETS) for column in (np.full(visitors, 60), clicks))
    sums = {b: (int(pages_in[b]), float(clicks_in[b]), 0.0) for b in range(BUCKETS) if pages_in[b]}
    total = int(clicks.sum())  # with at most one click on a page, also the sum of squares
    return PageTotals(60 * visitors, total, total, visitor_totals(sums, 0, 0, 0))


@pytest.mark.slow
def test_visitors_who_see_many_pages_do_not_look_like_a_change(rng):
    same = [(pages_of_visitors(rng, 60), pages_of_visitors(rng, 4000)) for _ in range(100)]
    by_visitor = [shift_between(recent, week, 0.001)["alarm"] for recent, week in same]
    by_page = [shift_between(*(total._replace(by_visitor=None) for total in pair), 0.001)["alarm"] for pair in same]
    assert sum(by_visitor) <= 1
    assert sum(by_page) > 20  # the broken twin
    changed = [(pages_of_visitors(rng, 200, 3.0), pages_of_visitors(rng, 4000)) for _ in range(20)]
    assert all(shift_between(recent, week, 0.001)["alarm"] for recent, week in changed)
    few = shift_between(pages_of_visitors(rng, 25, 3.0), pages_of_visitors(rng, 4000), 0.001)
    assert not few["alarm"]
    assert few["note"] == "not enough data: 30 equally active visitors are needed recently and before"
