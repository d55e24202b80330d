"""Helpers that run an engine with everything beside it over a temporary SQLite store, and simulate visitors."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from bothworlds.serve.engine import served
from bothworlds.serve.engine.engine import Engine
from bothworlds.serve.model import DRAW_KEY
from bothworlds.serve.schemas import Accepted, FeedbackEvent, Ranking
from bothworlds.serve.stores import Store, open_store

ITEMS = ["a", "b", "c", "d", "e", "f"]
MINUTE = 60_000
HOUR, DAY = 60 * MINUTE, 1440 * MINUTE


class Clock:
    """A clock that the test sets."""

    def __init__(self, at: int = 1_700_000_000_000) -> None:
        self.at = at

    def __call__(self) -> int:
        return self.at


@asynccontextmanager
async def serving(store: Store, clock: Callable[[], int] | None = None, **options: Any):
    """Runs an engine with a fixed draw key and fixed seeds; its housekeeping does nothing unless the test calls it."""
    store.put(DRAW_KEY, bytes(32), only_if_absent=True)
    engine = Engine(store, clock=clock or Clock(), **({"refresh_ms": 5} | options))
    with patch.object(served, "secrets", SimpleNamespace(randbits=random.Random(1).getrandbits)):
        await engine.start()
        try:
            yield engine
        finally:
            await engine.stop()


def with_service(options: dict[str, Any] | None = None, **body: Any) -> Callable[..., Any]:
    """Run a test with an engine that serves the surface "home"; it is called with engine, store and clock."""

    def decorate(test: Callable[..., Awaitable[None]]) -> Callable[[], None]:
        @wraps(test)
        def run() -> None:
            async def whole() -> None:
                with tempfile.TemporaryDirectory() as folder:
                    store, clock = open_store(str(Path(folder) / "store.db")), Clock()
                    async with serving(store, clock, **(options or {})) as engine:
                        settings = {"slots": 3, "items": ITEMS, "policy": "ftrl-pbm", **body}
                        await engine.administration.put_surface("home", settings, actor="test")
                        await test(engine, store, clock)
                    store.close()

            asyncio.run(whole())

        # pytest would take the parameters of the test for fixtures.
        del run.__wrapped__
        return run

    return decorate


async def answer(engine: Engine, ranked: Ranking, clicks: list[int], final: bool = True, **more: Any) -> Accepted:
    """Send feedback on a page."""
    (result,) = await engine.feedback([FeedbackEvent(ranked.event_id, ranked.token, clicks, final, **more)])
    return result


async def visit(engine: Engine, request: str, likes: set[str], surface: str = "home", **arguments: Any) -> Ranking:
    """A visitor who clicks what she likes."""
    ranked = await engine.rank(surface, request, **arguments)
    await answer(engine, ranked, [slot.slot for slot in ranked.slots if slot.item in likes])
    return ranked


async def visits(engine: Engine, names: list[str], likes: set[str], **arguments: Any) -> list[Ranking]:
    """Several visitors; their feedback is sent together."""
    pages = [await engine.rank("home", name, **arguments) for name in names]
    given = [
        FeedbackEvent(page.event_id, page.token, [slot.slot for slot in page.slots if slot.item in likes], True)
        for page in pages
    ]
    await engine.feedback(given)
    return pages


async def learned(engine: Engine) -> None:
    """Wait until everything that is due is settled and learned, and drawn from."""

    def all_at_once(_: Any) -> None:
        learning = engine.recorder._learning
        while learning.refresh():
            continue
        while learning.has_more:
            learning.publish()

    await engine.recorder.call(all_at_once)


async def looked(engine: Engine) -> None:
    """Do what housekeeping does every minute, and what it does every second."""
    await learned(engine)
    await asyncio.to_thread(engine.housekeeping.learn_again)
    await asyncio.to_thread(engine.housekeeping.look)


async def eventually(holds: Callable[[], bool]) -> None:
    """Waits until a condition holds, for up to a minute."""
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.005)
