"""The recorder: batches, backlog, shutdown, and recovery after the store failed."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from bothworlds.serve.engine import learning, recorder
from bothworlds.serve.model import TooMany, Unavailable
from bothworlds.serve.schemas import FeedbackEvent
from bothworlds.serve.stores import StoreError
from tests.serve.running import (
    Clock,
    answer,
    eventually,
    log_of,
    put_surface,
    refreshed,
    running,
    state_of,
    with_engine,
    written,
)


class Fault:
    """Makes every transaction of a store that writes raise, or wait, while it is ``on``."""

    def __init__(self, store, patch):
        self.on, self.refusals, self.go_on = False, 0, threading.Event()
        self.waits = False
        write = store.database.write

        def faulty(work, **options):
            if self.waits:
                assert self.go_on.wait(60)
            elif self.on:
                self.refusals += 1
                raise StoreError("the disk is full")
            return write(work, **options)

        patch.setattr(store.database, "write", faulty)


def faulty(test):
    """Runs a test with an engine and a fault in its store."""

    @with_engine()
    async def run(engine, store, clock):
        with pytest.MonkeyPatch.context() as patch:
            await test(engine, store, Fault(store, patch))

    return run


@faulty
async def test_nothing_is_lost_while_the_store_fails(engine, store, fault):
    ranked = [await engine.rank("home", f"r{k}") for k in range(4)]
    await written(engine)
    fault.on = True
    results = await asyncio.gather(*(answer(engine, page, [0]) for page in ranked), return_exceptions=True)
    assert {type(result) for result in results} == {Unavailable}
    assert "the disk is full" not in str(results[0])  # senders do not learn about the store
    assert "the disk is full" in engine.health()["last_error"]
    assert not engine.health()["ready"]
    with pytest.raises(Unavailable):
        await engine.recorder.flush()
    new = await engine.rank("home", "new")  # from memory
    assert (await engine.rank("home", "new")) == new
    fault.on = False
    await eventually(lambda: engine.health()["ready"])
    await written(engine)
    assert bytes.fromhex(new.event_id) in log_of(store)
    assert [(await answer(engine, page, [0])).status for page in ranked] == ["accepted"] * 4
    await refreshed(engine)
    assert state_of(engine).pages == 4


@faulty
async def test_a_service_that_cannot_write_is_not_ready_until_it_can(engine, store, fault):
    ranked = await engine.rank("home", "r1")
    await written(engine)
    fault.on = True
    with pytest.raises(Unavailable):
        await answer(engine, ranked, [0])
    await eventually(lambda: fault.refusals > 3)  # it tries to write, though nothing is waiting
    assert not engine.health()["ready"]
    fault.on = False
    await eventually(lambda: engine.health()["ready"])
    engine.recorder.stop()
    await asyncio.to_thread(engine.recorder.join)
    assert not engine.health()["ready"]


@faulty
async def test_a_service_whose_store_hangs_is_not_ready(engine, store, fault):
    ranked = await engine.rank("home", "r1")
    await written(engine)
    fault.waits = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorder, "HANG_SECONDS", 0.05)
        answering = asyncio.create_task(answer(engine, ranked, [0]))
        await eventually(lambda: not engine.health()["ready"])
        assert "the store has not answered for" in engine.health()["reasons"][0]
        assert (await engine.rank("home", "r2")).slots  # waits for nothing
        fault.go_on.set()
        assert (await answering).status == "accepted"
    assert engine.health()["ready"]


@with_engine()
async def test_a_fault_in_the_store_does_not_end_the_recorder(engine, store, clock):
    ranked = await engine.rank("home", "r1")
    with pytest.MonkeyPatch.context() as patch:

        def wrong(decisions, feedback, now):
            raise RuntimeError("a fault")

        patch.setattr(store, "write", wrong)
        with pytest.raises(Unavailable, match="retry later"):
            await answer(engine, ranked, [0])
    await eventually(lambda: engine.health()["ready"])
    assert (await answer(engine, ranked, [0])).status == "accepted"


@with_engine()
async def test_a_fault_in_learning_does_not_hold_up_feedback(engine, store, clock):
    ranked = await engine.rank("home", "r1")
    with pytest.MonkeyPatch.context() as patch:

        def wrong():
            raise RuntimeError("a fault")

        patch.setattr(store, "last_numbers", wrong)
        with pytest.raises(RuntimeError, match="a fault"):
            await refreshed(engine)
        assert (await answer(engine, ranked, [0])).status == "accepted"
    await refreshed(engine)
    assert state_of(engine).pages == 1


def test_events_that_are_settled_while_learning_fails_are_learned_later(store, monkeypatch):
    async def whole():
        async with running(store, clock=Clock(), refresh_ms=1) as engine:
            await put_surface(engine)
            learn = engine.states.learn

            def wrong(events):
                raise StoreError("away")

            monkeypatch.setattr(engine.states, "learn", wrong)
            for k in range(20):
                await answer(engine, await engine.rank("home", f"r{k}"), [0])
            await eventually(lambda: "policies are not updated: away" in engine.health()["reasons"])
            assert engine.health()["ready"]
            monkeypatch.setattr(engine.states, "learn", learn)
            await eventually(lambda: engine.health()["reasons"] == [])
            one = engine.registry.served("home").learner()
            await eventually(lambda: one.lists.source.rounds == 20)

    asyncio.run(whole())


def test_stopping_writes_what_is_pending_and_settles_what_is_due(store):
    async def whole():
        clock = Clock()
        async with running(store, clock=clock) as engine:
            await put_surface(engine, attribution_seconds=60, feedback="clicks")
            pages = [await engine.rank("home", f"r{k}") for k in range(1000)]
            waiting = asyncio.ensure_future(answer(engine, pages[0], [0]))
            await asyncio.sleep(0)
        assert (await waiting).status == "accepted"
        assert len(log_of(store)) == store.open_events() == 1000
        with pytest.raises(Unavailable):
            await engine.rank("home", "after")
        with pytest.raises(Unavailable):
            engine.recorder.submit([])
        async with running(store, clock=clock):
            clock.at += 61_000
        assert store.open_events() == 0
        assert store.acquire("another", 1.0)

    asyncio.run(whole())


@faulty
async def test_feedback_beyond_the_backlog_is_refused(engine, store, fault):
    ranked = await engine.rank("home", "r1")
    await written(engine)
    fault.waits = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorder, "BACKLOG", 100)
        many = [FeedbackEvent(ranked.event_id, ranked.token, [0], True)] * 99
        first = asyncio.ensure_future(engine.feedback(many))
        await asyncio.sleep(0)
        with pytest.raises(TooMany):
            await engine.feedback(many)
    fault.go_on.set()
    assert [r.status for r in (await first)[:2]] == ["accepted", "duplicate"]


@faulty
async def test_decisions_beyond_the_backlog_are_refused(engine, store, fault):
    fault.waits = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorder, "BACKLOG", 5)
        for k in range(5):
            await engine.rank("home", f"r{k}")
        with pytest.raises(Unavailable, match="own order"):
            await engine.rank("home", "one more")
    fault.go_on.set()


@with_engine()
async def test_a_call_sees_everything_that_was_taken_before(engine, store, clock):
    pages = [await engine.rank("home", f"r{k}") for k in range(3000)]
    assert len(await engine.recorder.call(lambda: log_of(store))) == len(pages)

    def fails():
        raise ValueError("of the caller")

    with pytest.raises(ValueError, match="of the caller"):
        await engine.recorder.call(fails)


@with_engine({"refresh_ms": 1, "refresh_events": 1})
async def test_lists_are_made_again_while_feedback_keeps_coming(engine, store, clock):
    one, seen = engine.registry.served("home").learner(), set()
    for k in range(200):
        page = await engine.rank("home", f"r{k}")
        await answer(engine, page, [0])
        seen.add(page.policy_id)
    assert len(seen) > 20
    await eventually(lambda: one.lists.source.rounds == 200)
    assert {id for _, id, _ in store.policies(1, 0, 0, 1000)} <= seen | {one.lists.id}


@with_engine()
async def test_learners_that_nobody_uses_have_no_lists(engine, store, clock):
    one = (await engine.rank("home", "r1"), engine.registry.served("home").learner())[1]
    waiting = await engine.rank("home", "r2")
    clock.at += 601_000
    await answer(engine, waiting, [0])
    await refreshed(engine)
    assert one.lists is None
    assert (await engine.rank("home", "r3")).policy_id != waiting.policy_id


def shown_lists(slow):
    """What 40 visitors see and do; with ``slow``, on a machine that takes long for everything."""
    seen = []

    @with_engine(holdout=0.3)
    async def run(engine, store, clock):
        with pytest.MonkeyPatch.context() as patch:
            if slow:
                patch.setattr(learning, "SLICE", 0.0)
                wait = engine.recorder._wait
                patch.setattr(engine.recorder, "_wait", lambda: (wait(), time.sleep(0.001)))
            for k in range(40):
                page = await engine.rank("home", f"v{k}")
                seen.append([slot.item for slot in page.slots])
                await answer(engine, page, [slot.slot for slot in page.slots if slot.item in ("a", "b")])
                clock.at += 20
                if k % 5 == 4:
                    await refreshed(engine)

    run()
    return seen


def test_what_visitors_see_does_not_depend_on_the_speed_of_the_machine():
    assert shown_lists(slow=True) == shown_lists(slow=False)
