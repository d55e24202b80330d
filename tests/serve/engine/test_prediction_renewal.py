"""Served leaders subtract predicted losses; versions of predictions are renewed, and every estimate stays exact."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from bothworlds.serve.engine.learner import serving_policy
from bothworlds.serve.model import PREDICTION_SCALE
from bothworlds.serve.ops.verify import verify
from bothworlds.serve.stores.factory import open_store
from tests.serve.running import ITEMS, Clock, answer, refreshed, running, visit

NEVER = {"refresh_ms": 3_600_000, "refresh_events": 1_000_000}


def likes(k: int) -> set[str]:
    return {"a", "c"} if k % 3 else {"b"}


async def visits(engine, start, count, **arguments):
    return [await visit(engine, f"r{k}", likes(k), **arguments) for k in range(start, start + count)]


def learner_of(engine):
    return engine.refresher.surfaces["home"].segments[""].unconstrained.learner


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["all-weather", "ftrl-va", "tsallis-rv"])
def test_a_served_leader_records_predictions_and_survives_a_restart(policy, tmp_path):
    async def whole():
        store, clock = open_store(str(tmp_path / "store.db")), Clock()
        async with running(store, clock=clock, **NEVER) as engine:
            await engine.put_surface("home", {"slots": 2, "items": ITEMS, "policy": policy}, actor="test")
            for k in range(12):
                await visits(engine, 20 * k, 20)
                clock.at += 1000
                await refreshed(engine)
            (segment,) = store.segments(1)
            served = learner_of(engine)
            loss = np.array((await engine.state("home"))["loss"])
            assert sum(segment.settled.values()) >= 200
            assert segment.rounds == 240
            assert loss[1, 1] == pytest.approx(segment.estimated_loss(1, 1) / 2**20)
        async with running(store, clock=clock, **NEVER) as engine:
            again = learner_of(engine)
            assert (again.marginals == served.marginals).all()
            assert again.predicts
        assert verify(store).clean
        store.close()
        return segment

    segment = asyncio.run(whole())
    assert 2 <= len(segment.settled) <= 12
    assert any(segment.predicted.values())


@pytest.mark.slow
def test_pins_and_exclusions_are_estimated_without_predictions_and_pauses_renew_them(tmp_path):
    async def whole():
        store, clock = open_store(str(tmp_path / "store.db")), Clock()
        async with running(store, clock=clock, **NEVER) as engine:
            await engine.put_surface("home", {"slots": 2, "items": ITEMS, "policy": "ftrl-va"}, actor="test")
            await visits(engine, 0, 200)
            await refreshed(engine)
            assert learner_of(engine).predicts
            first = store.prediction_version(1, "")

            await visits(engine, 1000, 5, exclude=["d"])
            await visits(engine, 2000, 5, pins={0: "e"})
            await visits(engine, 3000, 5)
            await engine.pause_item("home", "f", actor="test")
            await refreshed(engine)
            second = store.prediction_version(1, "")
            before = store.segments(1)[0]
            assert before.settled == {first.number: 5}
            assert not second.used()[5].any()

            ranked = [await engine.rank("home", f"p{k}") for k in range(30)]
            for one in ranked:
                await answer(engine, one, [0])
            after = store.segments(1)[0]
            assert after.settled == {first.number: 5, second.number: 30}
            # An absent item is charged what was observed: nothing at slot 0, and 1 for every page at slot 1.
            charged = [after.estimated_loss(5, slot) - before.estimated_loss(5, slot) for slot in range(2)]
            assert charged == [0, 30 * 2**20]
            used = int(second.used()[1, 1]) * PREDICTION_SCALE
            assert used > 0
            assert after.predicted[1, 1] - before.predicted.get((1, 1), 0) == 30 * used

            await engine.put_item("home", "g", actor="test")
            added = store.segments(1)[0]
            typical = sorted(added.estimated_loss(item, 1) for item in range(5))[2]
            assert added.estimated_loss(6, 1) == typical
            await visits(engine, 5000, 3)
            assert sum(store.segments(1)[0].settled.values()) == 38
        assert verify(store).clean
        store.close()

    asyncio.run(whole())


def test_a_version_that_exceeds_the_limit_of_the_leader_is_not_recorded():
    async def whole():
        clock = Clock()
        async with running(None, clock=clock, **NEVER) as engine:
            await engine.put_surface("home", {"slots": 2, "items": ITEMS, "policy": "ftrl-va"}, actor="test")
            await visits(engine, 0, 100)
            await refreshed(engine)
            served = engine.refresher.surfaces["home"].segments[""]
            assert served.unconstrained.learner.predicts
            version = served.counters.version
            fewer = served.counters._replace(rounds=1, version=version)  # the learning rate is larger
            surface = served.served_surface
            other = serving_policy(surface.surface, surface.policy, fewer, list(surface.active.values()), {})
            assert not other.predicts

    asyncio.run(whole())
