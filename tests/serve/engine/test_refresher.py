"""The refresher serves the latest counters, also with concurrent readers."""

from __future__ import annotations

import asyncio
import threading

import pytest

from bothworlds.serve.engine import refresher
from bothworlds.serve.model import VerifiedFeedback

from ..running import ITEMS, answer, refreshed, visit, with_engine

NEVER = {"refresh_ms": 3_600_000, "refresh_events": 1_000_000}  # the tests call refresh themselves


def rounds_served(engine, segment=""):
    return engine.refresher.surfaces["home"].segments[segment].counters.rounds


@pytest.mark.slow
@with_engine(NEVER)
async def test_a_surface_that_is_changed_while_events_settle_is_served_by_the_latest_counters(engine, store, clock):
    await visit(engine, "r1", set())
    event = engine.secrets.signer.read((await engine.rank("home", "r2")).token)
    read, refreshing = store.segments, threading.Thread(target=engine.refresher.refresh)

    def overtaken(*given):
        """Between reading and installing the counters, an event settles and another thread refreshes."""
        found, store.segments = read(*given), read
        store.apply_feedback([VerifiedFeedback(event=event, clicks=0, final=True)], clock())
        refreshing.start()
        refreshing.join(1.0)  # it may have to wait for the other reader
        return found

    store.segments = overtaken
    await engine.patch_surface("home", {"holdout": 0.1}, actor="test")
    refreshing.join(60)
    await refreshed(engine)
    assert rounds_served(engine) == 2


@with_engine(NEVER)
async def test_adding_a_segment_that_was_just_read_keeps_its_counters(engine, store, clock):
    await visit(engine, "r1", set(), segment="mobile")
    await refreshed(engine)
    # Between the lookup of the segment and its creation, the refresher has read it from the store.
    assert engine.refresher.add_segment(engine.refresher.surfaces["home"], "mobile").counters.rounds == 1
    assert rounds_served(engine, "mobile") == 1


@with_engine(NEVER)
async def test_a_segment_that_is_reset_while_it_is_read_is_read_again(engine, store, clock):
    """Counters and blocks are read one after the other; another process may reset or delete the segment in between."""
    for k in range(20):
        await visit(engine, f"v{k}", {"a"})
    await refreshed(engine)
    blocks = store.blocks
    store.blocks = lambda *arguments: {}
    await visit(engine, "w", {"a"})
    await refreshed(engine)
    await engine.patch_surface("home", {"floor": 0.01}, actor="test")
    store.blocks = blocks
    await engine.reset("home", segment=None, actor="test")
    assert (await engine.state("home"))["rounds"] == 0
    await visit(engine, "x", {"a"})
    await refreshed(engine)
    assert rounds_served(engine) == 1
    assert engine.health()["last_error"] is None


@with_engine(NEVER)
async def test_imported_counters_are_served_if_the_surface_changed_during_the_import(engine, store, clock):
    for k in range(3):
        await visit(engine, f"r{k}", {"a"})
    rows = [{**row, "event": f"old {row['event']}"} for row in engine.export("home")]
    take, loop = store.import_events, asyncio.get_running_loop()

    def overtaken(events):
        """Before the first event of the log is written, an item is added."""
        asyncio.run_coroutine_threadsafe(engine.put_item("home", "new", actor="test"), loop).result(60)
        return take(events)

    store.import_events = overtaken
    assert (await engine.import_rows("home", iter(rows), actor="test")).taken == 3
    assert rounds_served(engine) == 6


@with_engine(NEVER)
async def test_a_surface_whose_policy_fails_does_not_keep_others_from_learning(engine, store, clock):
    counters_of, served = refresher.counters_of, engine.refresher

    await engine.put_surface("odd", {"slots": 3, "items": ITEMS}, actor="test")
    await answer(engine, await engine.rank("odd", "r1"), [])
    await visit(engine, "r1", set())

    def failing(segment, surface):
        if surface.name == "home":  # the first of the two
            raise ZeroDivisionError("a policy with a fault")
        return counters_of(segment, surface)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refresher, "counters_of", failing)
        with pytest.raises(ZeroDivisionError):
            served.refresh()
    assert served.surfaces["odd"].segments[""].counters.rounds == 1
    served.refresh()
    assert rounds_served(engine) == 1
