"""A hash table of lists of whole numbers that counts how often each list occurred.

``book`` holds the lists one after the other, each as its length, its weight and its values. ``index`` is an
open-addressed hash table; a slot has the first 24 bits of the hash of a list and, in the other 40, its offset in
``book`` plus 1, or is 0 if it is empty. The caller makes room with :func:`make_room` before it adds lists, so that
kernels allocate nothing.

Lists are added in groups. Places of a large table that are not in the cache of the processor take long to read, and are
read at the same time if it is known early which ones are needed. New lists wait after the end of the others, and
:func:`settle` finds out which of them the table has.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..kernels import Ints, inner_kernel, kernel

__all__ = [
    "HEADER",
    "ListTable",
    "close_list",
    "make_list_table",
    "make_room",
    "merge_lists",
    "next_values",
    "settle",
]

HEADER = 2  # entries of ``book`` before the values of a list: length and weight
GROUP = 32  # lists that wait, at most
OTHER_BITS = np.uint64((1 << 40) - 1)
FIRST_BITS = np.uint64(((1 << 24) - 1) << 40)

# Entries of ``fill``: the used length of ``book``, the number of lists, the end of the lists that wait, their number.
USED, LISTS, END, WAITING = range(4)


class ListTable(NamedTuple):
    """The lists that were added, with their weights."""

    book: Ints
    index: Any  # (slots,) uint64
    fill: Ints  # (4,)
    waiting: Any  # (GROUP,) uint64, the hashes of the lists that wait


def make_list_table(size: int = 0) -> ListTable:
    """Return an empty table with room for ``size`` entries of ``book``; with size 0, kernels do not use it."""
    slots = 1 << max(4, int(size).bit_length())
    index = np.zeros(slots if size else 0, np.uint64)
    return ListTable(np.zeros(size, np.int64), index, np.zeros(4, np.int64), np.zeros(GROUP, np.uint64))


def make_room(table: ListTable, values: int, lists: int) -> ListTable:
    """Return a table with the same lists and room for ``lists`` more with ``values`` values in all.

    No list may wait.
    """
    used, held = table.fill[:END].tolist()
    book, index = table.book, table.index
    needed = used + values + HEADER * lists
    if needed > book.size:
        book = np.empty(4 * needed, np.int64)  # what is not written to takes no memory
        book[:used] = table.book[:used]
    if 2 * (held + lists) > len(index):
        index = np.zeros(1 << (2 * (held + lists)).bit_length(), np.uint64)
        _refill(book, used, index)
    return table._replace(book=book, index=index)


@inner_kernel
def _hash(book: Ints, start: int) -> Any:
    """The hash of the list at an offset of ``book``."""
    mixed = np.uint64(book[start]) * np.uint64(0x9E3779B97F4A7C15)
    for k in range(start + HEADER, start + HEADER + book[start]):
        mixed = (mixed ^ np.uint64(book[k])) * np.uint64(0xD6E8FEB86659FD93)
        mixed ^= mixed >> np.uint64(32)
    return mixed


@kernel
def _refill(book: Ints, used: int, index: Any) -> None:
    mask = np.uint64(index.size - 1)
    at = 0
    while at < used:
        mixed = _hash(book, at)
        place = mixed & mask
        while index[place] > 0:
            place = (place + np.uint64(1)) & mask
        index[place] = (mixed & FIRST_BITS) | np.uint64(at + 1)
        at += HEADER + book[at]


@inner_kernel
def next_values(table: ListTable) -> int:
    """Return where in ``book`` the values of the next list have to be written, before :func:`close_list`."""
    return table.fill[END] + HEADER


@inner_kernel
def close_list(table: ListTable, length: int, weight: int) -> None:
    """Add the list whose values have been written to the place of :func:`next_values`."""
    book, fill = table.book, table.fill
    start = fill[END]
    book[start], book[start + 1] = length, weight
    table.waiting[fill[WAITING]] = _hash(book, start)
    fill[END] = start + HEADER + length
    fill[WAITING] += 1
    if fill[WAITING] == GROUP:
        settle(table)


@inner_kernel
def settle(table: ListTable) -> Any:
    """Count the lists that wait, after which none waits; to be called after the last :func:`close_list`.

    The number that is returned means nothing; it keeps the compiler from removing reads ahead of time.
    """
    book, index, fill, waiting = table.book, table.index, table.fill, table.waiting
    mask = np.uint64(index.size - 1)
    touched = np.int64(0)
    for w in range(fill[WAITING]):
        touched += np.int64(index[waiting[w] & mask] & OTHER_BITS)
    for w in range(fill[WAITING]):
        offset = np.int64(index[waiting[w] & mask] & OTHER_BITS)
        if offset > 0:
            touched += book[offset - 1]
    at = fill[USED]
    for w in range(fill[WAITING]):
        size = HEADER + book[at]
        _count_list(table, at, waiting[w])
        at += size
    fill[END], fill[WAITING] = fill[USED], 0
    return touched


@inner_kernel
def _count_list(table: ListTable, at: int, mixed: Any) -> None:
    """Count the list at an offset of ``book``, and keep it, after the lists so far, if the table does not have it."""
    book, index, fill = table.book, table.index, table.fill
    length, mask = book[at], np.uint64(index.size - 1)
    place = mixed & mask
    while index[place] > 0:
        if index[place] & FIRST_BITS == mixed & FIRST_BITS:
            other = np.int64(index[place] & OTHER_BITS) - 1
            if book[other] == length:
                same = True
                for k in range(HEADER, HEADER + length):
                    if book[other + k] != book[at + k]:
                        same = False
                        break
                if same:
                    book[other + 1] += book[at + 1]
                    return
        place = (place + np.uint64(1)) & mask
    to = fill[USED]
    index[place] = (mixed & FIRST_BITS) | np.uint64(to + 1)
    if to < at:
        for k in range(HEADER + length):
            book[to + k] = book[at + k]
    fill[USED] = to + HEADER + length
    fill[LISTS] += 1


@kernel
def merge_lists(other: ListTable, table: ListTable) -> None:
    """Add all lists of another table."""
    at = 0
    while at < other.fill[USED]:
        length = other.book[at]
        to = next_values(table)
        for k in range(length):
            table.book[to + k] = other.book[at + HEADER + k]
        close_list(table, length, other.book[at + 1])
        at += HEADER + length
    settle(table)
