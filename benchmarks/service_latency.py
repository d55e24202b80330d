"""Latency of the service while feedback arrives: ranking and feedback in one open loop, on SQLite and on PostgreSQL.

Set ``BOTHWORLDS_BENCH_AGAINST`` to the folder of another checkout to measure its service as well, in turn with this
one: on a shared machine, only figures of the same minutes can be compared.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from .measurement import Measurement
from .service_load import (
    ITEMS,
    SLOTS,
    ServiceProcess,
    click_to_policy,
    create_surface,
    postgres,
    rank_requests,
    running,
)

RANKS, FEEDBACK = 3000, 1000  # per second
SECONDS, WARMUP = 8.0, 2.0
CONNECTIONS = 64
ROUNDS = 3  # of each service, in turn
CATALOGUES = {1_000: 10, 20_000: 10}  # items and slots of larger surfaces
TARGETS = {"SQLite": 5, "PostgreSQL": 20}  # milliseconds, of the p99 of rank


def measure() -> Measurement:
    """Return p50, p99 and p99.9 of rank and feedback, and the processor time of a request, by store and checkout."""
    against = os.environ.get("BOTHWORLDS_BENCH_AGAINST")
    checkouts = {"this checkout": None} | ({"the other checkout": against} if against else {})
    rows = []
    for store, target in TARGETS.items():
        loads: dict[str, list[Any]] = {name: [] for name in checkouts}
        for _ in range(ROUNDS):
            for name, folder in checkouts.items():
                loads[name].append(one_load(store, folder))
        rows += [_row(f"{store}, {name}", target, found) for name, found in loads.items()]
    for items, slots in CATALOGUES.items():
        found = [one_load("SQLite", None, items=items, slots=slots) for _ in range(ROUNDS)]
        rows.append(_row(f"SQLite, {items:,} items, {slots} slots", TARGETS["SQLite"], found))
    notes = [
        f"{RANKS} rank requests and {FEEDBACK} feedback events a second at random times, measured from when each was"
        f" due; {CONNECTIONS} connections, {SECONDS:g} s after {WARMUP:g} s that are not measured.",
        f"Each figure is the median of {ROUNDS} runs; in brackets the least and the largest.",
        "The client is a process of its own on the last processor. 'Client late': by how much it sent late itself.",
        f"{ITEMS} items and {SLOTS} slots unless stated. 'Changed': from a click to a list from a newer policy.",
        "Processor time: of the service and, with PostgreSQL, of the database, per request.",
    ]
    return Measurement("Ranking beside feedback, open loop", rows, notes)


def one_load(
    store: str, checkout: str | None, seconds: float = SECONDS, items: int = ITEMS, slots: int = SLOTS
) -> dict[str, Any]:
    """Start a service of a checkout (None: this one) with an empty store, and return its latencies under load."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        address = str(Path(folder) / "bench.db") if store == "SQLite" else stack.enter_context(postgres())
        workers = () if store == "SQLite" else ("--workers", "2")
        service = stack.enter_context(running("--store", address, "--port", "0", *workers, checkout=checkout))
        create_surface(service, items=items, slots=slots)
        found = beside_feedback(service, RANKS, FEEDBACK, seconds, postgres=store == "PostgreSQL")
        return found | {"changed": click_to_policy(service, tries=3)}


def beside_feedback(
    service: ServiceProcess, ranks: float, feedback: float, seconds: float, *, postgres: bool = False
) -> dict[str, Any]:
    """Return the latencies of ranking and feedback at these rates, and the processor time of a request in seconds."""
    before = service.cpu_seconds(postgres=postgres)
    found: dict[str, Any] = service.load(
        rank_requests("mixed"),
        ranks,
        seconds=seconds,
        warmup=WARMUP,
        connections=CONNECTIONS,
        feedback_rate=feedback,
        cpus=client_cpus(),
    )
    used = service.cpu_seconds(postgres=postgres) - before
    found["cpu"] = used / ((ranks + feedback) * (seconds + WARMUP))
    return found


def client_cpus() -> list[int] | None:
    """Return the processor of the load generator: the last of those allowed; None if there is only one."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[-1:] if len(allowed) > 1 else None


def _row(name: str, target: int, loads: Sequence[dict[str, Any]]) -> dict[str, Any]:
    feedback = [load["feedback"] for load in loads]
    return {
        "service": name,
        "rank p50 ms": _spread(loads, "p50"),
        "rank p99 ms": f"{_spread(loads, 'p99')}; target {target}",
        "rank p99.9 ms": _spread(loads, "p99.9"),
        "feedback p50 ms": _spread(feedback, "p50"),
        "feedback p99 ms": _spread(feedback, "p99"),
        "changed s": f"{statistics.median(load['changed'] for load in loads):.1f}",
        "answered/s": f"{statistics.median(load['per_second'] for load in loads):,.0f}",
        "processor µs": f"{1e6 * statistics.median(load['cpu'] for load in loads):.0f}",
        "client late p99 ms": _spread(loads, "sent_late_p99"),
        "failed": sum(load["failed"] + load["lost"] for load in loads),
    }


def _spread(loads: Sequence[dict[str, Any]], key: str) -> str:
    values = sorted(1000 * load[key] for load in loads)
    return f"{statistics.median(values):.1f} ({values[0]:.1f} to {values[-1]:.1f})"
