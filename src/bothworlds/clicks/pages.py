"""Page counts: how often each result page, a list of items with its clicks, occurred."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core import cores
from ..kernels import Ints, inner_kernel, kernel
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
        n, m = len(self.items), len(self.positions)
        key = (self.query[page] * n + self.item) * m + self.position
        cells, place = different_keys(key, len(self.queries) * n * m)
        weight = self.count[page]
        shown, clicked = (np.bincount(place, w, cells.size).astype(np.int64) for w in (weight, weight * self.click))
        codes = cells // (n * m), cells // m % n, cells % m
        names = self.items, self.queries, self.positions
        return Counts(*names, *codes, shown, clicked, self.origin, self.pages, self.notes)

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


def sorted_pages(pages: Pages) -> Pages:
    """Return the same pages in an order that depends on nothing but the pages: by query, then by a hash of results.

    Pages that are equal are counted together. Random numbers that are drawn page by page are then the same for every
    engine and order of the log.
    """
    digest = np.empty(len(pages), np.uint64)
    results = pages.item, pages.position, pages.click
    in_threads(len(pages), lambda first, stop: _fill_digests(first, stop, pages.starts, *results, digest))
    order = page_order(pages.query, digest, len(pages.queries))
    starts = np.concatenate([[0], np.cumsum(np.diff(pages.starts)[order])]).astype(np.int64)
    moved = np.empty_like(pages.item), np.empty_like(pages.position), np.empty_like(pages.click)
    in_threads(
        len(pages), lambda first, stop: _move_results(first, stop, order, pages.starts, starts, *results, *moved)
    )
    item, position, click = moved
    query, count = pages.query[order], pages.count[order]
    arranged = replace(pages, query=query, starts=starts, item=item, position=position, click=click, count=count)
    return merge_neighbours(arranged, alike(pages.query, digest, order))


def page_order(query: Ints, digest: NDArray[np.uint64], queries: int) -> Ints:
    """Return the order of pages by query and then by digest; ``queries`` is the number of queries.

    Digests are spread evenly: they are put into buckets of a few by their first bits, and buckets are sorted.
    """
    bits = max(1, query.size.bit_length() - 3)
    first = np.zeros((1 << bits) + 1, np.int64)
    by_digest, arranged = np.empty(query.size, np.int64), np.empty(query.size, np.uint64)
    _sort_by_digest(digest, 64 - bits, first, by_digest, arranged)
    order, ends = np.empty(query.size, np.int64), np.cumsum(np.bincount(query, minlength=queries))
    _sort_by_query(by_digest, query, np.concatenate([[0], ends]), order)
    return order


def alike(query: Ints, digest: NDArray[np.uint64], order: Ints) -> NDArray[np.bool_]:
    """Return which pages, in a given order, have the query and the digest of the one before."""
    found = np.zeros(order.size, np.bool_)
    _mark_alike(query, digest, order, found)
    return found


def merge_neighbours(pages: Pages, same_digest: NDArray[np.bool_]) -> Pages:
    """Count equal pages together; ``same_digest`` says which pages may be equal to the one before, as in `alike`."""
    if not same_digest.any():
        return pages
    same = np.arange(len(pages))
    _find_equal(same_digest, pages.starts, pages.item, pages.position, pages.click, same)
    return pages.with_counts(np.bincount(same, pages.count, len(pages)).astype(np.int64))


def in_threads(size: int, work: Callable[[int, int], Any]) -> None:
    """Call ``work`` with ranges (start, stop) that together are the range from 0 to ``size``, each in a thread."""
    parts = min(cores(), 1 + size // 10_000)
    cuts = [size * k // parts for k in range(parts + 1)]
    if parts == 1:
        work(0, size)
        return
    with ThreadPoolExecutor(parts) as pool:
        list(pool.map(work, cuts[:-1], cuts[1:]))


@kernel
def _fill_digests(first: int, stop: int, starts: Ints, item: Any, position: Any, click: Any, digest: Any) -> None:
    for p in range(first, stop):
        mixed = np.uint64(0x9E3779B97F4A7C15)
        for k in range(starts[p], starts[p + 1]):
            packed = (np.uint64(position[k]) << np.uint64(40)) | (np.uint64(item[k]) << np.uint64(1))
            mixed = (mixed ^ (packed | np.uint64(click[k]))) * np.uint64(0xD6E8FEB86659FD93)
            mixed ^= mixed >> np.uint64(32)
        digest[p] = mixed


@kernel
def _sort_by_digest(digest: Any, shift: int, first: Ints, order: Ints, arranged: Any) -> None:
    """Fill in the order of digests, and the digests in this order; ``first`` has an entry for every bucket, and one."""
    for p in range(digest.size):
        first[np.int64(digest[p] >> np.uint64(shift)) + 1] += 1
    for bucket in range(1, first.size):
        first[bucket] += first[bucket - 1]
    for p in range(digest.size):
        here = np.int64(digest[p] >> np.uint64(shift))
        order[first[here]], arranged[first[here]] = p, digest[p]
        first[here] += 1
    for k in range(1, digest.size):  # by insertion: only neighbours of one bucket are out of order
        to, value, page = k, arranged[k], order[k]
        while to > 0 and arranged[to - 1] > value:
            order[to], arranged[to] = order[to - 1], arranged[to - 1]
            to -= 1
        order[to], arranged[to] = page, value


@kernel
def _sort_by_query(order: Ints, query: Ints, first: Ints, result: Ints) -> None:
    """Fill in the order by query, and within a query the given order; ``first`` has the place of each query."""
    for p in order:
        result[first[query[p]]] = p
        first[query[p]] += 1


@kernel
def _mark_alike(query: Ints, digest: Any, order: Ints, found: Any) -> None:
    for k in range(1, order.size):
        p, q = order[k - 1], order[k]
        found[k] = digest[p] == digest[q] and query[p] == query[q]


@kernel
def _find_equal(alike: Any, starts: Ints, item: Any, position: Any, click: Any, same: Ints) -> None:
    """Fill in, for every page, the first page that is equal to it; only pages in a row that are alike can be."""
    for p in range(alike.size):
        before = p
        while alike[before]:
            before -= 1
            if _equal(before, p, starts, item, position, click):
                same[p] = before


@inner_kernel
def _equal(p: int, q: int, starts: Ints, item: Any, position: Any, click: Any) -> bool:
    if starts[p + 1] - starts[p] != starts[q + 1] - starts[q]:
        return False
    for k in range(starts[p + 1] - starts[p]):
        a, b = starts[p] + k, starts[q] + k
        if item[a] != item[b] or position[a] != position[b] or click[a] != click[b]:
            return False
    return True


@kernel
def _move_results(
    first: int, stop: int, order: Ints, old: Ints, new: Ints,
    item: Any, position: Any, click: Any, items: Any, positions: Any, clicks: Any,
) -> None:  # fmt: skip
    for p in range(first, stop):
        start, to = old[order[p]], new[p]
        for k in range(new[p + 1] - to):
            items[to + k] = item[start + k]
            positions[to + k] = position[start + k]
            clicks[to + k] = click[start + k]
