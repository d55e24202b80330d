"""The baselines: one click rate for every position, or for every item."""

from __future__ import annotations

import numpy as np
from scipy.special import xlog1py, xlogy

from ..counts import Counts
from ..model.model import ClickModel
from .design import design_of_counts, fitted_model
from .intervals import binomial_estimates
from .options import Options


def fit_rates(counts: Counts, name: str, options: Options) -> ClickModel:
    """Return the click rates of positions (``rank-ctr``) or of (query, item) (``item-ctr``), which are exact maxima."""
    prior = options.prior
    design, by_rank = design_of_counts(counts), name == "rank-ctr"
    shown, clicked = (design.level_counts() if by_rank else design.row_counts).astype(np.float64)
    mean = clicked.sum() / shown.sum()
    with np.errstate(invalid="ignore"):
        rate = np.where(shown > 0.0, (clicked + prior * mean) / (shown + prior), np.nan)
    estimates, used = binomial_estimates(rate, shown + prior, options.intervals), shown > 0.0
    value = float((xlogy(clicked[used], rate[used]) + xlog1py((shown - clicked)[used], -rate[used])).sum())
    return fitted_model(
        design,
        counts,
        name,
        prior,
        item_parameters={} if by_rank else {"rate": estimates},
        shared_parameters={"rate": estimates} if by_rank else {},
        labels={"rate": tuple(map(str, counts.positions))} if by_rank else {},
        log_likelihood=value,
        method="counts",
    )
