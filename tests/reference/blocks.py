"""Ordered partitions and duels from their definitions."""

from __future__ import annotations

import itertools

import numpy as np


def as_lists(blocks):
    """Blocks as sorted lists of items, first block first."""
    ends = blocks.first[: blocks.n_blocks[0] + 1]
    return [sorted(blocks.order[a:b].tolist()) for a, b in itertools.pairwise(ends)]


def levels(worse):
    """Again and again, the items that are worse than none of those left; all that are left if there are none."""
    left, found = list(range(len(worse))), []
    while left:
        best = [j for j in left if not any(worse[i][j] for i in left)] or left
        found.append(best)
        left = [j for j in left if j not in best]
    return found


def add_duels(S, N, partition, ranking, clicks):
    """One round: S += C_i - C_j and N += |C_i - C_j| for all pairs of one block; C = 0 off the page."""
    C = np.zeros(len(S))
    C[ranking] = clicks
    for block in partition:
        for i in block:
            for j in block:
                S[i, j] += C[i] - C[j]
                N[i, j] += abs(C[i] - C[j])


def is_acyclic(relation):
    """No path leads from an item back to itself."""
    paths = np.array(relation, bool)
    for _ in range(len(paths).bit_length() + 1):
        paths |= (paths.astype(int) @ paths.astype(int)) > 0
    return not paths.diagonal().any()
