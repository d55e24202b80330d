"""The formats of click logs, one file each, and the detection of a file's format from its content.

To add a format:

1. Write a file in this folder that defines a :class:`~.base.TableLayout` (rows with named columns, read by DuckDB;
   see ``tidy.py``) or a :class:`~.base.TextLayout` (records of text, read by a compiled scanner; see ``yandex.py``).
2. Add it to ``LAYOUTS`` below. ``--format``, :func:`bothworlds.clicks.read` and :func:`bothworlds.clicks.generate`
   accept it from then on, and files without ``--format`` are recognised by their columns or their first line.
3. Add a row to the table of formats in ``docs/clicks.md``, and a test in ``tests/clicks/reading/test_layouts.py``.
"""

from __future__ import annotations

from ..file_format import LogSource
from .base import Layout, TableLayout, TextLayout
from .counts import COUNTS
from .obd import OBD
from .relpred import RELPRED
from .service import SERVICE
from .tidy import TIDY
from .yandex import YANDEX

__all__ = ["COLUMN_NAMES", "LAYOUTS", "Layout", "TableLayout", "TextLayout", "detect", "layout_of"]

LAYOUTS: dict[str, Layout] = {layout.name: layout for layout in (TIDY, COUNTS, OBD, RELPRED, SERVICE, YANDEX)}
_TABLES = [layout for layout in LAYOUTS.values() if isinstance(layout, TableLayout)]
# All column names of all layouts.
COLUMN_NAMES = tuple(dict.fromkeys(name for layout in _TABLES for names in layout.roles.values() for name in names))


def layout_of(name: str) -> Layout:
    """Return the layout with a name; raise ValueError if there is none.

    >>> layout_of("obd").description
    'Open Bandit Dataset: timestamp, item_id, position, click, propensity_score'
    """
    if name not in LAYOUTS:
        raise ValueError(f"there is no format {name!r}; there are {', '.join(LAYOUTS)}")
    return LAYOUTS[name]


def detect(source: LogSource, name: str | None = None) -> Layout:
    """Return the layout of a file. Raises ValueError if none or several match, or if it is not the one named."""
    matching = [layout for layout in LAYOUTS.values() if layout.mismatch(source) is None]
    unambiguous = [layout for layout in matching if not layout.foreign_columns(source)]
    if name is not None:
        return _check_named(source, layout_of(name), unambiguous)
    if len(unambiguous) == 1:
        return unambiguous[0]
    candidates = unambiguous or matching or LAYOUTS.values()
    known = "; ".join(f"{layout.name} ({layout.description})" for layout in candidates)
    if matching:
        raise ValueError(f"the format of {source.path} is ambiguous; name one of: {known}")
    if _has_column_names(source):
        raise ValueError(
            f"{source.path} has the columns {', '.join(source.columns[:20])}, which match no format; name them, "
            "as in --columns position=rank,item=product,click=clicked (in Python, columns=...); a log has the "
            f"{TIDY.description}, and a table of counts the {COUNTS.description}"
        )
    raise ValueError(f"the format of {source.path} is unknown, starting {source.first_line[:60]!r}; known are {known}")


def _check_named(source: LogSource, layout: Layout, unambiguous: list[Layout]) -> Layout:
    """Return the named layout if the file can have it; columns of other layouts matter only if one of those matches."""
    why_not = layout.mismatch(source)
    if why_not is not None and not unambiguous and isinstance(layout, TextLayout) and layout.matches_later(source):
        return layout  # only the first line is bad, and the scanner reports bad lines
    if why_not is None and unambiguous and layout not in unambiguous:
        why_not = f"it has a column {layout.foreign_columns(source)[0]}"
    if why_not is not None:
        raise ValueError(f"{source.path} is not in the format {layout.name}: {why_not}")
    return layout


def _has_column_names(source: LogSource) -> bool:
    """Whether a file has named columns: Parquet, a table in memory, or a first line of several names and no numbers."""
    numbers = any(name.replace(".", "").isdigit() for name in source.columns)
    return not source.first_line or (len(source.columns) > 1 and not numbers)
