"""Segments: admission up to max_segments, deletion with everything of them, and expiry when nobody uses them."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, closing

import msgspec
import pytest

from bothworlds.serve.engine.housekeeping import USE_RESOLUTION
from bothworlds.serve.engine.states import page_of, relearned, same_bits
from bothworlds.serve.engine.views import read_state
from bothworlds.serve.model import Invalid, TooMany, Unknown
from bothworlds.serve.stores import open_store
from tests.serve.conftest import on_both
from tests.serve.running import DAY, HOUR, ITEMS, Clock, answer, looked, refreshed, serving, visit, visits, with_engine

WINDOW = 600_000 + 86_400_000  # milliseconds for which a click on a page is accepted
SECONDS = {"attribution_seconds": 600}


def names(engine, surface="home"):
    return engine.registry.served(surface).segments()


async def listed(engine):
    return {line["name"]: line for line in await engine.reports.segments("home")}


@with_engine(max_segments=3)
async def test_a_segment_that_is_not_admitted_is_served_as_the_default_one(engine, store, clock):
    for name in ("one", "two"):
        assert (await engine.rank("home", name, segment=name)).segment == name
    page = await engine.rank("home", "r3", segment="three")
    assert page.segment == ""
    assert (await answer(engine, page, [0])).status == "accepted"
    await refreshed(engine)
    assert (await engine.reports.state("home"))["rounds"] == 1
    assert (await engine.reports.event(page.event_id))["segment"] == ""
    assert await engine.rank("home", "r3", segment="three") == page
    assert (await engine.rank("home", "r4", segment="one")).segment == "one"
    with pytest.raises(TooMany, match="max_segments"):
        await engine.administration.start_from_baseline("home", rounds=10, segment="three", actor="test")


@with_engine(max_segments=2)
async def test_a_deleted_segment_makes_room_for_another(engine, store, clock):
    settled = await visit(engine, "r1", {"a"}, segment="one")
    waiting = await engine.rank("home", "r2", segment="one")
    await refreshed(engine)
    assert (await engine.rank("home", "r3", segment="two")).segment == ""
    await engine.administration.delete_segment("home", "one", actor="ann")
    assert names(engine) == {""}
    entry = store.audit(1, 1)[0]
    assert [entry[key] for key in ("actor", "action", "surface_id")] == ["ann", "delete segment", 1]
    assert entry["detail"] == '"one": 2 events deleted'
    for page in (settled, waiting):
        assert (await answer(engine, page, [0, 1, 2])).status == "expired"
        with pytest.raises(Unknown):
            await engine.reports.event(page.event_id)
    clock.at += DAY
    await looked(engine)
    assert names(engine) == {""}  # its open events do not create it again
    assert (await engine.rank("home", "r4", segment="two")).segment == "two"
    # A repeated request gets a list whose clicks count.
    again = await engine.rank("home", "r2", segment="two")
    assert (await answer(engine, again, [0])).status == "accepted"


@with_engine()
async def test_what_cannot_be_deleted_is_refused(engine, store, clock):
    with pytest.raises(Invalid, match="reset"):
        await engine.administration.delete_segment("home", "", actor="ann")
    with pytest.raises(Unknown, match="no segment 'mobile'"):
        await engine.administration.delete_segment("home", "mobile", actor="ann")
    with pytest.raises(Unknown, match="no surface"):
        await engine.administration.delete_segment("away", "mobile", actor="ann")


@with_engine()
async def test_a_page_dated_in_the_far_future_does_not_outlive_its_segment(engine, store, clock):
    """With times instead of ids, every later click of that name was expired, for good."""
    row = {"position": 0, "item": "a", "click": 1, "propensity": 0.5, "timestamp": "2031-01-01T00:00:00Z"}
    taken = await engine.log.import_rows("home", [{**row, "event": "far", "segment": "mobile"}], actor="test")
    assert taken.taken == 1
    await refreshed(engine)
    assert (await engine.reports.state("home", "mobile"))["rounds"] == 1
    await engine.administration.delete_segment("home", "mobile", actor="ann")
    page = await engine.rank("home", "r1", segment="mobile")
    assert (await answer(engine, page, [0])).status == "accepted"
    await refreshed(engine)
    assert (await engine.reports.state("home", "mobile"))["rounds"] == 1
    await engine.administration.reset("home", segment="mobile", actor="ann")
    await visit(engine, "r2", {"a"}, segment="mobile")
    await refreshed(engine)
    assert (await engine.reports.state("home", "mobile"))["rounds"] == 1


def differing(engine, store):
    """The segments whose states are not what their log gives, bit for bit."""
    served, found = engine.registry.served("home"), []
    for one in list(served.by_learner_id.values()):
        replayed = relearned(store, one.learner, served.policies[one.learner.number], *served.shape)
        if not read_state(served, one, engine.registry, lambda state, of=replayed: same_bits(state, of)):
            found.append(one.learner.segment)
    return found


async def shop(engine, name, until):
    """Visitors, one after the other, until the future is done; returns how many there were."""
    n = 0
    while not until.done():
        await visit(engine, f"{name}-{n}", {"a", "b"}, segment=["mobile", "", "tablet"][n % 3])
        n += 1
    return n


@pytest.mark.slow
@on_both
def test_deleting_a_segment_under_traffic_leaves_what_its_log_gives(place):
    """With counters, what was counted while the segment was deleted belonged to nobody."""
    workers = 1 + place.startswith("postgres")

    async def first(engines, clock):
        await engines[0].administration.put_surface(
            "home", {"slots": 3, "items": ITEMS, "policy": "ftrl-pbm"}, actor="test"
        )
        for engine in engines:
            await engine.registry.catch_up()
        until = asyncio.get_running_loop().create_future()
        shoppers = [asyncio.create_task(shop(engines[k % workers], f"v{k}", until)) for k in range(6)]
        for k in range(8):
            await visit(engines[0], f"d{k}", {"a"}, segment="mobile")
            clock.at += 1
            await engines[0].administration.delete_segment("home", "mobile", actor="ann")
        until.set_result(None)
        total = sum(await asyncio.gather(*shoppers)) + 8
        for engine in engines * 2:  # one settles, and the others learn
            await refreshed(engine)
        for engine in engines:
            await engine.registry.catch_up()
            assert await asyncio.to_thread(differing, engine, engine.registry.store) == []
        assert sum(line["pages"] for line in await engines[0].reports.segments("home")) < total
        return await losses(engines[0])

    async def second(engines, clock):
        return await losses(engines[0])

    async def losses(engine):
        return {name: (await engine.reports.state("home", name))["loss"] for name in names(engine)}

    async def run(test):
        clock = Clock()
        async with AsyncExitStack() as stack:
            stores = [stack.enter_context(closing(open_store(place))) for _ in range(workers)]
            return await test([await stack.enter_async_context(serving(store, clock)) for store in stores], clock)

    found = [asyncio.run(run(test)) for test in (first, second)]
    assert found[0] == found[1]


@with_engine()
async def test_a_state_that_is_not_what_its_log_gives_is_found(engine, store, clock):
    """The broken twin of the comparison: one page is learned by the state and is not in the log."""
    await visits(engine, [f"v{k}" for k in range(5)], {"a"})
    await refreshed(engine)
    assert await asyncio.to_thread(differing, engine, store) == []
    served = engine.registry.served("home")
    (events,) = store.learner_events(served.learner("").learner.id, 0)
    again = page_of(msgspec.structs.replace(events[-1], number=events[-1].number + 1))
    read_state(served, served.learner(""), engine.registry, lambda state: state.learn([again]))
    assert await asyncio.to_thread(differing, engine, store) == [""]


@with_engine(**SECONDS)
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
    assert lines[""]["expires_at"] is None
    with pytest.raises(Unknown):
        await engine.reports.segments("away")


async def expired(engine, clock, to):
    """Sets the clock, expires segments and returns the names of those left."""
    clock.at = to
    await looked(engine)
    return names(engine) - {""}


@with_engine(segment_idle_days=10, **SECONDS)
async def test_segments_that_nobody_uses_expire_and_those_without_a_click_soon(engine, store, clock):
    await visit(engine, "r1", {*ITEMS}, segment="clicked")
    await visit(engine, "r2", set(), segment="shown")
    await engine.rank("home", "r3", segment="requested")
    await engine.administration.start_from_baseline("home", rounds=100, segment="started", actor="test")
    start, everything = clock.at, {"clicked", "shown", "requested", "started"}
    assert await expired(engine, clock, start + WINDOW + USE_RESOLUTION) == everything
    assert await expired(engine, clock, start + WINDOW + USE_RESOLUTION + 1) == {"clicked", "started"}
    assert await expired(engine, clock, start + 10 * DAY + USE_RESOLUTION) == {"clicked", "started"}
    before = await engine.reports.report("home", since=start - HOUR)
    assert await expired(engine, clock, start + 10 * DAY + USE_RESOLUTION + 1) == set()
    entries = [(e["actor"], e["action"], e["detail"]) for e in store.audit(1, 99) if e["action"] == "expire segment"]
    assert sorted(entries) == sorted(
        ("expiry", "expire segment", f'"{name}": {n} events deleted')
        for name, n in (("clicked", 1), ("shown", 1), ("requested", 1), ("started", 0))
    )
    # Its pages stay counted in reports.
    assert (
        (await engine.reports.report("home", since=start - HOUR))["headline"]["pages"]
        == before["headline"]["pages"]
        == 2
    )


@with_engine(segment_idle_days=10, **SECONDS)
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


def test_last_uses_survive_a_restart(tmp_path):
    place, clock = str(tmp_path / "store.db"), Clock()

    async def first():
        store = open_store(place)
        async with serving(store, clock) as engine:
            await engine.administration.put_surface("home", {"slots": 3, "items": ITEMS}, actor="test")
            await visit(engine, "r", {*ITEMS}, segment="one")
            clock.at += HOUR
            await visit(engine, "s", {*ITEMS}, segment="one")
            await looked(engine)
        store.close()
        return clock.at

    async def second(used_at):
        store = open_store(place)
        clock.at += 20 * DAY
        async with serving(store, clock) as engine:
            assert (await listed(engine))["one"]["used_at"] == used_at
            assert await expired(engine, clock, used_at + 30 * DAY) == {"one"}
            assert await expired(engine, clock, used_at + 30 * DAY + USE_RESOLUTION + 1) == set()
        store.close()

    asyncio.run(second(asyncio.run(first())))


@with_engine(baseline=["f", "e", "d"])
async def test_a_deleted_segment_does_not_start_from_the_baseline_again(engine, store, clock):
    await engine.administration.start_from_baseline("home", rounds=300, segment="m", actor="ann")
    assert (await engine.reports.state("home", "m"))["baseline_share"] == 0.9
    await engine.administration.delete_segment("home", "m", actor="ann")
    await engine.rank("home", "v1", segment="m")
    assert (await engine.reports.state("home", "m"))["baseline_share"] == 0.0
    assert "m" not in engine.registry.surface("home").baseline_starts


@with_engine(arms=[{"name": "new", "policy": "uniform", "share": 0.5}])
async def test_a_segment_is_deleted_and_listed_with_all_its_arms(engine, store, clock):
    await visits(engine, [f"v{k}" for k in range(40)], {"a"}, segment="m")
    await refreshed(engine)
    assert (await listed(engine))["m"]["pages"] == 40
    await engine.administration.delete_segment("home", "m", actor="ann")
    assert {one.segment for one in store.learners(1)} == {""}
    assert not any(row["segment"] == "m" for row in list(engine.log.export("home"))[1:])
