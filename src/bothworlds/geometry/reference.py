"""The paper's own procedures, corrected: simple, slow reference implementations of the compiled code.

They are corrected where the published text fails. Frank-Wolfe starts in the interior of the polytope and stays there
(the step 2/(1+k) is 1 at k = 1 and ends in a vertex, where the gradient is infinite), its linear step is a weighted
assignment (Hopcroft-Karp solves the unweighted one), and it returns the last iterate. Birkhoff's decomposition does not
divide by n - m = 0, stops when only rounding is left, and returns lists of m items.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .assignment import best_ranking
from .polytope import as_marginals, as_matrix, as_rate


def frank_wolfe(
    loss: ArrayLike, rate: ArrayLike, *, iterations: int, start: ArrayLike | None = None
) -> NDArray[np.float64]:
    r"""Return the Tsallis leader by conditional gradients: the paper's Algorithm 2, corrected.

    From an interior point x, repeat for k = 1, 2, ...: find the ranking s that minimises the linearised objective
    and move :math:`x \leftarrow (1-\gamma) x + \gamma s` with :math:`\gamma = 2/(k+2)`. The gradient
    :math:`L - 1/(2 \eta \sqrt x)` is unbounded near the boundary, so the usual 1/k rate is not guaranteed.

    ``loss`` and ``rate`` are as in :func:`leader`, ``iterations`` the number of assignments solved, and ``start``
    (n_items, n_positions) an interior point, uniform if not given. Returns marginals (n_items, n_positions).

    It converges to the exact leader, slowly:

    >>> import numpy as np
    >>> from bothworlds.geometry import leader
    >>> loss = np.array([[0.0, 3.0], [2.0, 1.0], [5.0, 5.0]])
    >>> exact = leader(loss, 1.0).marginals
    >>> errors = [np.abs(frank_wolfe(loss, 1.0, iterations=k) - exact).max() for k in (10, 100, 1000)]
    >>> bool(errors[0] > errors[1] > errors[2] > 1e-5)
    True
    """
    losses = as_matrix(loss, "loss")
    n, m = losses.shape
    rates = as_rate(rate, "rate", (n, m))
    if iterations < 0:
        raise ValueError(f"iterations must not be negative; got {iterations}")
    x = np.full((n, m), 1.0 / n) if start is None else as_marginals(start, "start")
    if x.shape != (n, m):
        raise ValueError(f"start must have the shape of loss, {(n, m)}; got {x.shape}")
    if x.min() <= 0.0:
        i, j = np.unravel_index(x.argmin(), x.shape)
        raise ValueError(f"start must lie inside the polytope; got {x[i, j]} at item {i}, position {j}")
    columns = np.arange(m)
    for k in range(1, iterations + 1):
        gradient = losses - 0.5 / (rates * np.sqrt(x))
        step = 2.0 / (k + 2.0)
        x = (1.0 - step) * x
        x[best_ranking(-gradient), columns] += step
    return x


def birkhoff(marginals: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return marginals as a mixture of rankings: the paper's Algorithm 3, corrected.

    The matrix is completed to a doubly stochastic one; permutations on its support are subtracted one after the other,
    each with the largest possible weight. Permutations with the same list are merged.

    Returns weights (k,), which sum to 1, and rankings (k, n_positions).

    >>> weights, rankings = birkhoff([[0.5, 0.5], [0.5, 0.25], [0.0, 0.25]])
    >>> sorted((round(float(w), 2), list(map(int, r))) for w, r in zip(weights, rankings))
    [(0.25, [0, 1]), (0.25, [0, 2]), (0.5, [1, 0])]

    Helmbold, Warmuth: Learning permutations with exponential weights, JMLR 10, 2009, Algorithm 1.
    """
    x = as_marginals(marginals)
    n, m = x.shape
    left = np.empty((n, n))
    left[:, :m] = x
    if n > m:
        left[:, m:] = (np.maximum(0.0, 1.0 - x.sum(axis=1)) / (n - m))[:, None]
    mixture: dict[tuple[int, ...], float] = {}
    rows = np.arange(n)
    while left[:, 0].sum() > 1e-12:
        # Any permutation on the support is exact; preferring large entries keeps the mixture short.
        permutation = best_ranking(np.where(left > 1e-13, np.log(np.maximum(left, 1e-300)), -1e6))
        weight = left[permutation, rows].min()
        if weight <= 1e-13:
            break  # only rounding is left
        left[permutation, rows] -= weight
        shown = tuple(int(i) for i in permutation[:m])
        mixture[shown] = mixture.get(shown, 0.0) + weight
    weights = np.array(list(mixture.values()))
    return weights / weights.sum(), np.array(list(mixture), dtype=np.int64)
