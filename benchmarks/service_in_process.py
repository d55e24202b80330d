"""Processor time of a request in the service, called as an ASGI application in this process: no socket, no client.

Each figure is per request, with the recorder, which writes every row, learns and publishes. It runs for any checkout
whose service has an engine and an ASGI application, so that two can be compared in turn:

python -m benchmarks.service_in_process
PYTHONPATH=../other/src python benchmarks/service_in_process.py
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Coroutine, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from bothworlds.serve.config import Config
from bothworlds.serve.engine.engine import Engine
from bothworlds.serve.http.app import Service
from bothworlds.serve.stores import open_store

ITEMS, SLOTS = 20, 5
CLIENTS = 64  # requests at a time
RANKS, WARMUP = 12_000, 3_000
RANK, FEEDBACK = "/v1/surfaces/home/rank", "/v1/feedback"


async def call(app: Any, method: str, path: str, body: Any) -> Any:
    """Return the JSON of a response."""
    content, sent = json.dumps(body).encode(), []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [
        (b"host", b"127.0.0.1"),
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(content)),
    ]
    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
        "headers": headers, "scheme": "http", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        "http_version": "1.1", "extensions": {},
    }  # fmt: skip
    await app(scope, receive, send)
    assert sent[0]["status"] < 300, (sent[0], sent[1:])
    return json.loads(b"".join(message.get("body", b"") for message in sent[1:]))


async def at_once(requests: Iterator[Coroutine[Any, Any, None]]) -> tuple[float, float]:
    """Make requests, some at a time; return the seconds that passed, and those of the processor."""
    started, used = time.perf_counter(), time.process_time()

    async def client() -> None:
        for request in requests:
            await request

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return time.perf_counter() - started, time.process_time() - used


async def measure(place: str) -> dict[str, float]:
    store = open_store(place)
    service = Service(Engine(store), store, Config(request_log=True))
    await service.start()
    await call(service, "PUT", "/v1/surfaces/home", {"slots": SLOTS, "items": [f"item-{k}" for k in range(ITEMS)]})
    shown: list[Any] = []

    async def rank(k: int) -> None:
        shown.append(await call(service, "POST", RANK, {"request_id": f"r{k}"}))

    async def answer(k: int) -> None:
        page = shown.pop()
        clicks = [k % SLOTS] if k % 3 == 0 else []
        event = {"event_id": page["event_id"], "token": page["token"], "clicks": clicks, "final": True}
        await call(service, "POST", FEEDBACK, {"events": [event]})

    def mixed(count: int, first: int) -> Iterator[Coroutine[Any, Any, None]]:
        """Three lists, then feedback on one of them."""
        for k in range(first, first + count):
            yield answer(k) if k % 4 == 3 and shown else rank(k)

    await at_once(rank(-k) for k in range(WARMUP))
    await at_once(islice(mixed(WARMUP, 1_000_000), WARMUP))
    seconds, used = await at_once(rank(k) for k in range(1, RANKS))
    both, both_used = await at_once(mixed(RANKS, 2_000_000))
    await service.stop()
    store.close()
    return {
        "ranks a second": RANKS / seconds,
        "us of processor a rank": 1e6 * used / RANKS,
        "requests a second, mixed": RANKS / both,
        "us of processor a request, mixed": 1e6 * both_used / RANKS,
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for name, value in asyncio.run(measure(str(Path(folder) / "store.db"))).items():
            print(f"{name}: {value:,.0f}")
