"""The best ranking for known scores: assignment of items to positions, by shortest augmenting paths."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from ..kernels import Floats, Ints, kernel
from .item_rows import MANY_ITEMS
from .polytope import as_matrix


def best_ranking(scores: ArrayLike) -> Ints:
    """Return the ranking with the largest sum of ``scores`` (n_items, n_positions): an item for each position.

    Item 0 has the best score at both positions, but the sum is larger with item 0 at the second:

    >>> best_ranking([[0.9, 0.8], [0.8, 0.1], [0.2, 0.3]])
    array([1, 0])

    Jonker, Volgenant: A shortest augmenting path algorithm for dense and sparse linear assignment problems,
    Computing 38, 1987.
    """
    matrix = as_matrix(scores, "scores")
    n, m = matrix.shape
    ranking = np.empty(m, np.int64)
    items = candidates(matrix) if n >= MANY_ITEMS else np.arange(n)
    cost = -(matrix[items] / max(1.0, matrix.max(), -matrix.min()))  # keeps sums of scores finite
    k = len(items)
    assign(cost, ranking, np.empty(k), np.empty(k), np.empty(m), np.empty((3, k), np.int64))
    return items[ranking]


def candidates(scores: Floats) -> Ints:
    """Return the items, in increasing order, that are among the m best of some position, for scores (n, m).

    The best ranking needs no others. If it has an item at a position that is not one of the m best there, one of these
    m is not shown, since the other positions show m - 1 items at most; shown instead, it does not lower the sum.

    >>> candidates(np.array([[0.9, 0.1], [0.8, 0.2], [0.5, 0.1], [0.1, 0.9]]))
    array([0, 1, 3])
    """
    m = scores.shape[1]
    best, least = np.full((m, m), -1), np.empty(m)
    select_best(scores, best, least)
    return np.unique(best)


@kernel
def select_best(scores: Floats, best: Ints, least: Floats) -> None:
    """Fill row j of ``best`` (m, m) with the m items of the largest scores at position j, the best first.

    Of items with equal scores the first is taken. ``least`` (m,) holds the smallest score selected at each position.
    """
    n, m = scores.shape
    for j in range(m):
        least[j] = -math.inf
    for i in range(n):
        for j in range(m):
            if scores[i, j] > least[j]:
                k = m - 1
                while k > 0 and (best[j, k - 1] < 0 or scores[best[j, k - 1], j] < scores[i, j]):
                    best[j, k] = best[j, k - 1]
                    k -= 1
                best[j, k] = i
                if best[j, m - 1] >= 0:
                    least[j] = scores[best[j, m - 1], j]


@kernel
def assign(cost: Floats, ranking: Ints, price: Floats, distance: Floats, potential: Floats, links: Ints) -> None:
    """Minimise the sum of ``cost[ranking[j], j]`` over distinct items; O(n m^2).

    Positions are assigned one after the other. Each follows the shortest augmenting path to an unused item, which moves
    positions that are already assigned to other items. ``price`` (n,) of items and ``potential`` (m,) of positions keep
    reduced costs non-negative, as Dijkstra's algorithm requires. ``links`` (3, n) holds for every item the position
    that has it, the position from which it was reached, and whether it is settled; it and ``distance`` (n,) are work.
    """
    n, m = cost.shape
    holder, reached_from, settled = links[0], links[1], links[2]
    for i in range(n):
        price[i] = 0.0
        holder[i] = -1
    for start in range(m):
        potential[start] = 0.0
        for i in range(n):
            distance[i] = math.inf
            settled[i] = 0
        j, length, item = start, 0.0, -1
        while j >= 0:
            best = math.inf
            for i in range(n):
                if settled[i] == 0:
                    d = length + cost[i, j] - potential[j] - price[i]
                    if d < distance[i]:
                        distance[i] = d
                        reached_from[i] = j
                    # Among items at equal distance, an unused one ends the search.
                    if distance[i] < best or (distance[i] == best and holder[i] < 0):
                        best = distance[i]
                        item = i
            settled[item] = 1
            length = best
            j = holder[item]
        for i in range(n):
            if settled[i] == 1 and i != item:
                price[i] += distance[i] - length
                potential[holder[i]] += length - distance[i]
        potential[start] += length
        while True:
            j = reached_from[item]
            holder[item] = j
            previous = ranking[j] if j != start else -1
            ranking[j] = item
            if j == start:
                break
            item = previous
