"""Who was clicked while whom was not: comparisons of two items shown in random order in one block.

In a random order position bias falls on both alike, so an item that wins more duels than it loses is the more
attractive one, whatever the examination. An item that did not get on the page counts as not clicked.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels import Floats, Ints, inner_kernel
from .blocks import Blocks

__all__ = ["Duels", "forget_duels", "make_duels", "record_duels"]


class Duels(NamedTuple):
    """``wins[i, j]`` is how often i was clicked and j, of the same block, was not."""

    wins: NDArray[np.int32]  # (n, n)
    seat: Ints  # (n,) -1 between rounds: work
    group: Ints  # (m + 1,) work


def make_duels(n: int, m: int) -> Duels:
    """No duel fought; one matrix of small numbers, so that a thousand items take 4 MB."""
    return Duels(np.zeros((n, n), np.int32), np.full(n, -1, np.int64), np.zeros(m + 1, np.int64))


@inner_kernel
def forget_duels(duels: Duels) -> None:
    n = duels.wins.shape[0]
    for i in range(n):
        for j in range(n):
            duels.wins[i, j] = 0


@inner_kernel
def record_duels(duels: Duels, blocks: Blocks, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    """Count the duels of a round: O(clicks x block size).

    Feedback may be late, and the blocks others by now. A duel counts if the two are in one block now, and were when
    the list was made: the propensities, one over the block's size, tell which positions shared a block. Of an item off
    the page that cannot be known; it counts if the block went on beyond the page and is as large as it was.
    """
    m, seat, group = ranking.size, duels.seat, duels.group
    _regroup(propensity, group)
    for j in range(m):
        seat[ranking[j]] = j
    for j in range(m):
        if clicks[j] > 0.5:
            b = blocks.block[ranking[j]]
            row = duels.wins[ranking[j]]
            size = blocks.first[b + 1] - blocks.first[b]
            same = not propensity[j] > 1e-9 or int(1.0 / propensity[j] + 0.5) == size
            for q in range(blocks.first[b], blocks.first[b + 1]):
                other = blocks.order[q]
                at = seat[other]
                if group[at if at >= 0 else m] == group[j] and (same if at < 0 else clicks[at] < 0.5):
                    row[other] += 1
    for j in range(m):
        seat[ranking[j]] = -1


@inner_kernel
def _regroup(propensity: Floats, group: Ints) -> None:
    """Number the blocks a list was made of; the last entry is that of the items off the page."""
    m, end, count = propensity.size, 0, 0
    for j in range(m):
        if j >= end:
            p = propensity[j]
            count += 1
            end = j + int(1.0 / p + 0.5) if p > 1e-9 else m + 1  # without propensities, trust the present blocks
        group[j] = count
    group[m] = count if end > m else 0
