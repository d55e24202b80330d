"""Page counts: how often each result page, a list of items with its clicks, occurred."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels import Floats, Ints
from .counts import Counts


@dataclass(frozen=True, eq=False)
class Pages:
    """The different result pages of a log, and how often each occurred: all that any click model needs of it.

    Page p belongs to query ``queries[query[p]]`` and occurred ``count[p]`` times. Its results are the entries
    ``starts[p]`` to ``starts[p + 1]`` of ``item``, ``position`` and ``click``, from the first position to the last.

    Examples
    --------
    >>> pages = Pages.from_arrays([["a", "b"], ["b", "a"], ["a", "b"]], [[0, 1], [1, 0], [0, 1]])
    >>> len(pages), pages.pages, pages.count.tolist()
    (2, 3, [2, 1])
    """

    items: tuple[str, ...]
    queries: tuple[str, ...]  # ("",) for a log without queries
    positions: tuple[int, ...]  # numbered as in the log, in increasing order
    query: Ints  # (P,) indices into queries
    starts: Ints  # (P + 1,)
    item: NDArray[np.int32]  # (K,) indices into items
    position: NDArray[np.int16]  # (K,) indices into positions
    click: NDArray[np.uint8]  # (K,)
    count: Ints  # (P,)
    origin: str = ""  # the name of the log
    notes: tuple[str, ...] = ()  # sentences about rows that were left out or changed while counting
    windows: tuple[str, ...] = ()  # the first days of windows of time, if pages are counted per window
    window: Ints | None = None  # (P,) indices into windows
    propensity: Floats | None = None  # (K,) NaN where it is missing
    by: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # (P,) the values of further columns of the log

    @property
    def pages(self) -> int:
        """The number of pages of the log."""
        return int(self.count.sum())

    def __len__(self) -> int:
        return self.count.size

    def __repr__(self) -> str:
        queries = f"{len(self.queries):,} queries, " if len(self.queries) > 1 else ""
        size = f"{queries}{len(self.items):,} items at {len(self.positions):,} positions"
        return f"<Pages: {size}, {self.pages:,} pages, {len(self):,} of them different>"

    @classmethod
    def from_arrays(cls, items: Any, clicks: Any, *, query: Any = None, count: Any = None) -> Pages:
        """Return the counts of pages given as arrays (pages, positions) of the names of items and of clicks.

        ``query`` (pages,) has the names of queries and ``count`` (pages,) how often each page occurred. Positions are
        numbered from 1.
        """
        shown, hit = np.asarray(items), np.asarray(clicks)
        if shown.ndim != 2 or shown.shape != hit.shape or not shown.size:
            raise ValueError(f"items and clicks must be tables of one shape; got {shown.shape} and {hit.shape}")
        if not np.isin(hit, (0, 1)).all():
            raise ValueError("clicks must be 0 or 1")
        size, m = shown.shape
        names, item = np.unique(shown, return_inverse=True)
        asked, of_page = np.unique(np.full(size, "") if query is None else np.asarray(query), return_inverse=True)
        weight = np.ones(size, np.int64) if count is None else np.asarray(count, np.int64)
        rows = np.column_stack([of_page, item.reshape(size, m), hit]).astype(np.int64)
        unique, place = np.unique(rows, axis=0, return_inverse=True)
        return cls(
            items=tuple(map(str, names.tolist())),
            queries=tuple(map(str, asked.tolist())),
            positions=tuple(range(1, m + 1)),
            query=unique[:, 0].copy(),
            starts=np.arange(len(unique) + 1) * m,
            item=unique[:, 1 : m + 1].astype(np.int32).ravel(),
            position=np.tile(np.arange(m, dtype=np.int16), len(unique)),
            click=unique[:, m + 1 :].astype(np.uint8).ravel(),
            count=np.bincount(place.ravel(), weight, len(unique)).astype(np.int64),
        )

    def of_page(self) -> Ints:
        """(K,) the page of every result."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    def counts(self) -> Counts:
        """Return impressions and clicks per (query, item, position)."""
        page = self.of_page()
        weight = self.count[page]
        n, m, w = len(self.items), len(self.positions), max(len(self.windows), 1)
        key = ((self.query[page] * n + self.item) * m + self.position) * w
        if self.window is not None:
            key += self.window[page]
        cells, place = different_keys(key, len(self.queries) * n * m * w)
        shown, clicked = (np.bincount(place, part, cells.size) for part in (weight, weight * self.click))
        codes = cells // (n * m * w), cells // (m * w) % n, cells // w % m
        names = self.items, self.queries, self.positions
        window = None if self.window is None else cells % w
        return Counts(*names, *codes, shown, clicked, self.origin, self.pages, self.notes, self.windows, window)

    def with_counts(self, count: Ints) -> Pages:
        """Return the same pages with other counts; pages that never occurred are left out."""
        kept = np.flatnonzero(count)
        sizes = np.diff(self.starts)
        inside = np.repeat(count > 0, sizes)
        return replace(
            self,
            query=self.query[kept],
            starts=np.concatenate([[0], np.cumsum(sizes[kept])]).astype(np.int64),
            item=self.item[inside],
            position=self.position[inside],
            click=self.click[inside],
            count=np.asarray(count, np.int64)[kept],
            window=None if self.window is None else self.window[kept],
            propensity=None if self.propensity is None else self.propensity[inside],
            by={name: values[kept] for name, values in self.by.items()},
        )


def different_keys(keys: Ints, bound: int) -> tuple[Ints, Ints]:
    """Return the different keys in increasing order, and the index of every key among them.

    Keys are from 0 to ``bound`` - 1. If the bound is not much larger than the number of keys, nothing is sorted.

    >>> different_keys(np.array([7, 2, 7]), 9)
    (array([2, 7]), array([1, 0, 1]))
    """
    if bound > 4 * keys.size + 1_000_000:
        found, place = np.unique(keys, return_inverse=True)
        return found, place.ravel()
    present = np.zeros(bound, np.int64)
    present[keys] = 1
    return np.flatnonzero(present), (np.cumsum(present) - 1)[keys]
