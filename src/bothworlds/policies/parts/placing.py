"""From scores to lists, with ties broken at random: the last step of several policies."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...geometry.assignment import assign
from ...kernels import Floats, Ints, inner_kernel
from .random_stream import uniform
from .samplers import shuffle

__all__ = ["Desk", "make_desk", "place_best", "place_in_order", "sort_largest"]


class Desk(NamedTuple):
    """Where lists are put together; what is left there means nothing to the next one."""

    cost: Floats  # (n, m)
    labels: Ints  # (n,)
    prices: Floats  # (2, n)
    potential: Floats  # (m,)
    links: Ints  # (3, n)
    sorted: Ints  # (2, n) items, positions


def make_desk(n: int, m: int) -> Desk:
    """Work arrays for lists of m out of n items."""
    return Desk(
        cost=np.zeros((n, m)),
        labels=np.zeros(n, np.int64),
        prices=np.zeros((2, n)),
        potential=np.zeros(m),
        links=np.zeros((3, n), np.int64),
        sorted=np.zeros((2, n), np.int64),
    )


@inner_kernel
def place_best(scores: Floats, source: Any, ranking: Ints, desk: Desk) -> None:
    """The list with the largest sum of ``scores[ranking[j], j]``.

    Items are relabelled at random before they are assigned: where several lists are best, labels do not matter.
    """
    n, m = scores.shape
    shuffle(source, desk.labels)
    for k in range(n):
        for j in range(m):
            desk.cost[k, j] = -scores[desk.labels[k], j]
    assign(desk.cost, ranking, desk.prices[0], desk.prices[1], desk.potential, desk.links)
    for j in range(m):
        ranking[j] = desk.labels[ranking[j]]


@inner_kernel
def place_in_order(attraction: Floats, examination: Floats, source: Any, ranking: Ints, desk: Desk) -> None:
    """The most attractive item at the most examined position, the second at the second, and so on."""
    items, positions = desk.sorted[0], desk.sorted[1]
    m = examination.size
    sort_largest(examination, positions, m, source)
    sort_largest(attraction, items, m, source)
    for k in range(m):
        ranking[positions[k]] = items[k]


@inner_kernel
def sort_largest(values: Floats, indices: Ints, count: int, source: Any) -> None:
    """Fill ``indices``: those of the ``count`` largest values first, in order, with ties at random; then the rest."""
    n = values.size
    for i in range(n):
        indices[i] = i
    for k in range(count):
        best, equal = k, 1
        for i in range(k + 1, n):
            if values[indices[i]] > values[indices[best]]:
                best, equal = i, 1
            elif values[indices[i]] == values[indices[best]]:
                equal += 1
                if uniform(source) * equal < 1.0:
                    best = i
        indices[k], indices[best] = indices[best], indices[k]
