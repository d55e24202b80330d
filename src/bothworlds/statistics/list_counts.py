"""A hash table of lists of whole numbers that counts how often each list occurred.

List l is ``values[starts[l] : starts[l + 1]]``, and ``weights[l]`` says how often it occurred. ``index`` is an
open-addressed hash table of list numbers. A slot has the first half of the digest of a list, and in its other half the
number of the list plus 1; it is 0 if it is empty. The slot where the search for a list begins is in proportion to the
first half of its digest. So a table grows without looking at the lists, and its slots have the lists nearly in the
order of their digests, which :func:`digest_order` completes.

The caller makes room with :func:`make_room` before it adds lists, so that kernels allocate nothing. Lists are added in
groups. Places of a large table that are not in the cache of the processor take long to read, and are read at the same
time if it is known early which ones are needed. New lists wait after the end of the others, and :func:`settle` finds
out which of them the table has.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..kernels import Ints, inner_kernel, kernel

GROUP = 32  # lists that wait, at most
NUMBER = np.uint64((1 << 32) - 1)  # the half of a slot with the number of a list
HALF = np.uint64(32)
EMPTY_DIGEST = np.uint64(0x9E3779B97F4A7C15)  # of a list without values

# Entries of ``fill``: the number of lists, and of those that wait.
LISTS, WAITING = range(2)


class ListTable(NamedTuple):
    """The lists that were added, with their weights."""

    values: Any  # int32
    starts: Ints
    weights: Ints
    digests: Any  # uint64
    index: Any  # (slots,) uint64; without slots, kernels cannot add lists
    fill: Ints  # (2,)


def make_list_table() -> ListTable:
    """Return an empty table without room."""
    room = (np.zeros(0, np.int64), np.zeros(0, np.uint64), np.zeros(0, np.uint64))
    return ListTable(np.zeros(0, np.int32), np.zeros(1, np.int64), *room, np.zeros(2, np.int64))


def list_count(table: ListTable) -> int:
    """Return the number of different lists; no list may wait."""
    return int(table.fill[LISTS])


def make_room(table: ListTable, values: int, lists: int, growth: float = 2.0) -> ListTable:
    """Return a table with the same lists and room for ``lists`` more with ``values`` values in all.

    If arrays have to be moved, their new room is ``growth`` times what is needed; what is not written to takes no
    memory. The index, which is written to everywhere, gets 4 times as many slots at most. The given table must not be
    used any more, and no list may wait. A table can have 4 billion lists.
    """
    held = list_count(table)
    used = int(table.starts[held])
    index, slots = table.index, (held + lists) * 4 // 3 + 16
    if slots > index.size:
        index = np.zeros(int(slots * min(growth, 4.0)), np.uint64)
        _refill(table.index, index)
    return ListTable(
        _longer(table.values, used, used + values, growth),
        _longer(table.starts, held + 1, held + 1 + lists, growth),
        _longer(table.weights, held, held + lists, growth),
        _longer(table.digests, held, held + lists, growth),
        index,
        table.fill,
    )


def _longer(array: Any, used: int, needed: int, growth: float) -> Any:
    if needed <= array.size:
        return array
    longer = np.empty(int(growth * needed), array.dtype)
    longer[:used] = array[:used]
    return longer


def without_index(table: ListTable) -> ListTable:
    """Return the lists of a table to read them; the memory of its index and its digests can be used for others."""
    held = list_count(table)
    none = np.zeros(0, np.uint64)
    used = table.values[: table.starts[held]], table.starts[: held + 1], table.weights[:held]
    return ListTable(*used, none, none, table.fill)


@kernel
def _refill(old: Any, index: Any) -> None:
    for slot in old:
        if slot > 0:
            place = _place(slot, index)
            while index[place] > 0:
                place = place + 1 if place + 1 < index.size else 0
            index[place] = slot


@inner_kernel
def _place(digest: Any, index: Any) -> Any:
    """The slot where the search for a digest begins."""
    return np.int64(((digest >> HALF) * np.uint64(index.size)) >> HALF)


@inner_kernel
def digest_with(digest: Any, value: int) -> Any:
    """Return the digest of a list with one more value."""
    mixed = (digest ^ np.uint64(value)) * np.uint64(0xD6E8FEB86659FD93)
    return mixed ^ (mixed >> HALF)


@inner_kernel
def digest_of(values: Any, start: int, stop: int) -> Any:
    """Return the digest of some of the values."""
    digest = EMPTY_DIGEST
    for k in range(start, stop):
        digest = digest_with(digest, values[k])
    return digest


@inner_kernel
def next_value(table: ListTable) -> int:
    """Return where in ``values`` the next list has to be written, before :func:`close_list`."""
    return table.starts[table.fill[LISTS] + table.fill[WAITING]]


@inner_kernel
def close_list(table: ListTable, length: int, weight: int, digest: Any) -> None:
    """Add the list that has been written to the place of :func:`next_value`. Equal lists must have equal digests."""
    fill = table.fill
    number = fill[LISTS] + fill[WAITING]
    table.starts[number + 1] = table.starts[number] + length
    table.weights[number], table.digests[number] = weight, digest
    fill[WAITING] += 1
    if fill[WAITING] == GROUP:
        settle(table)


@inner_kernel
def settle(table: ListTable) -> Any:
    """Count the lists that wait, after which none waits; to be called after the last :func:`close_list`.

    The number that is returned means nothing; it keeps the compiler from removing reads ahead of time.
    """
    values, starts, weights, digests, index, fill = table
    first, end = fill[LISTS], fill[LISTS] + fill[WAITING]
    touched = np.int64(0)
    for number in range(first, end):
        touched += np.int64(index[_place(digests[number], index)] & NUMBER)
    for number in range(first, end):
        slot = index[_place(digests[number], index)]
        if slot > 0 and slot >> HALF == digests[number] >> HALF:
            other = np.int64(slot & NUMBER) - 1
            touched += weights[other] + values[starts[other]]
    start = starts[first]
    for number in range(first, end):
        stop = starts[number + 1]
        _count_list(table, number, start, stop)
        start = stop
    fill[WAITING] = 0
    return touched


@inner_kernel
def _count_list(table: ListTable, number: int, start: int, stop: int) -> None:
    """Count the list from ``start`` to ``stop``, and keep it, after the lists so far, if the table does not have it."""
    values, starts, weights, digests, index, fill = table
    digest, weight = digests[number], weights[number]
    place = _place(digest, index)
    while index[place] > 0:
        if index[place] >> HALF == digest >> HALF:
            other = np.int64(index[place] & NUMBER) - 1
            if _equal(values, starts[other], starts[other + 1], start, stop):
                weights[other] += weight
                return
        place = place + 1 if place + 1 < index.size else 0
    to = fill[LISTS]
    index[place] = (digest >> HALF << HALF) | np.uint64(to + 1)
    if to < number:
        for k in range(stop - start):
            values[starts[to] + k] = values[start + k]
        starts[to + 1] = starts[to] + stop - start
        weights[to], digests[to] = weight, digest
    fill[LISTS] = to + 1


@inner_kernel
def _equal(values: Any, start: int, stop: int, other: int, other_stop: int) -> bool:
    if stop - start != other_stop - other:
        return False
    for k in range(stop - start):
        if values[start + k] != values[other + k]:
            return False
    return True


def digest_order(table: ListTable) -> Ints:
    """Return the numbers of all lists in the order of their digests; no list may wait.

    They take the place of the index, so that the table can then only be read.
    """
    index, head = table.index, 0
    while head < index.size and index[head] > 0:
        head += 1
    return index[: _sort_slots(index, table.digests, index[:head].copy())].view(np.int64)


@kernel
def _sort_slots(index: Any, digests: Any, head: Any) -> int:
    """Make the index the numbers of its lists, in the order of their digests, and return how many they are.

    ``head`` is a copy of the slots before the first empty one: some may have found no slot before the end of the index.
    """
    filled = 0
    for place in range(index.size):
        if index[place] > 0 and _place(index[place], index) <= place:
            _insert(index[place], digests, index, filled)
            filled += 1
    for place in range(head.size):
        if _place(head[place], index) > place:
            _insert(head[place], digests, index, filled)
            filled += 1
    for k in range(filled):
        index[k] = (index[k] & NUMBER) - np.uint64(1)
    return filled


@inner_kernel
def _digest(slot: Any, digests: Any) -> Any:
    return digests[np.int64(slot & NUMBER) - 1]


@inner_kernel
def _insert(slot: Any, digests: Any, order: Any, to: int) -> None:
    """Insert a slot into sorted ones of which there are ``to``; its place is near their end."""
    while to > 0 and slot >> HALF <= order[to - 1] >> HALF:
        before = order[to - 1]
        if slot >> HALF == before >> HALF and _digest(slot, digests) >= _digest(before, digests):
            break
        order[to] = before
        to -= 1
    order[to] = slot
