r"""The rank-one fit of counts: attraction of items and examination of positions.

With :math:`a = \log \alpha` and :math:`b = \log \beta` the log-likelihood :math:`\sum S (a_i + b_j) + F \log(1 -
e^{a_i + b_j})` of clicks S and missing clicks F is concave: there is one maximum, and only its products are determined.
Once a log is counted, the cost grows with the number of different (query, item), not with the number of pages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from ...kernels import Floats
from ...statistics.rank_one.batch import GroupFits
from ..counts import Counts
from ..model.model import Components, Model, Models
from ..model.perplexity import ModelArrays
from ..model.uncertainty import Spread, typical_errors
from .intervals import bootstrap_intervals, delta_intervals, no_intervals
from .optimiser import Settings, log_likelihoods, make_fits, maximise
from .tables import Connectivity, Design, connectivity_of, design_of, smoothed
from .warnings import fit_warnings


class _Fitted(NamedTuple):
    """The fits of all groups, from which models are made group by group."""

    design: Design
    links: Connectivity
    settings: Settings
    fits: GroupFits
    parameters: tuple[Floats, Floats, Floats]  # attraction, examination, log-likelihoods
    spreads: tuple[Spread, Spread]  # of items and positions
    origin: str


def fit_rank_one(
    counts: Counts, settings: Settings, standard_errors: str | None = "delta", replications: int = 200, seed: int = 0
) -> Model:
    """Return one model for all queries of the counts."""
    return _model(_fitted(counts, False, settings, standard_errors, replications, seed), 0)


def fit_each_query(
    counts: Counts, settings: Settings, standard_errors: str | None = "delta", replications: int = 200, seed: int = 0
) -> Models:
    """Return a model for every query of the counts."""
    return _models(_fitted(counts, True, settings, standard_errors, replications, seed))


def _fitted(
    counts: Counts, per_query: bool, settings: Settings, standard_errors: str | None, replications: int, seed: int
) -> _Fitted:
    design = design_of(counts, per_query)
    links = connectivity_of(smoothed(design, settings.prior))
    fits = make_fits(design)
    with np.errstate(invalid="ignore"):  # groups without clicks have no normal form
        maximise(design, links, settings, fits)
    spreads = _spreads(standard_errors, replications, seed)(design, links, settings, fits)
    return _Fitted(design, links, settings, fits, _parameters(design, links, fits), spreads, counts.origin)


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
