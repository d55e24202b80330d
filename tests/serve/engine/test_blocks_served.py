"""Policies that forget are served from blocks of time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from bothworlds.serve.engine import block_reader
from bothworlds.serve.ops.verify import verify
from bothworlds.serve.stores.factory import open_store

from ..fakes import FakeStore
from ..running import ITEMS, Clock, refreshed, running, visit

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
            await engine.put_surface("home", {"slots": 2, "items": ITEMS}, actor="test")
            await visits(engine, clock, "a", 3, 0)
        return reads

    assert asyncio.run(whole()) == []
