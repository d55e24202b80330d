"""A hash table of fixed size that counts frequent lists.

There are too many lists to count them all, but few occur often. A list has its slot among a few neighbouring ones; if
all are taken, it replaces the list with the smallest count.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels import Floats, Ints, inner_kernel

PROBES = 8  # slots in which a list may be stored
START, ONE = np.uint64(0x9E3779B97F4A7C15), np.uint64(1)
SHIFT_A, SHIFT_B, SHIFT_C = np.uint64(13), np.uint64(7), np.uint64(17)  # of xorshift64


class FrequentLists(NamedTuple):
    """Hashes of lists, and their counts."""

    keys: NDArray[np.uint64]  # (slots,) 0 in an empty slot
    times: Floats  # (slots,) counts


def make_frequent_lists(slots: int = 1024) -> FrequentLists:
    """Return an empty table; ``slots`` is a power of two."""
    return FrequentLists(np.zeros(slots, np.uint64), np.zeros(slots))


@inner_kernel
def count_of(table: FrequentLists, ranking: Ints) -> float:
    """Return the count of a list; 0 if it is not in the table."""
    key = _key(ranking)
    slot = _slot(table, key)
    return table.times[slot] if table.keys[slot] == key else 0.0


@inner_kernel
def set_count(table: FrequentLists, ranking: Ints, times: float) -> None:
    """Store the count of a list, in place of the smallest count where there is no free slot."""
    key = _key(ranking)
    slot = _slot(table, key)
    table.keys[slot] = key
    table.times[slot] = times


@inner_kernel
def _key(ranking: Ints) -> Any:
    """Return a 64-bit hash of a list, never 0."""
    key = START
    for j in range(ranking.size):
        key ^= np.uint64(ranking[j] + 1)
        for _ in range(3):
            key ^= key << SHIFT_A
            key ^= key >> SHIFT_B
            key ^= key << SHIFT_C
    return key | ONE


@inner_kernel
def _slot(table: FrequentLists, key: Any) -> Any:
    """Return the slot of a list or, if it has none, the slot with the smallest count that it may replace."""
    mask = np.uint64(table.keys.size - 1)
    least = np.int64((key >> ONE) & mask)
    for k in range(PROBES):
        slot = np.int64(((key >> ONE) + np.uint64(k)) & mask)
        if table.keys[slot] == key:
            return slot
        if table.times[slot] < table.times[least]:
            least = slot
    return least
