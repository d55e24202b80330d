"""Policies that forget are served from blocks of time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from bothworlds.core import Block
from bothworlds.policies.all_weather import AllWeather
from bothworlds.serve.engine import block_reader, learner_comparison
from bothworlds.serve.engine.learner_comparison import LearnerComparison, comparison_state
from bothworlds.serve.model import CHANGE, CHANGE_DETECTED, WAKE, rfc3339
from bothworlds.serve.observability.metrics import Metrics
from bothworlds.serve.ops.verify import verify
from bothworlds.serve.settlement import mixture_sums
from bothworlds.serve.stores.base import StoreError
from bothworlds.serve.stores.factory import open_store
from bothworlds.serve.time_blocks import merged

from ..fakes import FakeStore
from ..running import ITEMS, Clock, refreshed, running, visit, written
from ..stores.samples import a_surface

NEVER = {"refresh_ms": 3_600_000, "refresh_events": 1_000_000}  # the tests call refresh themselves
BODY = {"slots": 2, "items": ITEMS, "floor": 0.01, "policy": "comb-ts"}


def served(engine, surface="home"):
    return engine.refresher.surfaces[surface].segments[""]


async def visits(engine, clock, liked, count, first):
    for k in range(first, first + count):
        clock.at += 2_000
        await visit(engine, f"r{k}", {liked})
        if k % 10 == 9:
            await refreshed(engine)
    await refreshed(engine)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"window": 60}, {"discount": 0.95}])
def test_a_surface_with_a_window_forgets_what_visitors_liked_before(settings):
    async def whole():
        store, clock = FakeStore(), Clock()
        async with running(store, clock=clock, **NEVER) as engine:
            await engine.put_surface("home", BODY | {"policy_settings": settings}, actor="test")
            await visits(engine, clock, "a", 150, 0)
            await visits(engine, clock, "b", 150, 150)
            marginals = served(engine).unconstrained.learner.marginals
            await engine.patch_surface("home", {"policy_settings": {}}, actor="test")
            forever = served(engine).unconstrained.learner.marginals
        return marginals, forever

    marginals, forever = asyncio.run(whole())
    assert np.allclose(marginals.sum(axis=0), 1.0)
    assert marginals[1].sum() > 0.9  # b is on nearly every page, a is not
    assert marginals[0].sum() < marginals[1].sum() - 0.3
    assert abs(forever - marginals).max() > 0.05


@pytest.mark.parametrize("policy", ["gibbs-ts", "pbm-ucb-mle", "pbm-pie-mle", "ftpl"])
def test_a_policy_that_fits_or_samples_is_served_and_is_a_function_of_the_sums(policy):
    async def whole():
        store, clock = FakeStore(), Clock()
        async with running(store, clock=clock, **NEVER) as engine:
            await engine.put_surface("home", BODY | {"policy": policy}, actor="test")
            await visits(engine, clock, "c", 120, 0)
            first = served(engine).unconstrained.learner
        async with running(store, clock=clock, **NEVER) as again:
            second = served(again).unconstrained.learner
            page = await again.rank("home", "pinned", pins={0: "a"}, exclude=["b"])
        return first, second, page

    first, second, page = asyncio.run(whole())
    assert first.id == second.id
    assert first.marginals[2].max() > 0.5
    assert page.slots[0].item == "a"
    assert page.slots[1].item != "b"


def test_blocks_are_merged_while_a_surface_is_served(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(block_reader, "LEAST_SAVED", 1)

    async def whole():
        store, clock = open_store(str(tmp_path / "store.db")), Clock()
        async with running(store, clock=clock, **NEVER) as engine:
            await engine.put_surface("home", BODY | {"policy_settings": {"window": 30}}, actor="test")
            await visits(engine, clock, "a", 40, 0)
            before = served(engine).counters
            rows = len(store.blocks(1, ""))
            engine.refresher.compact()
            assert len(store.blocks(1, "")) < rows
            engine.refresher.install(engine.surface("home"))
            after = served(engine).counters
            assert [block.rounds for block in after.blocks] == [block.rounds for block in before.blocks]
            assert sum(block.rounds for block in after.blocks) == 40
            assert served(engine).unconstrained.learner.rounds == 40
        assert verify(store).clean
        store.close()

    asyncio.run(whole())


def test_blocks_are_read_only_for_policies_that_need_them():
    async def whole():
        store, clock = FakeStore(), Clock()
        reads = []
        store.blocks = lambda *given: reads.append(given) or {}
        async with running(store, clock=clock, **NEVER) as engine:
            await engine.put_surface("home", {"slots": 2, "items": ITEMS, "policy": "ftrl-pbm"}, actor="test")
            await visits(engine, clock, "a", 3, 0)
        return reads

    assert asyncio.run(whole()) == []


DETECTING = {"slots": 2, "items": ITEMS[:4], "floor": 0.2, "policy": "comb-ucb", "policy_settings": {"detect": True}}


async def changing_visits(engine, store, clock, settled=True):
    """Visitors like a, and then b; returns the time of the change, in seconds."""
    await engine.put_surface("home", DETECTING, actor="test")
    await visits(engine, clock, "a", 300, 0)
    changed = clock.at // 1000
    if not settled:
        await engine.rank("home", "open")
        await written(engine)
    await visits(engine, clock, "b", 300, 300)
    clock.at += 60_000
    await visits(engine, clock, "b", 100, 600)
    return changed


@pytest.mark.slow
def test_a_change_is_detected_stored_and_used_by_all_workers():
    async def whole():
        store, clock = FakeStore(), Clock()
        async with running(store, clock=clock, **NEVER) as engine:
            changed = await changing_visits(engine, store, clock)
            (found,) = store.numbers(1, "").values()
            assert abs(found - changed) < 128  # blocks of that age have at most 64 seconds when it is detected
            state = await engine.state("home")
            assert state["changed_at"] == rfc3339(1000 * found)
            assert served(engine).counters.changed_at == found
            # The first block after the change may have begun before it; then the next one is another change.
            entries = [one for one in store.audit(1, 100) if one["action"] == CHANGE_DETECTED]
            assert len(entries) <= 2
            assert (entries[0]["actor"], entries[0]["changed_at"]) == ("detector", 1000 * found)
            assert engine.health()["changes_detected"] == len(entries)
            report = await engine.report("home", since=clock.at - 3_600_000)
            assert report["changes"][-1]["changed_at"] == 1000 * found
            assert len(report["changes"]) == len(entries)
            before = served(engine).unconstrained.learner.id
        async with running(store, clock=clock, **NEVER) as again:
            assert served(again).counters.changed_at == found
            assert served(again).unconstrained.learner.id == before
            assert served(again).unconstrained.learner.marginals[1].sum() > 0.8
            await again.reset("home", segment=None, actor="test")
            assert store.numbers(1, "") == {}
            assert (await again.state("home"))["changed_at"] is None

    asyncio.run(whole())


@pytest.mark.slow
def test_blocks_are_not_tested_while_their_pages_are_open():
    async def whole():
        store, clock = FakeStore(), Clock()
        async with running(store, clock=clock, **NEVER) as engine:
            await changing_visits(engine, store, clock, settled=False)
            assert store.numbers(1, "") == {}

    asyncio.run(whole())


@pytest.mark.slow
def test_steady_visitors_raise_no_alarm():
    async def whole():
        store, clock = FakeStore(), Clock()
        async with running(store, clock=clock, **NEVER) as engine:
            await engine.put_surface("home", DETECTING, actor="test")
            await visits(engine, clock, "a", 400, 0)
            assert store.numbers(1, "") == {}
            assert (await engine.state("home"))["changed_at"] is None

    asyncio.run(whole())


@pytest.mark.slow
def test_of_two_workers_that_detect_a_change_one_stores_it():
    async def whole():
        store, clock = FakeStore(), Clock()
        async with running(store, clock=clock, **NEVER) as engine, running(store, clock=clock, **NEVER) as other:
            await changing_visits(engine, store, clock)
            found = store.numbers(1, "")
            before = len(store.audit(1, 100))
            other.refresher.load()
            assert served(other).counters.changed_at == found[CHANGE]
            # Both detect the same change at once: one of them does not yet know that the other has stored it.
            numbers, calls = store.numbers, []
            store.numbers = lambda *given: {} if calls.append(given) is None and len(calls) == 1 else numbers(*given)
            other.refresher.changes._tested.clear()
            other.refresher.install(other.surface("home"))
            assert len(calls) == 2
            assert served(other).counters.changed_at == found[CHANGE]
            assert len(store.audit(1, 100)) == before

    asyncio.run(whole())


@pytest.mark.slow
def test_all_weather_is_served_and_every_sum_is_rebuilt_from_the_log(tmp_path: Path):
    async def whole():
        store, clock = open_store(str(tmp_path / "store.db")), Clock()
        async with running(store, clock=clock, **NEVER) as engine:
            await engine.put_surface("home", BODY | {"policy": "all-weather"}, actor="test")
            await visits(engine, clock, "a", 200, 0)
            learner = served(engine).unconstrained.learner
            assert learner.marginals[0].sum() > 0.8
            events = list(store.settled())
            mixed = [event for event in events if event.mixture]
            assert len(mixed) > 100
            for event in mixed:
                assert len(event.mixture) == 1 + len(event.items)
                assert 0.02 <= event.mixture[0] < 1.0
            total = merged(0, 1, list(store.blocks(1, "").values()))
            sums = [sum(values) for values in zip(*map(mixture_sums, events))]
            assert list(total.mixture) == sums
            assert sums[2] > 0
            pinned = await engine.rank("home", "pinned", pins={1: "c"})
            event = engine.secrets.signer.read(pinned.token)
            assert event.mixture == () or event.mixture[2] == 0.0
            assert verify(store).clean
            await engine.reset("home", segment=None, actor="test")
            assert verify(store).clean
            store.database.write(lambda session: session.run("UPDATE events SET clicks = 0"))
            assert {difference.counter for difference in verify(store).differences} >= {"difference", "clicked"}
        store.close()

    asyncio.run(whole())


class Ahead:
    """A policy whose leader is ahead whenever the test says so."""

    ahead = False

    def leader_plays_alone(self, blocks):
        return self.ahead


def test_the_leader_plays_alone_until_there_are_half_as_many_more_rounds():
    store, clock, policy = FakeStore(), Clock(), Ahead()
    surface = store.save_surface(a_surface(), [], [])
    comparison = LearnerComparison(store, clock)

    def updated(rounds, *blocks):
        return comparison.update(policy, surface, "", rounds, blocks)

    assert updated(100) == (0, 0, None)
    policy.ahead = True
    since = clock.at // 1000
    assert updated(100) == (0, 150, since)
    clock.at += 5_000
    assert updated(149) == (0, 150, since)
    now = clock.at // 1000 + 1
    assert updated(150) == (now, 0, None)  # and the comparison begins again
    policy.ahead = False
    assert updated(151) == (now, 0, None)
    again, alone = store.audit(1, 10)
    assert (again["action"], alone["action"]) == ("learners are compared again", "leader plays alone")
    assert (alone["at"] // 1000, alone["rounds"], alone["until_rounds"]) == (since, 100, 150)
    assert comparison.takeovers == 1
    # A change begins the comparison again, unless it has begun recently.
    clock.at += 100_000
    recent = Block(now + 5.0, now + 6.0, 10, np.zeros((5, 3)), np.zeros((5, 3)))
    store.set_number(1, "", CHANGE, now + 50, expected=None)
    assert updated(161, recent) == (now, 0, None)
    assert updated(161, recent._replace(rounds=50)) == (clock.at // 1000 + 1, 0, None)
    # Another worker was first.
    numbers, stale = store.numbers, store.numbers(1, "")
    policy.ahead = True
    first = clock.at // 1000
    assert updated(200)[1:] == (300, first)
    clock.at += 5_000
    calls = []
    store.numbers = lambda *given: stale if calls.append(given) is None and len(calls) == 1 else numbers(*given)
    assert updated(210)[1:] == (300, first)
    assert comparison.takeovers == 2


def test_a_worker_that_ends_between_the_two_writes_leaves_no_half_of_a_takeover():
    store, clock, policy = FakeStore(), Clock(), Ahead()
    surface = store.save_surface(a_surface(), [], [])
    comparison, whole = LearnerComparison(store, clock), store.set_number
    policy.ahead = True

    def killed(surface_id, segment, name, *given, **options):
        if name == WAKE:
            raise StoreError("killed")
        return whole(surface_id, segment, name, *given, **options)

    store.set_number = killed
    with pytest.raises(StoreError, match="killed"):
        comparison.update(policy, surface, "", 100, [])
    assert comparison_state(store.numbers(1, "")) == (0, 0, None)
    assert store.audit(1, 10) == []
    store.set_number = whole
    clock.at += 5_000
    assert comparison.update(policy, surface, "", 110, []) == (0, 165, clock.at // 1000)


def takeover_is_told(told, state, health, since):
    """Return whether report, state and health agree that the leader plays alone since a time."""
    takeovers = told["takeovers"]
    return (
        [(one["took_over_at"] // 1000, one["ended_at"], one["alone"]) for one in takeovers] == [(since, None, True)]
        and state["leader_alone_since"] == rfc3339(1000 * since)
        and state["leader_alone_until_rounds"] == takeovers[0]["until_rounds"]
        and (health["leader_takeovers"], health["leaders_alone"]) == (1, 1)
    )


@pytest.mark.parametrize("broken", [False, True])
def test_a_takeover_is_told_by_state_report_and_metrics(monkeypatch, broken):
    ahead = {"now": False}
    monkeypatch.setattr(AllWeather, "leader_plays_alone", lambda self, blocks: ahead["now"])
    if broken:  # the takeover is stored, but what is served does not know when it was
        monkeypatch.setattr(
            learner_comparison, "comparison_state", lambda numbers: comparison_state(numbers)._replace(alone_since=None)
        )

    async def whole():
        store, clock = FakeStore(), Clock()
        async with running(store, clock=clock, **NEVER) as engine:

            async def told():
                report = await engine.report("home", since=clock.at - 3_600_000, until=clock.at + 1)
                return report, await engine.state("home"), engine.health()

            await engine.put_surface("home", BODY | {"policy": "all-weather"}, actor="test")
            await visits(engine, clock, "a", 20, 0)
            report, state, health = await told()
            assert (report["takeovers"], state["leader_alone_since"], health["leaders_alone"]) == ([], None, 0)
            ahead["now"] = True
            await visits(engine, clock, "a", 4, 20)
            since = clock.at // 1000
            ahead["now"] = False
            await visits(engine, clock, "a", 2, 24)
            report, state, health = await told()
            assert takeover_is_told(report, state, health, since) != broken
            if broken:
                return
            assert state["leader_alone_until_rounds"] == 36
            assert (report["takeovers"][0]["rounds"], report["takeovers"][0]["until_rounds"]) == (24, 36)
            metrics = Metrics()
            metrics.set_health(health)
            assert b"bothworlds_leaders_alone 1.0" in metrics.exposition()
            assert b"bothworlds_leader_takeovers 1.0" in metrics.exposition()
            await visits(engine, clock, "a", 14, 26)
            report, state, health = await told()
            (over,) = report["takeovers"]
            assert not over["alone"]
            assert over["took_over_at"] < over["ended_at"] <= clock.at
            assert (state["leader_alone_since"], state["leader_alone_until_rounds"]) == (None, None)
            assert (health["leader_takeovers"], health["leaders_alone"]) == (1, 0)
            later = await engine.report("home", since=over["ended_at"] + 1, until=clock.at + 60_000)
            assert later["takeovers"] == []
            # A reset ends a takeover, too.
            ahead["now"] = True
            await visits(engine, clock, "a", 3, 40)
            assert [one["alone"] for one in (await told())[0]["takeovers"]] == [False, True]
            ahead["now"] = False
            await engine.reset("home", segment=None, actor="test")
            report, state, _ = await told()
            assert [one["alone"] for one in report["takeovers"]] == [False, False]
            assert state["leader_alone_since"] is None

    asyncio.run(whole())
