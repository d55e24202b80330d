"""Leaders of many problems of one shape: problems a second by number of threads, compared with one call for each."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bothworlds.core import cores
from bothworlds.geometry import leader, leaders

from .measurement import Measurement

SHAPES = {(10, 5): 100_000, (100, 10): 4_000, (1000, 10): 400}
SPREADS = (1.0, 30.0, 1000.0)  # losses are from 0 to this
RATE = 0.5
SINGLE = 300  # problems solved by one call each
REPEATS = 3


def best_of(repeats: int, clock: Callable[[], float], run: Callable[..., Any], *arguments: Any, **named: Any) -> float:
    """Return the least time of several runs by a clock, in seconds."""
    times = []
    for _ in range(repeats):
        started = clock()
        run(*arguments, **named)
        times.append(clock() - started)
    return min(times)


def one_by_one(losses: np.ndarray) -> None:
    """Solve the problems with one call each."""
    for loss in losses:
        leader(loss, RATE)


def measure() -> Measurement:
    """Return one row per shape and spread of losses."""
    rows = []
    for (n, m), problems in SHAPES.items():
        for spread in SPREADS:
            losses = spread * np.random.default_rng(0).random((problems, n, m))
            found = leaders(losses, RATE)
            single = min(SINGLE, problems)
            one = best_of(REPEATS, time.process_time, one_by_one, losses[:single]) / single
            alone = best_of(REPEATS, time.process_time, leaders, losses, RATE, jobs=1) / problems
            together = best_of(REPEATS, time.perf_counter, leaders, losses, RATE) / problems
            rows.append(
                {
                    "n": n,
                    "m": m,
                    "losses to": spread,
                    "problems": problems,
                    "Newton steps, mean": float(found.iterations.mean()),
                    "per second": 1.0 / together,
                    "per processor second": 1.0 / alone,
                    "speed-up of threads": alone / together,
                    "speed-up over single calls": one / alone,
                }
            )
    note = (
        f"{cores()} threads, best of {REPEATS}; rate 1/2, tolerance 1e-9. Problems per second are by the clock on the "
        "wall, which on a busy machine is less than cores times problems per processor second of one thread. The "
        "speed-up over one call for each problem is that of one thread."
    )
    return Measurement("Leaders of a batch of problems", rows, [note])
