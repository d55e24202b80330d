"""Floods a real service with new exclusion sets, and measures the latency of other clients.

    python -m tests.serve.flood_exclusions --items 1000 --slots 50 --seconds 10

One client sends a new exclusion set with each request, on several connections; another requests plain lists, one after
the other. Prints the latency of the plain lists without and with the flood, and the statuses that the flood got.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from typing import Any

from .kill_service import ServiceProcess

RANK = "/v1/surfaces/home/rank"
HEADERS = {"Content-Type": "application/json"}


def exclusion_sets(items: list[str], seed: int, most: int = 20) -> Iterator[list[str]]:
    """Yield random sets of items to exclude; repetitions are very unlikely."""
    chance = random.Random(seed)
    while True:
        yield chance.sample(items, chance.randrange(1, most + 1))


class Flood(threading.Thread):
    """Sends a new exclusion set with each request until it is stopped."""

    def __init__(self, where: tuple[str, int], items: list[str], seed: int) -> None:
        super().__init__(daemon=True)
        self._where, self._items, self._seed = where, items, seed
        self._enough = threading.Event()
        self.statuses: Counter[int] = Counter()

    def run(self) -> None:
        connection = HTTPConnection(*self._where, timeout=60)
        for k, exclude in enumerate(exclusion_sets(self._items, self._seed)):
            if self._enough.is_set():
                break
            status, _ = rank(connection, {"request_id": f"flood-{self._seed}-{k}", "exclude": exclude})
            self.statuses[status] += 1
        connection.close()

    def stop(self) -> None:
        self._enough.set()
        self.join()


def rank(connection: HTTPConnection, body: dict[str, Any]) -> tuple[int, Any]:
    connection.request("POST", RANK, json.dumps(body), HEADERS)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def latencies(where: tuple[str, int], seconds: float, name: str) -> list[float]:
    """Return the sorted latencies of plain lists, in seconds."""
    connection, found, end = HTTPConnection(*where, timeout=60), [], time.monotonic() + seconds
    for k in count():
        started = time.monotonic()
        if started > end:
            break
        assert rank(connection, {"request_id": f"{name}-{k}"})[0] == 200
        found.append(time.monotonic() - started)
    connection.close()
    return sorted(found)


def main() -> None:
    parser = argparse.ArgumentParser(description="what a flood of exclusion sets does to other clients")
    parser.add_argument("--items", type=int, default=1000)
    parser.add_argument("--slots", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--connections", type=int, default=16)
    options = parser.parse_args()
    items = [f"item-{k}" for k in range(options.items)]
    with tempfile.TemporaryDirectory() as folder:
        service = ServiceProcess(str(Path(folder) / "flood.db"), Path(folder))
        try:
            service.call("PUT", "/v1/surfaces/home", {"slots": options.slots, "items": items})
            quiet = latencies(service.where, options.seconds, "quiet")
            floods = [Flood(service.where, items, seed) for seed in range(options.connections)]
            for flood in floods:
                flood.start()
            flooded = latencies(service.where, options.seconds, "flooded")
            for flood in floods:
                flood.stop()
        finally:
            service.end()
    for name, found in (("without", quiet), ("with", flooded)):
        p50, p99 = (1e3 * found[int(share * (len(found) - 1))] for share in (0.5, 0.99))
        print(f"{name} the flood: {len(found)} plain lists, p50 {p50:.1f} ms, p99 {p99:.1f} ms")
    print("the flood was answered with", dict(sum((flood.statuses for flood in floods), Counter())))


if __name__ == "__main__":
    main()
