r"""The list with the most expected clicks: rules for chain models, enumeration, and local search.

In a chain model with attraction :math:`\alpha_d`, the user goes on after item d with probability :math:`q_d`; the value
of a list is :math:`V = \alpha_{d_1} + q_{d_1} (\alpha_{d_2} + q_{d_2} (\ldots))`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from itertools import permutations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

ENUMERATED = 200_000  # lists that are evaluated one by one, at most, in compiled worlds
SUBSETS = 18  # items over which a dynamic programme over subsets is solved, at most


class BestList(NamedTuple):
    """A list, its value, an upper bound on the value of every list, and the method that computed it.

    The list is the best one if ``bound`` equals ``value``; otherwise the best one is at most ``bound``.
    """

    ranking: NDArray[np.int64]
    value: float
    bound: float
    method: str

    @property
    def exact(self) -> bool:
        """Whether no list is better."""
        return self.bound <= self.value

    @property
    def guarantee(self) -> str:
        """The method, and how much better the best list may be.

        >>> BestList(np.array([0]), 0.5, 0.55, "search").guarantee
        'search; the best list has at most 10.0% more'
        """
        if self.exact:
            return f"exact, by {self.method}"
        return f"{self.method}; the best list has at most {100.0 * (self.bound / self.value - 1.0):.1f}% more"


@cache
def all_lists(n: int, m: int) -> NDArray[np.int64]:
    """Return all lists of m out of n items, (count, m)."""
    lists = np.fromiter((item for ranking in permutations(range(n), m) for item in ranking), np.int64).reshape(-1, m)
    lists.setflags(write=False)
    return lists


Values = Callable[[NDArray[np.int64]], NDArray[np.float64]]  # of lists (count, m)


def search(values: Values, n: int, m: int, limit: int, bound: float | None = None) -> BestList:
    """Return the best list: of all lists if there are at most ``limit``, and otherwise by local search.

    Local search starts from the items in their order and in the opposite order, and from the items sorted by their
    value in the first position. It exchanges two items, or an item of the list for one that is not, as long as this
    gains. ``bound`` is an upper bound on the value of every list; it is m if nothing better is known.
    """
    if math.perm(n, m) <= limit:
        lists = all_lists(n, m)
        of_lists = values(lists)
        best = int(np.argmax(of_lists))
        return BestList(lists[best].copy(), float(of_lists[best]), float(of_lists[best]), "enumeration")
    first = np.array([np.roll(np.arange(n), -i)[:m] for i in range(n)])
    starts = [np.arange(m), np.arange(n)[::-1][:m], np.argsort(-values(first), kind="stable")[:m]]
    ranking, value = max((_climb(values, start, n) for start in starts), key=lambda climbed: climbed[1])
    most = float(m) if bound is None else bound
    return BestList(ranking, value, max(value, most), "local search")


def _climb(values: Values, ranking: NDArray[np.int64], n: int) -> tuple[NDArray[np.int64], float]:
    """Return a list that no exchange improves, and its value."""
    value = float(values(ranking[None])[0])
    while True:
        lists = _neighbours(ranking, n)
        if not len(lists):
            return ranking, value
        of_lists = values(lists)
        best = int(np.argmax(of_lists))
        if not of_lists[best] > value + 1e-15:
            return ranking, value
        ranking, value = lists[best], float(of_lists[best])


def _neighbours(ranking: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Return all lists with two items exchanged, or with one item replaced."""
    m = ranking.size
    lists = []
    for j in range(m):
        for k in range(j + 1, m):
            other = ranking.copy()
            other[[j, k]] = other[[k, j]]
            lists.append(other)
    for j in range(m):
        for item in np.setdiff1d(np.arange(n), ranking):
            other = ranking.copy()
            other[j] = item
            lists.append(other)
    return np.array(lists, np.int64).reshape(-1, m)


def best_of_chain(alpha: NDArray[np.float64], q: NDArray[np.float64], m: int) -> BestList:
    r"""Return the best list of a chain in which going on depends on the item only.

    The best order of any set of items is that of falling :math:`\alpha_d / (1 - q_d)`, by exchange of neighbours. Over
    items in this order, :math:`V_r(j) = \max\{V_r(j + 1), \alpha_j + q_j V_{r-1}(j + 1)\}` is the value of the best
    r of the items from j on.

    >>> best_of_chain(np.array([0.9, 0.8, 0.8]), np.array([0.1, 0.9, 0.95]), 2).ranking    # item 0 ends the session
    array([2, 0])
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        index = np.where(q < 1.0, alpha / (1.0 - q), np.inf)
    order = np.lexsort((-alpha, -index.round(12)))  # equal indices, as in a cascade, by falling attraction
    n = alpha.size
    value = np.full((m + 1, n + 1), -np.inf)
    value[0] = 0.0
    for j in range(n - 1, -1, -1):
        a, goes_on = alpha[order[j]], q[order[j]]
        for r in range(1, m + 1):
            value[r, j] = max(value[r, j + 1], a + goes_on * value[r - 1, j + 1] if r <= n - j else -np.inf)
    ranking, r = [], m
    for j in range(n):
        if r and value[r, j] > value[r, j + 1]:
            ranking.append(order[j])
            r -= 1
    best = float(value[m, 0])
    return BestList(np.array(ranking, np.int64), best, best, "dynamic programme over items sorted by index")


def best_of_dependent_clicks(alpha: NDArray[np.float64], continuation: NDArray[np.float64], values: Values) -> BestList:
    r"""Return the best list of a chain in which going on after a click depends on the position.

    Exchanging neighbours a, b at positions k, k + 1 gains :math:`(\alpha_a - \alpha_b)(\lambda_k - \lambda_{k+1}) R`,
    where R is the value below them. With falling :math:`\lambda` the most attractive items in falling order are best;
    with rising :math:`\lambda` rising attraction is, and a dynamic programme finds the items. Otherwise there is a
    dynamic programme over sets of items, for up to 18 items, or a local search. The last :math:`\lambda` has no effect.
    """
    n, m = alpha.size, continuation.size
    steps = np.diff(continuation[: m - 1])
    if (steps <= 0.0).all():
        ranking = np.argsort(-alpha, kind="stable")[:m]
        value = float(values(ranking[None])[0])
        return BestList(ranking, value, value, "falling attraction, as continuation falls")
    if (steps >= 0.0).all():
        return _best_of_rising(alpha, continuation)
    if n <= SUBSETS:
        from .set_programme import best_of_subsets  # imports the compiler

        ranking = np.empty(m, np.int64)
        table, choice = np.full(1 << n, -np.inf), np.zeros(1 << n, np.int64)
        value = best_of_subsets(alpha, continuation, table, choice, ranking)
        return BestList(ranking, value, value, "dynamic programme over sets of items")
    return search(values, n, m, ENUMERATED)


def _best_of_rising(alpha: NDArray[np.float64], continuation: NDArray[np.float64]) -> BestList:
    """Return the best list if continuation rises with the position: attraction rises in it."""
    n, m = alpha.size, continuation.size
    order = np.argsort(alpha, kind="stable")
    value = np.full((m + 1, n + 1), -np.inf)  # of the positions from r on, with the items from j on
    value[m] = 0.0
    for j in range(n - 1, -1, -1):
        a = alpha[order[j]]
        for r in range(m):
            value[r, j] = max(value[r, j + 1], a + (1.0 - a * (1.0 - continuation[r])) * value[r + 1, j + 1])
    ranking, r = [], 0
    for j in range(n):
        if r < m and value[r, j] > value[r, j + 1]:
            ranking.append(order[j])
            r += 1
    best = float(value[0, 0])
    return BestList(np.array(ranking, np.int64), best, best, "dynamic programme over items by rising attraction")


def browsing_bound(alpha: NDArray[np.float64], gamma: NDArray[np.float64], m: int) -> float:
    r"""Return an upper bound on the expected clicks on a list in the user browsing model.

    It is the value of a game in which the item of each position is chosen after the clicks above it are seen, and may
    be shown twice: :math:`W_k(j) = \max_d\ p (1 + W_{k+1}(k)) + (1 - p) W_{k+1}(j)` with :math:`p = \alpha_d
    \gamma_{kj}`, where j is the position of the last click.
    """
    below = np.zeros(m + 1)  # by the position of the last click, 0 if there is none
    least, most = float(alpha.min()), float(alpha.max())
    for k in range(m, 0, -1):
        column = gamma[k * (k - 1) // 2 : k * (k - 1) // 2 + k]
        here = np.zeros(m + 1)
        for j in range(k):  # linear in attraction, so that one of the extremes is best
            here[j] = max(p * (1.0 + below[k]) + (1.0 - p) * below[j] for p in (least * column[j], most * column[j]))
        below = here
    return float(below[0])
