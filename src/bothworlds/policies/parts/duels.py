"""Duels: comparisons of two items of one block, of which one was clicked and the other was not.

In random order both items have the same position bias, so an item that wins more duels than it loses is the more
attractive one, for any examination. An item that was not on the page counts as not clicked.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels import Floats, Ints, inner_kernel
from .blocks import Blocks


class DuelsWork(NamedTuple):
    seat: Ints  # (n,) -1 between rounds
    group: Ints  # (m + 1,)


class Duels(NamedTuple):
    """``wins[i, j]`` counts the rounds in which i was clicked and j, of the same block, was not."""

    wins: NDArray[np.int32]  # (n, n)
    work: DuelsWork


def make_duels(n: int, m: int) -> Duels:
    """Return empty duels; the matrix of 32-bit integers takes 4 MB for a thousand items."""
    return Duels(np.zeros((n, n), np.int32), DuelsWork(np.full(n, -1, np.int64), np.zeros(m + 1, np.int64)))


@inner_kernel
def forget_duels(duels: Duels) -> None:
    """Set all counts to 0."""
    n = duels.wins.shape[0]
    for i in range(n):
        for j in range(n):
            duels.wins[i, j] = 0


@inner_kernel
def record_duels(duels: Duels, blocks: Blocks, ranking: Ints, clicks: Floats, sizes: Floats) -> None:
    """Count the duels of a round, in O(clicks x block size); ``sizes`` is the note of the decision, or empty.

    Feedback may be late, after the blocks have changed. A duel counts if the two items are in one block now and were in
    one block when the list was drawn. For an item that was not on the page this is not known; it counts if the block
    extended beyond the page and still has the same size. Without a note, only the present blocks count.
    """
    m, seat, group = ranking.size, duels.work.seat, duels.work.group[: ranking.size + 1]
    _regroup(sizes, group)
    for j in range(m):
        seat[ranking[j]] = j
    for j in range(m):
        if clicks[j] > 0.0:
            b = blocks.block[ranking[j]]
            row = duels.wins[ranking[j]]
            size = blocks.first[b + 1] - blocks.first[b]
            same = sizes.size == 0 or sizes[j] == size
            for q in range(blocks.first[b], blocks.first[b + 1]):
                other = blocks.order[q]
                at = seat[other]
                if group[at if at >= 0 else m] == group[j] and (same if at < 0 else clicks[at] <= 0.0):
                    row[other] += 1
    for j in range(m):
        seat[ranking[j]] = -1


@inner_kernel
def _regroup(sizes: Floats, group: Ints) -> None:
    """Number the blocks of the positions of a list; the last entry is the block of items that are not on the page."""
    m, end, count = group.size - 1, 0, 0
    for j in range(m):
        if j >= end:
            count += 1
            end = j + int(sizes[j]) if sizes.size > 0 else m + 1
        group[j] = count
    group[m] = count if end > m else 0
