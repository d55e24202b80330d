"""Counting click logs and fitting every click model: time and peak memory, as ratios to counting for ``pbm``.

Logs are Parquet and text. Each count, and the fits, have a process of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from .measurement import Measurement

PAGES = int(os.environ.get("BOTHWORLDS_BENCH_PAGES", 10_000_000))
RESULTS = 10
LOGS = {"tidy, Parquet": ("log.parquet", "tidy"), "relpred, text": ("log.tsv", "relpred")}
# What is counted, by the function that counts it.
COUNTED = {
    "counts": "counting for pbm, trust, rank-ctr, item-ctr",
    "count_pages": "counting for ubm, cascade, dcm, sdbn, dbn, ccm",
}

GENERATE = """
import sys
import numpy as np
from bothworlds.clicks import generate
from bothworlds.worlds import stochastic
world = stochastic(np.linspace(0.9, 0.1, 50), 1.0 / np.arange(1, int(sys.argv[4]) + 1))
generate(sys.argv[1], world, int(sys.argv[3]), format=sys.argv[2], queries=10)
"""

MEASURE = """
import json, resource, time
def measured(what, function):
    before = resource.getrusage(resource.RUSAGE_SELF)
    started = time.perf_counter()
    result = function()
    seconds = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_SELF)
    work = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"what": what, "seconds": seconds, "work": work, "peak": after.ru_maxrss / 1024}), flush=True)
    return result
"""

COUNT = """
import sys
from bothworlds import clicks
_, log, small, name, pages = sys.argv
count = getattr(clicks, name)
count(small)  # compiles the kernels
counted = measured(name, lambda: count(log))
if counted.pages != int(pages):
    raise SystemExit(f"{pages} pages were generated and {counted.pages} counted")
"""

FIT = """
import sys
from bothworlds.clicks import fit, read
from bothworlds.clicks.model.names import MODELS
_, log, small = sys.argv
for path in (small, log):
    pages, counted = read(path).pages(), read(path).counts()
    for name, model in MODELS.items():
        given = pages if model.dependent else counted
        if path == small:
            fit(given, model=name)  # compiles the kernels
        else:
            measured(name, lambda: fit(given, model=name))
"""


def run_in_process(code: str, *arguments: object) -> list[dict[str, Any]]:
    """Return what a new interpreter prints, a JSON object on each line; its memory is measured separately."""
    command = [sys.executable, "-W", "ignore", "-c", MEASURE + code, *map(str, arguments)]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [json.loads(line) for line in printed.splitlines()]


def measure() -> Measurement:
    """Return one row per log and count, and one per model; the logs are generated first and removed afterwards."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="bothworlds-bench-") as folder:
        for kind, (name, layout) in LOGS.items():
            log, small = Path(folder) / name, Path(folder) / f"small-{name}"
            run_in_process(GENERATE, log, layout, PAGES, RESULTS)
            run_in_process(GENERATE, small, layout, 2_000, RESULTS)
            found = [one for count in COUNTED for one in run_in_process(COUNT, log, small, count, PAGES)]
            base = found[0]["work"]
            rows += [
                _row(f"{kind}, {log.stat().st_size / 1e6:,.0f} MB", COUNTED[one["what"]], one, base) for one in found
            ]
            if layout == "tidy":
                rows += [_row(kind, f"fit of {one['what']}", one, base) for one in run_in_process(FIT, log, small)]
            log.unlink()
    notes = [
        f"{PAGES:,} pages of {RESULTS} results, nearly all of them different, which is the worst case for counting "
        "pages and for fits to them. A row of the log is one result on a page.",
        "Pages are checked: no position and no item may occur twice. Fits are maxima with intervals, from two starts "
        "where the problem is not concave; peak memory is that of the process so far, with all counts.",
        "Ratios are those of core seconds, which other programs on the machine change least.",
    ]
    return Measurement("Click logs, from file to counts, and from counts to models", rows, notes)


def _row(kind: str, what: str, found: dict[str, Any], base: float) -> dict[str, Any]:
    rows = PAGES * RESULTS
    return {
        "log": kind,
        "what": what,
        "seconds": found["seconds"],
        "core seconds": found["work"],
        "ratio to counting for pbm": found["work"] / base,
        "rows per second": rows / found["seconds"],
        "peak memory, MB": found["peak"],
    }
