"""How often each of many lists has occurred, in a table that does not grow.

There are more lists than fit in any memory, but those that occur often are few. A list has its place among a few
neighbouring slots of a hash table; where these are full it takes the one of the list that occurred least.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels import Floats, Ints, inner_kernel

__all__ = ["Tally", "make_tally", "set_times", "times_of"]

REACH = 8  # slots in which a list may be found
START, ONE = np.uint64(0x9E3779B97F4A7C15), np.uint64(1)
SHIFT_A, SHIFT_B, SHIFT_C = np.uint64(13), np.uint64(7), np.uint64(17)  # of xorshift64


class Tally(NamedTuple):
    """Lists, hashed, and how often they occurred."""

    keys: NDArray[np.uint64]  # (slots,) 0 for none
    times: Floats  # (slots,)


def make_tally(slots: int = 1024) -> Tally:
    """An empty table; ``slots`` is a power of two."""
    return Tally(np.zeros(slots, np.uint64), np.zeros(slots))


@inner_kernel
def times_of(tally: Tally, ranking: Ints) -> float:
    """How often a list has occurred; 0 if that is not known any more."""
    key = _key(ranking)
    slot = _slot(tally, key)
    return tally.times[slot] if tally.keys[slot] == key else 0.0


@inner_kernel
def set_times(tally: Tally, ranking: Ints, times: float) -> None:
    """Write down how often a list has occurred."""
    key = _key(ranking)
    slot = _slot(tally, key)
    tally.keys[slot] = key
    tally.times[slot] = times


@inner_kernel
def _key(ranking: Ints) -> Any:
    """A number for a list that no other is likely to have, and never 0."""
    key = START
    for j in range(ranking.size):
        key ^= np.uint64(ranking[j] + 1)
        for _ in range(3):
            key ^= key << SHIFT_A
            key ^= key >> SHIFT_B
            key ^= key << SHIFT_C
    return key | ONE


@inner_kernel
def _slot(tally: Tally, key: Any) -> Any:
    """Where a list is, or may take the place of the one that occurred least."""
    mask = np.uint64(tally.keys.size - 1)
    least = np.int64((key >> ONE) & mask)
    for k in range(REACH):
        slot = np.int64(((key >> ONE) + np.uint64(k)) & mask)
        if tally.keys[slot] == key:
            return slot
        if tally.times[slot] < tally.times[least]:
            least = slot
    return least
