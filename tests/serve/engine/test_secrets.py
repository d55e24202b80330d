"""Tokens of an engine: forged ones are rejected, and secrets are rotated while it runs."""

from __future__ import annotations

import asyncio
import threading

import pytest

from bothworlds.serve.engine.tokens import open_secrets, rotate_secret
from bothworlds.serve.model import Unavailable
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
    with_engine,
    written,
)


@with_engine()
async def test_forged_and_foreign_tokens_change_nothing(engine, store, clock):
    one, two = await engine.rank("home", "r1"), await engine.rank("home", "r2")
    bad = [
        FeedbackEvent(one.event_id, two.token, [0], True),
        FeedbackEvent(one.event_id, one.token[:-2] + "xx", [0], True),
        FeedbackEvent(one.event_id, one.token[:20], [0], True),
        FeedbackEvent(one.event_id, "", [0], True),
        FeedbackEvent(one.event_id, "é" * 40, [0], True),
        FeedbackEvent("nonsense", one.token, [0], True),
        FeedbackEvent(one.event_id, one.token, [3], True),
        FeedbackEvent(one.event_id, one.token, [-1], True),
    ]
    results = await engine.feedback(bad)
    assert {result.status for result in results} == {"rejected"}
    assert all(result.reason for result in results)
    await written(engine)
    assert {event.clicks for event in log_of(store).values()} == {0}


@with_engine(attribution_seconds=60, late_seconds=100)
async def test_expired_tokens_change_nothing(engine, store, clock):
    ranked = await engine.rank("home", "r1")
    await refreshed(engine)
    clock.at += 160_001
    assert (await answer(engine, ranked, [0])).status == "expired"
    assert {event.clicks for event in log_of(store).values()} == {0}


@with_engine()
async def test_tokens_of_a_store_without_the_surface_are_rejected(engine, store, clock):
    ranked = await engine.rank("home", "r1")
    await written(engine)
    store.delete_surface(engine.registry.surface("home"), [])
    engine.registry.remove(1)
    result = await answer(engine, ranked, [0])
    assert (result.status, "it may have been deleted" in result.reason) == ("rejected", True)


@with_engine()
async def test_tokens_stay_valid_after_a_rotation_unless_they_are_forgotten(engine, store, clock):
    ranked = await engine.rank("home", "r1")
    assert await engine.secrets.rotate(clock(), False) == 2
    assert (await answer(engine, ranked, [0])).status == "accepted"
    assert await engine.secrets.rotate(clock(), True) == 3
    assert (await answer(engine, ranked, [1])).status == "rejected"
    again = await engine.rank("home", "r1")  # a request that is sent again gets a new token
    assert (again.slots, again.token != ranked.token) == (ranked.slots, True)
    assert (await answer(engine, again, [0, 1])).status == "accepted"


def token_of_another_process(engine, store, clock, ranked):
    rotate_secret(store, clock())
    return open_secrets(store)[0].sign(engine.secrets.signer.read(ranked.token))


@with_engine()
async def test_a_lookup_of_a_secret_does_not_block_other_requests(engine, store, clock):
    ranked = await engine.rank("home", "r1")
    token = token_of_another_process(engine, store, clock, ranked)
    put, begun, go_on = store.put, threading.Event(), threading.Event()

    def stalled(*given, **options):
        begun.set()
        assert go_on.wait(60)
        return put(*given, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "put", stalled)
        searching = [
            asyncio.create_task(engine.feedback([FeedbackEvent(ranked.event_id, token, [0], True)])) for _ in range(2)
        ]
        await eventually(begun.is_set)
        assert (await engine.rank("home", "r1")).event_id == ranked.event_id
        go_on.set()
        assert sorted([(await one)[0].status for one in searching]) == ["accepted", "duplicate"]


@with_engine()
async def test_a_token_is_not_rejected_while_its_secret_cannot_be_read(engine, store, clock):
    ranked = await engine.rank("home", "r1")
    token = token_of_another_process(engine, store, clock, ranked)
    given = FeedbackEvent(ranked.event_id, token, [0], True)

    def broken(*given, **options):
        raise StoreError("away")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "put", broken)
        for _ in range(2):
            with pytest.raises(Unavailable):
                await engine.feedback([given])
    assert (await engine.feedback([given]))[0].status == "accepted"


def test_a_process_signs_with_the_secret_that_another_has_made(store):
    async def whole():
        clock = Clock()
        async with running(store, clock=clock, shared=True, refresh_ms=5) as engine:
            await put_surface(engine)
            rotate_secret(store, clock())
            engine.secrets.followed_at = -1e9
            await eventually(lambda: engine.secrets.signer.number == 2)

    asyncio.run(whole())
