"""Counting click logs: rows per second and peak memory, for Parquet and for text, each in its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from .measurement import Measurement

PAGES = int(os.environ.get("BOTHWORLDS_BENCH_PAGES", 10_000_000))
RESULTS = 10
LOGS = {"tidy, Parquet": ("log.parquet", "tidy"), "relpred, text": ("log.tsv", "relpred")}

GENERATE = """
import sys
import numpy as np
from bothworlds.clicks import generate
from bothworlds.worlds import stochastic
world = stochastic(np.linspace(0.9, 0.1, 50), 1.0 / np.arange(1, int(sys.argv[4]) + 1))
generate(sys.argv[1], world, int(sys.argv[3]), format=sys.argv[2], queries=10)
"""

COUNT = """
import json, resource, sys, time
from pathlib import Path
from bothworlds.clicks import counts
counts(sys.argv[2])  # compiles the kernels
before = resource.getrusage(resource.RUSAGE_SELF)
started = time.perf_counter()
counted = counts(sys.argv[1])
seconds = time.perf_counter() - started
after = resource.getrusage(resource.RUSAGE_SELF)
work = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
result = {"rows": int(counted.shown.sum()), "pages": counted.pages, "seconds": seconds, "work": work}
print(json.dumps({**result, "peak": after.ru_maxrss / 1024, "start": before.ru_maxrss / 1024}))
"""


def run_in_process(code: str, *arguments: object) -> str:
    """Return the output of a new interpreter, whose memory can be measured separately."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def measure() -> Measurement:
    """Return one row per kind of log; the logs are generated first and removed afterwards."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="bothworlds-bench-") as folder:
        for kind, (name, layout) in LOGS.items():
            log, small = Path(folder) / name, Path(folder) / f"small-{name}"
            run_in_process(GENERATE, log, layout, PAGES, RESULTS)
            run_in_process(GENERATE, small, layout, 100, RESULTS)
            result = json.loads(run_in_process(COUNT, log, small))
            if (result["rows"], result["pages"]) != (PAGES * RESULTS, PAGES):
                raise RuntimeError(f"{kind}: {PAGES} pages were generated and {result['pages']} counted")
            rows.append(
                {
                    "log": kind,
                    "pages": f"{PAGES:,}",
                    "file, MB": log.stat().st_size / 1e6,
                    "seconds": result["seconds"],
                    "rows per second": result["rows"] / result["seconds"],
                    "rows per core second": result["rows"] / result["work"],
                    "peak memory, MB": result["peak"],
                    "of which at the start": result["start"],
                }
            )
            log.unlink()
    notes = ["A row is one result on a page. Pages are checked, too: no position and no item may occur twice."]
    return Measurement("Click logs, from file to counts per query, item and position", rows, notes)
