"""The layouts of click logs: one small file each, and how a file's layout is found from its content."""

from __future__ import annotations

from ..heads import Head
from .base import Layout, TableLayout, TextLayout
from .counted import COUNTS
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
    if name is not None:
        layout = layout_of(name)
        if (why_not := layout.mismatch(head)) is not None:
            raise ValueError(f"{head.path} is not in the format {name}: {why_not}")
        return layout
    found = [layout for layout in LAYOUTS.values() if layout.mismatch(head) is None]
    if len(found) == 1:
        return found[0]
    known = "; ".join(f"{layout.name} ({layout.sentence})" for layout in found or LAYOUTS.values())
    if found:
        raise ValueError(f"the format of {head.path} is not clear; name the one that is meant: {known}")
    if _names_columns(head):
        raise ValueError(
            f"{head.path} has the columns {', '.join(head.columns[:20])}, and they fit no format; say which is which, "
            "as in --columns position=rank,item=product,click=clicked (in Python, columns=...); a log has the "
            f"{TIDY.sentence}, and a table of counts the {COUNTS.sentence}"
        )
    raise ValueError(f"the format of {head.path} is none that is known here, starting {head.first[:60]!r}: {known}")


def _names_columns(head: Head) -> bool:
    """Whether a file looks like a table with a line of names: several, and none of them a number."""
    return len(head.columns) > 1 and not any(name.replace(".", "").isdigit() for name in head.columns)
