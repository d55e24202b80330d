"""Fitting click models to logs: the position-based model to counts, models of dependent clicks to pages."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from ...checks import whole
from ..log import as_counts, as_pages
from ..model.click_model import ClickModel
from ..model.model import Model, Models
from ..model.names import ModelName, model_named
from .click_model_fit import fit_click_model
from .optimiser import Settings
from .rank_one_fit import fit_each_query, fit_rank_one

METHODS = ("newton", "em")


def fit(
    log_or_counts: Any,
    *,
    model: str = "pbm",
    method: str = "newton",
    per_query: bool = False,
    iterations: int | None = None,
    prior: float = 0.0,
    ordered: bool = False,
    standard_errors: str | None = "delta",
    replications: int = 200,
    seed: int = 0,
) -> Model | Models | ClickModel:
    """Return the click model that makes a log most likely.

    The default is the position-based model: attraction of items and examination of positions.

    Parameters
    ----------
    log_or_counts
        A log from :func:`read`, or a path or table that it accepts; pages; or, unless clicks depend on
        each other in the model, counts or a pair of tables (shown, clicked) of shape (n_items, n_positions).
    model
        ``"pbm"``; ``"ubm"``, ``"cascade"``, ``"dcm"``, ``"sdbn"``, ``"dbn"`` or ``"ccm"``, in which a click depends on
        the clicks above it; ``"trust"``, the affine position-based model; or the click rates ``"rank-ctr"`` and
        ``"item-ctr"``. All but the first return a :class:`ClickModel`.
    method
        ``"newton"``, the maximum of the likelihood; ``"em"`` for expectation-maximisation, with values capped at
        1 - 1e-6 (``pbm``); or ``"counts"`` for the published shortcut of ``dcm`` and ``sdbn``, which is not the
        maximum.
    per_query
        Whether to fit a model for every query (``pbm``). Otherwise all queries share one examination curve, with an
        attraction for each (query, item).
    iterations
        Passes of EM; if not given, EM runs to convergence.
    prior
        Pseudo-impressions to add to every pair that was shown, clicked at the mean rate of the log. They pull pairs
        with few impressions towards the average. In the models of dependent clicks: trials that are added to every
        parameter, with the mean rate of the log for attraction, and half of them successes for the others.
    ordered
        Constrain examination not to increase from one position to the next (``pbm``, Newton only). Standard errors
        ignore the constraint.
    standard_errors
        ``"delta"`` (from the information), ``"bootstrap"`` (``pbm``: ``replications`` fits to clicks drawn from the
        model with ``seed``), or None.
    seed
        Of the bootstrap, and of the second start of a fit that is not concave.

    Raises
    ------
    ValueError
        If an option is invalid or not for this model, the log has bad rows, or there are no impressions; for models
        of dependent clicks, if the rows of the log do not form pages.

    Examples
    --------
    Three pairs determine the fourth:

    >>> model = fit(([[1000, 1000], [1000, 0]], [[800, 400], [200, 0]]))
    >>> model.attraction.round(6).tolist(), model.examination.round(6).tolist(), model.identified
    ([0.8, 0.2], [1.0, 0.5], True)

    A log of one fixed list does not determine how its positions compare:

    >>> fit(([[1000, 0], [0, 1000]], [[800, 0], [0, 400]])).identified
    False
    """
    wanted = model_named(model)
    if model == "pbm":
        settings = _checked(Settings(method, iterations, prior, ordered), standard_errors, replications, seed)
        counts = as_counts(log_or_counts)
        each = fit_each_query if per_query else fit_rank_one
        return each(counts, settings, standard_errors, int(replications), int(seed))
    _check_options(wanted, method, per_query, iterations, prior, ordered, standard_errors, seed)
    log = as_pages(log_or_counts) if wanted.dependent else as_counts(log_or_counts)
    return fit_click_model(log, model, method=method, prior=prior, intervals=standard_errors is not None, seed=seed)


def _checked(settings: Settings, standard_errors: str | None, replications: int, seed: int) -> Settings:
    if settings.method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}; got {settings.method!r}")
    if settings.iterations is not None and settings.method != "em":
        raise ValueError(f"iterations is only for method 'em'; got {settings.iterations!r} for {settings.method!r}")
    if settings.iterations is not None:
        settings = settings._replace(iterations=whole(settings.iterations, "iterations", 1))
    if settings.ordered and settings.method != "newton":
        raise ValueError("ordered examination needs method 'newton'")
    _check_prior(settings.prior)
    if standard_errors not in ("delta", "bootstrap", None):
        raise ValueError(f"standard_errors must be 'delta', 'bootstrap' or None; got {standard_errors!r}")
    whole(replications, "replications", 2)
    whole(seed, "seed", 0)
    return settings


def _check_options(
    model: ModelName,
    method: str,
    per_query: bool,
    iterations: int | None,
    prior: Any,
    ordered: bool,
    standard_errors: str | None,
    seed: int,
) -> None:
    """Raise ValueError for options that the other models do not have."""
    methods = ("newton", "counts") if model.shortcut else ("newton",)
    if method not in methods:
        raise ValueError(f"method must be {' or '.join(methods)} for the model {model.name}; got {method!r}")
    given = {"per_query": per_query, "iterations": iterations is not None, "ordered": ordered}
    for name in (name for name, is_given in given.items() if is_given):
        raise ValueError(f"{name} is only for the model pbm; got it for {model.name}")
    _check_prior(prior)
    if standard_errors not in ("delta", None):
        raise ValueError(f"standard_errors must be 'delta' or None for the model {model.name}; got {standard_errors!r}")
    whole(seed, "seed", 0)


def _check_prior(prior: Any) -> None:
    if not isinstance(prior, Real) or not 0.0 <= float(prior) < np.inf:
        raise ValueError(f"prior must be a number, 0 or more; got {prior!r}")
