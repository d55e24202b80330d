r"""The rank-one fit: attraction and examination, whose products are click probabilities, from counts.

Under the position-based model item i at position j is clicked with probability :math:`\alpha_i \beta_j`. With
:math:`a = \log \alpha` and :math:`b = \log \beta` the log-likelihood of S clicks and F missing clicks,

.. math::

    \sum_{ij} S_{ij} (a_i + b_j) + F_{ij} \log\left(1 - e^{a_i + b_j}\right),

is concave, so Newton's method reaches the maximum in a few steps where expectation-maximisation needs hundreds of
passes. Only products are determined: the fit is in the normal form, in which the largest examination is 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import xlog1py, xlogy

from ...kernels import Floats, Ints
from .likelihood import make_workspace
from .newton import newton


class Fit(NamedTuple):
    """A fitted position-based model.

    ``attraction`` (n,) and ``examination`` (m,), whose largest entry is 1; NaN for items and positions without
    impressions. ``log_likelihood`` includes the pseudo-counts.
    """

    attraction: Floats
    examination: Floats
    log_likelihood: float
    iterations: int
    converged: bool


def fit_newton(
    shown: ArrayLike,
    clicked: ArrayLike,
    *,
    prior: float = 0.0,
    ordered: bool = False,
    tolerance: float = 1e-16,
    start: tuple[ArrayLike, ArrayLike] | None = None,
) -> Fit:
    """Return the maximum-likelihood attraction and examination, by Newton's method.

    Raises ValueError for invalid counts, and where counts do not determine the scale of attraction.

    Parameters
    ----------
    shown, clicked
        (n_items, n_positions) impressions and clicks; they need not be whole numbers.
    prior
        Pseudo-clicks, in twice as many pseudo-impressions, added to every pair that was shown; with 0.1, items
        without clicks have an attraction above 0.
    ordered
        Whether examination must not rise from one position to the next.
    tolerance
        Gain in log-likelihood of a step at which the fit ends.
    start
        Initial attraction and examination.

    Examples
    --------
    Three pairs determine the fourth:

    >>> fit = fit_newton([[1000, 1000], [1000, 0]], [[800, 400], [200, 0]])
    >>> fit.attraction.round(6).tolist(), fit.examination.round(6).tolist()
    ([0.8, 0.2], [1.0, 0.5])

    References
    ----------
    Chuklin, Markov, de Rijke: Click Models for Web Search, Morgan & Claypool 2015, section 3.2 (the model);
    Wacholder: Binomial regression in GLIM, American Journal of Epidemiology 123, 1986 (the link).
    """
    n_shown, n_clicked = _checked(shown, clicked, prior)
    w = make_workspace(*n_shown.shape)
    if start is not None:
        with np.errstate(divide="ignore"):
            w.a[:], w.b[:] = (np.log(np.asarray(part, dtype=np.float64)) for part in start)
    effort = newton(n_shown, n_clicked, float(prior), bool(ordered), start is not None, float(tolerance), w)
    return _fit(n_shown, n_clicked, prior, np.exp(w.a), np.exp(w.b), *effort)


def components(shown: ArrayLike) -> tuple[Ints, Ints]:
    """Return the connected component of every item and of every position.

    An item and a position are connected if the item was shown at the position; -1 without impressions. The relative
    scale of two components is not determined; in a log of one fixed list every pair is its own component.

    >>> items, positions = components([[5, 0], [0, 5], [5, 0]])
    >>> items.tolist(), positions.tolist()
    ([0, 1, 0], [0, 1])
    """
    seen = np.asarray(shown, dtype=np.float64) > 0.0
    n, m = seen.shape
    rows, columns = np.nonzero(seen)
    graph = coo_array((np.ones(rows.size), (rows, n + columns)), shape=(n + m, n + m))
    label = connected_components(graph, directed=False)[1].astype(np.int64)
    label[~np.concatenate([seen.any(axis=1), seen.any(axis=0)])] = -1
    order = {old: new for new, old in enumerate(dict.fromkeys(label[label >= 0].tolist()))}
    label = np.array([order.get(old, -1) for old in label.tolist()], dtype=np.int64)
    return label[:n], label[n:]


def _checked(shown: ArrayLike, clicked: ArrayLike, prior: float) -> tuple[Floats, Floats]:
    a, b = (np.ascontiguousarray(given, dtype=np.float64) for given in (shown, clicked))
    if a.ndim != 2 or a.shape != b.shape or not a.size:
        raise ValueError(f"shown and clicked must be tables of one shape; got {a.shape} and {b.shape}")
    if not (np.isfinite(a).all() and (b >= 0.0).all() and (b <= a).all()):
        raise ValueError("there must be no more clicks than impressions, and no negative ones")
    if not 0.0 <= prior < np.inf:
        raise ValueError(f"prior must be 0 or more; got {prior!r}")
    groups = int(components(a)[0].max()) + 1
    if groups == 0:
        raise ValueError("the scale of attraction is not determined: there are no impressions")
    if groups > 1:
        raise ValueError(
            f"the scale of attraction is not determined: there are {groups} groups of items and positions that were "
            "never shown together"
        )
    return a, b


def _fit(
    shown: Floats, clicked: Floats, prior: float, alpha: Floats, beta: Floats, iterations: int, converged: bool
) -> Fit:
    alpha[shown.sum(axis=1) <= 0.0] = np.nan
    beta[shown.sum(axis=0) <= 0.0] = np.nan
    extra = prior * np.minimum(shown, 1.0)
    seen = shown > 0.0
    p = np.outer(alpha, beta)[seen]
    clicks, misses = (clicked + extra)[seen], (shown - clicked + extra)[seen]
    likelihood = float((xlogy(clicks, p) + xlog1py(misses, -p)).sum())
    return Fit(alpha, beta, likelihood, int(iterations), bool(converged))
