"""Floods a real service with exclusion sets that it has never seen, and measures what other clients notice.

    python -m tests.serve.flood_exclusions --items 1000 --slots 50 --seconds 10

One client sends a new exclusion set with each request, on several connections; another asks for plain lists, one after
the other. Prints the latency of the plain lists without and with the flood, and what the flood was answered with.
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

from .kill_service import Serving

RANK = "/v1/surfaces/home/rank"
HEADERS = {"Content-Type": "application/json"}


def exclusion_sets(items: list[str], seed: int, most: int = 20) -> Iterator[list[str]]:
    """Sets of items to exclude, practically never the same one twice."""
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
    """Seconds that plain lists take, sorted."""
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
    chosen = parser.parse_args()
    items = [f"item-{k}" for k in range(chosen.items)]
    with tempfile.TemporaryDirectory() as folder:
        serving = Serving(str(Path(folder) / "flood.db"), Path(folder))
        try:
            serving.call("PUT", "/v1/surfaces/home", {"slots": chosen.slots, "items": items})
            quiet = latencies(serving.where, chosen.seconds, "quiet")
            floods = [Flood(serving.where, items, seed) for seed in range(chosen.connections)]
            for flood in floods:
                flood.start()
            flooded = latencies(serving.where, chosen.seconds, "flooded")
            for flood in floods:
                flood.stop()
        finally:
            serving.end()
    for name, found in (("without", quiet), ("with", flooded)):
        p50, p99 = (1e3 * found[int(share * (len(found) - 1))] for share in (0.5, 0.99))
        print(f"{name} the flood: {len(found)} plain lists, p50 {p50:.1f} ms, p99 {p99:.1f} ms")
    print("the flood was answered with", dict(sum((flood.statuses for flood in floods), Counter())))


if __name__ == "__main__":
    main()
