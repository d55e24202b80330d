"""Page counts: how often each result page, a list of items with its clicks, occurred."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels import Ints, kernel
from .click_counts import Counts

__all__ = ["PageCounts", "sorted_pages"]


@dataclass(frozen=True, eq=False)
class PageCounts:
    """The different result pages of a log, and how often each occurred: all that any click model needs of it.

    Page p belongs to query ``queries[query[p]]`` and occurred ``count[p]`` times. Its results are the entries
    ``starts[p]`` to ``starts[p + 1]`` of ``item``, ``position`` and ``click``, from the first position to the last.

    Examples
    --------
    >>> pages = PageCounts.from_arrays([["a", "b"], ["b", "a"], ["a", "b"]], [[0, 1], [1, 0], [0, 1]])
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

    @property
    def pages(self) -> int:
        """The number of pages of the log."""
        return int(self.count.sum())

    def __len__(self) -> int:
        return self.count.size

    def __repr__(self) -> str:
        queries = f"{len(self.queries):,} queries, " if len(self.queries) > 1 else ""
        size = f"{queries}{len(self.items):,} items at {len(self.positions):,} positions"
        return f"<PageCounts: {size}, {self.pages:,} pages, {len(self):,} of them different>"

    @classmethod
    def from_arrays(cls, items: Any, clicks: Any, *, query: Any = None, count: Any = None) -> PageCounts:
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
        n, m = len(self.items), len(self.positions)
        key = (self.query[page] * n + self.item) * m + self.position
        cells, place = np.unique(key, return_inverse=True)
        weight = self.count[page]
        shown, clicked = (np.bincount(place, w, cells.size).astype(np.int64) for w in (weight, weight * self.click))
        codes = cells // (n * m), cells // m % n, cells % m
        names = self.items, self.queries, self.positions
        return Counts(*names, *codes, shown, clicked, self.origin, self.pages, self.notes)

    def with_counts(self, count: Ints) -> PageCounts:
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
        )


def sorted_pages(pages: PageCounts) -> PageCounts:
    """Return the same pages in an order that depends on nothing but the pages: by query, then by a hash of results.

    Random numbers that are drawn page by page are then the same for every engine and order of the log.
    """
    digest = np.empty(len(pages), np.uint64)
    _digests(pages.starts, pages.item, pages.position, pages.click, digest)
    order = np.argsort(digest)
    order = order[np.argsort(pages.query[order], kind="stable")]
    starts = np.concatenate([[0], np.cumsum(np.diff(pages.starts)[order])]).astype(np.int64)
    results = np.empty_like(pages.item), np.empty_like(pages.position), np.empty_like(pages.click)
    _move_results(order, pages.starts, starts, pages.item, pages.position, pages.click, *results)
    item, position, click = results
    query, count = pages.query[order], pages.count[order]
    return replace(pages, query=query, starts=starts, item=item, position=position, click=click, count=count)


@kernel
def _move_results(
    order: Ints, old: Ints, new: Ints, item: Any, position: Any, click: Any, items: Any, positions: Any, clicks: Any
) -> None:
    for p in range(order.size):
        start, to = old[order[p]], new[p]
        for k in range(new[p + 1] - to):
            items[to + k] = item[start + k]
            positions[to + k] = position[start + k]
            clicks[to + k] = click[start + k]


@kernel
def _digests(starts: Ints, item: Any, position: Any, click: Any, digest: Any) -> None:
    for p in range(starts.size - 1):
        mixed = np.uint64(0x9E3779B97F4A7C15)
        for k in range(starts[p], starts[p + 1]):
            packed = (np.uint64(position[k]) << np.uint64(40)) | (np.uint64(item[k]) << np.uint64(1))
            mixed = (mixed ^ (packed | np.uint64(click[k]))) * np.uint64(0xD6E8FEB86659FD93)
            mixed ^= mixed >> np.uint64(32)
        digest[p] = mixed
