"""Rewards in both stores: after a restart the counters are the same, and verification draws the clicks again."""

from __future__ import annotations

import asyncio

import pytest

from bothworlds.serve.ops.verify import verify
from bothworlds.serve.schemas import StateView
from bothworlds.serve.stores.factory import open_store
from tests.serve.engine.test_reward_feedback import earn
from tests.serve.running import ITEMS, running


@pytest.mark.slow
def test_a_store_of_rewards_is_verified_after_a_restart(place: str) -> None:
    async def serve(first: int, last: int) -> StateView:
        store = open_store(place)
        async with running(store) as engine:
            body = {"slots": 3, "items": ITEMS, "objective": "rewards", "holdout": 0.2}
            await engine.put_surface("home", body, actor="test")
            for k in range(first, last):
                await earn(engine, f"v{k}", exclude=["f"] if k % 3 else [])
            state = await engine.state("home")
        assert verify(store).clean
        store.close()
        return state

    before = asyncio.run(serve(0, 30))
    after = asyncio.run(serve(29, 30))  # the same request and feedback again
    assert (before["loss"], before["clicked"]) == (after["loss"], after["clicked"])
    store = open_store(place)
    event = next(event for event in store.settled() if event.arm == "learner" and min(event.rewards) > 0)
    assert {len(event.rewards) for event in store.settled()} == {3}
    # Verification finds a changed reward, and clicks that are not those of the rewards.
    damages = (
        ("UPDATE events SET clicks = 7 - clicks WHERE id = ?", (event.id,)),
        ("UPDATE events SET rewards = NULL WHERE id = ?", (event.id,)),
        ("UPDATE counters SET clicked = clicked + 1 WHERE item = 0 AND slot = 0", ()),
    )
    for damage, values in damages:
        before = verify(store).n_differences
        store.database.write(lambda session, damage=damage, values=values: session.run(damage, values))
        assert verify(store).n_differences > before
    store.close()
