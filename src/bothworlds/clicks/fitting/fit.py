r"""Fitting the position-based model to counts.

With :math:`a = \log \alpha` and :math:`b = \log \beta` the log-likelihood :math:`\sum S (a_i + b_j) + F \log(1 -
e^{a_i + b_j})` of clicks S and missing clicks F is concave: there is one maximum, and only its products are determined.
Once a log is counted, the cost grows with the number of different (query, item), not with the number of pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any, Literal, NamedTuple, TypedDict, Unpack, overload

import numpy as np

from ...kernels import Floats
from ...statistics.rank_one.batch import GroupFits
from ...worlds.settings import whole
from ..log import counts as count_log
from ..model.model import Components, Model, Models
from ..model.perplexity import ModelArrays
from ..model.uncertainty import Spread, typical_errors
from .design import Connectivity, Design, connectivity_of, design_of, smoothed
from .intervals import bootstrap_intervals, delta_intervals, no_intervals
from .optimiser import Settings, log_likelihoods, make_fits, maximise
from .warnings import fit_warnings

__all__ = ["fit"]

METHODS = ("newton", "em")


class FitOptions(TypedDict, total=False):
    """The options of :func:`fit` apart from ``per_query``, for its overloads."""

    method: str
    iterations: int | None
    prior: float
    ordered: bool
    standard_errors: str | None
    replications: int
    seed: int
    engine: str
    progress: bool | None
    format: str | None
    top_items: int | None
    positions: int | None
    query: str | float | Iterable[str | float] | None
    skip_bad: bool
    clip: bool
    columns: Mapping[str, str] | None


class _Fitted(NamedTuple):
    """The fits of all groups, from which models are made group by group."""

    design: Design
    links: Connectivity
    settings: Settings
    fits: GroupFits
    parameters: tuple[Floats, Floats, Floats]  # attraction, examination, log-likelihoods
    spreads: tuple[Spread, Spread]  # of items and positions
    origin: str


@overload
def fit(log_or_counts: Any, *, per_query: Literal[False] = False, **options: Unpack[FitOptions]) -> Model: ...
@overload
def fit(log_or_counts: Any, *, per_query: Literal[True], **options: Unpack[FitOptions]) -> Models: ...
@overload
def fit(log_or_counts: Any, *, per_query: bool = False, **options: Unpack[FitOptions]) -> Model | Models: ...
def fit(
    log_or_counts: Any,
    *,
    method: str = "newton",
    per_query: bool = False,
    iterations: int | None = None,
    prior: float = 0.0,
    ordered: bool = False,
    standard_errors: str | None = "delta",
    replications: int = 200,
    seed: int = 0,
    engine: str = "duckdb",
    progress: bool | None = None,
    format: str | None = None,
    top_items: int | None = None,
    positions: int | None = None,
    query: str | float | Iterable[str | float] | None = None,
    skip_bad: bool = False,
    clip: bool = False,
    columns: Mapping[str, str] | None = None,
) -> Model | Models:
    """Return the model with the most likely attraction of items and examination of positions.

    Parameters
    ----------
    log_or_counts
        A log, its path or paths, or a table in memory, such as a data frame; counts; or a pair of tables (shown,
        clicked) of shape (n_items, n_positions).
    method
        ``"newton"``, or ``"em"`` for expectation-maximisation, with values capped at 1 - 1e-6.
    per_query
        Whether to fit a model for every query. Otherwise all queries share one examination curve, with an attraction
        for each (query, item).
    iterations
        Passes of EM; if not given, EM runs to convergence.
    prior
        Pseudo-impressions to add to every pair that was shown, clicked at the mean rate of the log. They pull pairs
        with few impressions towards the average.
    ordered
        Constrain examination not to increase from one position to the next (Newton only). Standard errors ignore the
        constraint.
    standard_errors
        ``"delta"`` (from the Fisher information), ``"bootstrap"`` (``replications`` fits to clicks drawn from the
        model with ``seed``), or None.
    engine, progress
        How a log is counted; see :func:`counts`.
    format, top_items, positions, query, skip_bad, clip, columns
        How a log is read, and its filters; see :func:`read`.

    Raises
    ------
    ValueError
        If an option is invalid, the log has bad rows, or there are no impressions.

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
    settings = _checked(Settings(method, iterations, prior, ordered), standard_errors, replications, seed)
    counts = count_log(
        log_or_counts,
        engine=engine,
        progress=progress,
        format=format,
        top_items=top_items,
        positions=positions,
        query=query,
        skip_bad=skip_bad,
        clip=clip,
        columns=columns,
    )
    design = design_of(counts, per_query)
    links = connectivity_of(smoothed(design, settings.prior))
    fits = make_fits(design)
    with np.errstate(invalid="ignore"):  # groups without clicks have no normal form
        maximise(design, links, settings, fits)
    spreads = _spreads(standard_errors, replications, seed)(design, links, settings, fits)
    fitted = _Fitted(design, links, settings, fits, _parameters(design, links, fits), spreads, counts.origin)
    return _models(fitted) if per_query else _model(fitted, 0)


def _checked(settings: Settings, standard_errors: str | None, replications: int, seed: int) -> Settings:
    if settings.method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}; got {settings.method!r}")
    if settings.iterations is not None and settings.method != "em":
        raise ValueError(f"iterations is only for method 'em'; got {settings.iterations!r} for {settings.method!r}")
    if settings.iterations is not None:
        settings = settings._replace(iterations=whole(settings.iterations, "iterations", 1))
    if settings.ordered and settings.method != "newton":
        raise ValueError("ordered examination needs method 'newton'")
    prior: Any = settings.prior
    if not isinstance(prior, Real) or not 0.0 <= float(prior) < np.inf:
        raise ValueError(f"prior must be a number, 0 or more; got {settings.prior!r}")
    if standard_errors not in ("delta", "bootstrap", None):
        raise ValueError(f"standard_errors must be 'delta', 'bootstrap' or None; got {standard_errors!r}")
    whole(replications, "replications", 2)
    whole(seed, "seed", 0)
    return settings


def _spreads(standard_errors: str | None, replications: int, seed: int) -> Callable[..., tuple[Spread, Spread]]:
    if standard_errors == "bootstrap":
        return partial(bootstrap_intervals, replications=int(replications), seed=int(seed))
    return delta_intervals if standard_errors == "delta" else no_intervals


def _parameters(design: Design, links: Connectivity, fits: GroupFits) -> tuple[Floats, Floats, Floats]:
    """Attraction, examination and log-likelihoods; NaN for items never shown and positions without a component."""
    attraction, examination = np.exp(fits.a), np.exp(fits.b)
    attraction[design.shown.sum(axis=1) == 0.0] = np.nan
    examination[links.of_positions < 0] = np.nan
    with np.errstate(invalid="ignore"):
        return attraction, examination, log_likelihoods(design, fits)


def _models(fitted: _Fitted) -> Models:
    design, names = fitted.design, fitted.design.groups
    number = {name: g for g, name in enumerate(names)}
    attraction, examination, likelihood = fitted.parameters
    labels, links = (design.items, design.queries, design.positions), fitted.links
    arrays = ModelArrays(*labels, attraction, design.group, examination, links.of_rows, links.of_positions)
    totals = {
        "log_likelihood": likelihood,
        "iterations": fitted.fits.iterations,
        "converged": fitted.fits.converged == 1,
        "identified": fitted.links.identified,
        "error": typical_errors(fitted.spreads[1].error, examination),
    }
    return Models(lambda name: _model(fitted, number[name]), arrays, totals, names)


def _model(fitted: _Fitted, g: int) -> Model:
    design, links, rows = fitted.design, fitted.links, slice(*fitted.design.starts[g : g + 2].tolist())
    attraction, examination, likelihood = fitted.parameters
    tables = np.array([design.shown[rows], design.clicked[rows]])
    model = Model(
        items=design.items[rows],
        queries=design.queries[rows],
        positions=design.positions,
        attraction=attraction[rows],
        examination=examination[g],
        log_likelihood=float(likelihood[g]),
        iterations=int(fitted.fits.iterations[g]),
        converged=bool(fitted.fits.converged[g]),
        identified=bool(links.identified[g]),
        components=Components(links.of_rows[rows], links.of_positions[g]),
        warnings=(),
        method=fitted.settings.method,
        prior=float(fitted.settings.prior),
        origin=fitted.origin,
        item_spread=Spread(*(part[rows] for part in fitted.spreads[0])),
        position_spread=Spread(*(part[g] for part in fitted.spreads[1])),
        item_counts=tables.sum(axis=2).astype(np.int64),
        position_counts=tables.sum(axis=1).astype(np.int64),
    )
    return replace(model, warnings=fit_warnings(model, links.pieces[g]))
