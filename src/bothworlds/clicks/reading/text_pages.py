"""The pages that scanners of text have counted, as page counts with sorted labels.

A scanner has a table of lists, in which a page is its query key and, for every result, twice its url, plus 1 if it was
clicked. Pages are put into their final order while they are unpacked, because memory is slow where it is not read in
order: the lists of a table are read once in the order in which they were added, for their hashes and urls, and once in
the order of the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from ...extras import import_extra
from ...kernels import Ints, kernel
from ...statistics.list_counts import HEADER, ListTable
from ..page_counts import PageCounts, merge_neighbours, page_order
from .text_kernels import REGIONS

__all__ = ["sorted_text_pages"]

SLOTS = 1 << 12  # of a hash table of urls, at first
BLOCK = 64  # pages that are read before they are decoded


class _Lists(NamedTuple):
    """The lists of all tables, in the order in which they were added."""

    offset: Ints  # (P,) of their first value in the book
    results: Ints  # (P,)
    key: Ints  # (P,) query keys
    number: Ints  # (P,) how often each occurred
    digest: Any  # (P,) uint64, of the query key and the results


def sorted_text_pages(tables: Sequence[ListTable], origin: str, notes: tuple[str, ...]) -> PageCounts:
    """Return the pages of tables with at least one page, with labels in the order of their numbers.

    A page may be in several tables. Each table has a thread.
    """
    books = [table.book[: table.fill[0]] for table in tables]
    firsts = np.cumsum([0, *(table.fill[1] for table in tables)]).tolist()
    offset, results, key, number = (np.empty(firsts[-1], np.int64) for _ in range(4))
    digest = np.empty(firsts[-1], np.uint64)
    lists = _Lists(offset, results, key, number, digest)
    with ThreadPoolExecutor(len(tables)) as pool:
        list(pool.map(lambda book, first: _walk(book, first, lists), books, firsts[:-1]))
        urls = np.unique(np.concatenate(list(pool.map(_different_urls, books))))
        keys, query = _coded(key)
        order = page_order(query, digest, keys.size)
        starts = np.concatenate([[0], np.cumsum(results[order])]).astype(np.int64)
        filled = (
            np.empty(starts[-1], np.int32),
            np.empty(starts[-1], np.int16),
            np.empty(starts[-1], np.uint8),
        )
        codes = _codes(urls)
        list(
            pool.map(
                lambda book, first, stop: _unpack(book, first, stop, order, offset, starts, codes, *filled),
                books, firsts[:-1], firsts[1:],
            )
        )  # fmt: skip
    item, position, click = filled
    pages = PageCounts(
        items=tuple(map(str, urls.tolist())),
        queries=tuple(f"{name // REGIONS}_{name % REGIONS}" for name in keys.tolist()),
        positions=tuple(range(1, int(results.max()) + 1)),
        query=query[order],
        starts=starts,
        item=item,
        position=position,
        click=click,
        count=number[order],
        origin=origin,
        notes=notes,
    )
    return merge_neighbours(pages, digest[order])


def _coded(key: Ints) -> tuple[Ints, Ints]:
    """The different keys in increasing order, and the index of every key among them; without sorting all of them."""
    encoded = import_extra("pyarrow").array(key).dictionary_encode()
    different = encoded.dictionary.to_numpy()
    keys = np.sort(different)
    return keys, np.searchsorted(keys, different)[encoded.indices.to_numpy()]


@kernel
def _walk(book: Ints, p: int, lists: _Lists) -> None:
    """Fill in the lists of a book, from page p on."""
    at = 0
    while at < book.size:
        lists.results[p], lists.number[p], lists.key[p] = book[at] - 1, book[at + 1], book[at + HEADER]
        at += HEADER + 1
        lists.offset[p] = at
        mixed = np.uint64(0x9E3779B97F4A7C15)
        for k in range(at, at + lists.results[p]):
            mixed = (mixed ^ np.uint64(book[k])) * np.uint64(0xD6E8FEB86659FD93)
            mixed ^= mixed >> np.uint64(32)
        lists.digest[p] = mixed
        at += lists.results[p]
        p += 1


def _different_urls(book: Ints) -> Ints:
    """The different urls of a book, by a hash table that grows; an empty slot is -1."""
    at, slots, filled = 0, np.full(SLOTS, -1), 0
    while True:
        at, filled = _add_urls(book, at, slots, filled)
        used = slots[slots >= 0]
        if at == book.size:
            return used
        slots = np.full(4 * slots.size, -1)
        _refill(used, slots)


@kernel
def _add_urls(book: Ints, at: int, slots: Ints, filled: int) -> Any:
    """Add the urls of lists from an offset on; return the offset of the first list that may find no room, and fill."""
    while at < book.size and 2 * (filled + book[at]) <= slots.size:
        end = at + HEADER + book[at]
        for k in range(at + HEADER + 1, end):
            url = book[k] >> 1
            s = _slot(slots, url)
            if slots[s] < 0:
                slots[s] = url
                filled += 1
        at = end
    return at, filled


@kernel
def _refill(urls: Ints, slots: Ints) -> None:
    for url in urls:
        slots[_slot(slots, url)] = url


@kernel
def _slot(slots: Ints, url: int) -> Any:
    """The slot of a url in a hash table with room: the one that holds it, or else an empty one."""
    mask = slots.size - 1
    s = np.int64((np.uint64(url) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)) & mask
    while slots[s] >= 0 and slots[s] != url:
        s = (s + 1) & mask
    return s


class _Codes(NamedTuple):
    """The indices of urls, by hash."""

    slots: Ints
    code: Any  # int32, by slot


def _codes(urls: Ints) -> _Codes:
    """The indices of sorted urls."""
    size = 1 << max(4, (2 * urls.size).bit_length())
    codes = _Codes(np.full(size, -1), np.zeros(size, np.int32))
    _fill_codes(urls, codes)
    return codes


@kernel
def _fill_codes(urls: Ints, codes: _Codes) -> None:
    for k in range(urls.size):
        s = _slot(codes.slots, urls[k])
        codes.slots[s], codes.code[s] = urls[k], k


@kernel
def _unpack(
    book: Ints, first: int, stop: int, order: Ints, offset: Ints, starts: Ints, codes: _Codes,
    item: Any, position: Any, click: Any,
) -> int:  # fmt: skip
    """Fill in the results of the pages from ``first`` to ``stop``, which are those of the book, where they belong.

    The results of a block of pages are read before they are needed, because a processor waits for many places of memory
    at the same time, but not while it decodes. What is returned only keeps the compiler from removing these reads.
    """
    touched = 0
    for block in range(0, order.size, BLOCK):
        end = min(block + BLOCK, order.size)
        for place in range(block, end):
            p = order[place]
            if first <= p < stop:
                touched += book[offset[p]] + book[offset[p] + starts[place + 1] - starts[place] - 1]
        for place in range(block, end):
            p = order[place]
            if first <= p < stop:
                to, at = starts[place], offset[p]
                for k in range(starts[place + 1] - to):
                    packed = book[at + k]
                    item[to + k] = codes.code[_slot(codes.slots, packed >> 1)]
                    position[to + k] = k
                    click[to + k] = packed & 1
    return touched
