"""What Prometheus is told: no label names a surface, an item, a segment or a visitor, so their number is bounded.

With several workers the figures are of all of them: the supervisor sets ``PROMETHEUS_MULTIPROC_DIR``, each worker keeps
its figures in a file there, and whichever worker is asked adds them up.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.multiprocess import MultiProcessCollector

from ..schemas import Accepted

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE = CONTENT_TYPE_LATEST
RANK = "/v1/surfaces/{surface}/rank"
BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
# What is read from the engine's health: name, what it is, and how the values of several workers become one.
# Only those of workers that live: the last words of one that was killed would be told for ever.
GAUGES = (
    ("commit_lag_seconds", "How long the last write to the store took.", "livemax"),
    ("queue_length", "Feedback that waits to be stored.", "livesum"),
    ("solver_seconds", "How long the last policy took to solve.", "livemax"),
    ("open_events", "Lists that were shown and are not settled.", "livemax"),
    ("policy_age_seconds", "Age of the newest policy in use.", "livemax"),
    ("ready", "1 if the service can work.", "livemin"),
)


class Metrics:
    """Counters of one process."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # when each was first counted: twice the series for nothing
        self._registry = registry = CollectorRegistry()
        self._shared = "PROMETHEUS_MULTIPROC_DIR" in os.environ
        self._requests = Counter(
            "bothworlds_requests", "Requests answered.", ["method", "route", "status"], registry=registry
        )
        self._seconds = Histogram(
            "bothworlds_request_seconds", "Time to answer.", ["route"], buckets=BUCKETS, registry=registry
        )
        self._feedback = Counter("bothworlds_feedback", "Feedback by result.", ["status"], registry=registry)
        self._refused = Counter(
            "bothworlds_connections_refused", "Connections closed over a limit.", ["reason"], registry=registry
        )
        self._exhausted = Counter(
            "bothworlds_descriptors_exhausted",
            "Checks, one a second, that found no free file descriptor.",
            registry=registry,
        )
        self._gauges = {
            name: Gauge(f"bothworlds_{name}", what, registry=registry, multiprocess_mode=mode)  # type: ignore[arg-type]
            for name, what, mode in GAUGES
        }
        self._recent: deque[float] = deque(maxlen=1000)
        self._children: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request."""
        child = self._children.get((method, route, status))
        if child is None:
            child = self._requests.labels(method, route, str(status)), self._seconds.labels(route)
            self._children[method, route, status] = child
        if route == RANK:
            self._recent.append(seconds)
        child[0].inc()
        child[1].observe(seconds)

    def fed_back(self, results: Iterable[Accepted]) -> None:
        """Count results of feedback."""
        counts: dict[str, int] = {}
        for result in results:
            counts[result.status] = counts.get(result.status, 0) + 1
        for status, count in counts.items():
            self._feedback.labels(status).inc(count)

    def refused(self, reason: str) -> None:
        """Count a connection that was closed because of a limit."""
        self._refused.labels(reason).inc()

    def exhausted(self) -> None:
        """Count a moment in which no file descriptor was free."""
        self._exhausted.inc()

    def look(self, health: Mapping[str, Any]) -> None:
        """Take over what the engine says about itself."""
        for name, gauge in self._gauges.items():
            value, thousandths = health.get(name), health.get(name.replace("_seconds", "_ms"))
            if isinstance(value, int | float):
                gauge.set(value)
            elif isinstance(thousandths, int | float):
                gauge.set(thousandths / 1000)

    def latency(self) -> dict[str, float | None]:
        """How long the latest rankings took, for the dashboard."""
        recent = sorted(self._recent)
        if not recent:
            return {"rank_p50_ms": None, "rank_p99_ms": None}
        p50, p99 = (recent[int(share * (len(recent) - 1))] * 1000 for share in (0.5, 0.99))
        return {"rank_p50_ms": p50, "rank_p99_ms": p99}

    def text(self) -> bytes:
        """All figures as Prometheus reads them."""
        if not self._shared:
            return generate_latest(self._registry)
        everyone = CollectorRegistry()
        MultiProcessCollector(everyone)  # type: ignore[no-untyped-call]
        return generate_latest(everyone)
