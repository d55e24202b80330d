r"""A change detector: whether the latest clicks differ from those before, for any pair of item and position.

Rounds are counted in buckets of 32, and *block* l holds the rounds since the last multiple of :math:`2^l` buckets,
counted from the last change. When a bucket is complete, the blocks of up to 8 buckets are compared with all earlier
rounds that are remembered, and block l every :math:`2^{l-3}` buckets; then those that have reached their full length
are emptied. So a change in the middle of a block does not have to wait for the next one. The statistic of a pair that
was shown :math:`N_2` times in the block and :math:`N_1` times before it is the logarithm of the likelihood ratio of two
click probabilities against one:

.. math::

    Z = N_1 \, kl\left(\frac{C_1}{N_1}, \frac CN\right) + N_2 \, kl\left(\frac{C_2}{N_2}, \frac CN\right),
    \qquad N = N_1 + N_2, \quad C = C_1 + C_2

If the largest Z, over all pairs and blocks, is above :math:`\log(nm) + \log t + 4`, users have changed: the block is
remembered, and everything before it is forgotten. At most five blocks are compared per bucket, on average, and there
are 20 of them, whatever the number of rounds.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...kernels import Floats, Ints, inner_kernel, kernel
from ...statistics.kl import kl
from .counts import Counts

BUCKET = 32  # rounds
LEVELS = 20  # blocks of up to 2^19 buckets
PARTS = 8  # a block is tested at least so many times until it is complete, or in every bucket
MANY_TESTS = 1.0  # what ``detect_change`` adds to the level because it also tests blocks that are not complete


class ChangeDetector(NamedTuple):
    """The counts of the blocks, and the changes detected so far."""

    blocks: Floats  # (levels, 2, n, m) shown and clicked since the last multiple of 2^level buckets
    bucket: int  # rounds in a bucket
    filled: Ints  # (1,) rounds in the open bucket
    buckets: Ints  # (1,) complete buckets since the last change
    changes: Ints  # (1,) number of changes detected
    detected: Ints  # (1,) number of the round in which the last change was detected; 0: none


LEAVES = {
    "detector.blocks": "ij",
    "detector.filled": "",
    "detector.buckets": "",
    "detector.changes": "",
    "detector.detected": "",
}


def make_change_detector(
    n: int, m: int, *, active: bool = True, bucket: int = BUCKET, levels: int = LEVELS
) -> ChangeDetector:
    """Return a detector for n items at m positions; one that is not ``active`` detects nothing and has no blocks."""
    filled, buckets, changes, detected = np.zeros((4, 1), np.int64)
    blocks = np.zeros((levels if active else 0, 2, n, m))
    return ChangeDetector(blocks, int(bucket), filled, buckets, changes, detected)


@kernel
def alarm_level(n: int, m: int, t: float) -> float:
    """Return the value above which the statistic of n times m pairs is a change, in round t.

    >>> round(alarm_level(10, 5, 1000.0), 3)
    13.82
    """
    return math.log(n * m) + math.log(t) + 3.0


@kernel
def scan_statistic(shown: Floats, clicked: Floats, block_shown: Floats, block_clicked: Floats) -> float:
    """Return the largest Z over all pairs (n, m) that were shown both in the block and before it, or 0.

    ``shown`` and ``clicked`` count all rounds that are remembered, those of the block included.

    >>> all_shown, all_clicked = np.array([[200.0]]), np.array([[100.0]])
    >>> scan_statistic(all_shown, all_clicked, np.array([[100.0]]), np.array([[50.0]]))
    0.0
    >>> round(scan_statistic(all_shown, all_clicked, np.array([[100.0]]), np.array([[100.0]])), 6)  # 200 log 2
    138.629436
    """
    n, m = shown.shape
    largest = 0.0
    for i in range(n):
        for j in range(m):
            n2, c2 = block_shown[i, j], block_clicked[i, j]
            n1, c1 = shown[i, j] - n2, clicked[i, j] - c2
            if n1 > 0.0 and n2 > 0.0:
                rate = clicked[i, j] / shown[i, j]
                largest = max(largest, n1 * kl(c1 / n1, rate) + n2 * kl(c2 / n2, rate))
    return largest


@inner_kernel
def detect_change(detector: ChangeDetector, counts: Counts, ranking: Ints, clicks: Floats) -> bool:
    """Return whether users have changed, after a round that is already in ``counts``.

    After a change, ``counts`` holds the rounds of the block in which it was detected, and nothing else.
    """
    blocks, buckets = detector.blocks, detector.buckets
    if blocks.shape[0] == 0:
        return False
    for level in range(blocks.shape[0]):
        for j in range(ranking.size):
            if ranking[j] >= 0:
                blocks[level, 0, ranking[j], j] += 1.0
                blocks[level, 1, ranking[j], j] += clicks[j]
    detector.filled[0] += 1
    if detector.filled[0] < detector.bucket:
        return False
    detector.filled[0] = 0
    buckets[0] += 1
    n, m = counts.shown.shape
    level, largest = _scan(detector, counts)
    if largest > alarm_level(n, m, float(counts.learned[0])) + MANY_TESTS:
        _forget_before(detector, counts, level)
        return True
    complete = 0
    while complete < blocks.shape[0] and buckets[0] % (1 << complete) == 0:
        blocks[complete] = 0.0
        complete += 1
    return False


@inner_kernel
def _scan(detector: ChangeDetector, counts: Counts) -> tuple[int, float]:
    """Test every block that it is time for; returns the level of the largest statistic, and its value."""
    blocks, buckets = detector.blocks, detector.buckets[0]
    found, largest = 0, 0.0
    for level in range(blocks.shape[0]):
        if 1 << level >= 2 * buckets:  # this block and all longer ones have the same rounds as the one before
            break
        if buckets % max(1, (1 << level) // PARTS) == 0:
            z = scan_statistic(counts.shown, counts.clicked, blocks[level, 0], blocks[level, 1])
            if z > largest:
                found, largest = level, z
    return found, largest


@inner_kernel
def _forget_before(detector: ChangeDetector, counts: Counts, level: int) -> None:
    """Remember the block of this level only, and begin to count blocks again."""
    n, m = counts.shown.shape
    for i in range(n):
        for j in range(m):
            counts.shown[i, j] = detector.blocks[level, 0, i, j]
            counts.clicked[i, j] = detector.blocks[level, 1, i, j]
    counts.rounds[0] = float(detector.bucket * (1 + (detector.buckets[0] - 1) % (1 << level)))
    detector.blocks[:] = 0.0
    detector.buckets[0] = 0
    detector.changes[0] += 1
    detector.detected[0] = counts.learned[0]
