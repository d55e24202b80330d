"""Columns as a data frame of pandas, Polars or Arrow, and small tables in HTML for notebooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from itertools import islice
from typing import Any, NamedTuple

from .checks import choice
from .extras import import_extra

Columns = Mapping[str, Sequence[Any]]  # arrays or lists of one length, by name
ROWS_SHOWN = 10  # of a table in HTML


def _pandas(pandas: Any, columns: Columns) -> Any:
    # A column of whole numbers and None would become one of floating-point numbers.
    types = {name: "Int64" for name, column in columns.items() if _has_missing_integers(column)}
    series = {
        name: pandas.array(column, dtype=types[name]) if name in types else column for name, column in columns.items()
    }
    return pandas.DataFrame(series)


def _has_missing_integers(column: Sequence[Any]) -> bool:
    kinds = {type(value) for value in column} if isinstance(column, (list, tuple)) else set()
    return type(None) in kinds and kinds <= {int, type(None)}


class Library(NamedTuple):
    """A module with data frames, how it is installed, and how it makes a frame of columns."""

    module: str
    requirement: str
    make: Callable[[Any, Columns], Any]


# In the order in which they are tried.
LIBRARIES = {
    "pandas": Library("pandas", "pandas", _pandas),
    "polars": Library("polars", "polars", lambda polars, columns: polars.DataFrame(dict(columns))),
    "arrow": Library("pyarrow", "pyarrow", lambda pyarrow, columns: pyarrow.table(dict(columns))),
}


def to_frame(columns: Columns, library: str | None = None) -> Any:
    """Return columns as a data frame of pandas or Polars, or as an Arrow table.

    ``library`` is "pandas", "polars" or "arrow"; if it is not given, the first of them that is installed. None in a
    column is a missing value, NaN stays NaN. Raises ValueError for another name, and ImportError if the library, or
    each of them, is not installed.

    >>> to_frame({"item": ["tea", "milk"], "clicks": [3, None]}, "arrow").to_pylist()
    [{'item': 'tea', 'clicks': 3}, {'item': 'milk', 'clicks': None}]
    """
    if library is None:
        library = next(filter(_installed, LIBRARIES), None)
        if library is None:
            raise ImportError(f"a data frame needs one of {', '.join(LIBRARIES)}: pip install pandas")
    chosen = LIBRARIES[choice(library, "library", LIBRARIES)]
    return chosen.make(import_extra(chosen.module, requirement=chosen.requirement), columns)


def _installed(library: str) -> bool:
    try:
        import_extra(LIBRARIES[library].module)
    except ImportError:
        return False
    return True


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
