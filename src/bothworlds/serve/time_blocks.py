"""Sums over time: the counters of a segment, split by the time of the decision into blocks of seconds.

A block is a range of seconds [start, until) with the sums of all events created in it. Ranges are dyadic: a block of
level l is [k 2^l, (k + 1) 2^l). Events are added to blocks of one second. Blocks are merged by age alone: two halves
become one block of s seconds once that block lies at least ``AGE`` s seconds back, so a block is never longer than a
quarter of its age. Which blocks are merged depends on the time and not on the data, and sums do not depend on order:
the same events give the same blocks, in whatever order and by whichever process they were added. Two stored ranges are
either disjoint or one contains the other.

Some boundaries are never merged across. Before the *cut* of a store there is a single block: it holds what had been
counted before the store had blocks.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..kernels import Ints
from ..policies.parts.time_ranges import AGE, enclosing_range, grouped, largest_ranges

__all__ = [
    "AGE",
    "NO_CELLS",
    "TimeBlock",
    "cells_from",
    "decode_cells",
    "enclosing_range",
    "encode_cells",
    "folded",
    "largest_ranges",
    "max_blocks",
    "merged",
    "second_of",
]

NO_CELLS: Ints = np.zeros((0, 5), np.int64)


class TimeBlock(NamedTuple):
    """The sums of the events that were decided in the seconds from ``start`` to before ``until``.

    ``cells`` (k, 5) has item, slot, loss, shown and clicked of every counter that is not zero, sorted by item and slot.
    ``mixture`` are the sums of ``settlement.mixture_sums``.
    """

    start: int
    until: int
    rounds: int
    cells: Ints
    mixture: tuple[int, int, int] = (0, 0, 0)


def second_of(at: int) -> int:
    """Returns the second of a time in milliseconds."""
    return at // 1000


def folded(blocks: Iterable[TimeBlock], now: int, boundaries: Sequence[int]) -> list[TimeBlock]:
    """Returns disjoint blocks with the same sums, oldest first, as coarse as their age allows at the second ``now``."""
    return [merged(*one, part) for one, part in grouped(blocks, now, boundaries)]


def merged(start: int, until: int, blocks: Sequence[TimeBlock]) -> TimeBlock:
    """Returns the sum of blocks, as one block of this range."""
    if len(blocks) == 1:
        return blocks[0]._replace(start=start, until=until)
    cells = np.concatenate([NO_CELLS, *(block.cells for block in blocks)])
    cells = cells[np.lexsort((cells[:, 1], cells[:, 0]))]
    first = np.flatnonzero(np.diff(cells[:, :2], axis=0, prepend=-1).any(axis=1))
    if first.size:
        cells = np.column_stack((cells[first, :2], np.add.reduceat(cells[:, 2:], first)))
        cells = cells[cells[:, 2:].any(axis=1)]
    spread, difference, variance = (sum(block.mixture[k] for block in blocks) for k in range(3))
    return TimeBlock(start, until, sum(block.rounds for block in blocks), cells, (spread, difference, variance))


def max_blocks(age: int) -> int:
    """Returns how many blocks a segment has at most after they are merged, if its oldest event is ``age`` seconds old.

    A block of level l ends at least ``AGE`` 2^l seconds ago, and less than 2 ``AGE`` 2^l before the end of the block
    that it will be merged into: ``AGE + 2`` blocks of each level, and ``AGE`` more of level 0. Every boundary that is
    not merged across adds at most two of each level.

    >>> max_blocks(86_400), max_blocks(10 * 365 * 86_400)
    (94, 166)
    """
    levels = 1 + math.floor(math.log2(max(1.0, age / AGE)))
    return AGE + (AGE + 2) * levels


def cells_from(totals: Mapping[tuple[int, int], Sequence[int]]) -> Ints:
    """Returns the cells of a block from loss, shown and clicked by (item, slot)."""
    rows = [(*key, *sums) for key, sums in sorted(totals.items()) if any(sums)]
    return np.array(rows, np.int64) if rows else NO_CELLS


def encode_cells(cells: Ints) -> bytes:
    """Returns cells as compressed little-endian integers.

    >>> bool((decode_cells(encode_cells(cells_from({(1, 2): (-3, 4, 5)}))) == [[1, 2, -3, 4, 5]]).all())
    True
    """
    # By column: neighbouring values are alike, which compresses better.
    return zlib.compress(np.ascontiguousarray(cells.T, dtype="<i8").tobytes(), 1)


def decode_cells(encoded: bytes) -> Ints:
    """Returns the cells that were encoded."""
    return np.frombuffer(zlib.decompress(encoded), "<i8").reshape(5, -1).T.astype(np.int64)
