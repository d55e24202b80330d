"""Housekeeping: the guard, the sample ratio, snapshots, detected changes, and what it survives."""

from __future__ import annotations

import asyncio
from collections import Counter

import numpy as np
import pytest

from bothworlds.serve.dashboard import text
from bothworlds.serve.engine import housekeeping
from bothworlds.serve.observability.metrics import Metrics
from bothworlds.serve.schemas import FeedbackEvent
from bothworlds.serve.stores import open_store
from tests.serve.running import ITEMS, Clock, eventually, looked, refreshed, serving, visits, with_engine

WORST_LIST = {"policy": "fixed", "policy_settings": {"ranking": [5, 4, 3]}}
RATES = dict(zip("abcdef", (0.6, 0.5, 0.4, 0.1, 0.1, 0.1)))


async def shoppers(engine, clock, rng, numbers, feedback=lambda arm: True):
    """Pages, one a second, of visitors who like the first items best; the engine looks every minute."""
    arms = Counter()
    for first in range(numbers.start, numbers.stop, 60):
        given = []
        for number in range(first, min(first + 60, numbers.stop)):
            page = await engine.rank("home", f"v{number}")
            arms[page.arm] += 1
            clicks = [slot.slot for slot in page.slots if rng.random() < RATES[slot.item]]
            if feedback(page.arm):
                given.append(FeedbackEvent(page.event_id, page.token, clicks, True))
            clock.at += 1000
        await engine.feedback(given)
        await looked(engine)
    return arms


@pytest.mark.slow
@with_engine(holdout=0.2, guard_after=150, floor=0.02, **WORST_LIST)
async def test_a_learner_that_is_worse_is_replaced_by_the_baseline_until_a_person_restarts(engine, store, clock):
    rng = np.random.default_rng(3)
    await shoppers(engine, clock, rng, range(120))
    report = await engine.reports.report("home")
    assert report["guard"] == {
        "enabled": True, "active": False, "active_since": None, "compared_since": None, "low": None, "high": None
    }  # fmt: skip
    await shoppers(engine, clock, rng, range(120, 840))
    report, headline = await engine.reports.report("home"), await engine.reports.headline("home")
    guard = report["guard"]
    assert guard["active"]
    assert guard["low"] < -0.5
    assert guard["compared_since"] < guard["active_since"] == headline["guard_since"]
    for verdict in (text.surface_verdict(report), text.headline_verdict(headline)):
        assert "The guard shows the page's own order" in verdict.sentence
    metrics = Metrics()
    metrics.set_health(engine.health())
    assert b"bothworlds_guarded_surfaces 1.0" in metrics.exposition()
    (entry,) = [entry for entry in store.audit(1, 99) if entry["action"] == "activate guard"]
    assert entry["actor"] == "guard"
    assert engine.registry.surface("home").shares["holdout"] == pytest.approx(0.984)
    arms = await shoppers(engine, clock, rng, range(840, 1240))
    assert 1 <= arms["learner"] <= 30  # 1.6% of the pages
    await engine.administration.restart_comparison("home", actor="ann")
    arms = await shoppers(engine, clock, rng, range(1240, 1340))
    assert arms["learner"] > 60
    report = await engine.reports.report("home")
    assert not report["guard"]["active"]
    assert report["guard"]["compared_since"] is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [{"guard": False}, {"guard_margin": 2.0}, {"guard_after": 100_000}, {"holdout": 0.0}],
    ids=lambda settings: next(iter(settings)),
)
def test_the_guard_can_be_turned_off(settings):
    @with_engine(**({"holdout": 0.2, "guard_after": 150} | WORST_LIST | settings))
    async def run(engine, store, clock):
        await shoppers(engine, clock, np.random.default_rng(3), range(720))
        assert not engine.registry.surface("home").guarded

    run()


@pytest.mark.slow
@with_engine(holdout=0.2, guard_after=150, policy="fixed", policy_settings={"ranking": [0, 1, 2]})
async def test_a_learner_that_is_as_good_is_not_replaced(engine, store, clock):
    await shoppers(engine, clock, np.random.default_rng(3), range(600))
    guard = (await engine.reports.report("home"))["guard"]
    assert not guard["active"]
    assert guard["low"] < 0.0 < guard["high"]


@pytest.mark.slow
@with_engine(policy="comb-ucb", policy_settings={"detect": True})
async def test_a_change_that_a_policy_detects_is_told_once(engine, store, clock):
    async def shown(names, best):
        for k in range(0, len(names), 60):
            await visits(engine, names[k : k + 60], {best})
            clock.at += 30_000
            await looked(engine)

    await shown([f"a{k}" for k in range(1200)], "a")
    assert (await engine.reports.state("home"))["changed_at"] is None
    await shown([f"b{k}" for k in range(1200)], "f")
    found = [entry for entry in store.audit(1, 99) if entry["action"] == "change detected"]
    assert found
    assert found[0]["detail"].startswith("visitors click differently since about 2023-11-1")
    report = await engine.reports.report("home", since=clock.at - 86_400_000)
    assert [change["detected_at"] for change in report["changes"]] == [entry["at"] for entry in reversed(found)]
    assert (await engine.reports.state("home"))["changed_at"] is not None
    await engine.administration.reset("home", actor="ann")
    await looked(engine)
    assert (await engine.reports.state("home"))["changed_at"] is None


def test_snapshots_are_saved_at_the_latest_when_the_service_stops(tmp_path, monkeypatch):
    place = str(tmp_path / "store.db")

    async def first():
        store = open_store(place)
        async with serving(store, Clock()) as engine:
            monkeypatch.setattr(engine.states, "_due_seconds", 0.0)
            await engine.administration.put_surface(
                "home", {"slots": 3, "items": ITEMS, "policy": "ftrl-pbm"}, actor="test"
            )
            await visits(engine, [f"v{k}" for k in range(40)], {"a"})
            await refreshed(engine)
            state = await engine.reports.state("home")
        (learner,) = store.learners(1)
        assert store.snapshot(learner.id).number == 40
        store.close()
        return state

    async def second(before):
        store = open_store(place)
        monkeypatch.setattr(store, "learner_events", lambda *arguments: iter(()))  # nothing is left to learn
        async with serving(store, Clock()) as engine:
            after = await engine.reports.state("home")
            assert [after[key] for key in ("rounds", "loss", "shown")] == [
                before[key] for key in ("rounds", "loss", "shown")
            ]
        store.close()

    asyncio.run(second(asyncio.run(first())))


def test_the_thread_survives_a_store_that_fails_and_says_so(monkeypatch):
    monkeypatch.setattr(housekeeping, "TICK_SECONDS", 0.005)
    monkeypatch.setattr(housekeeping, "MINUTE_MS", 0)

    @with_engine()
    async def run(engine, store, clock):
        def away(*arguments):
            raise housekeeping.StoreError("the disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(store, "uncovered", away)
            await eventually(lambda: any("the disk is full" in reason for reason in engine.health()["reasons"]))
            assert engine.health()["ready"]
        await eventually(lambda: not engine.health()["reasons"])

    run()


@with_engine(holdout=0.2, **WORST_LIST)
async def test_a_process_without_the_lease_checks_and_deletes_nothing(engine, store, clock):
    await visits(engine, [f"v{k}" for k in range(20)], {"a"})
    await refreshed(engine)
    other = serving(store, clock, shared=True)
    async with other as second:
        await asyncio.to_thread(second.registry.refresh)
        second.learning.lease = None
        before = store.audit(None, 99)
        clock.at += 100 * 86_400_000
        second.housekeeping.look()
        assert store.audit(None, 99) == before
        assert store.get("sample ratio 1") is None
