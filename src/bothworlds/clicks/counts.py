"""Click counts: how often each item was shown and clicked at each position of each query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ..kernels import Ints

COLUMNS = ("query", "item", "position", "shown", "clicked")


@dataclass(frozen=True, eq=False)
class Counts:
    """Impressions and clicks per (query, item, position): all that a position-based model needs of a log.

    Row k means that item ``items[item[k]]`` of query ``queries[query[k]]`` was shown ``shown[k]`` times at position
    ``positions[position[k]]``, and clicked ``clicked[k]`` times. No triple appears twice, unless there are ``windows``
    of time: then each has a row in every window that shows it.

    Examples
    --------
    >>> counts = Counts.from_tables([[1000, 1000], [1000, 0]], [[800, 400], [200, 0]], items=["a", "b"])
    >>> len(counts), int(counts.shown.sum()), int(counts.clicked.sum())
    (3, 3000, 1400)
    """

    items: tuple[str, ...]
    queries: tuple[str, ...]  # ("",) for a log without queries
    positions: tuple[int, ...]  # numbered as in the log, in increasing order
    query: Ints  # (K,) indices into queries
    item: Ints  # (K,) indices into items
    position: Ints  # (K,) indices into positions
    shown: Ints  # (K,)
    clicked: Ints  # (K,)
    origin: str = ""  # the name of the log
    pages: int | None = None  # result pages that were counted; None if the log has no pages
    notes: tuple[str, ...] = ()  # sentences about rows that were left out or changed while counting
    windows: tuple[str, ...] = ()  # the first days of windows of time, if rows are counted per window
    window: Ints | None = None  # (K,) indices into windows

    def __post_init__(self) -> None:
        for name in COLUMNS:
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype=np.int64))
        if (wrong := (self.clicked < 0) | (self.clicked > self.shown)).any():
            worst = int(np.argmax(wrong))
            raise ValueError(
                f"item {self.items[self.item[worst]]!r} at position {self.positions[self.position[worst]]} has "
                f"{self.clicked[worst]} clicks in {self.shown[worst]} impressions"
            )

    def __len__(self) -> int:
        return self.shown.size

    def __repr__(self) -> str:
        queries = f"{len(self.queries):,} queries, " if len(self.queries) > 1 else ""
        size = f"{queries}{len(self.items):,} items at {len(self.positions):,} positions"
        return f"<Counts: {size}, {self.shown.sum():,} impressions, {self.clicked.sum():,} clicks>"

    @classmethod
    def from_tables(
        cls,
        shown: ArrayLike,
        clicked: ArrayLike,
        *,
        items: Sequence[str] | None = None,
        positions: Sequence[int] | None = None,
        query: str = "",
    ) -> Counts:
        """Return the counts of one query from two tables (n_items, n_positions); pairs never shown are left out."""
        a, b = np.asarray(shown), np.asarray(clicked)
        if a.ndim != 2 or a.shape != b.shape:
            raise ValueError(f"shown and clicked must be tables of the same shape; got {a.shape} and {b.shape}")
        n, m = a.shape
        for table in (a, b):
            if table.dtype.kind not in "iufb" or not (np.abs(table).astype(np.float64).sum() < 2.0**63):
                raise ValueError("impressions and clicks must be numbers that add up to less than 2^63")
            if (table != np.floor(table)).any():
                raise ValueError("impressions and clicks must be whole numbers; write 0 where there were none")
        if (b[a == 0] != 0).any():
            raise ValueError("there are clicks on pairs of item and position that were never shown")
        rows, columns = np.nonzero(a)
        names = tuple(items) if items is not None else tuple(str(i) for i in range(n))
        labels = tuple(positions) if positions is not None else tuple(range(1, m + 1))
        if len(names) != n or len(labels) != m:
            raise ValueError(
                f"the tables have {n} items and {m} positions; got {len(names)} item names and {len(labels)} positions"
            )
        zero = np.zeros(rows.size, np.int64)
        return cls(names, (query,), labels, zero, rows, columns, a[rows, columns], b[rows, columns])
