"""The baselines: one click rate for every position, or for every item."""

from __future__ import annotations

import numpy as np
from scipy.special import expit, xlog1py, xlogy

from ...kernels import Floats
from ..counts import Counts
from ..model.click_model import ClickModel, Estimates, without_intervals
from ..model.uncertainty import Spread, Z
from .intervals import DROP
from .tables import design_of


def binomial_estimates(rate: Floats, trials: Floats) -> Estimates:
    """Return rates with binomial standard errors, intervals on the scale of log-odds, one-sided ones at 0 and 1."""
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.sqrt(rate * (1.0 - rate) / trials)
        odds, width = np.log(rate / (1.0 - rate)), Z / np.sqrt(trials * rate * (1.0 - rate))
        low, high = expit(odds - width), expit(odds + width)
        reach = np.minimum(DROP / trials, 1.0)
    low, high = np.where(rate == 0.0, 0.0, low), np.where(rate == 0.0, reach, high)
    low, high = np.where(rate == 1.0, 1.0 - reach, low), np.where(rate == 1.0, 1.0, high)
    inside = (rate > 0.0) & (rate < 1.0)
    return Estimates(rate, Spread(np.where(inside, error, np.nan), low, high))


def fit_rates(counts: Counts, name: str, prior: float, intervals: bool) -> ClickModel:
    """Return the click rates of positions (``rank-ctr``) or of (query, item) (``item-ctr``), which are exact maxima."""
    design = design_of(counts, False)
    mean = design.clicked.sum() / design.shown.sum()
    axis = 0 if name == "rank-ctr" else 1
    shown, clicked = design.shown.sum(axis=axis), design.clicked.sum(axis=axis)
    with np.errstate(invalid="ignore"):
        rate = np.where(shown > 0.0, (clicked + prior * mean) / (shown + prior), np.nan)
    estimates = binomial_estimates(rate, shown + prior) if intervals else without_intervals(rate)
    used = shown > 0.0
    value = float((xlogy(clicked[used], rate[used]) + xlog1py((shown - clicked)[used], -rate[used])).sum())
    by_rank = name == "rank-ctr"
    return ClickModel(
        model=name,
        items=design.items,
        queries=design.queries,
        positions=design.positions,
        item_parameters={} if by_rank else {"rate": estimates},
        shared_parameters={"rate": estimates} if by_rank else {},
        labels={"rate": tuple(map(str, design.positions))} if by_rank else {},
        item_counts=np.array([design.shown.sum(axis=1), design.clicked.sum(axis=1)]).astype(np.int64),
        log_likelihood=value,
        pages=counts.pages,
        method="counts",
        prior=float(prior),
        iterations=0,
        converged=True,
        gain=0.0,
        identified=True,
        origin=counts.origin,
    )
