"""One request id never gets two decisions, wherever the first one is: in memory, in a queue, or in the store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from bothworlds.serve.engine import engine as engine_module
from bothworlds.serve.model import Event, Unavailable

from ..fakes import FakeStore
from ..running import ITEMS, running, with_engine, written


class CountingStore(FakeStore):
    """Counts look-ups of decisions; ``may_have_event`` claims that everything may be stored if ``vague``."""

    vague = False
    lookups = 0

    def may_have_event(self, id: bytes) -> bool:
        return self.vague or super().may_have_event(id)

    def find_events(self, ids: Sequence[bytes]) -> dict[bytes, Event]:
        self.lookups += 1
        return super().find_events(ids)


async def decide_again(store: CountingStore, forget_between: bool = True) -> tuple[int, int]:
    """Returns how many of 30 requests got another list when they were repeated, and how many look-ups there were."""
    async with running(store, refresh_ms=5) as engine:
        await engine.put_surface("home", {"slots": 3, "items": ITEMS, "policy": "uniform"}, actor="test")
        first = [await engine.rank("home", f"r{k}") for k in range(15)]
        await written(engine)
        first += [await engine.rank("home", f"r{k}") for k in range(15, 30)]  # some of these are not written yet
        await engine.put_surface("home", {"items": ["new", "newer"]}, actor="test")  # a new decision would differ
        if forget_between:
            engine.clear_recent()
        again = [await engine.rank("home", f"r{k}") for k in range(30)]
        return sum(one.slots != two.slots for one, two in zip(first, again)), store.lookups


def test_a_repeated_request_is_answered_from_the_queue_or_the_store():
    assert asyncio.run(decide_again(CountingStore()))[0] == 0


class ForgetfulStore(CountingStore):
    """Claims that stored events are absent."""

    def may_have_event(self, id: bytes) -> bool:
        return False


def test_a_filter_that_claims_absence_wrongly_is_caught():
    assert asyncio.run(decide_again(ForgetfulStore()))[0] > 0


def test_new_requests_need_no_look_up():
    store = CountingStore()
    assert asyncio.run(decide_again(store, forget_between=False)) == (0, 0)


@pytest.mark.parametrize("constraints", [{}, {"exclude": ["a"]}])
def test_requests_that_wait_for_the_store_at_once_get_one_decision(constraints):
    store = CountingStore()
    store.vague = True

    async def whole() -> None:
        async with running(store, refresh_ms=5) as engine:
            await engine.put_surface("home", {"slots": 3, "items": ITEMS}, actor="test")
            pages = await asyncio.gather(*(engine.rank("home", "r1", **constraints) for _ in range(20)))
            await written(engine)
            assert len({page.token for page in pages}) == 1
            assert len(store.log) == 1

    asyncio.run(whole())


@with_engine()
async def test_a_repeated_request_fails_while_the_store_cannot_be_read(engine, store, clock):
    known = await engine.rank("home", "r1")
    await written(engine)
    engine.clear_recent()
    store.broken = "the disk is gone"
    with pytest.raises(Unavailable):  # not a second decision
        await engine.rank("home", "r1")
    assert (await engine.rank("home", "r2")).slots
    store.broken = ""
    assert (await engine.rank("home", "r1")).slots == known.slots


@with_engine()
async def test_a_decision_that_is_evicted_while_another_request_waits_is_found(engine, store, clock):
    limit, engine_module.RECENT_RANKINGS = engine_module.RECENT_RANKINGS, 3
    try:
        known = await engine.rank("home", "r1")
        recent, ranked = engine._recent, engine._ranked
        event_id = bytes.fromhex(known.event_id)
        assert not engine._unanswered_since(recent, ranked - 1, event_id)  # it was answered since
        assert engine._unanswered_since(recent, ranked, bytes(16))
        for k in range(4):
            await engine.rank("home", f"other {k}")
        assert event_id not in engine._recent
        assert not engine._unanswered_since(recent, ranked - 1, event_id)  # too many others, it may be among them
        engine.clear_recent()
        assert not engine._unanswered_since(recent, engine._ranked, bytes(16))
    finally:
        engine_module.RECENT_RANKINGS = limit
