"""The baselines: one click rate for every position, or for every item."""

from __future__ import annotations

import numpy as np
from scipy.special import expit, xlog1py, xlogy

from ...kernels import Floats
from ..counts import Counts
from ..model.model import ClickModel, Estimates, Z, without_intervals
from .design import design_of_counts

DROP = -np.log(0.05)  # one-sided limits are where the likelihood is a twentieth of its maximum, as in Clopper-Pearson


def binomial_estimates(rate: Floats, trials: Floats, intervals: bool = True) -> Estimates:
    """Return rates with binomial standard errors, intervals on the scale of log-odds, one-sided ones at 0 and 1."""
    if not intervals:
        return without_intervals(rate)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.sqrt(rate * (1.0 - rate) / trials)
        odds, width = np.log(rate / (1.0 - rate)), Z / np.sqrt(trials * rate * (1.0 - rate))
        low, high = expit(odds - width), expit(odds + width)
        reach = np.minimum(DROP / trials, 1.0)
    low, high = np.where(rate == 0.0, 0.0, low), np.where(rate == 0.0, reach, high)
    low, high = np.where(rate == 1.0, 1.0 - reach, low), np.where(rate == 1.0, 1.0, high)
    inside = (rate > 0.0) & (rate < 1.0)
    return Estimates(rate, np.where(inside, error, np.nan), low, high)


def fit_rates(counts: Counts, name: str, prior: float, intervals: bool) -> ClickModel:
    """Return the click rates of positions (``rank-ctr``) or of (query, item) (``item-ctr``), which are exact maxima."""
    design, by_rank = design_of_counts(counts), name == "rank-ctr"
    shown, clicked = (design.level_counts() if by_rank else design.row_counts).astype(np.float64)
    mean = clicked.sum() / shown.sum()
    with np.errstate(invalid="ignore"):
        rate = np.where(shown > 0.0, (clicked + prior * mean) / (shown + prior), np.nan)
    estimates, used = binomial_estimates(rate, shown + prior, intervals), shown > 0.0
    value = float((xlogy(clicked[used], rate[used]) + xlog1py((shown - clicked)[used], -rate[used])).sum())
    return ClickModel(
        model=name,
        items=design.items,
        queries=design.queries,
        positions=counts.positions,
        item_parameters={} if by_rank else {"rate": estimates},
        shared_parameters={"rate": estimates} if by_rank else {},
        labels={"rate": tuple(map(str, counts.positions))} if by_rank else {},
        item_counts=design.row_counts,
        log_likelihood=value,
        pages=counts.pages,
        method="counts",
        prior=float(prior),
        origin=counts.origin,
    )
