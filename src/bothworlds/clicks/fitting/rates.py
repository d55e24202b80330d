"""The baselines: one click rate for every position, or for every item."""

from __future__ import annotations

import numpy as np
from scipy.special import xlog1py, xlogy

from ..counts import Counts
from ..model.model import ClickModel
from .design import design_of_counts
from .intervals import binomial_estimates


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
