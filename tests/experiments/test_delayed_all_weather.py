"""All-weather as the service runs it: the simulation serves what the service serves, from the same pages."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

import bothworlds
from bothworlds.core import Block, Decision
from bothworlds.experiments.delayed_all_weather import DelayedAllWeather, merged_blocks
from bothworlds.policies.all_weather import AllWeather
from bothworlds.policies.takeover import Situation, next_step, wake_round
from tests.serve.fakes import FakeStore
from tests.serve.running import ITEMS, Clock, refreshed, running, visit

NEVER = {"refresh_ms": 3_600_000, "refresh_events": 1_000_000}
START = 2**31  # seconds; blocks begin at its multiples, as they do at 0 in the simulation
SERVED = {"refresh": 10, "floor": 0.01, "fixed_point": True, "pages_per_second": 1}


class Reversed(DelayedAllWeather):
    """A broken twin: in the comparison, clicks count for the wrong learner."""

    def _settle(self, state, page):
        super()._settle(state, page._replace(mixture=(*page.mixture[:1], *(-g for g in page.mixture[1:]))))


class ShownOnly(DelayedAllWeather):
    """A broken twin: predictions are added for the items that were shown only."""

    def _settle(self, state, page):
        super()._settle(state, page)
        state.predicted[:] = 0


async def distance_from_service(policy, pages):
    """Return the largest difference between the probabilities of the service and of the simulation, and the share."""
    store, clock = FakeStore(), Clock(1000 * START)
    body = {"slots": 2, "items": ITEMS, "floor": 0.01, "policy": "all-weather"}
    async with running(store, clock=clock, **NEVER) as engine:
        await engine.put_surface("home", body, actor="test")
        state, largest = policy.init(len(ITEMS), 2), 0.0
        for k in range(pages):
            clock.at = 1000 * (START + k)
            ranked = await visit(engine, f"r{k}", {"a", "c"} if k % 3 else {"b"})
            likes = {"a", "c"} if k % 3 else {"b"}
            ranking = np.array([ITEMS.index(slot.item) for slot in ranked.slots])
            propensity = np.array([slot.p for slot in ranked.slots])
            if k % 10 == 9:
                clock.at += 1000  # the simulation has decided k + 1 pages when it is refreshed
                await refreshed(engine)
            clicks = np.array([float(slot.item in likes) for slot in ranked.slots])
            policy.learn(state, Decision(ranking, propensity), clicks)
            served = engine.refresher.surfaces["home"].segments[""].unconstrained.learner
            largest = max(largest, float(abs(served.marginals - state.marginals).max()))
        assert len(store.versions[1, ""]) > 2
        return largest, state.mixture.share


@pytest.mark.slow
@pytest.mark.parametrize("kind", [DelayedAllWeather, Reversed, ShownOnly])
def test_the_simulation_serves_what_the_service_serves(kind):
    largest, share = asyncio.run(distance_from_service(kind(**SERVED), 200))
    assert share < 1.0
    assert (largest < 1e-9) == (kind is DelayedAllWeather)


def test_merging_blocks_keeps_all_sums():
    rng = np.random.default_rng(1)
    blocks = [Block(k, k + 1, 3, *rng.random((2, 4, 2)), *rng.random(3)) for k in range(100)]
    merged = merged_blocks(blocks, 100, [0, 37])
    assert 10 < len(merged) < 40
    assert 37 in [block.start for block in merged]
    for name in ("rounds", "shown", "clicked", "spread", "difference", "variance"):
        before, after = (sum(getattr(block, name) for block in some) for some in (blocks, merged))
        assert np.allclose(before, after)
    assert [block.until for block in merged[:-1]] == [block.start for block in merged[1:]]


@pytest.mark.slow
@pytest.mark.parametrize("changed", [{"refresh": 50}, {"delay": 50}, {"floor": 0.1}, {"fixed_point": True}])
def test_each_change_has_an_effect_but_a_small_one(changed):
    rewards = [
        bothworlds.play(policy, "paper/stochastic", 400, seeds=2, checkpoints=1, jobs=1, progress=False).reward
        for policy in (DelayedAllWeather(refresh=10), DelayedAllWeather(**{"refresh": 10} | changed))
    ]
    assert "fixed_point" in changed or not np.array_equal(*rewards)
    assert abs(rewards[0] - rewards[1]).max() < 0.1 * rewards[0].min()


@pytest.mark.slow
def test_a_change_is_found_and_the_comparison_begins_again():
    policy, rng = DelayedAllWeather(refresh=20, delay=20), np.random.default_rng(3)
    state = policy.init(4, 2)
    for k in range(1600):
        decision = policy.decide(state, rng)
        liked = 0 if k < 800 else 3
        policy.learn(state, decision, (rng.random(2) < np.where(decision.ranking == liked, 0.9, 0.1)).astype(float))
    assert state.changed_at is not None
    assert 75 <= state.changed_at <= 90  # seconds of ten pages
    assert state.compared_at > state.changed_at
    assert state.marginals[3].sum() > 0.8
    assert sum(block.rounds for block in state.blocks) == state.settled == 1580


class Ahead:
    def __init__(self, ahead):
        self.ahead = ahead

    def leader_plays_alone(self, blocks):
        return self.ahead


def test_the_rule_of_a_takeover():
    some = [Block(5.0, 6.0, 50, np.zeros((2, 1)), np.zeros((2, 1)))]
    assert next_step(Ahead(False), Situation(100, 0, 0, 0), some) == "go on"
    assert next_step(Ahead(True), Situation(100, 0, 0, 0), some) == "leader takes over"
    assert next_step(Ahead(True), Situation(149, 0, 150, 9), some) == "go on"
    assert next_step(Ahead(False), Situation(150, 0, 150, 0), some) == "sampler wakes"
    assert next_step(Ahead(False), Situation(100, 4, 0, 5), some) == "visitors changed"
    assert next_step(Ahead(False), Situation(100, 5, 0, 5), some) == "go on"
    assert next_step(Ahead(False), Situation(401, 4, 0, 5), some) == "go on"  # the comparison has begun recently
    assert wake_round(101) == 152
    assert not AllWeather().leader_plays_alone(some)
