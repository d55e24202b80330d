"""Helpers that run an engine over a store in memory during a test, and simulate visitors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any

from bothworlds.serve.engine.engine import Engine
from bothworlds.serve.model import DRAW_KEY
from bothworlds.serve.schemas import Accepted, FeedbackEvent, Ranking

from .fakes import FakeStore

ITEMS = ["a", "b", "c", "d", "e", "f"]


class Clock:
    """A clock that the test sets."""

    def __init__(self, at: int = 1_700_000_000_000) -> None:
        self.at = at

    def __call__(self) -> int:
        return self.at


@asynccontextmanager
async def running(store: FakeStore | None = None, **options: Any):
    """Runs an engine with a fixed draw key, so that every run of the tests draws the same lists."""
    store = store or FakeStore()
    store.put(DRAW_KEY, bytes(32), only_if_absent=True)
    engine = Engine(store, **options)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


def with_engine(options: Mapping[str, Any] | None = None, **body: Any) -> Callable[..., Any]:
    """Run a test with an engine that serves the surface "home"; it is called with engine, store and clock.

    ``options`` are those of the engine, ``body`` the settings of the surface.
    """

    def decorate(test: Callable[..., Awaitable[None]]) -> Callable[[], None]:
        @wraps(test)
        def run() -> None:
            async def whole() -> None:
                store, clock = FakeStore(), Clock()
                async with running(store, clock=clock, **({"refresh_ms": 5} | dict(options or {}))) as engine:
                    await engine.put_surface("home", {"slots": 3, "items": ITEMS, **body}, actor="test")
                    await test(engine, store, clock)

            asyncio.run(whole())

        # pytest would take the parameters of the test for fixtures.
        del run.__wrapped__
        return run

    return decorate


async def answer(engine: Engine, ranked: Ranking, clicks: list[int], final: bool = True) -> Accepted:
    """Send feedback on a page."""
    (result,) = await engine.feedback([FeedbackEvent(ranked.event_id, ranked.token, clicks, final)])
    return result


async def visit(engine: Engine, request: str, likes: set[str], **arguments: Any) -> Ranking:
    """A visitor who clicks what she likes."""
    ranked = await engine.rank("home", request, **arguments)
    await answer(engine, ranked, [slot.slot for slot in ranked.slots if slot.item in likes])
    return ranked


async def refreshed(engine: Engine) -> None:
    """Wait until policies are up to date."""
    await asyncio.to_thread(engine.refresher.refresh)


async def eventually(holds: Callable[[], bool]) -> None:
    """Waits until a condition holds, for up to a minute."""
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.005)


async def written(engine: Engine) -> None:
    """Wait until all decisions are in the store."""
    await eventually(lambda: engine.writer.queue_length == 0)
