"""Throughput of a store: ``python -m benchmarks.stores [PATH | postgresql://...] [--events N]``."""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

from bothworlds.serve.model import Event, Item, Surface, SurfaceSettings, VerifiedFeedback
from bothworlds.serve.ops.verify import verify
from bothworlds.serve.stores import open_store, sql_surfaces
from bothworlds.serve.stores.sql_store import SqlStore
from bothworlds.serve.time_blocks import encode_cells

NOW = 1_700_000_000_000
ITEMS, SLOTS = 20, 5
ROUNDS = 10  # with and without blocks of time, in turn


def make_surface() -> Surface:
    """Return a surface with a random name."""
    items = tuple(Item(name=f"i{k}", index=k, state="active", added_at=NOW, changed_at=NOW) for k in range(ITEMS))
    settings = SurfaceSettings(slots=SLOTS)
    name = f"bench {os.urandom(4).hex()}"
    return Surface(id=0, name=name, version=1, settings=settings, items=items, created_at=NOW, changed_at=NOW)


def make_reports(surface_id: int, count: int) -> Iterator[VerifiedFeedback]:
    """Yield final feedback on new events."""
    rng, salt = random.Random(1), os.urandom(8)
    for k in range(count):
        event = Event(
            id=hashlib.blake2b(k.to_bytes(8, "big"), key=salt, digest_size=16).digest(),
            surface_id=surface_id,
            segment="",
            arm="learner",
            policy_id="0123456789abcdef",
            created_at=NOW + k,
            expires_at=NOW + k + 1_800_000,
            late_until=NOW + k + 86_400_000,
            items=tuple(rng.sample(range(ITEMS), SLOTS)),
            p=tuple(rng.uniform(0.01, 1.0) for _ in range(SLOTS)),
            learn=(1 << SLOTS) - 1,
        )
        yield VerifiedFeedback(event=event, clicks=rng.choice((0, 0, 0, 1, 4)), final=True)


def per_second(work: Callable[[list[VerifiedFeedback]], object], reports: list[VerifiedFeedback], size: int) -> float:
    """Return how many reports per second are processed in batches of this size."""
    start = time.perf_counter()
    for first in range(0, len(reports), size):
        work(reports[first : first + size])
    return len(reports) / (time.perf_counter() - start)


def measure(store: SqlStore, count: int) -> None:
    """Print the throughput for several batch sizes, and the time to verify the store."""
    surface = store.save_surface(make_surface(), [], [])
    for size in (64, 256, 512):
        unknown, known = (list(make_reports(surface.id, count)) for _ in range(2))
        figures = (
            per_second(lambda batch: store.apply_feedback(batch, NOW), unknown, size),
            per_second(lambda batch: store.save_events([report.event for report in batch]), known, size),
            per_second(lambda batch: store.apply_feedback(batch, NOW), known, size),
        )
        print(
            "batches of {}: {:,.0f} reports/s on tokens, {:,.0f} remembered/s, then {:,.0f} reports/s".format(
                size, *figures
            )
        )
    start = time.perf_counter()
    result = verify(store)
    print(f"verify: {result.events:,} events in {time.perf_counter() - start:.1f} s, clean: {result.clean}")


def blocks_cost(store: SqlStore, count: int) -> None:
    """Print what blocks of time add to the cost of settling, in turn with and without them, and what they occupy.

    There are 1,000 events a second, and blocks are merged after 10,000 events.
    """
    surface = store.save_surface(make_surface(), [], [])
    seconds = {True: 0.0, False: 0.0}
    for k in range(2 * ROUNDS):
        with_blocks = k % 2 == 0
        reports = list(make_reports(surface.id, count // ROUNDS))
        skipped = nullcontext() if with_blocks else patch.object(sql_surfaces, "add_blocks", lambda *arguments: None)
        start = time.perf_counter()
        with skipped:
            for first in range(0, len(reports), 512):
                store.apply_feedback(reports[first : first + 512], NOW)
                if with_blocks and first % 10_240 == 0:
                    store.compact(surface.id, "", NOW + 3_600_000)
        seconds[with_blocks] += time.perf_counter() - start
    store.compact(surface.id, "", NOW + 3_600_000)
    blocks = store.blocks(surface.id, "").values()
    size = sum(len(encode_cells(block.cells)) for block in blocks)
    print(
        f"batches of 512: settling takes {seconds[True] / seconds[False]:.2f} times as long with blocks of time; "
        f"{len(blocks)} blocks of {size / max(1, len(blocks)):,.0f} bytes"
    )


def main() -> None:
    """Measure one store."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stores", description=__doc__)
    parser.add_argument("store", nargs="?", help="default: a SQLite file in a temporary folder")
    parser.add_argument("--events", type=int, default=20_000, help="events per batch size")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(arguments.store or str(Path(folder) / "store.db"))
        measure(store, arguments.events)
        blocks_cost(store, arguments.events)
        store.close()


if __name__ == "__main__":
    main()
