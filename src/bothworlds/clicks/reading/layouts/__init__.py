"""The layouts of click logs: one small file each, and how a file's layout is found from its content."""

from __future__ import annotations

from ..file_format import Head
from .base import Layout, TableLayout, TextLayout
from .counts import COUNTS
from .obd import OBD
from .relpred import RELPRED
from .service import SERVICE
from .tidy import TIDY
from .yandex import YANDEX

__all__ = ["LAYOUTS", "NAMES", "Layout", "TableLayout", "TextLayout", "detect", "layout_of"]

LAYOUTS: dict[str, Layout] = {layout.name: layout for layout in (TIDY, COUNTS, OBD, RELPRED, SERVICE, YANDEX)}
# All names that a column may have.
_TABLES = [layout for layout in LAYOUTS.values() if isinstance(layout, TableLayout)]
NAMES = tuple(dict.fromkeys(name for layout in _TABLES for names in layout.roles.values() for name in names))


def layout_of(name: str) -> Layout:
    """The layout of that name.

    >>> layout_of("obd").sentence
    'Open Bandit Dataset: timestamp, item_id, position, click, propensity_score'
    """
    if name not in LAYOUTS:
        raise ValueError(f"there is no format {name!r}; there are {', '.join(LAYOUTS)}")
    return LAYOUTS[name]


def detect(head: Head, name: str | None = None) -> Layout:
    """The layout that a file has, which must be the named one if one is named."""
    fitting = [layout for layout in LAYOUTS.values() if layout.mismatch(head) is None]
    found = [layout for layout in fitting if not layout.strangers(head)]
    if name is not None:
        return _named(head, layout_of(name), found)
    if len(found) == 1:
        return found[0]
    known = "; ".join(f"{layout.name} ({layout.sentence})" for layout in found or fitting or LAYOUTS.values())
    if fitting:
        raise ValueError(f"the format of {head.path} is not clear; name the one that is meant: {known}")
    if _names_columns(head):
        raise ValueError(
            f"{head.path} has the columns {', '.join(head.columns[:20])}, and they fit no format; say which is which, "
            "as in --columns position=rank,item=product,click=clicked (in Python, columns=...); a log has the "
            f"{TIDY.sentence}, and a table of counts the {COUNTS.sentence}"
        )
    raise ValueError(f"the format of {head.path} is none that is known here, starting {head.first[:60]!r}: {known}")


def _named(head: Head, layout: Layout, found: list[Layout]) -> Layout:
    """The named layout. What speaks for another counts for nothing if no other is found."""
    why_not = layout.mismatch(head)
    if why_not is not None and not found and isinstance(layout, TextLayout) and layout.speaks_later(head):
        return layout  # bad lines, of which the first is one, are found by the scanner
    if why_not is None and found and layout not in found:
        why_not = f"it has a column {layout.strangers(head)[0]}"
    if why_not is not None:
        raise ValueError(f"{head.path} is not in the format {layout.name}: {why_not}")
    return layout


def _names_columns(head: Head) -> bool:
    """Whether a file has names for its columns, or a first line that looks like it: several, and no numbers."""
    numbers = any(name.replace(".", "").isdigit() for name in head.columns)
    return not head.first or (len(head.columns) > 1 and not numbers)
