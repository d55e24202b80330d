"""Sweeps on this machine and on a Ray cluster of one and of two cores: overhead per cell, and speed-up."""

from __future__ import annotations

import time
from typing import Any

from bothworlds.arena import compete
from bothworlds.extras import import_extra

from .measurement import Measurement

POLICY, WORLD = "ftrl-pbm", "paper/stochastic"
EMPTY = {"rounds": 1, "replications": 400}  # cells that take no time: what is left is overhead
LONG = {"rounds": 400_000, "replications": 8}  # about a second each


def seconds(**game: Any) -> float:
    """Return the time of a sweep by the clock on the wall."""
    started = time.perf_counter()
    compete([POLICY], [WORLD], checkpoints=1, progress=False, **game)
    return time.perf_counter() - started


def rows_of(engine: str, name: str, jobs: int) -> dict[str, Any]:
    """Measure one engine after a small sweep that compiles and starts workers."""
    seconds(engine=engine, jobs=jobs, rounds=1000, replications=2 * jobs)
    empty = seconds(engine=engine, jobs=jobs, **EMPTY)
    long = seconds(engine=engine, jobs=jobs, **LONG)
    return {
        "engine": name,
        "cells at a time": jobs,
        "ms per empty cell": 1e3 * empty / EMPTY["replications"],
        "seconds": long,
    }


def measure() -> Measurement:
    """Return one row per engine and number of cells at a time."""
    rows = [rows_of("local", "local", jobs) for jobs in (1, 2)]
    ray = import_extra("ray", "ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        rows += [rows_of("ray", "Ray", jobs) for jobs in (1, 2)]
    finally:
        ray.shutdown()
    for row, base in zip(rows, (rows[0], rows[0], rows[2], rows[2])):
        row["speed-up"] = base["seconds"] / row["seconds"]
        row["compared with one local core"] = rows[0]["seconds"] / row["seconds"]
    note = (
        f"{EMPTY['replications']} cells of one round, then {LONG['replications']} cells of "
        f"{LONG['rounds']:,} rounds of {POLICY}; the time of starting Ray and of compiling is left out."
    )
    return Measurement("Sweeps: local cores and Ray", rows, [note])
