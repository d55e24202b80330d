"""Figures of a store: ``python -m benchmarks.stores [PATH | postgresql://...] [--events N]``.

Events are written and settled, learned again (``rebuild``, ``verify``), and a service is started on them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from bothworlds.serve.engine.engine import Engine
from bothworlds.serve.engine.surface_rules import create_surface
from bothworlds.serve.events import Event, Feedback, Listed
from bothworlds.serve.model import now_ms
from bothworlds.serve.ops.verify import rebuild, verify
from bothworlds.serve.stores import SETTLE_LIMIT, Store, open_store

ITEMS, SLOTS, BATCH = 20, 5, 512
NAME = "bench"


def fill(store: Store, count: int) -> tuple[float, float]:
    """Write and settle final feedback on new events; return the seconds of each."""
    body = {"slots": SLOTS, "items": [f"i{k}" for k in range(ITEMS)]}
    surface = store.save_surface(create_surface(NAME, body, now_ms()).surface, [])
    learner = store.admit_learner(surface.id, "", surface.learner, 100, now_ms())
    lease = store.acquire("benchmark", 3600.0)
    assert learner is not None
    assert lease is not None
    rng, written, settled = random.Random(1), 0.0, 0.0
    for first in range(0, count, BATCH):
        now, given = now_ms(), []
        for _ in range(min(BATCH, count - first)):
            listed = Listed(tuple(rng.sample(range(ITEMS), SLOTS)), (SLOTS / ITEMS,) * SLOTS, (1 << SLOTS) - 1)
            event = Event(
                id=os.urandom(16), surface_id=surface.id, learner_id=learner.id, segment="", arm="learner",
                created_at=now, expires_at=now + 600_000, late_until=now + 86_400_000, n=ITEMS, listed=listed,
            )  # fmt: skip
            given.append(Feedback(event=event, clicks=rng.choice((0, 0, 0, 1, 4)), shown=True, final=True))
        written += seconds(lambda now=now, given=given: store.write([], given, now))
        settled += seconds(lambda: settle_all(store, lease, surface.id))
    store.release(lease)
    return written, settled


def settle_all(store: Store, lease: object, surface_id: int) -> None:
    """Settle everything that is due."""
    while store.settle(lease, now_ms() + 1, {surface_id: True}, {surface_id: "final"}, SETTLE_LIMIT):
        continue


def seconds(work: Callable[[], object]) -> float:
    """Return how long a call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def first_list(store: Store) -> float:
    """Return the seconds from the start of an engine, in a process that has compiled, to its first list."""

    async def started() -> float:
        engine, start = Engine(store), time.perf_counter()
        await engine.start()
        await engine.rank(NAME, "first")
        taken = time.perf_counter() - start
        await engine.stop()
        return taken

    return asyncio.run(started())


def main() -> None:
    """Measure one store."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stores", description=__doc__)
    parser.add_argument("store", nargs="?", help="an empty one; default: a SQLite file in a temporary folder")
    parser.add_argument("--events", type=int, default=100_000)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(open_store(arguments.store or str(Path(folder) / "store.db"))) as store,
    ):
        count = arguments.events
        written, settled = fill(store, count)
        print(f"write {count / written:,.0f} events/s, settle {count / settled:,.0f} events/s")
        print(f"start and first list without a snapshot {first_list(store):.2f} s")
        relearned = seconds(lambda: rebuild(store))
        print(f"learn again {count / relearned:,.0f} events/s, then a snapshot")
        print(f"start and first list with a snapshot {first_list(store):.2f} s")
        assert verify(store).clean
        print(f"verify {seconds(lambda: verify(store)):.1f} s")


if __name__ == "__main__":
    main()
