"""``python -m benchmarks [SECTION ...]``: run all sections, or those named, and print their tables."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from . import counting, fitting, policies, rounds, sampling, serving, start

SECTIONS = {
    "rounds": rounds.measure,
    "policies": policies.measure,
    "sampling": sampling.measure,
    "fitting": fitting.measure,
    "start": start.measure,
    "counting": counting.measure,
}


def _exclusions() -> tuple[str, list[dict[str, Any]], list[str]]:
    from . import exclusions  # needs the extra service

    return exclusions.measure()


ON_DEMAND = {"serving": serving.measure, "exclusions": _exclusions}  # take minutes, and need the extra service


def main() -> None:
    """Run, print, and leave the numbers in out/bench.json."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = f"from {', '.join(SECTIONS | ON_DEMAND)}; default: all but {', '.join(ON_DEMAND)}"
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, *ON_DEMAND, []], help=names)
    parser.add_argument("--out", type=Path, default=Path("out/bench.json"))
    chosen = parser.parse_args()
    console = Console() if sys.stdout.isatty() else Console(width=200)
    machine = f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores"
    console.print(f"{machine}, load {os.getloadavg()[0]:.1f}")
    found: dict[str, Any] = {}
    for name in chosen.sections or SECTIONS:
        title, rows, remarks = (SECTIONS | ON_DEMAND)[name]()
        found[name] = {"rows": rows, "remarks": remarks}
        first, *others = rows[0]
        table = Table(Column(first, no_wrap=True), *others, title=title, title_justify="left", pad_edge=False)
        for row in rows:
            table.add_row(*(_said(value) for value in row.values()))
        console.print(table)
        for remark in remarks:
            console.print(remark)
        console.print()
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps(found, indent=1) + "\n")
    console.print(f"{chosen.out}")


def _said(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"


if __name__ == "__main__":
    main()
