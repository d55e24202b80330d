r"""Decompose an exploration plan into lists, each of which differs from the best list by one cycle.

A plan says how often every pair is to be shown, :math:`q_{ij}`. It is a flow whose nodes are the positions and the
outside: an item of the best list that is shown elsewhere goes from its own position to that one, an item that is not on
the best list comes from the outside, and an item that is pushed off it leaves to the outside. A flow is a sum of
cycles, and a cycle is a list: all items at their own positions, except those on the cycle. The best list itself may be
shown arbitrarily often, so showing the lists of the cycles shows every pair as often as planned.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...kernels import Floats, Ints, inner_kernel, kernel

TINY = 1e-10  # flow below this share of the largest is rounding


class CycleDecomposition(NamedTuple):
    """The lists and their weights, and work arrays. Each list removes an edge, so there are at most n m + m."""

    weights: Floats  # (n m + m,) descending
    flow: Floats  # (n, m) from the place of an item, or from outside, to a position
    leave: Floats  # (m,) from a position to the outside
    lists: Ints  # (n m + m, m) items in the order of positions
    n_lists: Ints  # (1,)
    at: Ints  # (m + 1,) the step of the walk at which a node was reached, or -1; node m is outside
    node: Ints  # (m + 2,) the walk
    item: Ints  # (m + 2,) the item of every step


def make_cycle_decomposition(n: int, m: int) -> CycleDecomposition:
    """Allocate the lists of n items at m positions."""
    most = n * m + m
    indices = (np.zeros(shape, np.int64) for shape in ((most, m), 1, m + 1, m + 2, m + 2))
    return CycleDecomposition(np.zeros(most), np.zeros((n, m)), np.zeros(m), *indices)


@kernel
def decompose(q: Floats, d: CycleDecomposition) -> None:
    """Fill in lists and weights for q (n, m); no item may be elsewhere more often than others are at its position."""
    n, m = q.shape
    d.n_lists[0] = 0
    largest = 0.0
    for j in range(m):
        d.leave[j] = 0.0
    for i in range(n):
        for j in range(m):
            d.flow[i, j] = q[i, j] if i != j else 0.0
            d.leave[j] += d.flow[i, j]
            largest = max(largest, d.flow[i, j])
            if i < m:
                d.leave[i] -= d.flow[i, j]
    for _ in range(n * m + m):
        start = heaviest_edge(d)
        if d.flow[start // m, start % m] <= TINY * largest:
            break
        # A walk from the heaviest edge along the heaviest ones ends in a cycle, or where only rounding is left.
        if walk(d, min(start // m, m), TINY * largest) and d.n_lists[0] < d.weights.size:
            record_cycle(d)


@inner_kernel
def heaviest_edge(d: CycleDecomposition) -> int:
    """Return the index i m + j of the largest entry of ``flow``."""
    n, m = d.flow.shape
    best = 0
    for k in range(n * m):
        if d.flow[k // m, k % m] > d.flow[best // m, best % m]:
            best = k
    return best


@inner_kernel
def heaviest_edge_from(d: CycleDecomposition, v: int) -> tuple[int, int, float]:
    """Return the heaviest edge out of a node: its item, the node that it leads to, and its flow."""
    n, m = d.flow.shape
    first, last = (v, v + 1) if v < m else (m, n)
    item, to, most = v, m, d.leave[v] if v < m else 0.0
    for i in range(first, last):
        for j in range(m):
            if d.flow[i, j] > most:
                item, to, most = i, j, d.flow[i, j]
    return item, to, most


@inner_kernel
def walk(d: CycleDecomposition, start: int, tiny: float) -> bool:
    """Walk along the heaviest edges until a node repeats; returns False if only rounding is left.

    The cycle is moved to the front of ``node`` and ``item``, followed by a node -1.
    """
    m = d.leave.size
    for v in range(m + 1):
        d.at[v] = -1
    v, steps = start, 0
    while d.at[v] < 0:
        d.at[v] = steps
        d.node[steps] = v
        item, to, most = heaviest_edge_from(d, v)
        if most <= tiny:
            remove_last_edge(d, steps)
            return False
        d.item[steps] = item
        v = to
        steps += 1
    first = d.at[v]
    for k in range(first, steps):
        d.node[k - first] = d.node[k]
        d.item[k - first] = d.item[k]
    d.node[steps - first] = -1
    return True


@inner_kernel
def remove_last_edge(d: CycleDecomposition, steps: int) -> None:
    """Remove the last edge of a walk that cannot continue: its flow is accumulated rounding."""
    if steps > 0:
        if d.node[steps] < d.leave.size:
            d.flow[d.item[steps - 1], d.node[steps]] = 0.0
        else:
            d.leave[d.node[steps - 1]] = 0.0


@inner_kernel
def record_cycle(d: CycleDecomposition) -> None:
    """Subtract the cycle from the flow, and insert its list in the order of weights."""
    m, length = d.leave.size, 0
    while d.node[length] >= 0:
        length += 1
    weight = np.inf
    for k in range(length):
        to = d.node[(k + 1) % length]
        weight = min(weight, d.flow[d.item[k], to] if to < m else d.leave[d.node[k]])
    slot = d.n_lists[0]
    while slot > 0 and d.weights[slot - 1] < weight:
        d.weights[slot] = d.weights[slot - 1]
        for j in range(m):
            d.lists[slot, j] = d.lists[slot - 1, j]
        slot -= 1
    d.weights[slot] = weight
    for j in range(m):
        d.lists[slot, j] = j
    for k in range(length):
        to = d.node[(k + 1) % length]
        if to < m:
            d.flow[d.item[k], to] -= weight
            d.lists[slot, to] = d.item[k]
        else:
            d.leave[d.node[k]] -= weight
    d.n_lists[0] += 1
