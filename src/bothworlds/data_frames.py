"""Columns as a data frame of pandas, Polars or Arrow, and small tables in HTML for notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib.util import find_spec
from itertools import islice
from typing import Any

from .checks import choice
from .extras import import_extra

Columns = Mapping[str, Sequence[Any]]  # arrays or lists of one length, by name
ROWS_SHOWN = 10  # of a table in HTML
LIBRARIES = {"pandas": "pandas", "polars": "polars", "arrow": "pyarrow"}  # modules, the first installed one is used


def to_frame(columns: Columns, library: str | None = None) -> Any:
    """Return columns as a data frame of pandas or Polars, or as an Arrow table, which both are made of.

    ``library`` is "pandas", "polars" or "arrow"; if it is not given, the first of them that is installed. None in a
    column is a missing value, NaN stays NaN. Raises ValueError for another name, and ImportError if the library, or
    each of them, is not installed.

    >>> to_frame({"item": ["tea", "milk"], "clicks": [3, None]}, "arrow").to_pylist()
    [{'item': 'tea', 'clicks': 3}, {'item': 'milk', 'clicks': None}]
    """
    name = library or next((name for name, module in LIBRARIES.items() if find_spec(module)), None)
    if name is None:
        raise ImportError(f"a data frame needs one of {', '.join(LIBRARIES)}: pip install pandas")
    module = LIBRARIES[choice(name, "library", LIBRARIES)]
    made = import_extra(module, requirement=module)
    pyarrow = import_extra("pyarrow", requirement="pyarrow")
    table = pyarrow.table(dict(columns))
    if name == "polars":
        return made.from_arrow(table)
    if name == "arrow":
        return table
    # A column of whole numbers and None would become one of floating-point numbers.
    missing = any(column.null_count for column in table.columns)
    return table.to_pandas(types_mapper={pyarrow.int64(): made.Int64Dtype()}.get if missing else None)


def html_table(title: str, columns: Columns, notes: Sequence[str] = ()) -> str:
    """Return a table in HTML with its first rows, under a title; all text is escaped.

    >>> html_table("tea & milk", {"clicks": [0.25]}).partition("<tbody>")[0]
    '<table><caption>tea &amp; milk</caption><thead><tr><th>clicks</th></tr></thead>'
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    rows = islice(zip(*columns.values()), ROWS_SHOWN)
    body = "".join("<tr>" + "".join(f"<td>{escape(_text(value))}</td>" for value in row) + "</tr>" for row in rows)
    hidden = max((len(column) for column in columns.values()), default=0) - ROWS_SHOWN
    more = [f"and {hidden:,} more rows"] if hidden > 0 else []
    after = "".join(f"<p>{escape(note)}</p>" for note in (*more, *notes))
    caption = f"<caption>{escape(title)}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{after}"


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if isinstance(value, float) else str(value)
