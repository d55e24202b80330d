"""Memory does not grow with the number of requests: the real engine and HTTP service, in this process."""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from bothworlds.serve.config import Config
from bothworlds.serve.engine import engine
from bothworlds.serve.http.app import Service
from bothworlds.serve.stores import open_store

VISITS = 400  # at a time
UNTRACED, SETTLING = 5, 2  # parts before tracing, since compilation allocates too, and before growth is measured
ALLOWANCE = 60  # bytes per visit: a response that was kept would take a thousand


async def post(service: Service, path: str, body: Any, method: str = "POST") -> Any:
    sent, content = [], json.dumps(body).encode()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b""}
    await service({**scope, "headers": [(b"content-type", b"application/json")]}, receive, send)
    assert sent[0]["status"] < 300
    return json.loads(sent[1]["body"])


async def visit(service: Service, number: int) -> None:
    page = await post(service, "/v1/surfaces/home/rank", {"request_id": f"visit-{number}"})
    piece = {"event_id": page["event_id"], "token": page["token"], "clicks": [number % 3], "final": number % 2 == 0}
    for pieces in ([piece], [{**piece, "token": "forged"}]):
        await post(service, "/v1/feedback", {"events": pieces})


def held() -> int:
    """Return the bytes allocated by the service's code."""
    ours = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/bothworlds/serve/*")])
    return sum(trace.size for trace in ours.traces)


async def least_held() -> int:
    """Return the least of several readings: a batch that is being written holds memory for a moment."""
    readings = []
    for _ in range(4):
        await asyncio.sleep(0.1)
        gc.collect()
        readings.append(held())
    return min(readings)


async def growth(place: Path, parts: int, policy: str) -> float:
    """Return the bytes that remain allocated per visit over ``parts`` parts, after caches have reached their bound."""
    store = open_store(str(place))
    service = Service(engine.Engine(store), store, Config(request_log=False))
    await service.start()
    body = {"slots": 3, "items": ["a", "b", "c", "d", "e"], "holdout": 0.1, "policy": policy}
    await post(service, "/v1/surfaces/home", body, "PUT")
    sizes = []
    for part in range(UNTRACED + SETTLING + parts):
        if part == UNTRACED:
            tracemalloc.start()
        await asyncio.gather(*(visit(service, part * VISITS + k) for k in range(VISITS)))
        if part + 1 in (UNTRACED + SETTLING, UNTRACED + SETTLING + parts):
            sizes.append(await least_held())
    await service.stop()
    store.close()
    return (sizes[1] - sizes[0]) / (parts * VISITS)


def grown(place: Path, parts: int, policy: str = "ftrl-pbm") -> float:
    try:
        return asyncio.run(growth(place, parts, policy))
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_memory_does_not_grow_with_requests(tmp_path: Path) -> None:
    assert grown(tmp_path / "soak.db", parts=7) < ALLOWANCE


@pytest.mark.slow
@pytest.mark.nightly
def test_the_state_of_a_policy_that_detects_changes_stays_small(tmp_path: Path) -> None:
    assert grown(tmp_path / "soak.db", parts=7, policy="all-weather") * 7 * VISITS < 1 << 20


@pytest.mark.slow
@pytest.mark.nightly
def test_the_check_catches_a_service_that_keeps_all_responses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, kept = engine.Engine._ranking, []

    def keeping(*given: Any) -> Any:
        kept.append(made(*given))
        return kept[-1]

    monkeypatch.setattr(engine.Engine, "_ranking", keeping)
    assert grown(tmp_path / "soak.db", parts=2) > ALLOWANCE
