"""Policies follow the counters, whoever reads them at the same time."""

from __future__ import annotations

import asyncio
import threading

import pytest

from bothworlds.serve.model import VerifiedFeedback

from .fakes import FakeStore
from .running import ITEMS, Clock, answer, refreshed, running, visit

NEVER = {"refresh_ms": 3_600_000, "refresh_events": 1_000_000}  # by itself: tests refresh when they mean to


def with_idle_refresher(test):
    async def whole():
        store, clock = FakeStore(), Clock()
        async with running(store, clock=clock, **NEVER) as engine:
            await engine.put_surface("home", {"slots": 3, "items": ITEMS}, actor="test")
            await test(engine, store, clock)

    return lambda: asyncio.run(whole())


def rounds_served(engine, segment=""):
    return engine._refresher.displays["home"].shelves[segment].sums.rounds


@with_idle_refresher
async def test_a_surface_that_is_changed_while_events_settle_is_served_by_the_latest_counters(engine, store, clock):
    await visit(engine, "r1", set())
    event = engine._signer.read((await engine.rank("home", "r2")).token)
    read, refreshing = store.segments, threading.Thread(target=engine._refresher.refresh)

    def overtaken(*given):
        """Between reading counters and serving by them, an event settles, and others refresh."""
        found, store.segments = read(*given), read
        store.apply_feedback([VerifiedFeedback(event=event, clicks=0, final=True)], clock())
        refreshing.start()
        refreshing.join(1.0)  # it may have to wait for whoever has read before
        return found

    store.segments = overtaken
    await engine.patch_surface("home", {"holdout": 0.1}, actor="test")
    refreshing.join(60)
    await refreshed(engine)
    assert rounds_served(engine) == 2


@with_idle_refresher
async def test_a_segment_that_is_learned_of_this_moment_does_not_start_anew(engine, store, clock):
    await visit(engine, "r1", set(), segment="mobile")
    await refreshed(engine)
    # Between looking for the segment and making a first shelf for it, the refresher has found it in the store.
    assert engine._refresher.shelf(engine._refresher.displays["home"], "mobile").sums.rounds == 1
    assert rounds_served(engine, "mobile") == 1


@with_idle_refresher
async def test_an_import_is_served_by_though_the_surface_was_changed_meanwhile(engine, store, clock):
    for k in range(3):
        await visit(engine, f"r{k}", {"a"})
    rows = [{**row, "event": f"old {row['event']}"} for row in engine.export("home")]
    take, loop = store.import_events, asyncio.get_running_loop()

    def overtaken(events):
        """Before the first event of the log is written, an item is added."""
        asyncio.run_coroutine_threadsafe(engine.put_item("home", "new", actor="test"), loop).result(60)
        return take(events)

    store.import_events = overtaken
    assert (await engine.import_rows("home", iter(rows), actor="test"))["taken"] == 3
    assert rounds_served(engine) == 6


@with_idle_refresher
async def test_a_surface_whose_policy_fails_does_not_keep_others_from_learning(engine, store, clock):
    await engine.put_surface("odd", {"slots": 3, "items": ITEMS}, actor="test")
    await answer(engine, await engine.rank("odd", "r1"), [])
    await visit(engine, "r1", set())
    shelve, refresher = engine._refresher._shelve, engine._refresher

    def failing(display, *rest):
        if display.surface.name == "home":  # the first of the two
            raise ZeroDivisionError("a policy with a fault")
        shelve(display, *rest)

    refresher._shelve = failing
    with pytest.raises(ZeroDivisionError):
        refresher.refresh()
    assert refresher.displays["odd"].shelves[""].sums.rounds == 1
    refresher._shelve = shelve
    refresher.refresh()
    assert rounds_served(engine) == 1
