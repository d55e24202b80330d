"""Standard errors and 95% intervals of attraction and examination."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...kernels import Floats
from ...statistics.rank_one.batch import LIMIT, GroupFits
from ..model.uncertainty import Spread, Z
from .optimiser import Settings, anchors, log_variances, make_fits, maximise
from .tables import Connectivity, Design

DROP = -np.log(0.05)  # one-sided limits are where the likelihood is a twentieth of its maximum, as in Clopper-Pearson


def no_intervals(design: Design, links: Connectivity, settings: Settings, fits: GroupFits) -> tuple[Spread, Spread]:
    """Return NaN for all, if no standard errors are requested."""
    return (
        Spread(*np.full((3, fits.a.size), np.nan)),
        Spread(*np.full((3, *fits.b.shape), np.nan)),
    )


def delta_intervals(design: Design, links: Connectivity, settings: Settings, fits: GroupFits) -> tuple[Spread, Spread]:
    """Return intervals of the delta method: logs are nearly normal, with the inverse information as covariance."""
    spreads = []
    for logs, variance in zip((fits.a, fits.b), log_variances(design, links, settings, fits)):
        middle, error = np.exp(logs), np.sqrt(variance)
        with np.errstate(over="ignore"):
            spreads.append(Spread(middle * error, middle * np.exp(-Z * error), middle * np.exp(Z * error)))
    return _at_the_limits(design, links, fits, *spreads)


def bootstrap_intervals(
    design: Design, links: Connectivity, settings: Settings, fits: GroupFits, replications: int, seed: int
) -> tuple[Spread, Spread]:
    """Return intervals of the parametric bootstrap: fits to clicks drawn from the model, with the same impressions.

    Clicks are drawn from the fitted probabilities and not from the observed rates, by which a pair that was shown once
    would never vary.
    """
    rng, again = np.random.default_rng(seed), make_fits(design)
    shown = design.shown.astype(np.int64)
    probability = np.nan_to_num(np.exp(fits.a[:, None] + fits.b[design.group]))
    drawn: tuple[list[Floats], list[Floats]] = [], []
    for _ in range(replications):
        clicks = rng.binomial(shown, probability).astype(np.float64)
        np.copyto(again.a, np.maximum(fits.a, -49.0))
        np.copyto(again.b, np.maximum(fits.b, -49.0))
        with np.errstate(invalid="ignore"):  # a component may have no clicks in this replication
            maximise(design._replace(clicked=clicks), links, settings, again, warm=True)
        drawn[0].append(np.exp(again.a))
        drawn[1].append(np.exp(again.b))
    spreads = [
        Spread(np.std(sample, axis=0, ddof=1), *np.quantile(sample, (0.025, 0.975), axis=0))
        for sample in map(np.array, drawn)
    ]
    return _at_the_limits(design, links, fits, *spreads)


def _at_the_limits(
    design: Design, links: Connectivity, fits: GroupFits, items: Spread, positions: Spread
) -> tuple[Spread, Spread]:
    """Set one-sided likelihood intervals for parameters at 0 or 1, and NaN for those that were never shown."""
    weight = np.exp(fits.b)[design.group]
    np.minimum(items.high, 1.0, out=items.high)
    never = fits.a == -np.inf
    exposure = (design.shown * weight).sum(axis=1, where=np.isfinite(weight))
    _fill(items, never, np.nan, 0.0, _rule_of_three(exposure))
    full = fits.a > LIMIT
    _fill(items, full, np.nan, 1.0, 1.0)
    items.low[full] = _lower_limits(design.shown[full], design.clicked[full], np.nan_to_num(weight[full]))
    exposure = np.add.reduceat(design.shown * np.nan_to_num(np.exp(fits.a))[:, None], design.starts[:-1])
    _fill(positions, fits.b == -np.inf, np.nan, 0.0, _rule_of_three(exposure))
    unseen = design.shown.sum(axis=1) == 0.0
    _fill(items, unseen, np.nan, np.nan, np.nan)
    _fill(positions, anchors(links, fits) < 0, np.nan, np.nan, np.nan)
    return items, positions


def _rule_of_three(exposure: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.minimum(DROP / exposure, 1.0)


def _fill(spread: Spread, where: NDArray[np.bool_], error: float, low: float, high: Floats | float) -> None:
    spread.error[where], spread.low[where] = error, low
    spread.high[where] = high[where] if isinstance(high, np.ndarray) else high


def _lower_limits(shown: Floats, clicked: Floats, beta: Floats) -> Floats:
    """(n,) the attraction at which the likelihood of an item is a twentieth of that at 1, by bisection of its log."""
    low, high = np.full(len(shown), -20.0), np.full(len(shown), -1e-6)

    def likelihood(a: Floats) -> Floats:
        missed = np.log1p(-np.minimum(np.exp(a)[:, None] * beta, 1.0 - 1e-6))
        return (clicked * a[:, None] + (shown - clicked) * missed).sum(axis=1)

    best = likelihood(high)
    for _ in range(50):
        middle = 0.5 * (low + high)
        below = likelihood(middle) < best - DROP
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.exp(high)
