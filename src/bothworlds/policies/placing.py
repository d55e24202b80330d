"""From scores to lists, with ties broken at random: the last step of several policies."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ..geometry.assignment import assign
from ..kernels import Floats, Ints, inner_kernel
from ..statistics.chance import uniform
from ..statistics.samplers import shuffle

__all__ = ["Desk", "make_desk", "pick_largest", "place_best", "place_in_order"]


class Desk(NamedTuple):
    """Where lists are put together; what is left there means nothing to the next one."""

    cost: Floats  # (n, m)
    labels: Ints  # (n,)
    prices: Floats  # (2, n)
    potential: Floats  # (m,)
    links: Ints  # (3, n)
    taken: Ints  # (2, n) items, positions


def make_desk(n: int, m: int) -> Desk:
    """Work arrays for lists of m out of n items."""
    return Desk(
        cost=np.zeros((n, m)),
        labels=np.zeros(n, np.int64),
        prices=np.zeros((2, n)),
        potential=np.zeros(m),
        links=np.zeros((3, n), np.int64),
        taken=np.zeros((2, n), np.int64),
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
    items, positions = desk.taken[0], desk.taken[1]
    for i in range(attraction.size):
        items[i] = 0
        positions[i] = 0
    for _ in range(examination.size):
        j = pick_largest(examination, positions, source)
        ranking[j] = pick_largest(attraction, items, source)


@inner_kernel
def pick_largest(values: Floats, taken: Ints, source: Any) -> int:
    """Take the largest of what is left, one of them at random if there are several."""
    best, chosen, ties = -math.inf, -1, 0
    for k in range(values.size):
        if taken[k] == 0 and values[k] >= best:
            ties = ties + 1 if values[k] == best else 1
            best = values[k]
            if ties == 1 or uniform(source) * ties < 1.0:
                chosen = k
    taken[chosen] = 1
    return chosen
