"""Helpers that run an engine over a temporary store, and simulate visitors."""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
import weakref
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from functools import wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from bothworlds.policies.logged_pages import LogState
from bothworlds.serve.engine import engine as engine_module
from bothworlds.serve.engine import served, surface_rules
from bothworlds.serve.engine.engine import Engine
from bothworlds.serve.events import Event
from bothworlds.serve.model import DRAW_KEY, Surface, now_ms
from bothworlds.serve.schemas import Accepted, FeedbackEvent, Ranking
from bothworlds.serve.stores import Store, StoreError, open_store
from bothworlds.serve.stores.database import Database
from tests.serve.engine.logs import copied

ITEMS = ["a", "b", "c", "d", "e", "f"]
SURFACE = {"slots": 3, "items": ITEMS, "policy": "ftrl-pbm"}
MINUTE = 60_000
HOUR, DAY = 60 * MINUTE, 1440 * MINUTE


class Clock:
    """A clock that the test sets."""

    def __init__(self, at: int = 1_700_000_000_000) -> None:
        self.at = at

    def __call__(self) -> int:
        return self.at


def temporary_store() -> Store:
    """Returns a new SQLite store, which is closed and deleted when nobody uses it any more."""
    folder = tempfile.mkdtemp(prefix="bothworlds-test-")
    store = open_store(str(Path(folder, "store.db")))
    weakref.finalize(store, _discard, store.database, folder)
    return store


def _discard(database: Database, folder: str) -> None:
    database.close()
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def broken(store: Store, why: str = "the disk is full") -> Iterator[None]:
    """Lets every call of the store fail."""

    def fail(*arguments: Any, **options: Any) -> Any:
        raise StoreError(why)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store.database, "reading", fail)
        patch.setattr(store.database, "write", fail)
        yield


@asynccontextmanager
async def running(store: Store | None = None, clock: Callable[[], int] = now_ms, **options: Any):
    """Runs an engine with a fixed draw key and fixed seed: every run of a test has the same ids, arms and lists."""
    store = store or temporary_store()
    store.put(DRAW_KEY, bytes(32), only_if_absent=True)
    engine = Engine(store, clock=clock, **options)
    # In a service, lists must not be predictable, and two workers must not draw the same ones.
    with patch.object(served, "secrets", SimpleNamespace(randbits=random.Random(1).getrandbits)):
        await engine.start()
        try:
            yield engine
        finally:
            await engine.stop()


@asynccontextmanager
async def serving(store: Store, clock: Callable[[], int] | None = None, **options: Any):
    """Runs an engine that settles and learns in ``refreshed`` only, so that nothing depends on time.

    A request with a context waits for the newest lists instead of using those of before while new ones are made.
    """
    given = {"refresh_ms": 3_600_000, "refresh_events": 10**9} | options
    with patch.object(engine_module, "STALE_MS", -1):
        async with running(store, clock or Clock(), **given) as engine:
            yield engine


async def put_surface(engine: Engine, name: str = "home", **body: Any) -> Surface:
    """Creates a surface."""
    made, _ = await engine.administration.put_surface(name, SURFACE | body, actor="test")
    return made


async def changed(engine: Engine, name: str = "home", **settings: Any) -> Surface:
    """Changes settings of a surface without computing its lists first, as another process may have done."""
    change = surface_rules.change_settings(engine.registry.surface(name), settings, engine.registry.clock())
    stored = engine.registry.store.save_surface(change.surface, [])
    await asyncio.to_thread(engine.registry.replace, stored)
    return stored


def with_engine(options: Mapping[str, Any] | None = None, **body: Any) -> Callable[..., Any]:
    """Runs a test with an engine that serves the surface "home"; it is called with engine, store and clock.

    ``options`` are those of the engine, which settles and learns in ``refreshed`` only; ``body`` is of the surface.
    """

    def decorate(test: Callable[..., Awaitable[None]]) -> Callable[[], None]:
        @wraps(test)
        def run() -> None:
            async def whole(store: Store) -> None:
                clock = Clock()
                async with serving(store, clock, **(options or {})) as engine:
                    await put_surface(engine, **body)
                    for _ in range(2):  # so that the first refresh, at the start, is over
                        await engine.recorder.flush()
                    await test(engine, store, clock)

            with tempfile.TemporaryDirectory() as folder, closing(open_store(str(Path(folder, "store.db")))) as store:
                asyncio.run(whole(store))

        # pytest would take the parameters of the test for fixtures.
        del run.__wrapped__
        return run

    return decorate


async def answer(engine: Engine, ranked: Ranking, clicks: list[int], final: bool = True, **more: Any) -> Accepted:
    """Sends feedback on a page."""
    (result,) = await engine.feedback([FeedbackEvent(ranked.event_id, ranked.token, clicks, final, **more)])
    return result


async def visit(engine: Engine, request: str, likes: set[str], surface: str = "home", **arguments: Any) -> Ranking:
    """A visitor who clicks what she likes."""
    ranked = await engine.rank(surface, request, **arguments)
    await answer(engine, ranked, [slot.slot for slot in ranked.slots if slot.item in likes])
    return ranked


async def visits(engine: Engine, requests: list[str], likes: set[str], **arguments: Any) -> list[Ranking]:
    """Visitors who click what they like, and send their feedback together; learned when this returns."""
    pages = [await engine.rank("home", request, **arguments) for request in requests]
    await engine.feedback(
        [
            FeedbackEvent(page.event_id, page.token, [one.slot for one in page.slots if one.item in likes], True)
            for page in pages
        ]
    )
    await refreshed(engine)
    return pages


async def refreshed(engine: Engine) -> None:
    """Waits until everything that was acknowledged is settled, learned, and drawn from."""
    await engine.recorder.refresh()


async def looked(engine: Engine) -> None:
    """Does what housekeeping does every minute, and what it does every second."""
    await refreshed(engine)
    await asyncio.to_thread(engine.housekeeping.learn_again)
    await asyncio.to_thread(engine.housekeeping.look)


async def written(engine: Engine) -> None:
    """Waits until all decisions are in the store."""
    await engine.recorder.flush()


async def eventually(holds: Callable[[], bool]) -> None:
    """Waits until a condition holds, for up to a minute."""
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.005)


def state_of(engine: Engine, surface: str = "home", arm: str = "learner") -> LogState:
    """Returns a copy of the state of a learner."""
    home = engine.registry.served(surface)
    one = home.learner(arm)
    return engine.states.read(one.learner, home.target(one), copied)


def log_of(store: Store) -> dict[bytes, Event]:
    """Returns all stored events by id."""
    return {event.id: event for surface in store.surfaces() for event in store.events(surface.id, 0, 1 << 60)}
