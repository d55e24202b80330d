"""Logs in memory: data frames, columns by name and records, converted to Arrow tables."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from ...extras import import_extra
from .sources import Source

# The characters that SQL trims.
SPACES = " \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"


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


def label_text(label: Any) -> str:
    """Return a label as text: whole numbers without a decimal point, and no spaces around it.

    >>> label_text(5.0), label_text("5.0"), label_text(2.5), label_text(" tea ")
    ('5', '5.0', '2.5', 'tea')
    """
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label).strip(SPACES)


def inspect_table(table: Any) -> Source:
    """Return the source of an Arrow table; raise ValueError if it has no columns."""
    if not table.column_names:
        raise ValueError("the table has no columns")
    return Source(Path("the table"), "memory", None, columns=tuple(table.column_names), table=table)
