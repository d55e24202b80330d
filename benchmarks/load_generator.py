"""``python -m benchmarks.load_generator``: an HTTP load generator, run in its own process.

In an open loop, requests are sent at random times (a Poisson process), whether or not earlier ones have been answered.
Latency is measured from the time a request was due, so that a stall counts for every request that waited behind it. In
a closed loop, every connection sends its next request when the last one is answered, which measures the throughput.

Reads a JSON object from standard input: host, port, requests (a list of [path, body], sent in turn; $n in a body is
replaced by the number of the request), rate (per second; null for a closed loop), seconds, connections, keep (whether
to return the response bodies). Writes a JSON object to standard output.
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

MIN_SLEEP = 0.0005  # seconds; a shorter sleep would be too inaccurate


class Connection(asyncio.Protocol):
    """A keep-alive connection with at most one request in flight."""

    def __init__(self, load: Load) -> None:
        self._load, self._read, self._due = load, b"", 0.0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def send(self, request: bytes, due: float) -> None:
        """Send a request that was due at this time."""
        self._due, self._read = due, b""
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._read += data
        head, complete, body = self._read.partition(b"\r\n\r\n")
        if complete and len(body) >= _length(head):
            self._load.answered(self, int(head[9:12]), body, time.perf_counter() - self._due)

    def connection_lost(self, error: Exception | None) -> None:
        self._load.lost += not self._load.over


def _length(head: bytes) -> int:
    start = head.lower().find(b"content-length: ")
    return int(head[start + 16 :].split(b"\r\n", 1)[0]) if start >= 0 else 0


class Load:
    """Sends the requests and measures their latencies."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        host = f"{options['host']}:{options['port']}".encode()
        self._requests = _numbered(host, options["requests"])
        self._idle: deque[Connection] = deque()
        self._waiting: deque[float] = deque()
        self._seconds: list[float] = []
        self._answers: list[str] = []
        self._failed = 0
        self.lost, self.over = 0, False

    async def run(self) -> dict[str, Any]:
        """Send all requests, wait for the last responses, and return throughput and latencies."""
        loop, options = asyncio.get_running_loop(), self._options
        for _ in range(options["connections"]):
            _, connection = await loop.create_connection(lambda: Connection(self), options["host"], options["port"])
            self._idle.append(connection)
        self._end = time.perf_counter() + options["seconds"]
        started = time.perf_counter()
        await (self._closed() if options["rate"] is None else self._open(options["rate"]))
        taken = time.perf_counter() - started
        self.over = True
        return {**_summary(self._seconds, taken), "failed": self._failed, "lost": self.lost, "answers": self._answers}

    async def _closed(self) -> None:
        for connection in list(self._idle):
            connection.send(next(self._requests), time.perf_counter())
        self._idle.clear()
        while time.perf_counter() < self._end:
            await asyncio.sleep(0.01)

    async def _open(self, rate: float) -> None:
        rng, due = random.Random(1), time.perf_counter()
        while due < self._end:
            due += rng.expovariate(rate)
            wait = due - time.perf_counter()
            if wait > MIN_SLEEP:
                await asyncio.sleep(wait)
            elif len(self._seconds) % 16 == 0:
                await asyncio.sleep(0)
            if self._idle:
                self._idle.popleft().send(next(self._requests), due)
            else:
                self._waiting.append(due)
        deadline = time.perf_counter() + 10
        while len(self._idle) < self._options["connections"] and time.perf_counter() < deadline:
            await asyncio.sleep(0.01)

    def answered(self, connection: Connection, status: int, body: bytes, seconds: float) -> None:
        """Record a response, and send the next request on this connection."""
        self._seconds.append(seconds)
        self._failed += status != 200
        if self._options["keep"]:
            self._answers.append(body.decode())
        if self._options["rate"] is None:
            if time.perf_counter() < self._end:
                connection.send(next(self._requests), time.perf_counter())
        elif self._waiting:
            connection.send(next(self._requests), self._waiting.popleft())
        else:
            self._idle.append(connection)


def _numbered(host: bytes, requests: list[tuple[str, str]]) -> Iterator[bytes]:
    """Yield the requests in turn without end; ``$n`` in a body is replaced by the number of requests before."""
    for number, (path, body) in enumerate(cycle(requests)):
        yield _request(host, path, body.replace("$n", str(number)))


def _request(host: bytes, path: str, body: str) -> bytes:
    data = body.encode()
    head = f"POST {path} HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\nHost: "
    return head.encode() + host + b"\r\n\r\n" + data


def _summary(seconds: list[float], taken: float) -> dict[str, Any]:
    ordered = sorted(seconds) or [0.0]
    p50, p99 = (ordered[int(share * (len(ordered) - 1))] for share in (0.5, 0.99))
    return {"answered": len(seconds), "per_second": len(seconds) / taken, "p50": p50, "p99": p99}


def main() -> None:
    """Read the options from standard input, run, and write the result to standard output."""
    options = json.load(sys.stdin)
    try:
        import uvloop

        result = uvloop.run(Load(options).run())
    except ImportError:
        result = asyncio.run(Load(options).run())
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
