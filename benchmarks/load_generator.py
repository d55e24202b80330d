"""``python -m benchmarks.load_generator``: an HTTP load generator, run in its own process, on the last processor.

In an open loop, requests are sent at random times (a Poisson process), whether or not earlier ones have been answered.
Latency is measured from the time a request was due, so that a stall counts for every request that waited behind it. In
a closed loop, every connection sends its next request when the last one is answered, which measures the throughput.

Reads a JSON object from standard input: host, port, requests (a list of [path, body], sent in turn; $n in a body is
replaced by the number of the request), rate (per second; null for a closed loop), seconds, connections, feedback_rate
(in an open loop, feedback per second on lists that were answered before), warmup (seconds at the start that are not
measured). Writes a JSON object to standard output; "feedback" has the latencies of feedback, and "sent_late_p99" is by
how much this process itself was late to send, which is part of all latencies.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import sys
import time
from collections import deque
from collections.abc import Iterator
from itertools import cycle
from typing import Any

MIN_SLEEP = 0.0005  # seconds; a shorter sleep would be too inaccurate
FEEDBACK = "/v1/feedback"
MAX_SHOWN = 1000  # lists that wait for their feedback


class Connection(asyncio.Protocol):
    """A keep-alive connection with at most one request in flight."""

    def __init__(self, load: Load) -> None:
        self._load, self._read, self._due, self.is_feedback = load, b"", 0.0, False

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def send(self, request: bytes, due: float, is_feedback: bool = False) -> None:
        """Send a request that was due at this time."""
        self._due, self._read, self.is_feedback = due, b"", is_feedback
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._read += data
        head, complete, body = self._read.partition(b"\r\n\r\n")
        if complete and len(body) >= _length(head):
            self._load.answered(self, int(head[9:12]), body, self._due)

    def connection_lost(self, error: Exception | None) -> None:
        self._load.lost += not self._load.over


def _length(head: bytes) -> int:
    start = head.lower().find(b"content-length: ")
    return int(head[start + 16 :].split(b"\r\n", 1)[0]) if start >= 0 else 0


class Load:
    """Sends the requests and measures their latencies."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options, self._feedback_rate = options, options.get("feedback_rate", 0.0)
        self._host = f"{options['host']}:{options['port']}".encode()
        self._requests = _numbered(self._host, options["requests"])
        self._idle: deque[Connection] = deque()
        self._waiting: deque[tuple[float, bool]] = deque()
        self._shown: deque[bytes] = deque(maxlen=MAX_SHOWN)
        self._seconds: list[float] = []
        self._feedback_seconds: list[float] = []
        self._sent_late: list[float] = []
        self._failed = 0
        self.lost, self.over = 0, False

    async def run(self) -> dict[str, Any]:
        """Send all requests, wait for the last responses, and return throughput and latencies."""
        loop, options = asyncio.get_running_loop(), self._options
        for _ in range(options["connections"]):
            _, connection = await loop.create_connection(lambda: Connection(self), options["host"], options["port"])
            self._idle.append(connection)
        started = self._measured_from = time.perf_counter() + options.get("warmup", 0.0)
        self._end = started + options["seconds"]
        await (self._closed() if options["rate"] is None else self._open(options["rate"]))
        taken = time.perf_counter() - started
        self.over = True
        return {
            **_summary(self._seconds, taken),
            "feedback": _summary(self._feedback_seconds, taken),
            "sent_late_p99": _summary(self._sent_late, taken)["p99"],
            "failed": self._failed,
            "lost": self.lost,
        }

    async def _closed(self) -> None:
        for connection in list(self._idle):
            connection.send(next(self._requests), time.perf_counter())
        self._idle.clear()
        while time.perf_counter() < self._end or not self._seconds:  # a rate of 0 is no measurement
            await asyncio.sleep(0.01)

    async def _open(self, rate: float) -> None:
        # Two Poisson processes are one of the sum of their rates, whose points are divided at random.
        both = rate + self._feedback_rate
        rng, due, sent = random.Random(1), time.perf_counter(), 0
        while due < self._end:
            due += rng.expovariate(both)
            wait = due - time.perf_counter()
            if wait > MIN_SLEEP:
                await asyncio.sleep(wait)
            elif (sent := sent + 1) % 16 == 0:
                await asyncio.sleep(0)
            if due >= self._measured_from:
                self._sent_late.append(max(0.0, time.perf_counter() - due))
            is_feedback = rng.random() * both < self._feedback_rate
            if self._idle:
                self._send(self._idle.popleft(), due, is_feedback)
            else:
                self._waiting.append((due, is_feedback))
        deadline = time.perf_counter() + 10
        while len(self._idle) < self._options["connections"] and time.perf_counter() < deadline:
            await asyncio.sleep(0.01)

    def _send(self, connection: Connection, due: float, is_feedback: bool) -> None:
        if not is_feedback:
            connection.send(next(self._requests), due)
        elif self._shown:
            connection.send(_request(self._host, FEEDBACK, _final_feedback(self._shown.popleft())), due, True)
        else:
            self._idle.append(connection)

    def answered(self, connection: Connection, status: int, body: bytes, due: float) -> None:
        """Record a response, and send the next request on this connection."""
        if due >= self._measured_from:
            kind = self._feedback_seconds if connection.is_feedback else self._seconds
            kind.append(time.perf_counter() - due)
        self._failed += status != 200
        if self._feedback_rate and not connection.is_feedback and status == 200:
            self._shown.append(body)
        if self._options["rate"] is None:
            if time.perf_counter() < self._end:
                connection.send(next(self._requests), time.perf_counter())
        elif self._waiting:
            self._send(connection, *self._waiting.popleft())
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


def _final_feedback(answer: bytes) -> str:
    """Return feedback on a ranked list: a click on its first slot for a third of all lists."""
    ranked = json.loads(answer)
    clicks = [0] if int(ranked["event_id"][:8], 16) % 3 == 0 else []
    event = {"event_id": ranked["event_id"], "token": ranked["token"], "clicks": clicks, "final": True}
    return json.dumps({"events": [event]})


def _summary(seconds: list[float], taken: float) -> dict[str, Any]:
    ordered = sorted(seconds) or [0.0]
    p50, p99, p999 = (ordered[int(share * (len(ordered) - 1))] for share in (0.5, 0.99, 0.999))
    return {"answered": len(seconds), "per_second": len(seconds) / taken, "p50": p50, "p99": p99, "p99.9": p999}


def main() -> None:
    """Read the options from standard input, run, and write the result to standard output."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-1:])
    gc.disable()  # a pause of this process would be measured as one of the service
    json.dump(asyncio.run(Load(json.load(sys.stdin)).run()), sys.stdout)


if __name__ == "__main__":
    main()
