"""Write the results of the contenders: a page for readers, and a Parquet file with every repeat."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bothworlds.core import cores
from bothworlds.extras import import_extra

__all__ = ["COMMAND", "write_results"]

COMMAND = "make bench ARGS=contenders"


def write_results(
    runs: Sequence[NamedTuple], rows: Sequence[Mapping[str, Any]], about: Mapping[str, Any], folder: Path
) -> list[str]:
    """Write ``RESULTS.md`` and ``results.parquet``; return the names of the files.

    ``runs`` has one entry per repeat, ``rows`` one per line of the tables, and ``about`` the commit, the versions, the
    load of the machine and the number of repeats. Raises ImportError without pyarrow.
    """
    parquet = import_extra("pyarrow.parquet", "parquet")
    table = import_extra("pyarrow", "parquet").Table.from_pylist([run._asdict() for run in runs])
    table = table.replace_schema_metadata({"bothworlds": json.dumps({**about, "machine": machine()})})
    parquet.write_table(table, folder / "results.parquet", compression="zstd")
    (folder / "RESULTS.md").write_text(page(rows, about))
    return ["RESULTS.md", "results.parquet"]


def machine() -> str:
    """Describe the machine, without its name."""
    return f"{platform.system()}, {platform.machine()}, {cores()} cores"


def page(rows: Sequence[Mapping[str, Any]], about: Mapping[str, Any]) -> str:
    """Return the text of ``RESULTS.md``."""
    ours = [row for row in rows if row["implementation"] == "bothworlds"]
    others = [row for row in rows if row["implementation"] != "bothworlds"]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items() if version)
    return f"""# Results

Made by `{COMMAND}`, which is part of `make bench`. [README.md](README.md) says what is measured and why
it is fair.

- Machine: {machine()}; load {about["load_before"]:.1f} at the start, {about["load_after"]:.1f} at the end.
- Versions: {versions}. Commit: {about["commit"]}.
- Method: 10 items, 5 positions, world `{about["world"]}`. Processor time of decide, clicks and learn, from the first
  round on, without compilation. Median of {about["repeats"]} repeats, with the lowest and the highest in parentheses.
- Ratios are taken within each repeat, in one process: to `ftrl-pbm` of this package just before, and to our policy of
  the same name over the same rounds with the same users. On another machine, compare the ratios.
- `results.parquet` has every repeat.

## Other implementations

`uniform` shows what the loop in Python costs by itself. "Minus ours" is the difference of clicks per round, with its
standard error.

{markdown(others, list(rows[0]))}
## Policies of this package

{markdown(ours, [column for column in rows[0] if column not in ("implementation", "ratio to ours", "minus ours")])}"""


def markdown(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Return a table; all columns but the names are aligned to the right."""
    lines = [columns, ["---" if column in ("policy", "implementation") else "---:" for column in columns]]
    lines += [
        [f"{row[column]:,}" if isinstance(row[column], int) else row[column] for column in columns] for row in rows
    ]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
