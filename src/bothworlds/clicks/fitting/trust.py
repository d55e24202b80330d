r"""Fitting the affine position-based model (trust bias) to counts: clicks with probability :math:`a_k \gamma_d + b_k`.

It is written as :math:`A_k \gamma_d + B_k (1 - \gamma_d)` with all numbers from 0 to 1: A and B are the click rates of
the most and the least attractive item conceivable. The log-likelihood is concave in the attraction and in the rates,
not in both together, so that there are several starts.

Two numbers are free: :math:`\gamma \to s \gamma + t` is absorbed by A and B. The normal form has :math:`p_{d1} =
\gamma_d` at the first position, so that attraction is the click rate there, and :math:`p_{dk} = a_k \gamma_d + b_k`
elsewhere. If all items have one click rate at the first position, the one at which they differ most takes its place.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array, csr_array, diags_array
from scipy.special import xlogy

from ...kernels import Floats
from ..counts import Counts
from ..model.model import ClickModel, Estimates, Z, without_intervals
from .box import best_of, maximise
from .design import Design, design_of_counts, fitted_model
from .intervals import standard_errors
from .log_linear import fit_position_based
from .options import Options
from .warnings import box_warnings

STARTS = 4
NOT_IDENTIFIED = "Not identified: the log does not show items of different attraction at every pair of positions."
INSIDE = 1e-3  # distance of a start from 0 and 1
SPREAD = 1e-6  # least difference of click rates at a position that attraction can refer to
EDGE = 1e-7  # click rates as near to 0 or 1 are at the bound


def fit_trust(counts: Counts, name: str, options: Options) -> ClickModel:
    """Return the maximum-likelihood fit; the first start is the position-based model, which is the case b = 0."""
    prior, starts = options.prior, options.starts or STARTS
    design = design_of_counts(counts)
    n, m = len(design.items), len(counts.positions)
    mean = design.clicked.sum() / design.shown.sum()
    shown, clicked = design.shown + prior, design.clicked + prior * mean
    trials = 1.0 + np.concatenate([np.bincount(design.row, shown, n), *[_at(design, shown, m)] * 2])
    rng, at = np.random.default_rng(options.seed), [_position_based(counts, prior)]
    for _ in range(starts - 1):
        low = rng.uniform(0.05, 0.3, m)
        at.append(np.concatenate([rng.uniform(0.1, 0.9, n), low + rng.uniform(0.2, 0.6, m), low]))
    free = np.zeros(n + 2 * m, bool)
    best = best_of(lambda x: maximise(lambda y: likelihood(design, shown, clicked, y), x, trials, free), at)
    attraction, slope, offset, identified = _normal_form(design, shown, clicked, best.x, options.intervals)
    labels = tuple(map(str, counts.positions))
    return fitted_model(
        design,
        counts,
        name,
        prior,
        item_parameters={"attraction": attraction},
        shared_parameters={"slope": slope, "offset": offset},
        labels={"slope": labels, "offset": labels},
        log_likelihood=likelihood(design, design.shown, design.clicked, best.x)[0],
        iterations=best.steps,
        converged=best.converged,
        gain=best.gain,
        identified=identified,
        starts=best.starts,
        warnings=(*box_warnings(best), *(() if identified else (NOT_IDENTIFIED,))),
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
    fitted = fit_position_based(counts, "pbm", Options(prior=prior, intervals=False))
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
    row, k = design.row, design.columns[:, 0]
    p = np.clip(gamma[row] * slopes[k] + offsets[k], 0.0, 1.0)
    at_bound = (p <= EDGE) | (p >= 1.0 - EDGE)
    cells = np.tile(np.arange(p.size), 3), np.concatenate([row, n + k, n + m + k])
    moves = coo_array((np.concatenate([slopes[k], gamma[row], np.ones(p.size)]), cells), (p.size, n + 2 * m))
    weight = np.divide(shown, p * (1.0 - p), where=~at_bound, out=np.zeros(p.size))
    information = csr_array(moves.T @ diags_array(weight) @ moves)
    others = np.arange(m) != first
    free = np.concatenate([seen & (np.bincount(row, at_bound, n) == 0.0), others, others])
    found = standard_errors(information, 2 * m, free)
    identified = found is None or bool(found[1][free].all())
    error = found[0] if found is not None and identified and intervals else np.full(free.size, np.nan)
    error[n + first], error[n + m + first] = 0.0, 0.0
    return (
        _symmetric(np.where(seen, gamma, np.nan), error[:n], 0.0, 1.0),
        _symmetric(slopes, error[n : n + m], -np.inf, np.inf),
        _symmetric(offsets, error[n + m :], -np.inf, np.inf),
        identified,
    )


def _symmetric(values: Floats, error: Floats, least: float, most: float) -> Estimates:
    """Normal intervals, which are cut at the limits."""
    return Estimates(values, error, np.maximum(values - Z * error, least), np.minimum(values + Z * error, most))
