"""The best ranking for known scores: assignment of items to positions, by shortest augmenting paths."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from ..kernels import Floats, Ints, kernel
from .polytope import as_matrix

__all__ = ["assign", "best_ranking"]


def best_ranking(scores: ArrayLike) -> Ints:
    """Return the ranking with the largest sum of scores.

    Parameters
    ----------
    scores
        (n_items, n_positions), with n_positions <= n_items.

    Returns
    -------
    numpy.ndarray
        (n_positions,) item indices in the order of positions.

    Examples
    --------
    Item 0 has the best score at both positions, but the sum is larger with item 0 at the second:

    >>> best_ranking([[0.9, 0.8], [0.8, 0.1], [0.2, 0.3]])
    array([1, 0])

    References
    ----------
    Jonker, Volgenant: A shortest augmenting path algorithm for dense and sparse linear assignment problems,
    Computing 38, 1987.
    """
    matrix = as_matrix(scores, "scores")
    n, m = matrix.shape
    ranking = np.empty(m, np.int64)
    matrix = matrix / max(1.0, np.abs(matrix).max())  # keeps sums of scores finite
    assign(-matrix, ranking, np.empty(n), np.empty(n), np.empty(m), np.empty((3, n), np.int64))
    return ranking


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
