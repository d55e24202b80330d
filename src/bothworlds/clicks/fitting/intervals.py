"""Standard errors from information on parameters, and 95% intervals of probabilities."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.special import expit

from ...kernels import Floats
from ..model.model import Estimates, Z, without_intervals

DROP = -np.log(0.05)  # one-sided limits are where the likelihood is a twentieth of its maximum, as in Clopper-Pearson
LARGEST_BLOCK = 3_000  # parameters that are inverted together
NOTHING = 1e-100  # information
FLAT = 1e-9  # smaller eigenvalues of an information matrix with diagonal 1 count as this
DETERMINED = 1e-7  # share of the information on a parameter that must not be shared with the others


def probability_estimates(value: Floats, error: Floats, slope: Floats) -> Estimates:
    """Return intervals on the scale of log-odds; at 0 and 1, where the log-likelihood has ``slope``, one-sided."""
    with np.errstate(divide="ignore", invalid="ignore"):
        odds, width = np.log(value / (1.0 - value)), Z * error / (value * (1.0 - value))
        reach = np.minimum(DROP / np.abs(slope), 1.0)
    low = np.select([value == 0.0, value == 1.0], [0.0, 1.0 - reach], expit(odds - width))
    high = np.select([value == 0.0, value == 1.0], [reach, 1.0], expit(odds + width))
    return Estimates(value, np.where((value > 0.0) & (value < 1.0), error, np.nan), low, high)


def binomial_estimates(rate: Floats, trials: Floats, intervals: bool = True) -> Estimates:
    """Return rates with binomial standard errors and intervals."""
    if not intervals:
        return without_intervals(rate)
    with np.errstate(divide="ignore", invalid="ignore"):
        return probability_estimates(rate, np.sqrt(rate * (1.0 - rate) / trials), trials)


def standard_errors(
    information: csr_array, shared: int, free: NDArray[np.bool_]
) -> tuple[Floats, NDArray[np.bool_]] | None:
    """Return the standard errors of free parameters, and which of these the information determines.

    A parameter is not determined if nearly all information on it is shared with others; it has no standard error. The
    last ``shared`` parameters are eliminated last. The others fall into blocks without common information; returns None
    if one has more than 3,000 parameters.
    """
    n, diagonal = free.size - shared, information.diagonal()
    inner, border = np.flatnonzero(free[:n]), n + np.flatnonzero(free[n:])
    sides, corner = information[:, border].toarray(), information[border][:, border].toarray()
    label = connected_components(information[inner][:, inner], directed=False)[1]
    sizes = np.bincount(label)
    if sizes.max(initial=0) > LARGEST_BLOCK:
        return None
    blocks = []
    for own in np.split(inner[np.argsort(label, kind="stable")], np.cumsum(sizes)[:-1]):
        block = information[own][:, own].toarray() if own.size > 1 else diagonal[own][:, None]
        inverse = _inverse(block, diagonal[own])
        blocks.append((own, inverse, inverse @ sides[own]))
        corner -= sides[own].T @ blocks[-1][2]
    of_border, variance = _inverse(corner, diagonal[border]), np.full(free.size, np.nan)
    for own, inverse, moved in blocks:
        variance[own] = inverse.diagonal() + np.einsum("is,st,it->i", moved, of_border, moved)
    variance[border] = of_border.diagonal()
    determined = free & (diagonal > NOTHING)
    determined[determined] = (variance * diagonal)[determined] < 1.0 / DETERMINED
    return np.sqrt(np.where(determined, variance, np.nan)), determined


def _inverse(information: Floats, diagonal: Floats) -> Floats:
    """The inverse, in which flat directions are large, compared to the information on each parameter alone."""
    scale = 1.0 / np.sqrt(np.maximum(diagonal, NOTHING))
    values, vectors = np.linalg.eigh(information * scale[:, None] * scale)
    sides = vectors * scale[:, None]
    return np.asarray((sides / np.maximum(values, FLAT)) @ sides.T)
