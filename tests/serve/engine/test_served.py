"""Surfaces as they are served: arms of visitors, many items, and a thousand surfaces."""

from __future__ import annotations

import asyncio
from contextlib import closing

import msgspec
import numpy as np
import pytest

from bothworlds.serve.engine import surface_rules
from bothworlds.serve.engine.engine import Engine
from bothworlds.serve.model import Unavailable
from bothworlds.serve.schemas import FeedbackEvent
from bothworlds.serve.stores import open_store
from tests.serve.running import (
    ITEMS,
    Clock,
    answer,
    log_of,
    refreshed,
    running,
    state_of,
    visits,
    with_engine,
    written,
)


@with_engine(holdout=0.5)
async def test_the_arm_stays_with_the_visitor_and_her_id_is_not_stored(engine, store, clock):
    arms: dict[int, set[str]] = {}
    for number in range(200):
        ranked = await engine.rank("home", f"r{number}", visitor=f"secret-{number % 20}")
        arms.setdefault(number % 20, set()).add(ranked.arm)
    assert all(len(seen) == 1 for seen in arms.values())
    assert {arm for seen in arms.values() for arm in seen} == {"learner", "holdout"}
    without = {(await engine.rank("home", f"page {k}")).arm for k in range(20)}
    assert without == {"learner", "holdout"}  # every page draws its arm anew
    await written(engine)
    log = log_of(store)
    assert len({event.visitor for event in log.values()}) == 21
    assert all(b"secret" not in msgspec.msgpack.encode(event) for event in log.values())


@with_engine(holdout=0.5)
async def test_a_repeated_request_gets_the_same_list_whoever_asks(engine, store, clock):
    first = await engine.rank("home", "r1", visitor="ann")
    assert await engine.rank("home", "r1", visitor="bob") == first


@with_engine(objective="rewards")
async def test_rewards_are_learned_as_they_are_and_the_largest_counts(engine, store, clock):
    page = await engine.rank("home", "v")

    async def reward(rewards, final=True):
        return (await engine.feedback([FeedbackEvent(page.event_id, page.token, [], final, rewards)]))[0]

    assert (await reward({0: 0.25, 1: 0.5}, final=False)).status == "accepted"
    assert (await reward({1: 0.125}, final=False)).status == "duplicate"
    assert (await reward({1: 0.75})).status == "accepted"
    for rewards, reason in (({3: 0.5}, "no slot 3"), ({0: float("nan")}, "from 0 to 1"), ({0: 1.01}, "from 0 to 1")):
        result = await reward(rewards)
        assert (result.status, reason in result.reason) == ("rejected", True)
    assert "send rewards instead of clicks" in (await answer(engine, page, [1])).reason
    await refreshed(engine)
    shown = [ITEMS.index(slot.item) for slot in page.slots]
    assert state_of(engine).clicked[shown, [0, 1, 2]].tolist() == pytest.approx([0.25, 0.75, 0.0], abs=1e-6)


@with_engine()
async def test_a_surface_that_counts_clicks_takes_no_rewards(engine, store, clock):
    page = await engine.rank("home", "v")
    (result,) = await engine.feedback([FeedbackEvent(page.event_id, page.token, [], True, {0: 0.5})])
    assert (result.status, "send clicks instead of rewards" in result.reason) == ("rejected", True)


@pytest.mark.slow
@with_engine(items=[f"item {k}" for k in range(20_000)], policy="ftrl-pbm")
async def test_twenty_thousand_items_are_ranked_and_learned(engine, store, clock):
    pages = await visits(engine, [f"r{k}" for k in range(40)], {"item 7"})
    assert max(len(page.token) for page in pages) < 400
    assert (await engine.rank("home", "r0")).slots == pages[0].slots
    few = await engine.rank("home", "few", exclude=[f"item {k}" for k in range(1000)])
    assert len(few.token) < 5_000  # a bitmap of what was absent
    assert (await answer(engine, few, [0])).status == "accepted"
    await refreshed(engine)
    assert state_of(engine).pages == 41


def counted(calls, function):
    def count(*given, **named):
        calls.append(given)
        return function(*given, **named)

    return count


@pytest.mark.slow
def test_states_and_lists_are_made_when_they_are_used(tmp_path, monkeypatch):
    """Hundreds of surfaces with arms start without reading a state."""
    place = str(tmp_path / "store.db")
    surfaces = 100
    with closing(open_store(place)) as store:
        made = surface_rules.create_surface("one", {"slots": 3, "items": ITEMS}, 0).surface
        for k in range(surfaces):
            store.save_surface(msgspec.structs.replace(made, name=f"s{k}"), [])

    async def whole(store):
        read: list[object] = []
        monkeypatch.setattr(store, "snapshot", counted(read, store.snapshot))
        monkeypatch.setattr(store, "learner_events", counted(read, store.learner_events))
        async with running(store, Clock(), refresh_ms=3_600_000) as engine:
            assert len(engine.registry.all_surfaces()) == surfaces
            for name in range(50):  # the first page of the dashboard
                assert (await engine.reports.headline(f"s{name}"))["rounds"] == 0
            assert (read, engine.states.size) == ([], 0)
            page = await engine.rank("s7", "r")
            await answer(engine, page, [0])
            await refreshed(engine)
            assert {learner_id for learner_id, *_ in read} == {engine.registry.served("s7").learner().learner.id}
            assert [served.surface.name for served in engine.registry.by_id.values() if served.learner().lists] == [
                "s7"
            ]

    with closing(open_store(place)) as store:
        asyncio.run(whole(store))


def test_an_engine_on_a_store_that_cannot_be_read_does_not_start(store):
    engine = Engine(store)
    store.close()
    with pytest.raises(Unavailable, match="cannot be read"):
        asyncio.run(engine.start())
    assert np.isfinite(engine.health()["policy_age_seconds"])
