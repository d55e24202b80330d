"""Tables in memory: whatever holds named columns, as an Arrow table that is read as a file of its kind would be."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .heads import Head, needs

__all__ = ["as_pair", "as_table", "look_at_table"]


def as_table(given: Any) -> Any | None:
    """An Arrow table from a data frame (pandas, Polars, Arrow), columns by name, records, or a structured array.

    None for anything else. What NumPy and pandas call NaN is missing.

    >>> as_table({"item": ["tea", "milk"], "click": [0, 1]}).column_names
    ['item', 'click']
    >>> as_table("log.csv") is None
    True
    """
    records = isinstance(given, (list, tuple)) and len(given) > 0 and isinstance(given[0], Mapping)
    named = isinstance(given, np.ndarray) and given.dtype.names is not None
    if not (records or named or isinstance(given, Mapping) or hasattr(given, "__arrow_c_stream__")):
        return None
    pyarrow = needs("pyarrow")
    try:
        if records:
            return pyarrow.Table.from_pylist(list(given))
        return pyarrow.table({name: given[name] for name in given.dtype.names} if named else given)
    except (ValueError, TypeError, pyarrow.ArrowException) as error:
        raise ValueError(f"the table cannot be read: {error}") from error


def as_pair(given: Any) -> tuple[Any, Any] | None:
    """Two tables (n_items, n_positions) of impressions and clicks, if that is what is given."""
    several = isinstance(given, (tuple, list)) or (isinstance(given, np.ndarray) and given.ndim == 3)
    if not several or len(given) != 2 or any(isinstance(one, (str, Path, Mapping)) for one in given):
        return None
    return given[0], given[1]


def look_at_table(table: Any) -> Head:
    """What a table says about itself."""
    return Head(Path("the table"), "memory", None, columns=tuple(table.column_names), table=table)
