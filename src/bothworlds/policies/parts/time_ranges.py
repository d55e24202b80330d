"""Ranges of time in which events are summed up: which of them are merged as they become older.

Ranges are dyadic: one of level l is [k 2^l, (k + 1) 2^l). Two halves become one range of s seconds once that range lies
at least ``AGE`` s seconds back, so a range is never longer than a quarter of its age.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

__all__ = ["AGE", "Range", "enclosing_range", "grouped", "largest_ranges"]

AGE = 4  # a range lies at least this many times its length back

Range = tuple[int, int]


class _Ranged(Protocol):
    @property
    def start(self) -> float: ...

    @property
    def until(self) -> float: ...


B = TypeVar("B", bound=_Ranged)


def enclosing_range(start: int, until: int, now: int, boundaries: Sequence[int]) -> Range:
    """Return the largest range that may hold this one at the second ``now``.

    ``boundaries`` are sorted; the first one is the cut of the store.

    >>> [enclosing_range(s, s + 1, 1000, (0,)) for s in (999, 990, 900, 100)]
    [(999, 1000), (990, 992), (896, 912), (0, 128)]
    >>> enclosing_range(100, 101, 1000, (0, 70)), enclosing_range(20, 21, 1000, (50,))
    ((96, 128), (0, 50))
    """
    cut = boundaries[0]
    if until <= cut:
        return 0, cut
    while True:
        size = 2 * (until - start)
        a = start - start % size
        b = a + size
        if a < cut or max(now - b, a - now) < AGE * size:
            return start, until
        k = bisect_right(boundaries, a)
        if k < len(boundaries) and boundaries[k] < b:
            return start, until
        start, until = a, b


def largest_ranges(ranges: Iterable[Range]) -> list[Range]:
    """Return the ranges that no other one contains, in order; two ranges are disjoint or nested.

    >>> largest_ranges([(4, 8), (5, 6), (0, 4), (8, 9), (5, 6)])
    [(0, 4), (4, 8), (8, 9)]
    """
    largest: list[Range] = []
    for start, until in sorted(set(ranges), key=lambda one: (one[0], -one[1])):
        if not largest or start >= largest[-1][1]:
            largest.append((start, until))
    return largest


def grouped(blocks: Iterable[B], now: int, boundaries: Sequence[int]) -> list[tuple[Range, list[B]]]:
    """Return disjoint ranges, oldest first, as long as their age allows at the second ``now``, with their blocks."""
    given = list(blocks)
    largest = largest_ranges(enclosing_range(int(b.start), int(b.until), now, boundaries) for b in given)
    groups: list[tuple[Range, list[B]]] = [(one, []) for one in largest]
    starts = [start for start, _ in largest]
    for block in given:
        groups[bisect_right(starts, block.start) - 1][1].append(block)
    return groups
