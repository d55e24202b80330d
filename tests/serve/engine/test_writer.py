"""The writer: batches, backlog, shutdown, and recovery after the store failed."""

from __future__ import annotations

import asyncio
import threading
import time
from types import SimpleNamespace
from typing import ClassVar

import pytest

from bothworlds.serve.engine import writer
from bothworlds.serve.model import TooMany, Unavailable
from bothworlds.serve.schemas import FeedbackEvent
from bothworlds.serve.stores.base import StoreError

from ..fakes import FakeStore
from ..running import ITEMS, Clock, answer, eventually, running, with_engine, written
from ..stores.samples import an_event


@with_engine()
async def test_nothing_is_lost_while_the_store_fails(engine, store, clock):
    ranked = [await engine.rank("home", f"r{k}") for k in range(4)]
    await written(engine)
    store.broken = "the disk is full"
    results = await asyncio.gather(*(answer(engine, page, [0]) for page in ranked), return_exceptions=True)
    assert {type(result) for result in results} == {Unavailable}
    assert "the disk is full" not in str(results[0])  # senders do not learn about the store
    assert "the disk is full" in engine.health()["last_error"]
    assert not engine.health()["ready"]
    for call in (
        engine.put_item("home", "g", actor="test"),
        engine.report("home"),
        engine.event(ranked[0].event_id),
    ):
        with pytest.raises(Unavailable) as caught:
            await call
        assert "the disk is full" not in str(caught.value)
    new = await engine.rank("home", "new")  # from memory
    store.broken = ""
    await eventually(lambda: engine.health()["ready"])
    await written(engine)
    assert bytes.fromhex(new.event_id) in store.log
    assert [(await answer(engine, page, [0])).status for page in ranked] == ["accepted"] * 4
    assert engine.health()["ready"]
    assert store.totals()[1, ""][0] == 4
    assert store.totals() == store.rebuilt()


@with_engine()
async def test_a_fault_in_the_store_does_not_end_the_writer(engine, store, clock):
    ranked, right = await engine.rank("home", "r1"), store.apply_feedback

    def wrong(feedback, now):
        store.apply_feedback = right
        raise RuntimeError("a fault")

    store.apply_feedback = wrong
    with pytest.raises(Unavailable, match="retry later"):
        await answer(engine, ranked, [0])
    assert (await answer(engine, ranked, [0])).status == "accepted"
    assert engine.health()["ready"]


class ReadOnly(FakeStore):
    """A store that can be read but not written while it is ``full``."""

    full = False
    refusals = 0

    def _refuse(self):
        if self.full:
            self.refusals += 1
            raise StoreError("the disk is full")

    def put(self, *arguments, **named):
        self._refuse()
        return super().put(*arguments, **named)

    def apply_feedback(self, *arguments):
        self._refuse()
        return super().apply_feedback(*arguments)


@pytest.mark.slow
def test_a_service_that_cannot_write_is_not_ready_until_it_can():
    async def whole():
        store = ReadOnly()
        async with running(store, clock=Clock()) as engine:
            await engine.put_surface("home", {"slots": 3, "items": ITEMS}, actor="test")
            ranked = await engine.rank("home", "r1")
            await written(engine)
            store.full = True
            with pytest.raises(Unavailable):
                await answer(engine, ranked, [0])
            await eventually(lambda: store.refusals > 3)  # the writer retries, though there is nothing to write
            assert not engine.health()["ready"]
            store.full = False
            await eventually(lambda: engine.health()["ready"])
            engine.writer.stop()
            await asyncio.to_thread(engine.writer.join)
            assert not engine.health()["ready"]

    asyncio.run(whole())


@with_engine()
async def test_a_service_whose_store_hangs_is_not_ready(engine, store, clock):
    ranked = await engine.rank("home", "r1")
    await written(engine)
    with pytest.MonkeyPatch.context() as patch, store.lock:  # the store hangs without an error
        patch.setattr(writer, "HANG_SECONDS", 0.05)
        answering = asyncio.create_task(answer(engine, ranked, [0]))
        await eventually(lambda: not engine.health()["ready"])
        assert "the store has not answered for" in engine.health()["reasons"][0]
    assert (await answering).status == "accepted"
    assert engine.health()["ready"]


def test_overdue_events_do_not_hold_up_feedback(monkeypatch):
    class Slow(FakeStore):
        order: ClassVar[list[str]] = []
        left = 40
        go_on = threading.Event()

        def settle_overdue(self, now, limit):
            self.order.append("settle")
            assert self.go_on.wait(60)
            self.left -= 1
            return limit if self.left > 0 else 0

        def apply_feedback(self, *arguments):
            self.order.append("feedback")
            return super().apply_feedback(*arguments)

    async def whole():
        store = Slow()
        async with running(store, clock=Clock()) as engine:
            await engine.put_surface("home", {"slots": 3, "items": ITEMS}, actor="test")
            await eventually(lambda: "settle" in store.order)
            monkeypatch.setattr(writer, "SETTLE_SECONDS", 3600.0)
            answering = asyncio.create_task(answer(engine, await engine.rank("home", "r1"), [0]))
            await eventually(lambda: engine.writer.pending_feedback)
            store.go_on.set()
            assert (await answering).status == "accepted"
            assert store.order[:2] == ["settle", "feedback"]
            await eventually(lambda: store.left <= 0)  # all are settled without waiting in between

    asyncio.run(whole())


def test_stopping_writes_pending_decisions_and_feedback():
    async def whole():
        store, clock = FakeStore(), Clock()
        async with running(store, clock=clock) as engine:
            await engine.put_surface("home", {"slots": 3, "items": ITEMS, "attribution_seconds": 60}, actor="test")
            pages = [await engine.rank("home", f"r{k}") for k in range(1000)]
            waiting = asyncio.ensure_future(answer(engine, pages[0], [0]))
            await asyncio.sleep(0)
        assert (await waiting).status == "accepted"
        assert len(store.log) == 1000
        with pytest.raises(Unavailable):
            await engine.rank("home", "after")
        async with running(store, clock=clock):
            clock.at += 61_000
        assert store.open_events() == 0  # stopping settles what is overdue
        assert store.totals() == store.rebuilt()

    asyncio.run(whole())


@with_engine()
async def test_feedback_beyond_the_backlog_is_refused(engine, store, clock):
    ranked = await engine.rank("home", "r1")
    await written(engine)
    with pytest.MonkeyPatch.context() as patch, store.lock:
        patch.setattr(writer, "BACKLOG", 100)
        many = [FeedbackEvent(ranked.event_id, ranked.token, [0], True)] * 99
        first = asyncio.ensure_future(engine.feedback(many))
        await asyncio.sleep(0)
        with pytest.raises(TooMany):
            await engine.feedback(many)
    results = await first
    assert [r.status for r in results[:2]] == ["accepted", "duplicate"]


@with_engine()
async def test_decisions_beyond_the_backlog_are_refused(engine, store, clock):
    with pytest.MonkeyPatch.context() as patch, store.lock:
        patch.setattr(writer, "BACKLOG", 5)
        for k in range(5):
            engine.writer.enqueue_decision(an_event(k))
        with pytest.raises(Unavailable):
            engine.writer.enqueue_decision(an_event(5))


def counting_decisions():
    """Returns a store and the list of the sizes of its batches of decisions."""
    store, sizes = FakeStore(), []
    save_events = store.save_events
    store.save_events = lambda events: sizes.append(len(events)) or save_events(events)
    return store, sizes


def test_a_single_decision_does_not_wait_for_a_group(monkeypatch):
    async def whole():
        store, sizes = counting_decisions()
        async with running(store, shared=True) as engine:
            await engine.put_surface("home", {"slots": 3, "items": ITEMS}, actor="test")
            monkeypatch.setattr(writer, "DECISION_WAIT", 3600.0)
            for k in range(5):
                await asyncio.wait_for(engine.rank("home", f"alone{k}"), 60)
            assert sizes == [1] * 5
            monkeypatch.setattr(writer, "DECISION_WAIT", 0.001)
            monkeypatch.setattr(writer, "DECISION_DELAY", 3600.0)
            many = (engine.rank("home", f"many{k}") for k in range(writer.BATCH + 100))
            await asyncio.wait_for(asyncio.gather(*many), 60)

    asyncio.run(whole())


def test_decisions_wait_for_a_group_of_the_size_of_the_last_one(monkeypatch):
    async def whole():
        store, sizes = counting_decisions()
        waiting, come = threading.Event(), threading.Event()
        monkeypatch.setattr(
            writer, "time", SimpleNamespace(**vars(time) | {"sleep": lambda _: waiting.set() or come.wait(60)})
        )
        one = writer.Writer(store, Clock(), lambda count: None)
        futures = [one.save_decision(an_event(k)) for k in range(50)]
        one.start()
        await asyncio.gather(*futures)
        futures = [one.save_decision(an_event(50))]
        await eventually(waiting.is_set)
        futures += [one.save_decision(an_event(k)) for k in range(51, 100)]
        come.set()
        await asyncio.gather(*futures)
        one.stop()
        await asyncio.to_thread(one.join)
        assert sizes == [50, 50]

    asyncio.run(whole())


async def answered_during_feedback(separate: bool) -> bool:
    """Returns whether a list is stored and returned while the transaction of feedback waits for the disk."""
    store, clock = FakeStore(), Clock()
    syncing, synced = threading.Event(), threading.Event()
    async with running(store, clock=clock, shared=True, refresh_ms=600_000) as engine:
        if not separate:
            engine._decision_writer = engine.writer
        await engine.put_surface("home", {"slots": 3, "items": ITEMS}, actor="test")
        ranked, right = await engine.rank("home", "r1"), store.apply_feedback

        def slow(feedback, now):
            syncing.set()
            synced.wait(60)
            return right(feedback, now)

        store.apply_feedback = slow
        feedback = asyncio.create_task(answer(engine, ranked, [0]))
        await asyncio.to_thread(syncing.wait, 60)
        waiting = asyncio.create_task(engine.rank("home", "r2"))
        await asyncio.wait([waiting], timeout=60 if separate else 0.2)
        answered = waiting.done()
        synced.set()
        assert (await feedback).status == "accepted"
        await waiting
        return answered


def test_a_shared_store_saves_decisions_while_feedback_is_synced():
    assert asyncio.run(answered_during_feedback(separate=True))
    assert not asyncio.run(answered_during_feedback(separate=False))  # with one writer for both
