"""Reading and counting click logs, evaluating on one, and fitting every click model: time and peak memory, as ratios.

Every step has a process of its own.
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

PAGES = int(os.environ.get("BOTHWORLDS_BENCH_PAGES", 1_000_000))
RESULTS = 10
EVALUATED = 80_000  # pages of five results
LOGS = ("log.parquet", "log.csv", "log.tsv")

GENERATE = """
import sys
import numpy as np
from bothworlds.clicks import generate
from bothworlds.worlds import stochastic
_, path, pages, results, queries = sys.argv
world = stochastic(np.linspace(0.9, 0.1, 50), 1.0 / np.arange(1, int(results) + 1))
generate(path, world, int(pages), queries=int(queries))
"""

# The same pages as lines of queries and clicks.
TEXT = '''
import sys
import duckdb
connection = duckdb.connect()
connection.execute("SET enable_progress_bar_print = false")
lines = connection.execute(f"""
SELECT concat_ws(chr(9), event, 0, 'Q', any_value(query), 0, string_agg(item, chr(9) ORDER BY position)) || chr(10) ||
    coalesce(string_agg(CASE click WHEN 1 THEN concat_ws(chr(9), event, position, 'C', item) || chr(10) END, ''), '')
FROM (SELECT * REPLACE (item::VARCHAR AS item) FROM '{sys.argv[1]}') GROUP BY event ORDER BY event""").fetchall()
with open(sys.argv[2], "w") as file:
    file.writelines(line for (line,) in lines)
'''

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
_, log, pages = sys.argv
counts = measured("reading, counts per query, item and position", lambda: clicks.read(log).counts())
if counts.pages != int(pages):
    raise SystemExit(f"{pages} pages were generated and {counts.pages} counted")
"""

COUNT_PAGES = """
import sys
from bothworlds import clicks
_, log, pages = sys.argv
measured("reading, different pages", lambda: clicks.read(log).pages())
"""

EVALUATE = """
import sys
from bothworlds.clicks import evaluate, read
_, log, small = sys.argv
ranking = ["3", "0", "7", "1", "2"]
evaluate(read(small), ranking)  # compiles the kernels
measured("reading and evaluating a ranking", lambda: evaluate(read(log), ranking))
"""

FIT = """
import sys
from bothworlds.clicks import fit, read
from bothworlds.clicks.model.model import MODELS
_, log, small = sys.argv
for path in (small, log):
    pages, counted = read(path).pages(), read(path).counts()
    for name, model in MODELS.items():
        given = pages if model.dependent else counted
        if path == small:
            fit(given, name)  # compiles the kernels
        else:
            measured(f"fit of {name}", lambda: fit(given, name))
"""


def run_in_process(code: str, *arguments: object) -> list[dict[str, Any]]:
    """Return what a new interpreter prints, a JSON object on each line; its memory is measured separately."""
    command = [sys.executable, "-W", "ignore", "-c", MEASURE + code, *map(str, arguments)]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [json.loads(line) for line in printed.splitlines()]


def measure() -> Measurement:
    """Return one row per log and step, and one per model; the logs are generated first and removed afterwards."""
    found: list[tuple[str, int, dict[str, Any]]] = []
    with tempfile.TemporaryDirectory(prefix="bothworlds-bench-") as folder:
        paths = [Path(folder) / name for name in LOGS]
        for path in paths[:2]:
            run_in_process(GENERATE, path, PAGES, RESULTS, 10)
        run_in_process(TEXT, paths[0], paths[2])
        small = Path(folder) / "small.parquet"
        run_in_process(GENERATE, small, 2_000, RESULTS, 10)
        for path in paths:
            for code in (COUNT, COUNT_PAGES):
                kind = f"{path.suffix[1:]}, {path.stat().st_size / 1e6:,.0f} MB"
                found += [(kind, PAGES * RESULTS, step) for step in run_in_process(code, path, PAGES)]
        log, few = Path(folder) / "evaluated.csv", Path(folder) / "few.csv"
        run_in_process(GENERATE, log, EVALUATED, 5, 1)
        run_in_process(GENERATE, few, 2_000, 5, 1)
        found += [("csv, one query", EVALUATED * 5, step) for step in run_in_process(EVALUATE, log, few)]
        found += [("parquet", PAGES * RESULTS, step) for step in run_in_process(FIT, paths[0], small)]
    base = found[0][2]["work"]
    rows = [
        {
            "log": kind,
            "step": step["what"],
            "seconds": step["seconds"],
            "core seconds": step["work"],
            "ratio to counts of Parquet": step["work"] / base,
            "rows per second": size / step["seconds"],
            "peak memory, MB": step["peak"],
        }
        for kind, size, step in found
    ]
    notes = [
        f"{PAGES:,} pages of {RESULTS} results, nearly all of them different, which is the worst case for counting "
        "pages and for fits to them. A row of the log is one result on a page; text is in the layout relpred.",
        "Pages are checked: in a table no position and no item may occur twice. Fits are maxima with intervals, from "
        "two starts where the problem is not concave; peak memory is that of the process so far, with all counts.",
        "Ratios are those of core seconds, which other programs on the machine change least.",
    ]
    return Measurement("Click logs, from file to counts, and from counts to models", rows, notes)
