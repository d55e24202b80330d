"""Fitting any click model to what was counted of a log."""

from __future__ import annotations

from ..counts import Counts
from ..model.click_model import ClickModel
from ..model.model import Model
from ..model.names import model_named
from ..pages import Pages
from .affine_fit import fit_affine
from .browsing_fit import fit_browsing
from .chain_fit import fit_cascade, fit_chain, fit_chain_counts
from .optimiser import Settings
from .page_rows import rows_of
from .rank_one_fit import fit_rank_one
from .rate_fit import fit_rates

STARTS = 2
AFFINE_STARTS = 4  # of the affine model, which has local maxima on small logs


def fit_click_model(
    log: Pages | Counts,
    name: str,
    *,
    method: str = "newton",
    prior: float = 0.0,
    intervals: bool = True,
    seed: int = 0,
    starts: int = STARTS,
) -> ClickModel:
    """Return the fit of a model other than ``pbm``, to pages if clicks depend on each other in it, else to counts."""
    if isinstance(log, Counts):
        if model_named(name).dependent:
            raise ValueError(f"the model {name} needs pages, not counts")
        if name == "trust":
            return fit_affine(log, prior, intervals, AFFINE_STARTS if starts > 1 else 1, seed)
        return fit_rates(log, name, prior, intervals)
    if not model_named(name).dependent:
        return fit_click_model(log.counts(), name, prior=prior, intervals=intervals, seed=seed, starts=starts)
    rows = rows_of(log)
    if name == "ubm":
        return fit_browsing(rows, prior, intervals)
    if name == "cascade":
        return fit_cascade(rows, prior, intervals)
    if method == "counts":
        return fit_chain_counts(rows, name, prior)
    return fit_chain(rows, name, prior, intervals, starts, seed)


def fit_any(pages: Pages, name: str, prior: float) -> Model | ClickModel:
    """Return the fit of any model to pages, from one start and without intervals: for comparisons."""
    if name == "pbm":
        return fit_rank_one(pages.counts(), Settings(prior=prior), None)
    return fit_click_model(pages, name, prior=prior, intervals=False, starts=1)
