"""Measures the start of a service with many surfaces, and the first page of its dashboard.

python -m benchmarks.many_surfaces --surfaces 1000 --pages 20
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from contextlib import closing
from pathlib import Path

import msgspec

from bothworlds.serve.config import Config
from bothworlds.serve.engine.engine import Engine
from bothworlds.serve.engine.surface_rules import create_surface
from bothworlds.serve.http.app import Service
from bothworlds.serve.schemas import FeedbackEvent
from bothworlds.serve.stores import open_store
from tests.serve.http.conftest import Client

ITEMS = [f"item {k}" for k in range(20)]


def fill(place: str, surfaces: int, pages: int) -> None:
    """Create the surfaces, each with some pages."""
    with closing(open_store(place)) as store:
        made = create_surface("one", {"slots": 5, "items": ITEMS, "holdout": 0.1}, 0).surface
        for k in range(surfaces):
            store.save_surface(msgspec.structs.replace(made, name=f"s{k:04d}"), [])

    async def visit() -> None:
        with closing(open_store(place)) as store:
            engine = Engine(store)
            await engine.start()
            for k in range(surfaces):
                shown = [await engine.rank(f"s{k:04d}", f"{k} {j}") for j in range(pages)]
                await engine.feedback([FeedbackEvent(page.event_id, page.token, [0], True) for page in shown])
            await engine.stop()

    asyncio.run(visit())


def main() -> None:
    parser = argparse.ArgumentParser(description="the start of a service with many surfaces")
    parser.add_argument("--surfaces", type=int, default=1000)
    parser.add_argument("--pages", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = str(Path(folder) / "many.db")
        fill(place, options.surfaces, options.pages)
        with closing(open_store(place)) as store:
            engine = Engine(store)
            client = Client(Service(engine, store, Config(request_log=False)))
            started = time.perf_counter()
            client.run(client.service.start())
            print(f"start: {time.perf_counter() - started:.2f} s")
            for path in ("/", "/", f"/surfaces/s{options.surfaces - 1:04d}"):
                started = time.perf_counter()
                assert client("GET", path).status_code == 200
                print(f"{path}: {time.perf_counter() - started:.2f} s")
            client.run(client.service.stop())
            client.close()


if __name__ == "__main__":
    main()
