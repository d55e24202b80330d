"""What defines a layout: how a file is recognised, how it is read, and how generated pages are written.

A layout is an instance of :class:`TableLayout` or :class:`TextLayout`, in a file of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....kernels import Ints
from ..file_format import LogSource, first_records


class GeneratedPages(NamedTuple):
    """A batch of generated result pages, to be written in some layout."""

    first: int  # number of the first page
    query: Ints  # (pages,) numbers of queries
    item: Ints  # (pages, m) items, from the first position to the last
    click: NDArray[np.uint8]  # (pages, m)
    n_queries: int
    n_items: int  # that a page is drawn from


@dataclass(frozen=True)
class Layout:
    """A format of click logs; ``name`` is the value of ``--format``."""

    name: str
    description: str  # for error messages: the columns or the shape of a line

    def mismatch(self, source: LogSource) -> str | None:
        """Return why a file cannot have this layout, or None if it can."""
        raise NotImplementedError

    def foreign_columns(self, source: LogSource) -> list[str]:
        """Return the columns of a file that indicate another layout."""
        return []


@dataclass(frozen=True)
class TableLayout(Layout):
    """Rows with named columns, as CSV, NDJSON or Parquet.

    ``roles`` maps the roles that the readers know (event, query, item, position, click, propensity, timestamp, learn,
    surface; for counts also impressions and clicks) to the accepted names of the column, in lower case.
    """

    roles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    required: tuple[str, ...] = ()  # roles that a file must have
    foreign: tuple[str, ...] = ()  # columns that indicate another layout
    table: Callable[[GeneratedPages], Any] | None = None  # makes an Arrow table; None for counts

    def mismatch(self, source: LogSource) -> str | None:
        """Return why a file cannot have this layout, or None if it can."""
        columns = self.columns(source)
        missing = [" or ".join(self.roles[role]) for role in self.required if role not in columns]
        if missing:
            return f"it has no column {', no column '.join(missing)}"
        used = {(name, column) for role, column in columns.items() for name in self.roles[role]}
        unused = ["=".join(pair) for pair in source.renamed if pair not in used]
        return f"it has no use for {unused[0]}" if unused else None

    def foreign_columns(self, source: LogSource) -> list[str]:
        """Return the columns of a file that indicate another layout."""
        return [name for name in self.foreign if name in _columns_by_name(source)]

    def columns(self, source: LogSource) -> dict[str, str]:
        """Return the column of each role: the renamed one, or else one of an accepted name, ignoring case."""
        here, renamed = _columns_by_name(source), dict(source.renamed)
        columns = {}
        for role, names in self.roles.items():
            column = next((known[name] for known in (renamed, here) for name in names if name in known), None)
            if column is not None:
                columns[role] = column
        return columns


@dataclass(frozen=True)
class TextLayout(Layout):
    """Records of text, grouped into sessions or pages, that a compiled function scans.

    ``scan`` is a kernel with the arguments of :func:`bothworlds.clicks.reading.text_kernels.scan_pages`, and ``write``
    one with those of :func:`bothworlds.clicks.text_writers.write_pages`.
    """

    matches: Callable[[str], bool] = bool  # whether a first line is of this layout
    scan: Callable[..., Any] = int
    last_boundary: Callable[[bytes], int] = len  # offset of the last record or session, which may be incomplete
    write: Callable[..., int] = int

    def mismatch(self, source: LogSource) -> str | None:
        """Return why a file cannot have this layout, or None if it can."""
        if source.kind == "text" and self.matches(source.first_line):
            return None
        return (
            f"its first line {source.first_line[:60]!r} is not {self.description}"
            if source.first_line
            else "it is a table"
        )

    def matches_later(self, source: LogSource) -> bool:
        """Return whether any record at the start of the file is of this layout."""
        return source.kind == "text" and any(map(self.matches, first_records(source)))


def _columns_by_name(source: LogSource) -> dict[str, str]:
    """Columns by name in lower case; a renamed column is known by its new name only."""
    taken = {column for _, column in source.renamed}
    own = {column.lower(): column for column in reversed(source.columns) if column not in taken}
    return own | dict(source.renamed)


def columns_of(batch: GeneratedPages) -> dict[str, Any]:
    """Return the columns that most table layouts share, with one row per page and position."""
    pages, m = batch.item.shape
    return {
        "event": np.repeat(np.arange(batch.first, batch.first + pages), m),
        "query": np.repeat(batch.query, m),
        "position": np.tile(np.arange(1, m + 1, dtype=np.int32), pages),
        "item": batch.item.ravel(),
        "click": batch.click.ravel().astype(np.int8),
        "propensity": np.full(pages * m, 1.0 / batch.n_items),
    }


def timestamps(batch: GeneratedPages) -> NDArray[np.datetime64]:
    """Return a timestamp per row; pages are one second apart, from the start of 2024."""
    pages, m = batch.item.shape
    seconds = np.arange(batch.first, batch.first + pages).astype("timedelta64[s]")
    return np.repeat(np.datetime64("2024-01-01T00:00:00", "us") + seconds, m)
