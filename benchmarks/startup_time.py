"""Startup time: import, first use in a fresh install (compiles), first use in a later process (cached)."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from typing import Any

from .measurement import Measurement

IMPORT = "import time; t = time.perf_counter(); import bothworlds; print(time.perf_counter() - t)"
USE = (
    "import time; t = time.perf_counter(); import bothworlds\n"
    "bothworlds.play({policy!r}, 'paper/stochastic', 100, replications=1)\n"
    "print(time.perf_counter() - t)"
)


def measure() -> Measurement:
    """Return one row per case, each measured in new processes; the cache of compiled code is empty at first."""
    rows: list[dict[str, Any]] = [{"case": "import bothworlds", "seconds": min(_run(IMPORT, None) for _ in range(3))}]
    for policy in ("uniform", "ftrl-pbm"):
        with tempfile.TemporaryDirectory() as cache:
            code = USE.format(policy=policy)
            rows.append({"case": f"{policy}, first use in a fresh install", "seconds": _run(code, cache)})
            rows.append({"case": f"{policy}, in a later process", "seconds": min(_run(code, cache) for _ in range(3))})
    fresh, later = rows[-2]["seconds"], rows[-1]["seconds"]
    return Measurement("Startup time", rows, [f"The cache on disk makes ftrl-pbm {fresh / later:.0f} times faster."])


def _run(code: str, cache: str | None) -> float:
    environment = os.environ | ({"NUMBA_CACHE_DIR": cache} if cache else {})
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)
