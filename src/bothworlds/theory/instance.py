"""An instance of the position-based model, sorted as in the paper: its gaps, its best list, its largest regret."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import whole
from ..worlds import Stochastic


class Instance(NamedTuple):
    """Attraction and examination in falling order, and the original index of each."""

    alpha: NDArray[np.float64]  # (n_items,) falling
    beta: NDArray[np.float64]  # (n_positions,) falling
    items: NDArray[np.int64]  # the item with the k-th largest attraction
    positions: NDArray[np.int64]  # the position with the k-th largest examination


def instance(attraction: ArrayLike, examination: ArrayLike) -> Instance:
    """Return an instance sorted as in the paper, stably; raises ValueError for values that are not probabilities."""
    world = Stochastic(attraction, examination)
    items = np.argsort(-world.attraction, kind="stable")
    positions = np.argsort(-world.examination, kind="stable")
    return Instance(world.attraction[items], world.examination[positions], items, positions)


def gaps(attraction: ArrayLike, examination: ArrayLike) -> NDArray[np.float64]:
    r"""Return the suboptimality gap of every item at every position, the paper's Definition 1.

    With items and positions sorted by falling attraction and examination, and :math:`\beta_{m+1} = 0`,

    .. math::
        \Delta_{ij} = (\beta_j - \beta_{j+1}) (\alpha_j - \alpha_i) \text{ for } i > j, \qquad
        \Delta_{jj} = 0, \qquad
        \Delta_{ij} = (\beta_{j-1} - \beta_j) (\alpha_i - \alpha_j) \text{ for } i < j .

    It is the least loss of a list in which an exchange of two neighbours puts i at j. It is never negative, unlike
    the difference :math:`\beta_j (\alpha_j - \alpha_i)`, which rewards a good item at a low position.

    Items and positions may be in any order. If examinations are tied, the first of the tied positions counts as the
    better one.

    >>> gaps([0.9, 0.5, 0.1], [1.0, 0.5]).round(3)
    array([[0. , 0.2],
           [0.2, 0. ],
           [0.4, 0.2]])

    The same items and positions in the opposite order:

    >>> gaps([0.1, 0.5, 0.9], [0.5, 1.0]).round(3)
    array([[0.2, 0.4],
           [0. , 0.2],
           [0.2, 0. ]])
    """
    alpha, beta, items, positions = instance(attraction, examination)
    n, m = alpha.size, beta.size
    i, j = np.arange(n)[:, None], np.arange(m)
    below = beta - np.append(beta[1:], 0.0)  # beta_j - beta_{j+1}
    above = np.append(0.0, beta[:-1] - beta[1:])  # beta_{j-1} - beta_j, unused at the first position
    gap = np.empty((n, m))
    gap[np.ix_(items, positions)] = np.where(i > j, below, above) * np.abs(alpha[:m] - alpha[:, None])
    return gap


def delta(attraction: ArrayLike, n_positions: int | None = None) -> float:
    r"""Return the smallest gap in attraction that matters, :math:`\Delta = \min_{i \le m} (\alpha_i - \alpha_{i+1})`.

    The minimum is over the best ``n_positions`` + 1 items (all items if there are no more than positions), or over all
    items if ``n_positions`` is None.

    >>> round(delta([0.5, 0.9, 0.1, 0.1]), 6), round(delta([0.5, 0.9, 0.1, 0.1], n_positions=2), 6)
    (0.0, 0.4)
    """
    alpha = instance(attraction, [1.0]).alpha
    m = alpha.size if n_positions is None else whole(n_positions, "n_positions", 1)
    if alpha.size < 2:
        raise ValueError("attraction must be that of at least two items")
    if m > alpha.size:
        raise ValueError(f"n_positions must be at most the number of items, {alpha.size}; got {m}")
    return float((alpha[:-1] - alpha[1:])[:m].min())


def delta_beta(examination: ArrayLike) -> float:
    r"""Return the smallest gap in examination, :math:`\Delta_\beta = \min_{j \le m} (\beta_j - \beta_{j+1})`.

    Items that are not shown have examination :math:`\beta_{m+1} = 0`, so the last gap is the smallest examination.

    >>> round(delta_beta([1.0, 1/2, 1/3, 1/4, 1/5]), 6), delta_beta([1.0, 0.25])
    (0.05, 0.25)
    """
    positions = np.size(np.asarray(examination, dtype=object))
    beta = instance(np.ones(max(positions, 1)), examination).beta
    return float((beta - np.append(beta[1:], 0.0)).min())


def optimal_ranking(attraction: ArrayLike, examination: ArrayLike) -> NDArray[np.int64]:
    """Return the best list: the k-th most attractive item at the position with the k-th largest examination.

    Items and positions may be in any order; ties are broken by index.

    >>> optimal_ranking([0.2, 0.9, 0.5, 0.4], [0.5, 1.0, 0.1])    # the middle is examined most
    array([2, 1, 3])
    """
    _, _, items, positions = instance(attraction, examination)
    ranking = np.empty(positions.size, np.int64)
    ranking[positions] = items[: positions.size]
    return ranking


def largest_regret(attraction: ArrayLike, examination: ArrayLike, rounds: int) -> float:
    r"""Return the largest possible regret: that of showing the worst list in every round.

    .. math:: T \left( \sum_j \alpha_j \beta_j - \sum_j \alpha_{n+1-j} \beta_j \right)

    A larger upper bound is vacuous for this instance.

    >>> largest_regret([0.75, 0.5, 0.25], [1.0, 0.5], rounds=100)
    50.0
    """
    T = whole(rounds, "rounds", 1)
    alpha, beta, _, _ = instance(attraction, examination)
    return float(T * ((alpha[: beta.size] - alpha[::-1][: beta.size]) @ beta))
