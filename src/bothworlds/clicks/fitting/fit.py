"""Fitting click models to logs: to counts, or to pages where clicks depend on each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np

from ...checks import whole
from ..counts import Counts
from ..log import as_counts, as_pages, read
from ..model.model import ClickModel, model_named
from ..pages import Pages
from .chain import fit_cascade, fit_chain
from .log_linear import fit_browsing, fit_position_based
from .rates import fit_rates
from .trust import fit_trust


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
    _check(model, method, iterations, prior, ordered, seed)
    return _fit_checked(_counted(log, model, progress), model, method, iterations, prior, ordered, intervals, seed)


def fit_each_query(
    log: Any, model: str = "pbm", *, progress: bool | None = None, **options: Any
) -> dict[str, ClickModel]:
    """Return a model for every query of a log; ``options`` are those of :func:`fit`."""
    whole_log = _counted(log, model, progress)
    present = np.unique(whole_log.query).tolist()
    return {whole_log.queries[q]: fit(_of_query(whole_log, q), model, **options) for q in present}


def fit_for_comparison(pages: Pages, model: str, prior: float) -> ClickModel:
    """Return the fit of any model to pages, from one start and without intervals."""
    return _fit_checked(_counted(pages, model, None), model, "newton", None, prior, False, False, 0, one_start=True)


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


def _fit_checked(
    log: Any,
    model: str,
    method: str,
    iterations: int | None,
    prior: float,
    ordered: bool,
    intervals: bool,
    seed: int,
    one_start: bool = False,
) -> ClickModel:
    few = {"starts": 1} if one_start else {}
    fits: dict[str, Callable[[], ClickModel]] = {
        "pbm": lambda: fit_position_based(
            log, method=method, iterations=iterations, prior=prior, ordered=ordered, intervals=intervals
        ),
        "ubm": lambda: fit_browsing(log, prior, intervals),
        "cascade": lambda: fit_cascade(log, prior, intervals),
        "trust": lambda: fit_trust(log, prior, intervals, seed, **few),
        "rank-ctr": lambda: fit_rates(log, model, prior, intervals),
        "item-ctr": lambda: fit_rates(log, model, prior, intervals),
    }
    return fits.get(model, lambda: fit_chain(log, model, prior, intervals, seed, **few))()


def _check(model: str, method: str, iterations: int | None, prior: Any, ordered: bool, seed: int) -> None:
    model_named(model)
    methods = ("newton", "em") if model == "pbm" else ("newton",)
    if method not in methods:
        raise ValueError(f"method must be {' or '.join(methods)} for the model {model}; got {method!r}")
    if iterations is not None and method != "em":
        raise ValueError(f"iterations is only for method 'em'; got {iterations!r} for {method!r}")
    if iterations is not None:
        whole(iterations, "iterations", 1)
    if ordered and (model != "pbm" or method != "newton"):
        raise ValueError("ordered examination is only for the model pbm and the method 'newton'")
    if not isinstance(prior, Real) or not 0.0 <= float(prior) < np.inf:
        raise ValueError(f"prior must be a number, 0 or more; got {prior!r}")
    whole(seed, "seed", 0)
