r"""An ordered partition of the items into blocks, which are shown one after another, in random order inside.

Elimination policies learn a partial order: every item of a block belongs above every item of the next. A block of s
items is shown in uniformly random order, so each of its items is at each of its positions with probability 1/s, even if
the page ends in the middle of the block.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels import Floats, Ints, inner_kernel


class Blocks(NamedTuple):
    """Block b holds the items ``order[first[b]:first[b + 1]]``; ``place`` is the inverse of ``order``."""

    order: Ints  # (n,)
    place: Ints  # (n,)
    block: Ints  # (n,) of every item
    first: Ints  # (n + 1,) equal to n from block ``n_blocks`` on
    n_blocks: Ints  # (1,)
    work: Ints  # (n,) exchanges of a draw


def make_blocks(n: int) -> Blocks:
    """Return one block of all n items.

    >>> make_blocks(4).first.tolist()
    [0, 4, 4, 4, 4]
    """
    first = np.full(n + 1, n, np.int64)
    first[0] = 0
    order = np.arange(n)
    return Blocks(order, order.copy(), np.zeros(n, np.int64), first, np.ones(1, np.int64), np.zeros(n, np.int64))


@inner_kernel
def one_block(blocks: Blocks) -> None:
    """Put all items into one block."""
    n = blocks.order.size
    for i in range(n):
        blocks.order[i] = blocks.place[i] = i
        blocks.block[i] = 0
        blocks.first[i + 1] = n
    blocks.n_blocks[0] = 1


@inner_kernel
def draw_list(blocks: Blocks, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    """Draw a ranking: block by block, each in random order. ``blocks`` is not changed."""
    order, first, swaps = blocks.order, blocks.first, blocks.work
    b = 0
    for j in range(ranking.size):
        while j >= first[b + 1]:
            b += 1
        swaps[j] = j + int(rng.random() * (first[b + 1] - j))
        order[j], order[swaps[j]] = order[swaps[j]], order[j]
        ranking[j] = order[j]
        propensity[j] = 1.0 / (first[b + 1] - first[b])
    for j in range(ranking.size - 1, -1, -1):
        order[j], order[swaps[j]] = order[swaps[j]], order[j]


@inner_kernel
def note_sizes(blocks: Blocks, sizes: Floats) -> None:
    """Fill in the size of the block of every position."""
    first, b = blocks.first, 0
    for j in range(sizes.size):
        while j >= first[b + 1]:
            b += 1
        sizes[j] = first[b + 1] - first[b]


@inner_kernel
def exchange(blocks: Blocks, p: int, q: int) -> None:
    """Exchange the items at two places of one block."""
    order, place = blocks.order, blocks.place
    order[p], order[q] = order[q], order[p]
    place[order[p]], place[order[q]] = p, q


@inner_kernel
def cut(blocks: Blocks, at: int) -> None:
    """Start a new block at a place, unless one starts there already."""
    n, first = blocks.order.size, blocks.first
    if at <= 0 or at >= n or first[blocks.block[blocks.order[at]]] == at:
        return
    for q in range(at, n):
        blocks.block[blocks.order[q]] += 1
    b = blocks.block[blocks.order[at]]
    for c in range(blocks.n_blocks[0], b - 1, -1):
        first[c + 1] = first[c]
    first[b] = at
    blocks.n_blocks[0] += 1


@inner_kernel
def sort_block(blocks: Blocks, b: int, score: Floats) -> None:
    """Sort the items of a block by descending score; the sort is stable."""
    order, begin = blocks.order, blocks.first[b]
    for q in range(begin, blocks.first[b + 1]):
        item, p = order[q], q
        while p > begin and score[order[p - 1]] < score[item]:
            order[p] = order[p - 1]
            p -= 1
        order[p] = item
    for q in range(begin, blocks.first[b + 1]):
        blocks.place[order[q]] = q


@inner_kernel
def arrange(blocks: Blocks, worse: NDArray[np.bool_], behind: Ints, absent: Ints) -> None:
    """Rebuild the blocks from a relation, ``worse[i, j]`` if j is worse than i, without the absent items.

    The first block holds the items that are worse than none, the next those worse than none of the rest, and so on.
    Items at or below a cycle of the relation cannot be ordered like that: they become the last block. ``behind`` (n,)
    is work.
    """
    n, order, block, first = blocks.order.size, blocks.order, blocks.block, blocks.first
    for j in range(n):
        behind[j], block[j] = 0, -1
    present = n
    for k in range(absent.size):
        present -= block[absent[k]] < 0
        block[absent[k]] = n
    for i in range(n):
        if block[i] < 0:
            for j in range(n):
                behind[j] += worse[i, j]
    filled = count = most = 0
    while filled < present:
        begin, filled = filled, _gather(blocks, behind, filled, count, most)
        if filled == begin:
            most = n  # all remaining items are at or below a cycle
            continue
        for q in range(begin, filled):
            i = order[q]
            for j in range(n):
                behind[j] -= worse[i, j]
        first[count] = begin
        count += 1
    for c in range(count, n + 1):
        first[c] = present
    blocks.n_blocks[0] = count


@inner_kernel
def _gather(blocks: Blocks, behind: Ints, filled: int, count: int, most: int) -> int:
    """Append the items not yet placed that are worse than at most ``most`` others; return the places filled."""
    for j in range(blocks.order.size):
        if blocks.block[j] < 0 and behind[j] <= most:
            blocks.order[filled], blocks.place[j], blocks.block[j] = j, filled, count
            filled += 1
    return filled
