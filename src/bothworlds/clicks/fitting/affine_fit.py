r"""Fitting the affine position-based model (trust bias) to counts.

Two numbers are free. The normal form has :math:`p_{d1} = \gamma_d` at the first position, so that attraction is the
click rate there, and :math:`p_{dk} = a_k \gamma_d + b_k` elsewhere. If all items have one click rate at the first
position, the one at which they differ most takes its place.
"""

from __future__ import annotations

import numpy as np

from ...kernels import Floats
from ...statistics.affine import AffineObjective, NormalForm
from ...statistics.box_newton import Maximum, maximise
from ..counts import Counts
from ..model.click_model import ClickModel, Estimates
from ..model.uncertainty import Spread, Z
from .optimiser import Settings
from .rank_one_fit import fit_rank_one
from .tables import Design, design_of, smoothed

INSIDE = 1e-3  # distance of a start from 0 and 1
DISAGREEMENT = 1e-3
DETERMINED = 1e-8  # share of the information on a parameter that must not be shared with the others
SPREAD = 1e-6  # least difference of click rates at a position that attraction can refer to
RIDGE = 1e-11  # added to the information, relative to its diagonal


def fit_affine(counts: Counts, prior: float, intervals: bool, starts: int, seed: int) -> ClickModel:
    """Return the maximum-likelihood fit; the first start is the position-based model, which is the case b = 0."""
    plain = design_of(counts, False)
    design = smoothed(plain, prior)
    objective = AffineObjective(design.shown, design.clicked)
    reached = [_from(objective, _position_based(counts, prior))]
    rng = np.random.default_rng(seed)
    m = len(design.positions)
    for _ in range(starts - 1):
        low = rng.uniform(0.05, 0.3, m)
        start = np.concatenate([rng.uniform(0.1, 0.9, len(design.items)), low + rng.uniform(0.2, 0.6, m), low])
        reached.append(_from(objective, start))
    best = max(reached, key=lambda one: one.value)
    values = tuple(one.value for one in reached)
    likelihood = AffineObjective(plain.shown, plain.clicked).value(best.x)
    warnings = []
    if not best.converged:
        warnings.append(f"Newton's method did not converge in {best.steps} steps.")
    if max(values) - min(values) > DISAGREEMENT:
        warnings.append(f"{starts} starts ended {max(values) - min(values):.3g} nats apart; the best is reported.")
    items, slopes, offsets, identified = _normal_form(design, best.x, intervals)
    if not identified:
        warnings.append(
            "Not identified: the log does not show items of different attraction at every pair of positions."
        )
    labels = tuple(map(str, design.positions))
    return ClickModel(
        model="trust",
        items=design.items,
        queries=design.queries,
        positions=design.positions,
        item_parameters={"attraction": items},
        shared_parameters={"slope": slopes, "offset": offsets},
        labels={"slope": labels, "offset": labels},
        item_counts=np.array([plain.shown.sum(axis=1), plain.clicked.sum(axis=1)]).astype(np.int64),
        log_likelihood=likelihood,
        pages=counts.pages,
        method="newton",
        prior=float(prior),
        iterations=best.steps,
        converged=best.converged,
        gain=best.gain,
        identified=identified,
        starts=values,
        warnings=tuple(warnings),
        origin=counts.origin,
    )


def _from(objective: AffineObjective, start: Floats) -> Maximum:
    return maximise(objective, start, np.zeros(start.size, bool))


def _position_based(counts: Counts, prior: float) -> Floats:
    """The position-based fit as a start: b = 0, moved off the bounds where the likelihood is infinite there."""
    fitted = fit_rank_one(counts, Settings(prior=float(prior)), None)
    alpha, beta = np.nan_to_num(fitted.attraction, nan=0.5), np.nan_to_num(fitted.examination, nan=0.5)
    top = max(float(alpha.max(initial=0.0)), INSIDE)
    high = np.clip(beta * top, INSIDE, 1.0 - INSIDE)
    return np.concatenate([np.clip(alpha / top, INSIDE, 1.0 - INSIDE), high, np.minimum(INSIDE, 0.5 * high)])


def _normal_form(design: Design, x: Floats, intervals: bool) -> tuple[Estimates, Estimates, Estimates, bool]:
    """Attraction, slopes and offsets with intervals, and whether the counts determine them."""
    n, m = design.shown.shape
    high, low = x[n : n + m], x[n + m :]
    shown = design.shown.sum(axis=1) > 0.0
    spread = np.where(design.shown.sum(axis=0) > 0.0, np.abs(high - low), 0.0)
    first = 0 if spread[0] > SPREAD else int(np.argmax(spread))
    if spread[first] <= SPREAD:  # items do not differ: only the rates of positions are known
        unknown = np.full(n, np.nan)
        rates = [Estimates(part, Spread(*np.full((3, m), np.nan))) for part in (np.zeros(m), low)]
        return Estimates(unknown, Spread(unknown, unknown, unknown)), rates[0], rates[1], False
    slopes = (high - low) / (high[first] - low[first])
    offsets = low - slopes * low[first]
    slopes[first], offsets[first] = 1.0, 0.0
    gamma = low[first] + x[:n] * (high[first] - low[first])
    p = gamma[:, None] * slopes + offsets
    inside = shown & ((p > 1e-7) & (p < 1.0 - 1e-7) | (design.shown == 0.0)).all(axis=1)
    arrow = NormalForm(design.shown, design.clicked, first).curvature(gamma, slopes, offsets)
    free = np.concatenate([inside, np.ones(2 * (m - 1), bool)])
    variance = arrow.variances(free, RIDGE * np.abs(arrow.diagonal()))
    identified = False
    if variance is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            own = 1.0 / (variance * arrow.diagonal())
        identified = bool((own[free] > DETERMINED).all())
    error = np.full(free.size, np.nan)
    if variance is not None and identified and intervals:
        error = np.where(free, np.sqrt(variance), np.nan)
    a, b = (np.insert(part, first, 0.0) for part in (error[n : n + m - 1], error[n + m - 1 :]))
    gamma = np.where(shown, gamma, np.nan)
    return (
        _symmetric(gamma, error[:n], 0.0, 1.0),
        _symmetric(slopes, a, -np.inf, np.inf),
        _symmetric(offsets, b, -np.inf, np.inf),
        identified,
    )


def _symmetric(values: Floats, error: Floats, least: float, most: float) -> Estimates:
    low, high = np.maximum(values - Z * error, least), np.minimum(values + Z * error, most)
    return Estimates(values, Spread(error, low, high))
