"""Write ``RESULTS.md``, a page with one section for each of several benchmarks, and every repeat to Parquet.

A benchmark writes its own section and its own Parquet file; the sections of the others stay as they are.
"""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bothworlds.core import cores
from bothworlds.extras import import_extra

FOLDER = Path(__file__).parent
SECTIONS = ("contenders", "growth")  # in the order of the page
HEAD = """# Results

`make bench` writes all sections, and each section names the command that writes it alone.
[docs/research/performance.md](../docs/research/performance.md) says what is measured and why it is fair.

"""


def write_section(
    name: str, text: str, runs: Sequence[NamedTuple], about: Mapping[str, Any], folder: Path = FOLDER
) -> list[str]:
    """Replace a section of ``RESULTS.md``, and write its repeats to ``NAME.parquet``; return the names of the files.

    ``runs`` has one entry per repeat, and ``about`` the commit, the versions and the load of the machine. Raises
    ImportError without pyarrow.
    """
    parquet = import_extra("pyarrow.parquet", "parquet")
    table = import_extra("pyarrow", "parquet").Table.from_pylist([run._asdict() for run in runs])
    table = table.replace_schema_metadata({"bothworlds": json.dumps({**about, "machine": machine()})})
    parquet.write_table(table, folder / f"{name}.parquet", compression="zstd")
    page = folder / "RESULTS.md"
    sections = sections_of(page.read_text() if page.exists() else "") | {name: text.strip() + "\n"}
    page.write_text(HEAD + "\n".join(f"<!-- {key} -->\n{sections[key]}" for key in SECTIONS if key in sections))
    return [page.name, f"{name}.parquet"]


def sections_of(page: str) -> dict[str, str]:
    """Return the text of every section of a page; each follows a comment with its name.

    >>> sections_of("# Results\\n\\n<!-- contenders -->\\nfast\\n\\n<!-- growth -->\\nslow\\n")
    {'contenders': 'fast\\n', 'growth': 'slow\\n'}
    """
    _, *parts = re.split(r"^<!-- (\w+) -->\n", page, flags=re.MULTILINE)
    return {name: text.strip() + "\n" for name, text in zip(parts[::2], parts[1::2])}


def command(name: str) -> str:
    """Return the command that writes a section."""
    return f"make bench ARGS={name}"


def machine() -> str:
    """Describe the machine, without its name."""
    return f"{platform.system()}, {platform.machine()}, {cores()} cores"


def made_by(name: str, about: Mapping[str, Any]) -> str:
    """Return the first lines of a section: its command, the machine, the versions and the commit."""
    versions = ", ".join(f"{package} {version}" for package, version in about["versions"].items() if version)
    return f"""Made by `{command(name)}`; `{name}.parquet` has every repeat.

- Machine: {machine()}; load {about["load_before"]:.1f} at the start, {about["load_after"]:.1f} at the end.
- Versions: {versions}. Commit: {about["commit"]}."""


def markdown(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Return a table; all columns but the names are aligned to the right."""
    lines = [columns, ["---" if column in ("policy", "implementation") else "---:" for column in columns]]
    lines += [
        [f"{row[column]:,}" if isinstance(row[column], int) else row[column] for column in columns] for row in rows
    ]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def spread(values: Sequence[float]) -> str:
    """Return the median, and the lowest and the highest value.

    >>> spread([2.0, 1.0, 4.0])
    '2.00 (1.00 to 4.00)'
    """
    low, middle, high = (number(value) for value in (min(values), float(np.median(values)), max(values)))
    return f"{middle} ({low} to {high})"


def number(value: float) -> str:
    """Return a value with three digits, or with all digits before the point.

    >>> number(0.5), number(12.345), number(1234.5)
    ('0.50', '12.3', '1,234')
    """
    if value >= 100.0:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10.0 else f"{value:.2f}"
