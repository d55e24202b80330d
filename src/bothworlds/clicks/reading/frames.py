"""Tables in memory: whatever holds named columns, as an Arrow table that is read as a file of its kind would be."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .file_format import Head, needs
from .layouts import NAMES
from .row_checks import LAST_POSITION, REASONS

__all__ = ["Pair", "as_pair", "as_table", "look_at_table", "name_of"]

SPACES = (
    " \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"  # as SQL trims
)


class Pair(NamedTuple):
    """Two tables (n_items, n_positions), with the names of their rows and columns if they have any."""

    shown: Any
    clicked: Any
    items: tuple[str, ...] | None = None
    positions: tuple[int, ...] | None = None


def as_table(given: Any) -> Any | None:
    """An Arrow table from a data frame (pandas, Polars, Arrow), columns by name, records, or a structured array.

    None for anything else. What NumPy and pandas call NaN is missing, and so is a key that a record lacks.

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
    pyarrow = needs("pyarrow")
    try:
        if columns is None:
            return pyarrow.table(given)
        return pyarrow.table({name: _array(pyarrow, column) for name, column in columns.items()})
    except (ValueError, TypeError, OverflowError, pyarrow.ArrowException) as error:
        raise ValueError(f"the table cannot be read: {error}") from error


def _columns(given: Any) -> dict[str, Any] | None:
    """Columns by name, from what is not a table of Arrow already."""
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


def as_pair(given: Any) -> Pair | None:
    """Two tables (n_items, n_positions) of impressions and clicks, if that is what is given.

    Data frames are put in one order by their rows, which name items, and their columns, which name positions.
    """
    several = isinstance(given, (tuple, list)) or (isinstance(given, np.ndarray) and given.ndim == 3)
    if not several or len(given) != 2 or not all(map(_may_be_counts, given)):
        return None
    if any(name in NAMES for one in given for name in _column_names(one)):
        raise ValueError("a log in memory is one table, and these are two; join the tables first")
    framed = [hasattr(one, "columns") for one in given]
    return _aligned(given[0], given[1]) if any(framed) else Pair(given[0], given[1])


def _may_be_counts(one: Any) -> bool:
    if isinstance(one, (list, tuple)):
        return not any(isinstance(row, (str, Path, Mapping)) for row in one)
    return hasattr(one, "__array__")


def _column_names(one: Any) -> list[str]:
    names = one.dtype.names if isinstance(one, np.ndarray) else getattr(one, "columns", None)
    names = getattr(one, "column_names", names)  # Arrow's word for them
    return [] if names is None else [str(name).lower() for name in names]


def _aligned(shown: Any, clicked: Any) -> Pair:
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
    items = tuple(map(name_of, shown.index))
    if len(set(items)) < len(items):
        raise ValueError("impressions and clicks must have labels that differ by more than the spaces around them")
    positions = [_position(label) for label in shown.columns]
    order = np.argsort(positions)
    places = clicked.index.get_indexer(shown.index), clicked.columns.get_indexer(shown.columns[order])
    tables = shown.to_numpy()[:, order], clicked.to_numpy()[np.ix_(*places)]
    return Pair(*tables, items, tuple(positions[j] for j in order))


def _position(label: Any) -> int:
    name = name_of(label)
    if not name.isdecimal():
        raise ValueError(f"columns of impressions and clicks must be positions, whole numbers from 0 up; got {label!r}")
    if int(name) > LAST_POSITION:
        raise ValueError(f"columns of impressions and clicks {REASONS[12][1]}; got {label!r}")
    return int(name)


def name_of(label: Any) -> str:
    """A label as text, as in files: whole numbers have no point, and there are no spaces around it.

    >>> name_of(5.0), name_of("5.0"), name_of(2.5), name_of(" tea ")
    ('5', '5.0', '2.5', 'tea')
    """
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label).strip(SPACES)


def look_at_table(table: Any) -> Head:
    """What a table says about itself."""
    if not table.column_names:
        raise ValueError("the table has no columns")
    return Head(Path("the table"), "memory", None, columns=tuple(table.column_names), table=table)
