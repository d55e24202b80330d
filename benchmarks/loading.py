"""``python -m benchmarks.loading``: a load generator, in a process of its own, that speaks just enough HTTP.

In an open loop, requests are sent at random times (a Poisson process) whether or not earlier ones have been answered,
and a request waits from the moment it was due: a service that stalls is charged for everybody who had to wait. In a
closed loop every connection sends its next request when the last one is answered, which finds what a service can do.

Reads one JSON object from standard input: host, port, requests (a list of [path, body], sent in turn; $n in a body is
the number of the request), rate (a second; null for a closed loop), seconds, connections, keep (whether answers are
wanted). Writes one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import deque
from collections.abc import Iterator
from itertools import cycle
from typing import Any

SLEEP = 0.0005  # shorter waits are not slept


class Connection(asyncio.Protocol):
    """A connection that is kept alive, with at most one request under way."""

    def __init__(self, load: Load) -> None:
        self._load, self._read, self._due = load, b"", 0.0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def ask(self, request: bytes, due: float) -> None:
        """Send a request that was due at that time."""
        self._due, self._read = due, b""
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._read += data
        head, found, body = self._read.partition(b"\r\n\r\n")
        if found and len(body) >= _length(head):
            self._load.answered(self, int(head[9:12]), body, time.perf_counter() - self._due)

    def connection_lost(self, error: Exception | None) -> None:
        self._load.lost += not self._load.over


def _length(head: bytes) -> int:
    start = head.lower().find(b"content-length: ")
    return int(head[start + 16 :].split(b"\r\n", 1)[0]) if start >= 0 else 0


class Load:
    """What is sent, and how long it took to be answered."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        host = f"{order['host']}:{order['port']}".encode()
        self._requests = _numbered(host, order["requests"])
        self._idle: deque[Connection] = deque()
        self._waiting: deque[float] = deque()
        self._seconds: list[float] = []
        self._answers: list[str] = []
        self._failed = 0
        self.lost, self.over = 0, False

    async def run(self) -> dict[str, Any]:
        """Send everything, wait for the last answers, and sum up."""
        loop, order = asyncio.get_running_loop(), self._order
        for _ in range(order["connections"]):
            _, connection = await loop.create_connection(lambda: Connection(self), order["host"], order["port"])
            self._idle.append(connection)
        self._end = time.perf_counter() + order["seconds"]
        started = time.perf_counter()
        await (self._closed() if order["rate"] is None else self._open(order["rate"]))
        taken = time.perf_counter() - started
        self.over = True
        return {**_summed(self._seconds, taken), "failed": self._failed, "lost": self.lost, "answers": self._answers}

    async def _closed(self) -> None:
        for connection in list(self._idle):
            connection.ask(next(self._requests), time.perf_counter())
        self._idle.clear()
        while time.perf_counter() < self._end:
            await asyncio.sleep(0.01)

    async def _open(self, rate: float) -> None:
        chance, due = random.Random(1), time.perf_counter()
        while due < self._end:
            due += chance.expovariate(rate)
            wait = due - time.perf_counter()
            if wait > SLEEP:
                await asyncio.sleep(wait)
            elif len(self._seconds) % 16 == 0:
                await asyncio.sleep(0)
            if self._idle:
                self._idle.popleft().ask(next(self._requests), due)
            else:
                self._waiting.append(due)
        deadline = time.perf_counter() + 10
        while len(self._idle) < self._order["connections"] and time.perf_counter() < deadline:
            await asyncio.sleep(0.01)

    def answered(self, connection: Connection, status: int, body: bytes, seconds: float) -> None:
        """Note an answer, and send what is next on this connection."""
        self._seconds.append(seconds)
        self._failed += status != 200
        if self._order["keep"]:
            self._answers.append(body.decode())
        if self._order["rate"] is None:
            if time.perf_counter() < self._end:
                connection.ask(next(self._requests), time.perf_counter())
        elif self._waiting:
            connection.ask(next(self._requests), self._waiting.popleft())
        else:
            self._idle.append(connection)


def _numbered(host: bytes, requests: list[tuple[str, str]]) -> Iterator[bytes]:
    """The requests in turn, for ever; ``$n`` in a body stands for how many were sent before."""
    for number, (path, body) in enumerate(cycle(requests)):
        yield _request(host, path, body.replace("$n", str(number)))


def _request(host: bytes, path: str, body: str) -> bytes:
    data = body.encode()
    head = f"POST {path} HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\nHost: "
    return head.encode() + host + b"\r\n\r\n" + data


def _summed(seconds: list[float], taken: float) -> dict[str, Any]:
    ordered = sorted(seconds) or [0.0]
    p50, p99 = (ordered[int(share * (len(ordered) - 1))] for share in (0.5, 0.99))
    return {"answered": len(seconds), "per_second": len(seconds) / taken, "p50": p50, "p99": p99}


def main() -> None:
    """Do as standard input says."""
    order = json.load(sys.stdin)
    try:
        import uvloop

        outcome = uvloop.run(Load(order).run())
    except ImportError:
        outcome = asyncio.run(Load(order).run())
    json.dump(outcome, sys.stdout)


if __name__ == "__main__":
    main()
