"""Fitting click models to logs: to counts, or to pages where clicks depend on each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..counts import Counts
from ..log import as_counts, as_pages, read
from ..model.model import ClickModel, model_named
from ..pages import Pages
from .chain import fit_cascade, fit_chain
from .log_linear import fit_browsing, fit_position_based
from .options import Options, check
from .rates import fit_rates
from .trust import fit_trust

FITS = {
    "pbm": fit_position_based,
    "ubm": fit_browsing,
    "cascade": fit_cascade,
    "trust": fit_trust,
    "rank-ctr": fit_rates,
    "item-ctr": fit_rates,
}  # the others are chains


def fit(
    log: Any,
    model: str = "pbm",
    *,
    method: str = "newton",
    iterations: int | None = None,
    prior: float = 0.0,
    ordered: bool = False,
    intervals: bool = True,
    seed: int = 0,
    progress: bool | None = None,
) -> ClickModel:
    """Return the click model that makes a log most likely.

    The default is the position-based model: attraction of items and examination of positions. All queries share one
    examination curve, with an attraction for each (query, item).

    Parameters
    ----------
    log
        A log, or a path or table in memory that :func:`read` accepts; :class:`Pages`; or, unless clicks depend on each
        other in the model, :class:`Counts`.
    model
        ``"pbm"``; ``"ubm"``, ``"cascade"``, ``"dcm"``, ``"sdbn"``, ``"dbn"`` or ``"ccm"``, in which a click depends on
        the clicks above it; ``"trust"``, the affine position-based model; or the click rates ``"rank-ctr"`` and
        ``"item-ctr"``.
    method
        ``"newton"``, the maximum of the likelihood; or ``"em"`` for expectation-maximisation, with values capped at
        1 - 1e-6 and without intervals (``pbm``).
    iterations
        Passes of EM; if not given, EM runs to convergence.
    prior
        Pseudo-impressions to add to every pair that was shown, clicked at the mean rate of the log. They pull pairs
        with few impressions towards the average. In the models of dependent clicks: trials that are added to every
        parameter, with the mean rate of the log for attraction, and half of them successes for the others.
    ordered
        Constrain examination not to increase from one position to the next (``pbm``, Newton only). Standard errors
        take the positions that the constraint makes equal for one.
    intervals
        Whether to compute standard errors and intervals.
    seed
        Of the second start of a fit that is not concave.
    progress
        Whether to show a progress bar while reading.

    Raises
    ------
    ValueError
        If an option is invalid or not for this model, the log has bad rows, or there are no impressions; for models
        of dependent clicks, if the rows of the log do not form pages.

    Examples
    --------
    Three pairs determine the fourth:

    >>> model = fit(Counts.from_tables([[1000, 1000], [1000, 0]], [[800, 400], [200, 0]]))
    >>> model.attraction.round(6).tolist(), model.examination.round(6).tolist(), model.identified
    ([0.8, 0.2], [1.0, 0.5], True)

    A log of one fixed list does not determine how its positions compare:

    >>> fit(Counts.from_tables([[1000, 0], [0, 1000]], [[800, 0], [0, 400]])).identified
    False
    """
    options = Options(method, iterations, prior, ordered, intervals, seed)
    check(model, options)
    return fit_checked(_counted(log, model, progress), model, options)


def fit_each_query(
    log: Any, model: str = "pbm", *, progress: bool | None = None, **options: Any
) -> dict[str, ClickModel]:
    """Return a model for every query of a log; ``options`` are those of :func:`fit`."""
    whole_log = _counted(log, model, progress)
    present = np.unique(whole_log.query).tolist()
    return {whole_log.queries[q]: fit(_of_query(whole_log, q), model, **options) for q in present}


def fit_checked(log: Counts | Pages, model: str, options: Options) -> ClickModel:
    """Return the fit to what the model needs of a log, with options that have been checked."""
    chosen: Any = FITS.get(model, fit_chain)
    fitted: ClickModel = chosen(log, model, options)
    return fitted


def _counted(log: Any, model: str, progress: bool | None) -> Counts | Pages:
    if not isinstance(log, (Counts, Pages)) and progress is not None:
        log = read(log, progress=progress)
    return as_pages(log) if model_named(model).dependent else as_counts(log)


def _of_query(log: Counts | Pages, q: int) -> Any:
    """The counts or pages of one query, with its items only."""
    if isinstance(log, Pages):
        log = log.with_counts(np.where(log.query == q, log.count, 0))
        items, item = np.unique(log.item, return_inverse=True)
        part: dict[str, Any] = {"item": item.astype(log.item.dtype), "query": np.zeros_like(log.query)}
    else:
        own = log.query == q
        items, item = np.unique(log.item[own], return_inverse=True)
        part = {name: getattr(log, name)[own] for name in ("position", "shown", "clicked")}
        part |= {"item": item, "query": np.zeros(item.size, np.int64)}
        part |= {} if log.window is None else {"window": log.window[own]}
    return replace(log, items=tuple(log.items[i] for i in items.tolist()), queries=(log.queries[q],), **part)
