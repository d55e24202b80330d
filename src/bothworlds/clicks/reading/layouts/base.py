"""What a layout is: how to recognise it, what its columns mean or how its records are scanned, how it is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....kernels import Ints
from ..file_format import Head, first_records

__all__ = ["Batch", "Layout", "TableLayout", "TextLayout", "columns_of", "timestamps"]


class Batch(NamedTuple):
    """Generated result pages, to be written in some layout."""

    first: int  # number of the first page
    query: Ints  # (pages,) numbers of queries
    item: Ints  # (pages, m) items, from the first position to the last
    click: NDArray[np.uint8]  # (pages, m)
    n_queries: int
    n_items: int  # to choose from, on every page


@dataclass(frozen=True)
class Layout:
    """A layout of logs, with the name that ``--format`` takes."""

    name: str
    sentence: str

    def mismatch(self, head: Head) -> str | None:
        """Why a file cannot have this layout; None if it has."""
        raise NotImplementedError

    def strangers(self, head: Head) -> list[str]:
        """Columns of a file that speak for another layout."""
        return []


@dataclass(frozen=True)
class TableLayout(Layout):
    """Rows with named columns, as CSV, NDJSON or Parquet."""

    roles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # role -> spellings of its column
    required: tuple[str, ...] = ()  # roles
    foreign: tuple[str, ...] = ()  # columns of another layout, by which it is told apart
    table: Callable[[Batch], Any] | None = None  # a batch as an Arrow table

    def mismatch(self, head: Head) -> str | None:
        """Why a file cannot have this layout; None if it has."""
        found = self.columns(head)
        missing = [" or ".join(self.roles[role]) for role in self.required if role not in found]
        if missing:
            return f"it has no column {', no column '.join(missing)}"
        used = {(name, column) for role, column in found.items() for name in self.roles[role]}
        idle = ["=".join(pair) for pair in head.called if pair not in used]
        return f"it has no place for {idle[0]}" if idle else None

    def strangers(self, head: Head) -> list[str]:
        """Columns of a file that speak for another layout."""
        return [name for name in self.foreign if name in _known(head)]

    def columns(self, head: Head) -> dict[str, str]:
        """Which column plays which role: the one that was said to, or one of that name in whatever letters."""
        here, called = _known(head), dict(head.called)
        found = {}
        for role, names in self.roles.items():
            column = next((known[name] for known in (called, here) for name in names if name in known), None)
            if column is not None:
                found[role] = column
        return found


@dataclass(frozen=True)
class TextLayout(Layout):
    """Records of text that belong together in sessions or pages, scanned by a compiled function."""

    matches: Callable[[str], bool] = bool  # the first line
    scan: Callable[..., Any] = int
    last_boundary: Callable[[bytes], int] = len  # where the last record or session starts, which may go on
    write: Callable[..., int] = int

    def mismatch(self, head: Head) -> str | None:
        """Why a file cannot have this layout; None if it has."""
        if head.kind == "text" and self.matches(head.first):
            return None
        return f"its first line {head.first[:60]!r} is not {self.sentence}" if head.first else "it is a table"

    def speaks_later(self, head: Head) -> bool:
        """Whether a record after the first line is of this layout."""
        return head.kind == "text" and any(map(self.matches, first_records(head)))


def _known(head: Head) -> dict[str, str]:
    """Columns by name in small letters; one that was given another name has no longer its own."""
    taken = {column for _, column in head.called}
    own = {column.lower(): column for column in reversed(head.columns) if column not in taken}
    return own | dict(head.called)


def columns_of(batch: Batch) -> dict[str, Any]:
    """The columns that most layouts of rows share, one row per page and position."""
    pages, m = batch.item.shape
    return {
        "event": np.repeat(np.arange(batch.first, batch.first + pages), m),
        "query": np.repeat(batch.query, m),
        "position": np.tile(np.arange(1, m + 1, dtype=np.int32), pages),
        "item": batch.item.ravel(),
        "click": batch.click.ravel().astype(np.int8),
        "propensity": np.full(pages * m, 1.0 / batch.n_items),
    }


def timestamps(batch: Batch) -> NDArray[np.datetime64]:
    """A second for every page, from the start of 2024 on, one entry per row."""
    pages, m = batch.item.shape
    seconds = np.arange(batch.first, batch.first + pages).astype("timedelta64[s]")
    return np.repeat(np.datetime64("2024-01-01T00:00:00", "us") + seconds, m)
