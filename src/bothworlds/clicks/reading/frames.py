"""Logs in memory: data frames, columns by name, records and arrays, converted to Arrow tables."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...extras import import_extra
from .file_format import LogSource
from .layouts import COLUMN_NAMES
from .row_checks import LAST_POSITION, ROW_CHECKS

# The characters that SQL trims.
SPACES = " \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"


class CountTables(NamedTuple):
    """Impressions and clicks as two tables (n_items, n_positions), with the labels of rows and columns if given."""

    shown: Any
    clicked: Any
    items: tuple[str, ...] | None = None
    positions: tuple[int, ...] | None = None


def as_table(given: Any) -> Any | None:
    """Return an Arrow table of a data frame (pandas, Polars, Arrow), columns by name, records, or a structured array.

    Returns None for any other type. NaN of NumPy and pandas, and a key that a record lacks, become missing values.
    Raises ValueError if the table cannot be converted.

    >>> as_table({"item": ["tea", "milk"], "click": [0, 1]}).column_names
    ['item', 'click']
    >>> as_table([{"item": "tea"}, {"item": "milk", "query": "q"}])["query"].to_pylist()
    [None, 'q']
    >>> as_table("log.csv") is None
    True
    """
    columns = _columns(given)
    if columns is None and not hasattr(given, "__arrow_c_stream__"):
        return None
    pyarrow = import_extra("pyarrow")
    try:
        if columns is None:
            return pyarrow.table(given)
        return pyarrow.table({name: _array(pyarrow, column) for name, column in columns.items()})
    except (ValueError, TypeError, OverflowError, pyarrow.ArrowException) as error:
        raise ValueError(f"the table cannot be read: {error}") from error


def _columns(given: Any) -> dict[str, Any] | None:
    """Columns by name, or None if the type is not one of those that need a conversion."""
    if isinstance(given, np.ndarray) and given.dtype.names is not None:
        return {name: given[name] for name in given.dtype.names}
    if isinstance(given, Mapping):
        return {str(name): column for name, column in given.items()}
    if isinstance(given, (list, tuple)) and given and all(isinstance(one, Mapping) for one in given):
        if any(isinstance(value, (list, tuple, np.ndarray)) for value in given[0].values()):
            raise ValueError("a log in memory is one table, and these are several; join the tables first")
        return {str(name): [one.get(name) for one in given] for name in dict.fromkeys(chain.from_iterable(given))}
    return None


def _array(pyarrow: Any, column: Any) -> Any:
    arrow = hasattr(column, "__arrow_c_array__") or hasattr(column, "__arrow_c_stream__")
    return column if arrow else pyarrow.array(column, from_pandas=True)


def as_count_tables(given: Any) -> CountTables | None:
    """Return impressions and clicks if two tables (n_items, n_positions) are given, and None otherwise.

    Data frames are aligned by their index, which names items, and their columns, which name positions.
    """
    several = isinstance(given, (tuple, list)) or (isinstance(given, np.ndarray) and given.ndim == 3)
    if not several or len(given) != 2 or not all(map(_may_be_counts, given)):
        return None
    if any(name in COLUMN_NAMES for one in given for name in _column_names(one)):
        raise ValueError("a log in memory is one table, and these are two; join the tables first")
    framed = [hasattr(one, "columns") for one in given]
    return _aligned(given[0], given[1]) if any(framed) else CountTables(given[0], given[1])


def _may_be_counts(one: Any) -> bool:
    if isinstance(one, (list, tuple)):
        return not any(isinstance(row, (str, Path, Mapping)) for row in one)
    return hasattr(one, "__array__")


def _column_names(one: Any) -> list[str]:
    names = one.dtype.names if isinstance(one, np.ndarray) else getattr(one, "columns", None)
    names = getattr(one, "column_names", names)  # as Arrow calls them
    return [] if names is None else [str(name).lower() for name in names]


def _aligned(shown: Any, clicked: Any) -> CountTables:
    if not all(hasattr(one, "columns") and hasattr(one, "index") for one in (shown, clicked)):
        raise ValueError(
            "impressions and clicks must both be data frames with an index of items and columns of positions, or both "
            "be arrays"
        )
    for axis in ("index", "columns"):
        one, other = list(getattr(shown, axis)), list(getattr(clicked, axis))
        if len(set(one)) < len(one) or len(one) != len(other) or set(one) != set(other):
            raise ValueError(
                f"impressions and clicks must have the same labels in their {axis}, each once; put 0 where there are "
                "no clicks"
            )
    items = tuple(map(label_text, shown.index))
    if len(set(items)) < len(items):
        raise ValueError("impressions and clicks must have labels that differ by more than the spaces around them")
    positions = [_position(label) for label in shown.columns]
    order = np.argsort(positions)
    places = clicked.index.get_indexer(shown.index), clicked.columns.get_indexer(shown.columns[order])
    tables = shown.to_numpy()[:, order], clicked.to_numpy()[np.ix_(*places)]
    return CountTables(*tables, items, tuple(positions[j] for j in order))


def _position(label: Any) -> int:
    name = label_text(label)
    if not name.isdecimal():
        raise ValueError(f"columns of impressions and clicks must be positions, whole numbers from 0 up; got {label!r}")
    if int(name) > LAST_POSITION:
        raise ValueError(f"columns of impressions and clicks {ROW_CHECKS[12][1]}; got {label!r}")
    return int(name)


def label_text(label: Any) -> str:
    """Return a label as text: whole numbers without a decimal point, and no spaces around it.

    >>> label_text(5.0), label_text("5.0"), label_text(2.5), label_text(" tea ")
    ('5', '5.0', '2.5', 'tea')
    """
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label).strip(SPACES)


def inspect_table(table: Any) -> LogSource:
    """Return the source of an Arrow table; raise ValueError if it has no columns."""
    if not table.column_names:
        raise ValueError("the table has no columns")
    return LogSource(Path("the table"), "memory", None, columns=tuple(table.column_names), table=table)
