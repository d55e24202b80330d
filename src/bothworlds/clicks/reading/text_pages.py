"""The pages that scanners of text have counted, as page counts with sorted labels.

Memory is slow where it is not read in order, and where it is used for the first time. So the lists of a table are read
in the order of their digests, which is nearly the order of the result, and what is not needed any more is released
before more is allocated: while results are moved to their places, items and clicks are still one number.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from ...kernels import Ints, kernel
from ...statistics.list_counts import ListTable, digest_order, list_count
from ..pages import Pages, alike, in_threads, merge_neighbours, page_order
from .label_codes import known_labels
from .page_table import PageTable
from .text_kernels import REGIONS

BLOCK = 64  # pages that are read before they are decoded


class _Pages(NamedTuple):
    """The pages of all tables, one table after the other, and those of a table in the order of their digests."""

    offset: Ints  # (P,) of the first result, if the values of all tables were in one array
    results: Any  # (P,) int32
    query: Any  # (P,) int32, indices into the sorted query keys
    number: Ints  # (P,) how often each occurred
    digest: Any  # (P,) uint64


def sorted_text_pages(tables: list[PageTable], origin: str, notes: tuple[str, ...]) -> Pages:
    """Return the pages of tables with at least one page, with labels in the order of their numbers.

    A page may be in several tables. Each table has a thread. The list of tables is emptied.
    """
    keys, query_codes = _sorted_labels([known_labels(table.queries) for table in tables])
    urls, url_codes = _sorted_labels([known_labels(table.urls) for table in tables])
    firsts = np.cumsum([0, *(list_count(table.lists) for table in tables)]).tolist()
    values = [table.lists.values for table in tables]
    bases = np.cumsum([0, *(some.size for some in values)]).tolist()
    kinds = np.int64, np.int32, np.int32, np.int64, np.uint64
    pages = _Pages(*(np.empty(firsts[-1], kind) for kind in kinds))
    with ThreadPoolExecutor(len(tables)) as pool:
        list(pool.map(_describe, tables, query_codes, bases[:-1], firsts[:-1], [pages] * len(tables)))
        tables.clear()
        order = page_order(pages.query, pages.digest, keys.size)
        starts = np.zeros(firsts[-1] + 1, np.int64)
        np.cumsum(pages.results[order], out=starts[1:])
        query, count, offset = pages.query[order].astype(np.int64), pages.number[order], pages.offset[order]
        same_digest, longest = alike(pages.query, pages.digest, order), int(pages.results.max())
        del pages, order
        item = np.empty(starts[-1], np.int32)
        shared = ([array] * len(values) for array in (offset, starts, item))
        list(pool.map(_move, values, url_codes, bases[:-1], bases[1:], *shared))
    del values, offset, shared
    position, click = np.empty(item.size, np.int16), np.empty(item.size, np.uint8)
    in_threads(count.size, lambda first, stop: _unpack(first, stop, starts, item, position, click))
    counted = Pages(
        items=tuple(map(str, urls.tolist())),
        queries=tuple(f"{name // REGIONS}_{name % REGIONS}" for name in keys.tolist()),
        positions=tuple(range(1, longest + 1)),
        query=query,
        starts=starts,
        item=item,
        position=position,
        click=click,
        count=count,
        origin=origin,
        notes=notes,
    )
    return merge_neighbours(counted, same_digest)


def _sorted_labels(labels: Sequence[Ints]) -> tuple[Ints, list[Any]]:
    """The labels of all tables in increasing order, and for every table their indices there, by code."""
    every = np.unique(np.concatenate(labels))
    return every, [np.searchsorted(every, some).astype(np.int32) for some in labels]


def _describe(table: PageTable, query_codes: Any, base: int, first: int, pages: _Pages) -> None:
    """Fill in the pages of a table, from page ``first`` on; its values have offsets from ``base`` on."""
    _read_lists(table.lists, digest_order(table.lists), query_codes, base, first, pages)


@kernel
def _read_lists(lists: ListTable, order: Ints, query_codes: Any, base: int, first: int, pages: _Pages) -> int:
    """Fill in the lists of a table in a given order; blocks are read twice, as in :func:`_move`."""
    starts, values, touched = lists.starts, lists.values, 0
    for block in range(0, order.size, BLOCK):
        stop = min(block + BLOCK, order.size)
        for k in range(block, stop):
            touched += starts[order[k]] + lists.weights[order[k]] + np.int64(lists.digests[order[k]])
        for k in range(block, stop):
            touched += values[starts[order[k]]]
        for k in range(block, stop):
            number, p = order[k], first + k
            start = starts[number]
            pages.offset[p], pages.results[p] = base + start + 1, starts[number + 1] - start - 1
            pages.query[p], pages.number[p] = query_codes[values[start]], lists.weights[number]
            pages.digest[p] = lists.digests[number]
    return touched


@kernel
def _move(values: Any, url_codes: Any, base: int, end: int, offset: Ints, starts: Ints, packed: Any) -> int:
    """Move the results of the pages with offsets from ``base`` to ``end``, those of one table, to where they belong.

    A result is twice the code of its url, plus 1 if it was clicked; it gets the codes of the sorted urls. The results
    of a block of pages are read before they are needed, because a processor waits for many places of memory at the
    same time, but not while it decodes. What is returned only keeps the compiler from removing these reads.
    """
    touched = 0
    for block in range(0, offset.size, BLOCK):
        stop = min(block + BLOCK, offset.size)
        for p in range(block, stop):
            if base < offset[p] < end:
                touched += values[offset[p] - base] + values[offset[p] - base + starts[p + 1] - starts[p] - 1]
        for p in range(block, stop):
            if base < offset[p] < end:
                to, at = starts[p], offset[p] - base
                for k in range(starts[p + 1] - to):
                    result = values[at + k]
                    packed[to + k] = 2 * url_codes[result >> 1] + (result & 1)
    return touched


@kernel
def _unpack(first: int, stop: int, starts: Ints, item: Any, position: Any, click: Any) -> None:
    """Split the results of pages from ``first`` to ``stop`` into items and clicks, and fill in their positions."""
    for p in range(first, stop):
        for k in range(starts[p], starts[p + 1]):
            click[k], position[k] = item[k] & 1, k - starts[p]
            item[k] >>= 1
