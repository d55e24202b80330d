r"""The direct method: the clicks of a target by a fitted position-based model.

.. math:: \hat V_j = \sum_i x_{ij} \hat\alpha_i \hat\beta_j

Its variance is low, and its bias is that of the model. The doubly robust estimate adds weighted residuals to it, those
of each half of the log from the model of the other half, and is unbiased for any model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...kernels import Floats
from ...statistics.rank_one.fit import components, fit_newton
from .impressions import CellCounts


@dataclass(frozen=True, eq=False)
class Rates:
    """Fitted click rates (n_items, n_positions); 0 where ``known`` is false, since the log does not determine them."""

    rate: Floats
    known: np.ndarray[tuple[int, int], np.dtype[np.bool_]]
    shown: Floats


def fit_cell_rates(cells: CellCounts) -> Rates:
    """Return the most likely products of attraction and examination, fitted separately in each connected component.

    Items and positions without clicks connect nothing. If they were shown with positions or items that have clicks,
    their rate is 0 everywhere.

    >>> shown, clicked = np.array([[9.0, 0.0], [9.0, 9.0], [0.0, 9.0]]), np.array([[3.0, 0.0], [0.0, 0.0], [0.0, 6.0]])
    >>> fit_cell_rates(CellCounts(shown, clicked, shown)).known.tolist()
    [[True, False], [True, True], [False, True]]
    """
    seen = cells.shown > 0.0
    items_with_clicks, positions_with_clicks = cells.clicked.any(axis=1), cells.clicked.any(axis=0)
    items, positions = components(np.where(np.outer(items_with_clicks, positions_with_clicks), cells.shown, 0.0))
    rate = np.zeros_like(cells.shown)
    for group in range(int(items.max()) + 1):
        pairs = np.ix_(items == group, positions == group)
        fit = fit_newton(cells.shown[pairs], cells.clicked[pairs])
        rate[pairs] = np.outer(fit.attraction, fit.examination)
    zero_items = ~items_with_clicks & (seen[:, positions_with_clicks]).any(axis=1)
    zero_positions = ~positions_with_clicks & (seen[items_with_clicks]).any(axis=0)
    known = (items[:, None] == positions) & (items[:, None] >= 0)
    return Rates(rate, known | seen | np.logical_or.outer(zero_items, zero_positions), cells.shown)


def rate_variances(rates: Rates, weights: Floats) -> Floats:
    r"""(k,) sampling variances of k sums of fitted rates with the given weights (k, n_items, n_positions).

    By the delta method in :math:`(\log\alpha, \log\beta)`, whose information is made of
    :math:`W_{ij} = N_{ij} p_{ij} / (1 - p_{ij})`; attraction is eliminated first, so that the cost is linear in items.
    Items without clicks have rate 0 and contribute nothing, so that the variance is too small where they matter.

    >>> rates = fit_cell_rates(CellCounts(np.array([[400.0], [100.0]]), np.array([[200.0], [20.0]]), np.zeros((2, 1))))
    >>> rate_variances(rates, np.array([[[1.0], [0.0]], [[0.0], [1.0]]])).round(6).tolist()   # p (1 - p) / N
    [0.000625, 0.0016]
    """
    p = rates.rate
    information = rates.shown * p / np.maximum(1.0 - p, 1e-12)
    of_items = information.sum(axis=1)
    inverse = np.divide(1.0, of_items, out=np.zeros_like(of_items), where=of_items > 0.0)
    schur = np.diag(information.sum(axis=0)) - information.T @ (inverse[:, None] * information)
    by_item, by_position = (weights * p).sum(axis=2), (weights * p).sum(axis=1)
    rest = by_position - (by_item * inverse) @ information
    pseudo = np.linalg.pinv(schur, rcond=1e-10, hermitian=True)
    return np.asarray((by_item**2 * inverse).sum(axis=1) + np.einsum("kj,jl,kl->k", rest, pseudo, rest))
