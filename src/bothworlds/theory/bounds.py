"""Regret bounds: upper bounds of FTRL-PBM and a lower bound for every policy, the paper's three theorems."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from ..checks import whole
from ..worlds.adversarial import hard_gap
from .instance import gaps, optimal_ranking


def stochastic_bound(attraction: ArrayLike, examination: ArrayLike, rounds: int) -> float:
    r"""Return an upper bound on the expected regret of FTRL-PBM with stochastic users, the paper's Theorem 2.

    .. math:: R(T) \le \left( 18 \sum_{j=1}^m \sum_{i \ne j} \frac{1}{\Delta_{ij}} + 4m \right) \log T + 6m

    with the :func:`gaps` of the instance. The theorem requires
    :math:`\alpha_1 > \ldots > \alpha_m > \alpha_{m+1}` and :math:`\beta_1 > \ldots > \beta_m > 0`: where any of these
    are tied, a gap is 0 and the bound is infinite; FTRL-PBM still works.

    The printed proof replaces :math:`\sum_{t \le T} 1/t` by :math:`\log T`, which is smaller. The statement still
    holds: in the first round all marginals are 1/n, so that this round adds at most 2m(n - 1), and for T of at
    least 2 the other rounds leave :math:`18 \, (\log 2 - \frac{1}{2}) \sum 1/\Delta_{ij}` unused, which is more.

    The bound grows with the logarithm of the rounds: each factor of ten adds the same amount.

    >>> cost = [stochastic_bound([0.9, 0.5, 0.1], [1.0, 0.5], T) for T in (10**4, 10**5, 10**6)]
    >>> [round(later - sooner) for sooner, later in zip(cost, cost[1:])]
    [744, 744]
    >>> stochastic_bound([0.9, 0.9, 0.1], [1.0, 0.5], 10**6)
    inf
    """
    T = whole(rounds, "rounds", 1)
    gap = gaps(attraction, examination)
    n, m = gap.shape
    wrong = np.ones((n, m), bool)
    wrong[optimal_ranking(attraction, examination), np.arange(m)] = False
    if not gap[wrong].all():
        return math.inf
    return float((18.0 * (1.0 / gap[wrong]).sum() + 4.0 * m) * math.log(T) + 6.0 * m)


def adversarial_bound(n_items: int, n_positions: int, rounds: int) -> float:
    r"""Return an upper bound on the expected regret of FTRL-PBM with any users: Theorem 1 with corrected constants.

    .. math:: R(T) \le 3m + 2m \, (1 + \log T) + 6m \sqrt{nT}

    The last line of the printed proof drops all but the last term, and replaces :math:`\sum_{t \le T} 1/t` by
    :math:`\log T`, which is smaller by up to 1.

    Four times as many rounds double the bound, approximately:

    >>> round(adversarial_bound(10, 5, 4 * 10**6) / adversarial_bound(10, 5, 10**6), 2)
    2.0
    """
    n, m, T = whole(n_items, "n_items", 1), whole(n_positions, "n_positions", 1), whole(rounds, "rounds", 1)
    if m > n:
        raise ValueError(f"n_positions must be at most n_items = {n}; got {m}")
    return 3.0 * m + 2.0 * m * (1.0 + math.log(T)) + 6.0 * m * math.sqrt(n * T)


def lower_bound(n_items: int, n_positions: int, rounds: int) -> float:
    r"""Return a lower bound on the expected regret of every policy with some users, the paper's Theorem 3.

    .. math:: R(T) \ge \frac{1}{16} \, m \sqrt{(n - m + 1) \, T}
        \qquad \text{if } n \ge \max\{m + 3, 2m\} \text{ and } T \ge n ,

    Raises ValueError otherwise. These users do not follow the position-based model with fixed attraction and
    examination: it is a bound for adversarial users, and does not contradict the logarithm of Theorem 2.

    The upper and the lower bound for adversarial users differ by a factor that does not depend on the rounds:

    >>> [round(adversarial_bound(10, 5, T) / lower_bound(10, 5, T)) for T in (10**4, 10**6, 10**8)]
    [125, 124, 124]
    """
    hard_gap(n_items, n_positions, rounds)  # raises ValueError outside the theorem
    n, m, T = int(n_items), int(n_positions), int(rounds)
    return m * math.sqrt((n - m + 1) * T) / 16.0
