"""Metrics for Prometheus. No label names a surface, item, segment or visitor, so the number of series is bounded.

With several workers, the metrics are those of all of them: the supervisor sets ``PROMETHEUS_MULTIPROC_DIR``, each
worker writes to a file there, and the worker that answers /metrics adds the files up.
"""

from __future__ import annotations

import os
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

CONTENT_TYPE = CONTENT_TYPE_LATEST
RANK = "/v1/surfaces/{surface}/rank"
BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
# Read from the engine's health: name, help text, and how the values of several workers are combined. Only living
# workers count ("live..."): the last value of a killed worker would otherwise stay for ever.
GAUGES = (
    ("commit_lag_seconds", "How long the last write to the store took.", "livemax"),
    ("queue_length", "Feedback waiting to be stored.", "livesum"),
    ("solver_seconds", "How long the last policy took to solve.", "livemax"),
    ("open_events", "Lists shown and not settled yet.", "livemax"),
    ("policy_age_seconds", "Age of the newest policy in use.", "livemax"),
    ("sample_ratio_alarms", "Surfaces with pages or feedback of an arm missing.", "livemax"),
    ("guarded_surfaces", "Surfaces on which the guard serves the baseline order.", "livemax"),
    ("arms", "Arms of surfaces, beside their own policies and holdouts.", "livemax"),
    ("unknown_label_values", "Values of labels that are not declared, served as unknown since the start.", "livesum"),
    ("ready", "1 if the service is ready.", "livemin"),
)


class Metrics:
    """The metrics of one process. With several workers, ``exposition`` reads files; no other method blocks."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # they would double the number of series
        self._registry = registry = CollectorRegistry()
        self._shared = "PROMETHEUS_MULTIPROC_DIR" in os.environ
        self._requests = Counter(
            "bothworlds_requests", "Requests answered.", ["method", "route", "status"], registry=registry
        )
        self._seconds = Histogram(
            "bothworlds_request_seconds", "Time to answer.", ["route"], buckets=BUCKETS, registry=registry
        )
        self._feedback = Counter("bothworlds_feedback", "Feedback by result.", ["status"], registry=registry)
        self._gauges = {
            name: Gauge(f"bothworlds_{name}", description, registry=registry, multiprocess_mode=mode)  # type: ignore[arg-type]
            for name, description, mode in GAUGES
        }
        self._children: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered, and observe its latency."""
        child = self._children.get((method, route, status))
        if child is None:
            child = self._requests.labels(method, route, str(status)), self._seconds.labels(route)
            self._children[method, route, status] = child
        child[0].inc()
        child[1].observe(seconds)

    def count_feedback(self, results: Iterable[Accepted]) -> None:
        """Count feedback by the status of its result."""
        counts: dict[str, int] = {}
        for result in results:
            counts[result.status] = counts.get(result.status, 0) + 1
        for status, count in counts.items():
            self._feedback.labels(status).inc(count)

    def set_health(self, health: Mapping[str, Any]) -> None:
        """Set the gauges from ``Engine.health``; a field in milliseconds sets the gauge in seconds."""
        for name, gauge in self._gauges.items():
            value, milliseconds = health.get(name), health.get(name.replace("_seconds", "_ms"))
            if isinstance(value, int | float):
                gauge.set(value)
            elif isinstance(milliseconds, int | float):
                gauge.set(milliseconds / 1000)

    def exposition(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        if not self._shared:
            return generate_latest(self._registry)
        combined = CollectorRegistry()
        MultiProcessCollector(combined)  # type: ignore[no-untyped-call]
        return generate_latest(combined)
