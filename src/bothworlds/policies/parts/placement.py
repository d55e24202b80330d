"""The list with the best scores, with ties broken at random: the last step of several policies."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ...geometry.assignment import assign
from ...geometry.item_rows import MANY_ITEMS
from ...kernels import Floats, Ints, inner_kernel
from .samplers import shuffle


class RankWork(NamedTuple):
    """Work arrays: the score of every item, and items in the order of scores."""

    score: Floats  # (n,)
    items: Ints  # (n,)


class PlacementWork(NamedTuple):
    """Work arrays; their contents carry no information from one call to the next."""

    scores: Floats  # (n, m) for policies that compute them for every list
    cost: Floats  # (n, m)
    labels: Ints  # (n,)
    price: Floats  # (n,)
    distance: Floats  # (n,)
    potential: Floats  # (m,)
    links: Ints  # (3, n)
    items: Ints  # (n,)
    positions: Ints  # (n,)


def make_rank_work(n: int) -> RankWork:
    """Allocate work arrays for n items."""
    return RankWork(np.zeros(n), np.zeros(n, np.int64))


def make_placement_work(n: int, m: int) -> PlacementWork:
    """Allocate work arrays for lists of m out of n items."""
    return PlacementWork(
        scores=np.zeros((n, m)),
        cost=np.zeros((n, m)),
        labels=np.zeros(n, np.int64),
        price=np.zeros(n),
        distance=np.zeros(n),
        potential=np.zeros(m),
        links=np.zeros((3, n), np.int64),
        items=np.zeros(n, np.int64),
        positions=np.zeros(n, np.int64),
    )


@inner_kernel
def place_best(scores: Floats, source: Any, ranking: Ints, work: PlacementWork) -> None:
    """Fill in the list with the largest sum of ``scores[ranking[j], j]``.

    Items are relabelled at random before the assignment, so that the choice among several best lists does not depend
    on labels.
    """
    n, m = scores.shape
    shuffle(source, work.labels)
    for k in range(n):
        for j in range(m):
            work.cost[k, j] = -scores[work.labels[k], j]
    place_cheapest(ranking, work)
    for j in range(m):
        ranking[j] = work.labels[ranking[j]]


@inner_kernel
def place_cheapest(ranking: Ints, work: PlacementWork) -> None:
    """Fill in the list with the smallest sum of ``work.cost[ranking[j], j]``."""
    assign(work.cost, ranking, work.price, work.distance, work.potential, work.links)


@inner_kernel
def place_in_order(attraction: Floats, examination: Floats, source: Any, ranking: Ints, work: PlacementWork) -> None:
    """Put the most attractive item at the most examined position, the second at the second, and so on."""
    items, positions = work.items, work.positions
    m = examination.size
    sort_largest(examination, positions, m, source)
    sort_largest(attraction, items, m, source)
    for k in range(m):
        ranking[positions[k]] = items[k]


@inner_kernel
def place_largest(work: RankWork, source: Any, ranking: Ints, propensity: Floats) -> None:
    """Fill in the list of the items with the largest scores, in descending order; its propensities are unknown."""
    sort_largest(work.score, work.items, ranking.size, source)
    for k in range(ranking.size):
        ranking[k] = work.items[k]
        propensity[k] = math.nan


@inner_kernel
def sort_largest(values: Floats, indices: Ints, count: int, source: Any) -> None:
    """Fill ``indices``: the ``count`` largest values in descending order, ties in random order, then the rest.

    Many values are read once instead of ``count`` times.
    """
    if values.size < MANY_ITEMS:
        _select(values, indices, count, source)
    else:
        _insert(values, indices, count, source)


@inner_kernel
def _select(values: Floats, indices: Ints, count: int, source: Any) -> None:
    """Sort by selection."""
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
                if source.random() * equal < 1.0:
                    best = i
        indices[k], indices[best] = indices[best], indices[k]


@inner_kernel
def _insert(values: Floats, indices: Ints, count: int, source: Any) -> None:
    """Insert each value among the largest so far, if it is one of them; the index that drops out takes its place.

    A value that equals others comes at a random place among them, of which the last ones may have dropped out already.
    """
    least, dropped = -math.inf, 0  # the last of the largest so far, and how many equal values have dropped out
    for i in range(values.size):
        value = values[i]
        indices[i] = i
        if value < least:
            continue
        place, equal = min(i, count), 0
        while place > 0 and values[indices[place - 1]] < value:
            place -= 1
        while equal < place and values[indices[place - 1 - equal]] == value:
            equal += 1
        others = equal + (dropped if place == count else 0)
        place -= equal
        if others > 0:
            place += int(source.random() * (others + 1))
        if place >= count:
            dropped += 1
            continue
        last = indices[min(i, count - 1)]
        for k in range(min(i, count - 1), place, -1):
            indices[k] = indices[k - 1]
        indices[place] = i
        if i >= count:
            indices[i] = last
            least = values[indices[count - 1]]
            dropped = dropped + 1 if values[last] == least else 0
        elif i == count - 1:
            least = values[indices[count - 1]]
