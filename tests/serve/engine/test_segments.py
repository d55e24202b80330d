"""Segments: admission up to max_segments, deletion and expiry."""

from __future__ import annotations

import asyncio

import pytest

from bothworlds.serve.engine import refresher
from bothworlds.serve.engine.segments import DAY, HOUR, USE_RESOLUTION
from bothworlds.serve.model import Invalid, TooMany, Unknown

from ..fakes import FakeStore
from ..running import ITEMS, Clock, answer, eventually, refreshed, running, visit, with_engine, written

MODEL = {"item": ["a", "b", "c"], "attraction": [0.9, 0.5, 0.1], "examination": [1.0, 0.6, 0.4]}
WINDOW = 1_800_000 + 86_400_000  # milliseconds for which a click on a page counts, by default


def names(engine):
    return set(engine.refresher.surfaces["home"].segments)


async def listed(engine):
    return {line["name"]: line for line in await engine.segments("home")}


@with_engine(max_segments=3)
async def test_a_segment_that_is_not_admitted_is_served_as_the_default_one(engine, store, clock):
    for name in ("one", "two"):
        assert (await engine.rank("home", name, segment=name)).segment == name
    page = await engine.rank("home", "r3", segment="three")
    assert page.segment == ""
    assert (await answer(engine, page, [0])).status == "accepted"
    assert store.totals()[1, ""][0] == 1
    assert (await engine.event(page.event_id))["segment"] == ""
    assert await engine.rank("home", "r3", segment="three") == page
    engine.clear_recent()
    assert (await engine.rank("home", "r3")).segment == ""  # answered from the store
    assert (await engine.rank("home", "r4", segment="one")).segment == "one"


@with_engine(max_segments=3)
async def test_a_flood_of_segments_costs_neither_memory_nor_calls_of_the_store(engine, store, clock):
    calls, admit = [], store.admit_segment
    store.admit_segment = lambda *place: calls.append(place) or admit(*place)
    pages = await asyncio.gather(*(engine.rank("home", f"r{k}", segment=f"junk{k}") for k in range(200)))
    assert sorted({page.segment for page in pages}) == ["", "junk0", "junk1"]
    assert names(engine) == {"", "junk0", "junk1"}
    assert len(calls) == 2


@with_engine(max_segments=2)
async def test_an_invalid_request_does_not_create_a_segment(engine, store, clock):
    for constraints in ({"exclude": ITEMS}, {"pins": {0: "nobody"}}):
        with pytest.raises(Invalid):
            await engine.rank("home", "r1", segment="one", **constraints)
    assert names(engine) == {""}
    assert (await engine.rank("home", "r1", segment="two")).segment == "two"


@with_engine(max_segments=2)
async def test_imports_and_warm_starts_respect_max_segments(engine, store, clock):
    await engine.rank("home", "r1", segment="one")  # not learned from yet
    row = {"position": 0, "item": "a", "click": 1, "propensity": 0.5}
    rows = [{**row, "event": f"e{k}", "segment": name} for k, name in enumerate(["one", "two", "two", ""])]
    taken = await engine.import_rows("home", rows, actor="test")
    assert (taken.taken, taken.reasons) == (2, {"there are more segments than max_segments": 2})
    with pytest.raises(TooMany, match="max_segments"):
        await engine.warm_start("home", MODEL, rounds=10, segment="two", actor="test")
    await engine.warm_start("home", MODEL, rounds=10, segment="one", actor="test")
    assert (await engine.state("home", "one"))["rounds"] == 11


@with_engine(max_segments=2)
async def test_a_new_segment_is_served_as_the_default_one_while_the_store_fails(engine, store, clock):
    await engine.rank("home", "r0")
    find, store.find_events = store.find_events, lambda ids: {}

    def away(*place):
        raise refresher.StoreError("the disk is full")

    admit, store.admit_segment = store.admit_segment, away
    assert (await engine.rank("home", "r1", segment="one")).segment == ""
    store.find_events, store.admit_segment = find, admit
    assert (await engine.rank("home", "r2", segment="one")).segment == "one"


@with_engine(max_segments=2)
async def test_a_deleted_segment_makes_room_for_another(engine, store, clock):
    settled = await visit(engine, "r1", {"a"}, segment="one")
    waiting = await engine.rank("home", "r2", segment="one")
    await written(engine)
    assert (await engine.rank("home", "r3", segment="two")).segment == ""
    await engine.delete_segment("home", "one", actor="ann")
    assert names(engine) == {""}
    assert store.totals() == {}
    assert [store.entries[-1][key] for key in ("actor", "action", "surface_id")] == ["ann", "delete segment", 1]
    assert '"one": 1 pages learned from, 0 clicks, 2 events deleted' in store.entries[-1]["detail"]
    for page in (settled, waiting):
        assert (await answer(engine, page, [0, 1, 2])).status == "expired"
    assert not any(any(map(any, totals[1:])) or totals[0] for totals in store.rebuilt().values())
    clock.at += DAY
    await refreshed(engine)
    assert names(engine) == {""}  # its open events do not create it again
    assert (await engine.rank("home", "r4", segment="two")).segment == "two"


@with_engine()
async def test_what_cannot_be_deleted_is_refused(engine, store, clock):
    with pytest.raises(Invalid, match="reset"):
        await engine.delete_segment("home", "", actor="ann")
    with pytest.raises(Unknown, match="no segment 'mobile'"):
        await engine.delete_segment("home", "mobile", actor="ann")
    with pytest.raises(Unknown, match="no surface"):
        await engine.delete_segment("away", "mobile", actor="ann")


@with_engine()
async def test_an_item_that_returns_after_its_segment_was_deleted_starts_at_the_median(engine, store, clock):
    for k in range(20):
        await visit(engine, f"r{k}", {"a"}, segment="one")
    await engine.pause_item("home", "f", actor="test")
    await engine.delete_segment("home", "one", actor="ann")
    await visit(engine, "again", {"a"}, segment="one")
    await engine.resume_item("home", "f", actor="test")
    losses = (await engine.state("home", "one"))["loss"]
    assert max(losses[5]) <= max(map(max, losses[:5]))


@with_engine()
async def test_segments_are_listed_with_their_last_use(engine, store, clock):
    await visit(engine, "r1", {*ITEMS}, segment="one")
    await refreshed(engine)
    clock.at += HOUR
    await engine.rank("home", "r2", segment="two")
    lines = await listed(engine)
    assert list(lines) == ["", "one", "two"]
    assert (lines["one"]["pages"], lines["one"]["clicks"]) == (1, 3)
    assert lines["one"]["used_at"] == clock.at - HOUR
    assert lines["one"]["expires_at"] == clock.at - HOUR + 30 * DAY
    assert (lines["two"]["pages"], lines["two"]["used_at"]) == (0, clock.at)
    assert lines["two"]["expires_at"] == clock.at + WINDOW
    assert (lines[""]["used_at"], lines[""]["expires_at"]) == (None, None)
    with pytest.raises(Unknown):
        await engine.segments("away")


async def expired(engine, clock, to):
    """Sets the clock, expires segments and returns the names of those left."""
    clock.at = to
    await written(engine)
    await refreshed(engine)
    await asyncio.to_thread(engine.expire_segments)
    return names(engine) - {""}


@with_engine(segment_idle_days=10)
async def test_segments_that_nobody_uses_expire_and_those_without_a_click_soon(engine, store, clock):
    await visit(engine, "r1", {*ITEMS}, segment="clicked")
    await visit(engine, "r2", set(), segment="shown")
    await engine.rank("home", "r3", segment="requested")
    await engine.warm_start("home", MODEL, rounds=100, segment="started", actor="test")
    await refreshed(engine)
    start, everything = clock.at, {"clicked", "shown", "requested", "started"}
    assert await expired(engine, clock, start + WINDOW) == everything
    await eventually(lambda: store.open_events() == 0)
    await refreshed(engine)  # a deadline is a use: something was learned
    assert await expired(engine, clock, start + WINDOW + USE_RESOLUTION + 1) == {"clicked", "started", "requested"}
    assert await expired(engine, clock, start + 2 * WINDOW + USE_RESOLUTION + 1) == {"clicked", "started"}
    assert await expired(engine, clock, start + 10 * DAY) == {"clicked", "started"}
    assert await expired(engine, clock, start + 10 * DAY + 2 * USE_RESOLUTION + 1) == set()
    entries = [(e["actor"], e["action"], e["detail"]) for e in store.entries if e["action"] == "expire segment"]
    assert entries[0] == ("expiry", "expire segment", '"shown": 1 pages learned from, 0 clicks')
    assert len(entries) == 4
    assert store.totals() == {}


@with_engine(segment_idle_days=10)
async def test_use_keeps_a_segment(engine, store, clock):
    await visit(engine, "r", {*ITEMS}, segment="one")
    for k in range(4):
        assert await expired(engine, clock, clock.at + 9 * DAY) == {"one"}
        await engine.rank("home", f"r{k}", segment="one")


@with_engine(segment_idle_days=1, attribution_seconds=5 * 86_400, late_seconds=5 * 86_400)
async def test_no_segment_expires_while_a_click_on_it_counts(engine, store, clock):
    page = await engine.rank("home", "r1", segment="one")
    assert await expired(engine, clock, clock.at + 10 * DAY - 1) == {"one"}
    assert (await answer(engine, page, [0])).status in ("accepted", "late_applied")


@with_engine(max_segments=3)
async def test_a_flood_does_not_displace_segments_that_are_used(engine, store, clock):
    await visit(engine, "real", {*ITEMS}, segment="real")
    for day in range(5):
        for k in range(20):
            await engine.rank("home", f"r{day}-{k}", segment=f"junk{day}-{k}")
        assert "real" in await expired(engine, clock, clock.at + 2 * DAY)
    assert len(names(engine)) <= 3


def test_last_uses_survive_a_restart():
    async def whole():
        store, clock = FakeStore(), Clock()
        async with running(store, clock=clock) as engine:
            await engine.put_surface("home", {"slots": 3, "items": ITEMS}, actor="test")
            await visit(engine, "r", {*ITEMS}, segment="one")
            await refreshed(engine)
            await asyncio.to_thread(engine.expire_segments)
            used_at = clock.at
        clock.at += 20 * DAY
        async with running(store, clock=clock) as engine:
            assert (await listed(engine))["one"]["used_at"] == used_at
            assert await expired(engine, clock, used_at + 30 * DAY) == {"one"}
            assert await expired(engine, clock, used_at + 30 * DAY + USE_RESOLUTION + 1) == set()

    asyncio.run(whole())


def test_a_segment_used_in_one_process_does_not_expire_in_another_and_deletions_reach_all():
    async def whole():
        store, clock = FakeStore(), Clock()
        options = {"clock": clock, "shared": True, "refresh_ms": 5}
        async with running(store, **options) as one, running(store, **options) as two:
            await one.put_surface("home", {"slots": 3, "items": ITEMS}, actor="test")
            await eventually(two.surfaces)
            for name in ("mobile", "desktop"):
                await visit(one, name, {*ITEMS}, segment=name)
            await eventually(lambda: names(two) == {"", "mobile", "desktop"})
            for engine in (one, two):
                await refreshed(engine)
            clock.at += 29 * DAY
            await two.rank("home", "r2", segment="mobile")
            clock.at += 2 * DAY
            for engine in (two, one):
                await asyncio.to_thread(engine.expire_segments)
            await eventually(lambda: names(one) == names(two) == {"", "mobile"})
            assert sum(entry["action"] == "expire segment" for entry in store.entries) == 1
            await one.delete_segment("home", "mobile", actor="ann")
            await eventually(lambda: names(two) == {""})

    asyncio.run(whole())


def test_segments_expire_by_themselves(monkeypatch):
    monkeypatch.setattr(refresher, "EXPIRE_SECONDS", 0.0)

    async def whole():
        clock = Clock()
        async with running(FakeStore(), clock=clock, refresh_ms=5) as engine:
            await engine.put_surface("home", {"slots": 3, "items": ITEMS}, actor="test")
            await visit(engine, "r", set(), segment="one")
            await eventually(lambda: engine.refresher.surfaces["home"].segments["one"].counters.rounds == 1)
            clock.at += 40 * DAY
            await eventually(lambda: names(engine) == {""})

    asyncio.run(whole())
