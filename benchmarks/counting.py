"""Counting click logs: rows per second and peak memory, for a Parquet table and for text, in a process of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

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
counts(sys.argv[2])  # compiles, on a log of a few pages
before = resource.getrusage(resource.RUSAGE_SELF)
started = time.perf_counter()
counted = counts(sys.argv[1])
seconds = time.perf_counter() - started
after = resource.getrusage(resource.RUSAGE_SELF)
work = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
found = {"rows": int(counted.shown.sum()), "pages": counted.pages, "seconds": seconds, "work": work}
print(json.dumps({**found, "peak": after.ru_maxrss / 1024, "start": before.ru_maxrss / 1024}))
"""


def in_a_process(code: str, *arguments: object) -> str:
    """What a new interpreter prints; its memory is its own."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def measure() -> tuple[str, list[dict[str, Any]], list[str]]:
    """One row for every kind of log; the logs are written first and removed afterwards."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="bothworlds-bench-") as folder:
        for kind, (name, layout) in LOGS.items():
            log, small = Path(folder) / name, Path(folder) / f"small-{name}"
            in_a_process(GENERATE, log, layout, PAGES, RESULTS)
            in_a_process(GENERATE, small, layout, 100, RESULTS)
            found = json.loads(in_a_process(COUNT, log, small))
            if (found["rows"], found["pages"]) != (PAGES * RESULTS, PAGES):
                raise RuntimeError(f"{kind}: {PAGES} pages were written and {found['pages']} counted")
            rows.append(
                {
                    "log": kind,
                    "pages": f"{PAGES:,}",
                    "file, MB": log.stat().st_size / 1e6,
                    "seconds": found["seconds"],
                    "rows per second": found["rows"] / found["seconds"],
                    "rows per core second": found["rows"] / found["work"],
                    "peak memory, MB": found["peak"],
                    "of which before": found["start"],
                }
            )
            log.unlink()
    remarks = ["A row is one result on a page. Pages are checked as well: no position and no item may be there twice."]
    return "Click logs, from file to counts per query, item and position", rows, remarks
