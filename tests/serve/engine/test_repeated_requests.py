"""One request id never gets two decisions, wherever the first one is: in a queue, or in the store."""

from __future__ import annotations

import asyncio

import pytest

from bothworlds.serve.engine import engine as engine_module
from bothworlds.serve.model import Unavailable
from bothworlds.serve.stores import StoreError
from tests.serve.running import changed, log_of, with_engine, written


async def answered_twice(engine) -> int:
    """Returns how many of 30 requests got another list when they were repeated."""
    first = [await engine.rank("home", f"r{k}") for k in range(15)]
    await written(engine)
    first += [await engine.rank("home", f"r{k}") for k in range(15, 30)]  # some of these are not written yet
    await changed(engine, floor=0.9)  # a new decision would differ
    again = [await engine.rank("home", f"r{k}") for k in range(30)]
    return sum(one.slots != two.slots for one, two in zip(first, again))


@with_engine(policy="uniform")
async def test_a_repeated_request_is_answered_from_the_queue_or_the_store(engine, store, clock):
    assert await answered_twice(engine) == 0


@with_engine(policy="uniform")
async def test_a_store_that_forgets_is_caught(engine, store, clock):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "find_events", lambda ids: {})
        assert await answered_twice(engine) > 0


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("constraints", [{}, {"exclude": ["a"]}, {"segment": "new"}])
def test_requests_that_wait_at_once_get_one_decision(constraints, shared):
    @with_engine({"shared": shared})
    async def check(engine, store, clock):
        pages = await asyncio.gather(*(engine.rank("home", "r1", **constraints) for _ in range(20)))
        await written(engine)
        assert len({page.token for page in pages}) == 1
        assert len(log_of(store)) == 1

    check()


@pytest.mark.parametrize("shared", [False, True])
def test_a_repeated_request_fails_while_the_store_cannot_be_read(shared):
    @with_engine({"shared": shared})
    async def check(engine, store, clock):
        known = await engine.rank("home", "r1")
        await written(engine)

        def broken(ids):
            raise StoreError("the disk is gone")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "find_events", broken)
            with pytest.raises(Unavailable):  # not a second decision
                await engine.rank("home", "r1")
        assert (await engine.rank("home", "r1")).slots == known.slots

    check()


@with_engine({"shared": True})
async def test_lookups_share_calls(engine, store, clock):
    calls, find = [], store.find_events

    def counting(ids):
        calls.append(len(ids))
        return find(ids)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "find_events", counting)
        await asyncio.gather(*(engine.rank("home", f"r{k}") for k in range(100)))
        assert sum(calls) == 100
        assert len(calls) <= 3
        await engine.rank("home", "alone")
        assert calls[-1] == 1


@with_engine()
async def test_a_deleted_event_is_not_returned(engine, store, clock):
    known = await engine.rank("home", "r1")
    await written(engine)
    ids = [bytes.fromhex(known.event_id)]
    assert store.delete_events(ids, lambda events: []) == 1
    again = await engine.rank("home", "r1")
    await written(engine)
    assert log_of(store) == {}
    for page in (known, again):
        (result,) = await engine.feedback([engine_module.FeedbackEvent(page.event_id, page.token, [0], True)])
        assert (result.status, result.reason) == ("rejected", engine_module.DELETED_EVENT)
