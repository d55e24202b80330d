"""Two engines on one PostgreSQL store: one settles, both learn the same, and each knows what the other has done."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing

import numpy as np
import pytest

from bothworlds.serve.engine import learning
from bothworlds.serve.engine.served import Constraints
from bothworlds.serve.engine.states import relearned, same_bits
from bothworlds.serve.stores import open_store
from tests.serve.running import (
    Clock,
    answer,
    eventually,
    log_of,
    put_surface,
    running,
    state_of,
    visit,
    written,
)


@pytest.fixture
def two(postgres):
    """Runs a test with two engines and a clock; they settle and learn every few milliseconds."""
    place = postgres.fresh_address()

    def run(test: Callable[..., Awaitable[None]]) -> None:
        async def whole() -> None:
            clock = Clock()
            with closing(open_store(place)) as first, closing(open_store(place)) as second:
                async with (
                    running(first, clock, refresh_ms=5) as one,
                    running(second, clock, refresh_ms=5) as other,
                ):
                    await put_surface(one, policy="all-weather", labels={"device": None, "age": [20, 40]})
                    await other.registry.catch_up()
                    await test(one, other, clock)

        asyncio.run(whole())

    return run


def rounds(engine):
    one = engine.registry.served("home").learner()
    return one.lists.source.rounds if one.lists is not None else -1


@pytest.mark.slow
def test_both_learn_every_settled_event_in_the_same_order(two):
    async def check(one, other, clock):
        for k in range(60):
            context = {"device": "one" if k % 2 else "two", "age": k}
            await visit((one, other)[k % 2], f"v{k}", {"a"}, context=context)
        for engine in (one, other):
            await engine.rank("home", "r")  # used in both
        await eventually(lambda: rounds(one) == rounds(other) == 60)
        assert same_bits(state_of(one), state_of(other))
        served = one.registry.served("home")
        assert same_bits(
            state_of(one), relearned(one.registry.store, served.learner().learner, served.target(served.learner()))
        )
        for known_as in ((), (("device", "one"),)):
            seen_by = Constraints(context=known_as)
            first, second = (engine.registry.served("home") for engine in (one, other))
            lists = [of.make(of.learner(), seen_by) for of in (first, second)]
            assert lists[0].id == lists[1].id
            assert np.array_equal(lists[0].marginals, lists[1].marginals)
        numbers = [event.number for event in log_of(one.registry.store).values() if event.number]
        assert sorted(numbers) == list(range(1, 61))

    two(check)


@pytest.mark.slow
def test_a_request_has_one_list_in_both_and_feedback_may_go_to_either(two):
    async def check(one, other, clock):
        first = await one.rank("home", "r1")
        await written(one)
        assert (await other.rank("home", "r1")) == first
        assert (await answer(other, first, [0])).status == "accepted"
        assert (await answer(one, first, [0])).status == "duplicate"
        # Both decide at once: the list that is stored first is valid.
        pairs = [await asyncio.gather(one.rank("home", f"p{k}"), other.rank("home", f"p{k}")) for k in range(20)]
        await asyncio.gather(written(one), written(other))
        log = log_of(one.registry.store)
        for pair in pairs:
            valid = log[bytes.fromhex(pair[0].event_id)].listed
            for page, engine in zip(pair, (other, one)):
                same = tuple(slot.p for slot in page.slots) == valid.p and [s.item for s in page.slots] == [
                    "abcdef"[item] for item in valid.items
                ]
                assert (await answer(engine, page, [0])).status in (
                    ("accepted", "duplicate") if same else ("rejected",)
                )

    two(check)


@pytest.mark.slow
def test_what_one_changes_the_other_knows(two):
    async def check(one, other, clock):
        await put_surface(other, "second")
        assert (await one.rank("second", "r")).slots
        await one.administration.change_item("home", "new", "add", actor="test")
        ranked = await one.rank("home", "r1", pins={0: "new"})
        await written(one)
        assert (await other.rank("home", "r1")).slots == ranked.slots
        assert (await answer(other, ranked, [0])).status == "accepted"
        await one.administration.patch_surface("home", {"labels": ["country"]}, actor="test")
        await eventually(lambda: other.registry.surface("home").labels == {"country": None})
        assert (await visit(other, "m2", {"a"}, context={"country": "de"})).context == {"country": "de"}
        await one.administration.rotate_secret(actor="test", forget=True)
        other.secrets.followed_at = -1e9
        await eventually(lambda: other.secrets.signer.number == 2)

    two(check)


@pytest.mark.slow
def test_the_other_takes_over_when_the_holder_of_the_lease_stops(two):
    async def check(one, other, clock):
        await eventually(lambda: (one.learning.lease is None) != (other.learning.lease is None))
        holder, follower = (one, other) if one.learning.lease else (other, one)
        waiting = [await follower.rank("home", f"w{k}") for k in range(3)]
        await answer(follower, waiting[0], [0])
        await eventually(lambda: rounds(follower) == 1)
        fence = holder.learning.lease.fence
        await holder.stop()
        await answer(follower, waiting[1], [0])
        await eventually(lambda: rounds(follower) == 2)
        assert follower.learning.lease.fence > fence
        assert follower.health()["ready"]

    two(check)


@pytest.mark.slow
def test_a_holder_that_lost_the_lease_without_noticing_settles_nothing(two, monkeypatch):
    async def check(one, other, clock):
        await eventually(lambda: (one.learning.lease is None) != (other.learning.lease is None))
        holder, follower = (one, other) if one.learning.lease else (other, one)
        stale = holder.learning.lease
        monkeypatch.setattr(learning, "LEASE_SECONDS", 3600.0)  # from here on, the holder does not renew it
        await follower.stop()
        holder.registry.store.release(stale)
        taken = follower.registry.store.acquire("another process", 60.0)
        assert taken.fence > stale.fence
        page = await holder.rank("home", "r")
        await answer(holder, page, [0])
        await eventually(lambda: holder.learning.lease is None)
        assert (rounds(holder), log_of(one.registry.store)[bytes.fromhex(page.event_id)].number) == (0, None)

    two(check)
