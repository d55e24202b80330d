"""``python -m benchmarks [NAME ...]``: run all benchmarks, or those named, and print their tables."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from .measurement import Measurement

# Name on the command line: module. The modules are imported when they are run, since some need extras.
DEFAULT = {
    "contenders": "contender_rounds",
    "rounds": "ftrl_round",
    "policies": "policy_rounds",
    "sampling": "ranking_draw",
    "growth": "catalogue_growth",
    "fitting": "model_fit",
    "start": "startup_time",
    "counting": "click_log_counts",
}
ON_REQUEST = {  # these take minutes; the service needs the extra "service", "sweeps" needs "ray"
    "all-weather": "all_weather",
    "context": "context",
    "serving": "service_load",
    "changes": "changing_items",
    "exclusions": "excluded_items",
    "sweeps": "sweep_engines",
    "evaluation": "evaluation_accuracy",
}
BENCHMARKS = DEFAULT | ON_REQUEST


def main() -> None:
    """Run the benchmarks, print their tables, and write the numbers to a JSON file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = f"from {', '.join(BENCHMARKS)}; default: all but {', '.join(ON_REQUEST)}"
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[*BENCHMARKS, []], help=names)
    parser.add_argument("--out", type=Path, default=Path("out/bench.json"), help="file for the numbers")
    arguments = parser.parse_args()
    console = Console() if sys.stdout.isatty() else Console(width=200)
    machine = f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores"
    console.print(f"{machine}, load {os.getloadavg()[0]:.1f}")
    results: dict[str, Any] = {}
    for name in arguments.names or DEFAULT:
        measured = benchmark(name)()
        results[name] = {"rows": measured.rows, "notes": measured.notes}
        _print(measured, console)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(results, indent=1) + "\n")
    console.print(f"{arguments.out}")


def benchmark(name: str) -> Callable[[], Measurement]:
    """Return the function ``measure`` of a benchmark; raises ImportError if an extra is not installed."""
    measure: Callable[[], Measurement] = import_module(f".{BENCHMARKS[name]}", __package__).measure
    return measure


def _print(measured: Measurement, console: Console) -> None:
    first, *others = measured.rows[0]
    table = Table(Column(first, no_wrap=True), *others, title=measured.title, title_justify="left", pad_edge=False)
    for row in measured.rows:
        table.add_row(*(_format(value) for value in row.values()))
    console.print(table)
    for note in measured.notes:
        console.print(note)
    console.print()


def _format(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"


if __name__ == "__main__":
    main()
