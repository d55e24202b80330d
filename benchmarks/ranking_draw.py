"""Drawing a ranking with given marginals: the cost of preparation and of a draw, compared with Birkhoff."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from bothworlds.geometry import birkhoff, leader
from bothworlds.geometry.sampling import draw, make_urn, prepare
from bothworlds.kernels import Floats, Ints, kernel

from .measurement import Measurement

SHAPES = ((10, 5), (100, 10), (1000, 20))
SPREADS = {"uniform": 0.0, "mixed": 10.0, "converged": 3000.0}


@kernel
def draw_many(x: Floats, rng: np.random.Generator, urn: Any, ranking: Ints, times: int) -> None:
    """Draw many times in a kernel, so that Python is not measured."""
    for _ in range(times):
        draw(x, rng, urn, ranking)


@kernel
def prepare_many(x: Floats, urn: Any, times: int) -> None:
    """Prepare many times in a kernel."""
    for _ in range(times):
        prepare(x, urn)


def measure() -> Measurement:
    """Return one row per shape and per kind of marginals."""
    rng, rows, ratios = np.random.default_rng(0), [], []
    for n, m in SHAPES:
        for name, spread in SPREADS.items():
            x = leader(rng.random((n, m)) * spread, 1.0).marginals
            urn, ranking, times = make_urn(n, m), np.empty(m, np.int64), max(200, 1_000_000 // (n * m))
            prepare(x, urn)
            draw_many(x, rng, urn, ranking, 1)
            prepare_many(x, urn, 1)
            drawing = _best(draw_many, x, rng, urn, ranking, times) / times
            preparing = _best(prepare_many, x, urn, times) / times
            row = {"n": n, "m": m, "marginals": name, "heavy list": float(urn.weight[0]), "bins": int(urn.bins[0])}
            rows.append(row | {"prepare, µs": preparing * 1e6, "draw, µs": drawing * 1e6})
            if (n, m) == SHAPES[0]:
                ratios.append(_best(birkhoff, x) / (preparing + drawing))
    note = "Full Birkhoff decomposition over prepare and draw at (10, 5): " + ", ".join(f"{r:,.0f}" for r in ratios)
    return Measurement("Drawing a ranking", rows, [f"{note} times ({', '.join(SPREADS)})."])


def _best(call: Any, *arguments: Any) -> float:
    """Return the seconds of the fastest of three calls."""
    times = []
    for _ in range(3):
        started = time.thread_time()
        call(*arguments)
        times.append(time.thread_time() - started)
    return min(times)
