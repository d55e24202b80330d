r"""Lists that make one detour from the best one, and how often to show each.

How often pairs shall be shown, :math:`q_{ij}`, is a flow. Its nodes are the positions and the outside: an item of the
best list that is shown elsewhere goes from its own position to that one, an item that is not on it comes from outside,
and an item that is pushed off leaves to the outside. Flows are sums of cycles, and a cycle is a list: all items in
their places, except those on the cycle. The best list itself may be shown as often as one likes, so any sum of cycles
is a way to show pairs that often.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...kernels import Floats, Ints, inner_kernel, kernel

__all__ = ["Detours", "make_detours", "take_apart"]

TINY = 1e-10  # flow below this share of the largest is rounding


class Detours(NamedTuple):
    """The lists found, and the room to find them in. Each uses up an edge, so there are at most n m + m."""

    lists: Ints  # (n m + m, m) items in the order of positions
    weights: Floats  # (n m + m,) descending
    found: Ints  # (1,) how many there are
    flow: Floats  # (n, m) from the place of an item, or from outside, to a position
    leave: Floats  # (m,) from a position to the outside
    at: Ints  # (m + 1,) the step of the walk at which a node was reached, or -1; node m is outside
    node: Ints  # (m + 2,) the walk
    item: Ints  # (m + 2,) who makes each step


def make_detours(n: int, m: int) -> Detours:
    """Room for the lists of n items at m positions."""
    return Detours(
        lists=np.zeros((n * m + m, m), np.int64),
        weights=np.zeros(n * m + m),
        found=np.zeros(1, np.int64),
        flow=np.zeros((n, m)),
        leave=np.zeros(m),
        at=np.zeros(m + 1, np.int64),
        node=np.zeros(m + 2, np.int64),
        item=np.zeros(m + 2, np.int64),
    )


@kernel
def take_apart(q: Floats, d: Detours) -> None:
    """Fill in lists and weights for q (n, m), in which no item is elsewhere more often than others take its place."""
    n, m = q.shape
    d.found[0] = 0
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
        start = heaviest(d)
        if d.flow[start // m, start % m] <= TINY * largest:
            break
        # A walk from the heaviest edge along the heaviest ones ends in a cycle, or where only rounding is left.
        if walk(d, min(start // m, m), TINY * largest) and d.found[0] < d.weights.size:
            keep(d)


@inner_kernel
def heaviest(d: Detours) -> int:
    n, m = d.flow.shape
    best = 0
    for k in range(n * m):
        if d.flow[k // m, k % m] > d.flow[best // m, best % m]:
            best = k
    return best


@inner_kernel
def step_from(d: Detours, v: int) -> tuple[int, int, float]:
    """The heaviest edge out of a node: who goes, where to, how much."""
    n, m = d.flow.shape
    first, last = (v, v + 1) if v < m else (m, n)
    who, to, most = v, m, d.leave[v] if v < m else 0.0
    for i in range(first, last):
        for j in range(m):
            if d.flow[i, j] > most:
                who, to, most = i, j, d.flow[i, j]
    return who, to, most


@inner_kernel
def walk(d: Detours, start: int, tiny: float) -> bool:
    """Walk until a node repeats, and move the cycle to the front of ``node`` and ``item``, ended by a node -1."""
    m = d.leave.size
    for v in range(m + 1):
        d.at[v] = -1
    v, steps = start, 0
    while d.at[v] < 0:
        d.at[v] = steps
        d.node[steps] = v
        who, to, most = step_from(d, v)
        if most <= tiny:
            use_up(d, steps)
            return False
        d.item[steps] = who
        v = to
        steps += 1
    first = d.at[v]
    for k in range(first, steps):
        d.node[k - first] = d.node[k]
        d.item[k - first] = d.item[k]
    d.node[steps - first] = -1
    return True


@inner_kernel
def use_up(d: Detours, steps: int) -> None:
    """Forget the last edge of a walk that cannot go on: what it carries is rounding that has piled up."""
    if steps > 0:
        if d.node[steps] < d.leave.size:
            d.flow[d.item[steps - 1], d.node[steps]] = 0.0
        else:
            d.leave[d.node[steps - 1]] = 0.0


@inner_kernel
def keep(d: Detours) -> None:
    """Take the cycle out, and keep its list in the order of weights."""
    m, length = d.leave.size, 0
    while d.node[length] >= 0:
        length += 1
    weight = np.inf
    for k in range(length):
        to = d.node[(k + 1) % length]
        weight = min(weight, d.flow[d.item[k], to] if to < m else d.leave[d.node[k]])
    slot = d.found[0]
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
    d.found[0] += 1
