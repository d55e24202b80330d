"""The guard: a learner that is worse than the page's own order is replaced by it, and no other."""

from __future__ import annotations

import asyncio
from collections import Counter

import msgspec
import numpy as np
import pytest

from bothworlds.serve.dashboard import text
from bothworlds.serve.observability.metrics import Metrics
from bothworlds.serve.reports.guard import is_worse
from bothworlds.serve.reports.inputs import MINUTE
from tests.serve.reports.test_uplift import LOOKS, pair, standardised, watched
from tests.serve.running import answer, refreshed, with_engine

WORST_LIST = {"policy": "fixed", "policy_settings": {"ranking": [5, 4, 3]}}
RATES = dict(zip("abcdef", (0.6, 0.5, 0.4, 0.1, 0.1, 0.1)))


async def visits(engine, clock, rng, numbers):
    """Pages, one a second, of visitors who like the first items best; the engine watches every minute."""
    arms = Counter()
    for number in numbers:
        ranked = await engine.rank("home", f"v{number}")
        arms[ranked.arm] += 1
        await answer(engine, ranked, [slot.slot for slot in ranked.slots if rng.random() < RATES[slot.item]])
        clock.at += 1000
        if number % 60 == 0:
            await asyncio.to_thread(engine.watch)
    await refreshed(engine)
    return arms


@pytest.mark.slow
@with_engine(holdout=0.2, guard_after=150, floor=0.02, **WORST_LIST)
async def test_a_learner_that_is_worse_is_replaced_by_the_baseline_until_a_person_restarts(engine, store, clock):
    rng = np.random.default_rng(3)
    await visits(engine, clock, rng, range(120))
    report = await engine.report("home")
    assert report["guard"] == {
        "enabled": True, "active": False, "active_since": None, "compared_since": None, "low": None, "high": None
    }  # fmt: skip
    await visits(engine, clock, rng, range(120, 600))
    report, headline = await engine.report("home"), await engine.headline("home")
    guard = report["guard"]
    assert guard["active"]
    assert guard["high"] < 0.0
    assert guard["compared_since"] < guard["active_since"] == headline["guard_since"]
    for verdict in (text.surface_verdict(report), text.headline_verdict(headline)):
        assert "The guard shows the page's own order" in verdict.sentence
    metrics = Metrics()
    metrics.set_health(engine.health())
    assert b"bothworlds_guarded_surfaces 1.0" in metrics.exposition()
    (entry,) = [entry for entry in store.entries if entry["action"] == "activate guard"]
    assert (entry["actor"], entry["holdout"]) == ("guard", (0.2, pytest.approx(0.984)))

    arms = await visits(engine, clock, rng, range(600, 1000))
    assert 1 <= arms["learner"] <= 30  # 1.6% of the pages
    assert msgspec.json.decode(msgspec.json.encode(engine.surface("home")))["guarded_since"] == guard["active_since"]

    await engine.restart_comparison("home", actor="ann")
    arms = await visits(engine, clock, rng, range(1000, 1100))
    assert arms["learner"] > 60
    report = await engine.report("home")
    assert not report["guard"]["active"]
    assert report["guard"]["compared_since"] is None


@pytest.mark.slow
@with_engine(holdout=0.2, guard_after=150, **WORST_LIST)
async def test_the_pages_of_the_guard_are_a_stratum_of_their_own_and_no_mismatch(engine, store, clock):
    rng = np.random.default_rng(3)
    await visits(engine, clock, rng, range(600))
    assert engine.surface("home").guarded_since is not None
    await visits(engine, clock, rng, range(600, 900))
    clock.at += 40 * MINUTE
    await asyncio.to_thread(engine.watch)
    report = await engine.report("home")
    assert report["sample_ratio"]["share"] == engine.surface("home").share == pytest.approx(1 - 0.8 * 0.005)
    assert not report["sample_ratio"]["alarm"]
    assert report["uplift"]["relative"] < -0.5  # from before the guard


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [{"guard": False}, {"guard_margin": 2.0}, {"guard_after": 100_000}, {"holdout": 0.0}],
    ids=lambda settings: next(iter(settings)),
)
def test_the_guard_can_be_turned_off(settings):
    @with_engine(**({"holdout": 0.2, "guard_after": 150} | WORST_LIST | settings))
    async def run(engine, store, clock):
        await visits(engine, clock, np.random.default_rng(3), range(600))
        assert engine.surface("home").guarded_since is None

    run()


@pytest.mark.slow
@with_engine(holdout=0.2, guard_after=150, policy="fixed", policy_settings={"ranking": [0, 1, 2]})
async def test_a_learner_that_is_as_good_is_not_replaced(engine, store, clock):
    await visits(engine, clock, np.random.default_rng(3), range(600))
    guard = (await engine.report("home"))["guard"]
    assert not guard["active"]
    assert guard["low"] < 0.0 < guard["high"]


@pytest.mark.slow
def test_of_five_hundred_learners_that_are_as_good_at_most_one_in_fifty_is_replaced(rng):
    surfaces = watched(rng, 500, 0.1)
    replaced = fixed = 0
    for surface in surfaces:
        below = np.flatnonzero(standardised(surface) < -2.0)  # the sequence is wider
        replaced += any(is_worse([pair(surface[look])], 0.0) for look in below if look < LOOKS)
        fixed += bool((standardised(surface)[5:] < -1.96).any())  # the broken twin
    assert replaced <= 10
    assert fixed > 50


def test_most_learners_that_are_much_worse_are_replaced(rng):
    surfaces = watched(rng, 40, 0.1, uplift=-0.25)
    assert sum(any(is_worse([pair(sums)], 0.0) for sums in surface) for surface in surfaces) >= 36
