"""A hash table of lists of whole numbers that counts how often each list occurred.

``book`` holds the lists one after the other, each as its length, its weight and its values. ``index`` is an
open-addressed hash table with columns hash and offset in ``book`` plus 1; a slot is empty if the second is 0. ``fill``
holds the used length of ``book`` and the number of lists. The caller makes room with :func:`make_room` before it adds
lists, so that kernels allocate nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..kernels import Ints, inner_kernel, kernel

__all__ = ["HEADER", "ListTable", "add_lists", "close_list", "make_list_table", "make_room", "merge_lists"]

HEADER = 2  # entries of ``book`` before the values of a list: length and weight


class ListTable(NamedTuple):
    """The lists that were added, with their weights."""

    book: Ints
    index: Any  # (slots, 2) uint64
    fill: Ints  # (2,)


def make_list_table(size: int = 0) -> ListTable:
    """Return an empty table with room for ``size`` entries of ``book``; with size 0, kernels do not use it."""
    slots = 1 << max(4, int(size).bit_length())
    index = np.zeros((slots if size else 0, 2), np.uint64)
    return ListTable(np.zeros(size, np.int64), index, np.zeros(2, np.int64))


def make_room(table: ListTable, values: int, lists: int) -> ListTable:
    """Return a table with the same lists and room for ``lists`` more with ``values`` values in all."""
    used, held = table.fill.tolist()
    book, index = table.book, table.index
    needed = used + values + HEADER * lists
    if needed > book.size:
        book = np.zeros(2 * needed, np.int64)
        book[:used] = table.book[:used]
    if 2 * (held + lists) > len(index):
        index = np.zeros((1 << (4 * (held + lists)).bit_length(), 2), np.uint64)
        _refill(table.index, index)
    return ListTable(book, index, table.fill)


@kernel
def _refill(old: Any, index: Any) -> None:
    mask = np.uint64(index.shape[0] - 1)
    for s in range(old.shape[0]):
        if old[s, 1] > 0:
            place = old[s, 0] & mask
            while index[place, 1] > 0:
                place = (place + np.uint64(1)) & mask
            index[place, 0], index[place, 1] = old[s, 0], old[s, 1]


@inner_kernel
def close_list(table: ListTable, length: int, weight: int) -> None:
    """Add the list whose values have been written after the end of ``book``, leaving room for its header."""
    book, index, start = table.book, table.index, table.fill[0]
    mixed = np.uint64(length) * np.uint64(0x9E3779B97F4A7C15)
    for k in range(length):
        mixed = (mixed ^ np.uint64(book[start + HEADER + k])) * np.uint64(0xD6E8FEB86659FD93)
        mixed ^= mixed >> np.uint64(32)
    mask = np.uint64(index.shape[0] - 1)
    place = mixed & mask
    while index[place, 1] > 0:
        if index[place, 0] == mixed:
            other = np.int64(index[place, 1]) - 1
            if book[other] == length:
                same = True
                for k in range(HEADER, HEADER + length):
                    if book[other + k] != book[start + k]:
                        same = False
                        break
                if same:
                    book[other + 1] += weight
                    return
        place = (place + np.uint64(1)) & mask
    index[place, 0], index[place, 1] = mixed, np.uint64(start + 1)
    book[start], book[start + 1] = length, weight
    table.fill[0] = start + HEADER + length
    table.fill[1] += 1


@kernel
def add_lists(starts: Any, values: Any, weights: Any, table: ListTable) -> None:
    """Add the lists ``values[starts[p] : starts[p + 1]]`` with their weights."""
    for p in range(starts.size - 1):
        length = starts[p + 1] - starts[p]
        at = table.fill[0] + HEADER
        for k in range(length):
            table.book[at + k] = values[starts[p] + k]
        close_list(table, length, weights[p])


@kernel
def merge_lists(other: ListTable, table: ListTable) -> None:
    """Add all lists of another table."""
    at = 0
    while at < other.fill[0]:
        length = other.book[at]
        to = table.fill[0] + HEADER
        for k in range(length):
            table.book[to + k] = other.book[at + HEADER + k]
        close_list(table, length, other.book[at + 1])
        at += HEADER + length
