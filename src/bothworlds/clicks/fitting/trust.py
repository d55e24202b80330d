r"""Fitting the affine position-based model (trust bias) to counts: clicks with probability :math:`a_k \gamma_d + b_k`.

It is written as :math:`A_k \gamma_d + B_k (1 - \gamma_d)` with all numbers from 0 to 1: A and B are the click rates of
the most and the least attractive item conceivable. The log-likelihood is concave in the attraction and in the rates,
not in both together, so that there are several starts.

Two numbers are free: :math:`\gamma \to s \gamma + t` is absorbed by A and B. The normal form has :math:`p_{d1} =
\gamma_d` at the first position, so that attraction is the click rate there, and :math:`p_{dk} = a_k \gamma_d + b_k`
elsewhere. If all items have one click rate at the first position, the one at which they differ most takes its place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import xlogy

from ...kernels import Floats
from ..counts import Counts
from ..model.model import ClickModel, Estimates, Z, without_intervals
from .box import maximise, not_converged, starts_disagree
from .design import Design, design_of_counts
from .log_linear import fit_position_based

STARTS = 4
INSIDE = 1e-3  # distance of a start from 0 and 1
DETERMINED = 1e-8  # share of the information on a parameter that must not be shared with the others
SPREAD = 1e-6  # least difference of click rates at a position that attraction can refer to
RIDGE = 1e-11  # added to the information, relative to its diagonal


def fit_trust(counts: Counts, prior: float, intervals: bool, seed: int, starts: int = STARTS) -> ClickModel:
    """Return the maximum-likelihood fit; the first start is the position-based model, which is the case b = 0."""
    design = design_of_counts(counts)
    n, m = len(design.items), len(counts.positions)
    mean = design.clicked.sum() / design.shown.sum()
    shown, clicked = design.shown + prior, design.clicked + prior * mean
    rng, first = np.random.default_rng(seed), _position_based(counts, prior)
    trials = 1.0 + np.concatenate([np.bincount(design.row, shown, n), *[_at(design, shown, m)] * 2])
    reached = []
    for k in range(starts):
        low = rng.uniform(0.05, 0.3, m)
        start = np.concatenate([rng.uniform(0.1, 0.9, n), low + rng.uniform(0.2, 0.6, m), low]) if k else first
        reached.append(
            maximise(lambda x: likelihood(design, shown, clicked, x), start, trials, np.zeros(n + 2 * m, bool))
        )
    best = max(reached, key=lambda one: one.value)
    values = tuple(one.value for one in reached)
    attraction, slope, offset, identified = _normal_form(design, shown, clicked, best.x, intervals)
    lost = "Not identified: the log does not show items of different attraction at every pair of positions."
    labels = tuple(map(str, counts.positions))
    return ClickModel(
        model="trust",
        items=design.items,
        queries=design.queries,
        positions=counts.positions,
        item_parameters={"attraction": attraction},
        shared_parameters={"slope": slope, "offset": offset},
        labels={"slope": labels, "offset": labels},
        item_counts=design.row_counts,
        log_likelihood=likelihood(design, design.shown, design.clicked, best.x)[0],
        pages=counts.pages,
        prior=float(prior),
        iterations=best.steps,
        converged=best.converged,
        gain=best.gain,
        identified=identified,
        starts=values,
        warnings=(*not_converged(best), *starts_disagree(values), *([] if identified else [lost])),
        origin=counts.origin,
    )


def _at(design: Design, values: Floats, m: int) -> Floats:
    return np.bincount(design.columns[:, 0], values, m).astype(np.float64)


def likelihood(design: Design, shown: Floats, clicked: Floats, x: Floats) -> tuple[float, Floats]:
    """Return the log-likelihood of cells and its derivatives; x is attraction (n,), and then A (m,) and B (m,)."""
    n, m, k = len(design.items), len(design.labels[0]), design.columns[:, 0]
    gamma, high, low = x[:n][design.row], x[n : n + m][k], x[n + m :][k]
    p, missed = gamma * high + (1.0 - gamma) * low, shown - clicked
    slope = _ratio(clicked, p) - _ratio(missed, 1.0 - p)
    of_rows = np.bincount(design.row, slope * (high - low), n)
    of_columns = _at(design, slope * gamma, m), _at(design, slope * (1.0 - gamma), m)
    with np.errstate(divide="ignore"):
        value = float((xlogy(clicked, p) + xlogy(missed, 1.0 - p)).sum())
    return value, np.concatenate([of_rows, *of_columns])


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=numerator > 0.0)


def _position_based(counts: Counts, prior: float) -> Floats:
    """The position-based fit as a start: b = 0, moved off the bounds where the likelihood is infinite there."""
    fitted = fit_position_based(counts, prior=prior, intervals=False)
    alpha, beta = np.nan_to_num(fitted.attraction, nan=0.5), np.nan_to_num(fitted.examination, nan=0.5)
    top = max(float(alpha.max(initial=0.0)), INSIDE)
    high = np.clip(beta * top, INSIDE, 1.0 - INSIDE)
    return np.concatenate([np.clip(alpha / top, INSIDE, 1.0 - INSIDE), high, np.minimum(INSIDE, 0.5 * high)])


def _normal_form(
    design: Design, shown: Floats, clicked: Floats, x: Floats, intervals: bool
) -> tuple[Estimates, Estimates, Estimates, bool]:
    """Attraction, slopes and offsets with intervals, and whether the counts determine them."""
    n, m = len(design.items), len(design.labels[0])
    high, low, seen = x[n : n + m], x[n + m :], design.row_counts[0] > 0
    spread = np.where(design.level_counts()[0] > 0, np.abs(high - low), 0.0)
    first = 0 if spread[0] > SPREAD else int(np.argmax(spread))
    if spread[first] <= SPREAD:  # items do not differ: only the rates of positions are known
        unknown = without_intervals(np.full(n, np.nan))
        return unknown, without_intervals(np.zeros(m)), without_intervals(low), False
    slopes = (high - low) / (high[first] - low[first])
    offsets = low - slopes * low[first]
    slopes[first], offsets[first] = 1.0, 0.0
    gamma = low[first] + x[:n] * (high[first] - low[first])
    variance, diagonal, free = _variances(design, shown, clicked, first, gamma, slopes, offsets)
    with np.errstate(divide="ignore", invalid="ignore"):
        identified = bool((1.0 / (variance * diagonal) > DETERMINED)[free].all())
    error = np.where(free, np.sqrt(variance), np.nan) if identified and intervals else np.full(variance.size, np.nan)
    a, b = (np.insert(part, first, 0.0) for part in (error[n : n + m - 1], error[n + m - 1 :]))
    return (
        _symmetric(np.where(seen, gamma, np.nan), error[:n], 0.0, 1.0),
        _symmetric(slopes, a, -np.inf, np.inf),
        _symmetric(offsets, b, -np.inf, np.inf),
        identified,
    )


def _variances(
    design: Design, shown: Floats, clicked: Floats, first: int, gamma: Floats, slopes: Floats, offsets: Floats
) -> tuple[Floats, Floats, Any]:
    """Variances of attraction and then of slopes and offsets of all positions but the first; their information; and
    which attractions are inside the bounds, with all others."""
    n, m, k = gamma.size, slopes.size, design.columns[:, 0]
    g, others = gamma[design.row], np.arange(m) != first
    p = np.clip(g * slopes[k] + offsets[k], 0.0, 1.0)
    missed = shown - clicked
    pull = _ratio(clicked, p) - _ratio(missed, 1.0 - p)
    weight = _ratio(clicked, p**2) + _ratio(missed, (1.0 - p) ** 2)
    own = np.bincount(design.row, weight * slopes[k] ** 2, n)
    border, place = np.zeros((n, 2 * m)), (design.row, k)
    np.add.at(border, place, weight * slopes[k] * g - pull)
    np.add.at(border, (design.row, m + k), weight * slopes[k])
    parts = [np.diag(_at(design, weight * part, m)) for part in (g**2, g, np.ones_like(g))]
    kept = np.concatenate([others, others])
    border, corner = border[:, kept], np.block([[parts[0], parts[1]], [parts[1], parts[2]]])[np.ix_(kept, kept)]
    outside = np.bincount(design.row, (p <= 1e-7) | (p >= 1.0 - 1e-7), n) > 0.0
    inside = (design.row_counts[0] > 0) & ~outside
    diagonal = np.concatenate([own, corner.diagonal()])
    ridged = diagonal + RIDGE * np.abs(diagonal)
    with np.errstate(divide="ignore", invalid="ignore"):
        inverse = np.where(inside, 1.0 / ridged[:n], 0.0)
    schur = corner + np.diag(ridged[n:] - diagonal[n:]) - border.T @ (inverse[:, None] * border)
    free = np.concatenate([inside, np.ones(2 * (m - 1), bool)])
    try:
        np.linalg.cholesky(schur)
        covariance = np.linalg.inv(schur)
    except np.linalg.LinAlgError:
        return np.full(free.size, np.inf), diagonal, free
    moved = inverse[:, None] * border
    return (
        np.concatenate([inverse + np.einsum("is,st,it->i", moved, covariance, moved), covariance.diagonal()]),
        diagonal,
        free,
    )


def _symmetric(values: Floats, error: Floats, least: float, most: float) -> Estimates:
    """Normal intervals, which are cut at the limits."""
    return Estimates(values, error, np.maximum(values - Z * error, least), np.minimum(values + Z * error, most))
