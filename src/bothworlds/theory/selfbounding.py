"""The self-bounding inequality, which implies the logarithmic bound, in a form that can be tested numerically."""

from __future__ import annotations

import math
from itertools import permutations
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .instance import gaps, optimal_ranking

MAX_LISTS = 1_000_000  # more lists are not enumerated


class Sides(NamedTuple):
    """The two sides of the self-bounding inequality."""

    regret: float
    bound: float

    @property
    def slack(self) -> float:
        """Regret minus its bound; not negative if the inequality holds."""
        return self.regret - self.bound


def self_bounding(attraction: ArrayLike, examination: ArrayLike, marginals: ArrayLike) -> Sides:
    r"""Return both sides of the self-bounding inequality for one round, the paper's Lemmas 1 and 2.

    If item i is shown at position j with probability :math:`x_{ij}`, the expected regret of the round is at least half
    the expected sum of :func:`gaps`,

    .. math:: \sum_j \alpha_j \beta_j - \sum_{i,j} \alpha_i \beta_j x_{ij}
        \ \ge \ \frac{1}{2} \sum_{i,j} \Delta_{ij} x_{ij} .

    Lemma 2 is the case of one list. Both sides are linear in x, so it holds for every distribution over lists; summed
    over rounds it is Lemma 1.

    ``marginals`` (n_items, n_positions) are those of one list or of a distribution over lists.

    If two neighbours are exchanged, the inequality is tight.

    >>> exchanged = [[0, 1], [1, 0], [0, 0]]
    >>> sides = self_bounding([0.75, 0.5, 0.25], [1.0, 0.5], exchanged)
    >>> sides
    Sides(regret=0.125, bound=0.125)

    The uniform distribution has some slack:

    >>> round(self_bounding([0.75, 0.5, 0.25], [1.0, 0.5], np.full((3, 2), 1 / 3)).slack, 3)
    0.146
    """
    gap = gaps(attraction, examination)
    x = _as_marginals(marginals, gap.shape)
    alpha, beta = np.asarray(attraction, np.float64), np.asarray(examination, np.float64)
    best = alpha[optimal_ranking(alpha, beta)] @ beta
    return Sides(float(best - alpha @ x @ beta), float(0.5 * (gap * x).sum()))


def self_bounding_constant(attraction: ArrayLike, examination: ArrayLike) -> float:
    """Return the largest factor c such that regret is at least c times the sum of gaps, by enumerating all lists.

    The paper's Lemma 2 states that it is at least 1/2. It is infinite if no list has a gap. Raises ValueError if there
    are more than a million lists.

    With two or more positions it is exactly 1/2, because of lists that exchange two neighbours. With one position,
    regret equals the gap.

    >>> round(self_bounding_constant([0.9, 0.7, 0.4, 0.3], [0.8, 0.5, 0.1]), 12)
    0.5
    >>> round(self_bounding_constant([0.9, 0.7, 0.4, 0.3], [0.8]), 12)
    1.0
    """
    gap = gaps(attraction, examination)
    n, m = gap.shape
    if math.perm(n, m) > MAX_LISTS:
        raise ValueError(
            f"{n} items at {m} positions make {math.perm(n, m):,} lists, more than the limit of {MAX_LISTS:,}"
        )
    alpha, beta = np.asarray(attraction, np.float64), np.asarray(examination, np.float64)
    rankings = np.array(list(permutations(range(n), m)))
    regret = alpha[optimal_ranking(alpha, beta)] @ beta - alpha[rankings] @ beta
    total = gap[rankings, np.arange(m)].sum(axis=1)
    suboptimal = total > 1e-15  # excludes the best list, and ties that differ by rounding
    return float((regret[suboptimal] / total[suboptimal]).min(initial=math.inf))


def _as_marginals(given: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.float64]:
    try:
        x = np.array(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"marginals must be numbers; got {given!r}") from error
    if x.shape != shape:
        raise ValueError(f"marginals must be items by positions, {shape}; got shape {x.shape}")
    filled = bool((np.abs(x.sum(axis=0) - 1.0) < 1e-6).all())
    if not filled or not (x >= -1e-9).all() or not (x.sum(axis=1) < 1.0 + 1e-6).all():
        raise ValueError("marginals must not be negative; each column must sum to 1, each row to at most 1")
    return x
