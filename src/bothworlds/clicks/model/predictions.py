"""Predictions: the probability of every click on a set of pages, given the clicks above it and without them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels import Floats, Ints
from ...statistics import browsing
from ...statistics.chain import recursions
from ...statistics.chain.families import CCM, DBN, DCM, SDBN, ChainFamily, Core
from ..pages import Pages
from .click_model import ClickModel
from .model import Model

CHAINS: dict[str, ChainFamily] = {family.name: family for family in (DCM, SDBN, DBN, CCM)}


class Prediction(NamedTuple):
    """Probabilities of a click for every result of some pages.

    ``known`` (P,) is whether the model has seen all items of a page. An item that it has not seen is given the mean of
    each parameter in the log of the model: of attraction over impressions, of satisfaction over clicks.
    """

    conditional: Floats  # (K,) given the clicks above
    marginal: Floats  # (K,)
    known: NDArray[np.bool_]


def predict(model: Model | ClickModel, pages: Pages) -> Prediction:
    """Return the predictions of a model. Raises ValueError if the pages have a position that the model lacks."""
    row = _rows(model, pages)
    rank = _ranks(model, pages)
    unseen = np.zeros(len(pages), bool)
    unseen[pages.of_page()[row < 0]] = True
    if isinstance(model, Model):
        p, apart = _position_based(model, row, rank)
        unseen[pages.of_page()[apart]] = True
        return Prediction(p, p, ~unseen)
    if model.model == "ubm":
        conditional, marginal, apart = _browsing(model, pages, row, rank)
        unseen[pages.of_page()[apart]] = True
        return Prediction(conditional, marginal, ~unseen)
    if model.model == "cascade" or model.model in CHAINS:
        return Prediction(*_chain(model, pages, row, rank), ~unseen)
    p = _independent(model, row, rank)
    return Prediction(p, p, ~unseen)


def attraction_of_results(model: Model | ClickModel, pages: Pages) -> Floats:
    """Return the attraction of every result of some pages (K,), or its click rate for ``item-ctr``.

    An item that the model has not seen has the mean. Raises ValueError for ``rank-ctr``, which knows no items.
    """
    if isinstance(model, ClickModel) and model.model == "item-ctr":
        values = model.item_parameters["rate"].values
    else:
        values = model.attraction
    return _filled(values, model.item_counts[0].astype(float))[_rows(model, pages)]


def _rows(model: Model | ClickModel, pages: Pages) -> Ints:
    """(K,) the row of the model of every result, -1 for an item that it has not seen for the query."""
    number = {pair: k for k, pair in enumerate(zip(model.queries, model.items))}
    n = len(pages.items)
    pairs, place = np.unique(pages.query[pages.of_page()] * n + pages.item, return_inverse=True)
    own = [number.get((pages.queries[pair // n], pages.items[pair % n]), -1) for pair in pairs.tolist()]
    row = np.array(own, np.int64)
    row[row >= 0] = np.where(model.item_counts[0][row[row >= 0]] > 0, row[row >= 0], -1)
    return row[place]


def _ranks(model: Model | ClickModel, pages: Pages) -> Ints:
    number = {position: j for j, position in enumerate(model.positions)}
    missing = [position for position in pages.positions if position not in number]
    if missing:
        raise ValueError(f"the model has no position {missing[0]}; it has {', '.join(map(str, model.positions))}")
    return np.array([number[position] for position in pages.positions], np.int64)[pages.position]


def _filled(values: Floats, weights: Floats) -> Floats:
    """Values with their weighted mean in place of NaN, and once more at the end, where row -1 finds it."""
    known = np.isfinite(values) & (weights > 0.0)
    mean = float(np.average(values[known], weights=weights[known])) if known.any() else 0.5
    return np.append(np.where(np.isfinite(values), values, mean), mean)


def _position_based(model: Model, row: Ints, rank: Ints) -> tuple[Floats, NDArray[np.bool_]]:
    alpha = _filled(model.attraction, model.item_counts[0].astype(float))
    beta = _filled(model.examination, model.position_counts[0].astype(float))
    component = np.append(model.components.items, -1)
    apart = (row >= 0) & (component[row] != model.components.positions[rank]) & (alpha[row] > 0.0)
    return np.where(apart, alpha[-1], alpha[row]) * beta[:-1][rank], apart


def _independent(model: ClickModel, row: Ints, rank: Ints) -> Floats:
    if model.model == "rank-ctr":
        return _filled(model.shared("rate"), np.ones(len(model.positions)))[rank]
    weights = model.item_counts[0].astype(float)
    if model.model == "item-ctr":
        return _filled(model.item_parameters["rate"].values, weights)[row]
    alpha = _filled(model.attraction, weights)
    slope, offset = (_filled(model.shared(name), np.ones(len(model.positions))) for name in ("slope", "offset"))
    return np.clip(alpha[row] * slope[rank] + offset[rank], 0.0, 1.0)


def _browsing(model: ClickModel, pages: Pages, row: Ints, rank: Ints) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    top = _largest_examination(model)
    alpha = _filled(model.attraction * top[model.components["items"]], model.item_counts[0].astype(float))
    gamma = filled_columns(model.shared("examination") / top[model.components["columns"]], len(model.positions))
    column = np.empty(row.size, np.int64)
    browsing.columns_of(pages.starts, rank, pages.click, column)
    component, of_column = np.append(model.components["items"], -1), model.components["columns"]
    apart = (row >= 0) & (of_column[column] >= 0) & (component[row] != of_column[column]) & (alpha[row] > 0.0)
    conditional = np.where(apart, alpha[-1], alpha[row]) * gamma[column]
    marginal = np.empty(row.size)
    use = np.where(row < 0, alpha.size - 1, row)
    browsing.marginal_probabilities(pages.starts, use, rank, alpha, gamma, np.zeros(len(model.positions) + 1), marginal)
    return conditional, marginal, apart


def _largest_examination(model: ClickModel) -> Floats:
    """The largest examination of every component, and 1 at the end: divided by it, examination is a probability."""
    gamma, component = model.shared("examination"), model.components["columns"]
    top = np.zeros(gamma.size + 1)
    known = np.isfinite(gamma) & (component >= 0)
    np.maximum.at(top, component[known], gamma[known])
    return np.where(top > 0.0, top, 1.0)


def filled_columns(gamma: Floats, m: int) -> Floats:
    """Return examination by column, with columns that the log does not determine taken from the nearest one.

    That is the column of the same distance to the last click at the nearest rank, else the column of the same rank
    whose last click is nearest, else 0.5.

    >>> filled_columns(np.array([1.0, 0.5, 0.8, 0.4, 0.5, np.nan]), 3).tolist()
    [1.0, 0.5, 0.8, 0.4, 0.5, 0.8]
    """
    result = gamma.copy()
    ranks = [browsing.ranks_of_column(column) for column in range(gamma.size)]
    known = [column for column in range(gamma.size) if np.isfinite(gamma[column])]
    for column in np.flatnonzero(~np.isfinite(gamma)).tolist():
        rank, last = ranks[column]
        same = [k for k in known if last and ranks[k][1] and ranks[k][0] - ranks[k][1] == rank - last]
        beside = [k for k in known if ranks[k][0] == rank]
        if same:
            result[column] = gamma[min(same, key=lambda k: abs(ranks[k][0] - rank))]
        elif beside:
            result[column] = gamma[min(beside, key=lambda k: abs(ranks[k][1] - last))]
        else:
            result[column] = 0.5
    return result


def _chain(model: ClickModel, pages: Pages, row: Ints, rank: Ints) -> tuple[Floats, Floats]:
    core, by_rank = _core(model)
    use = np.where(row < 0, core.alpha.size - 1, row)
    conditional, marginal = np.empty(row.size), np.empty(row.size)
    recursions.conditional_probabilities(pages.starts, use, rank, pages.click, *core, by_rank, conditional)
    recursions.marginal_probabilities(pages.starts, use, rank, *core, by_rank, marginal)
    return conditional, marginal


def _core(model: ClickModel) -> tuple[Core, bool]:
    """The probabilities of the chain, with those of an item that the model has not seen as the last row."""
    shown, clicked = model.item_counts.astype(float)
    alpha = _filled(model.attraction, shown)
    if model.model == "cascade":
        return Core(alpha, np.zeros(alpha.size), 1.0), False
    family = CHAINS[model.model]
    items = [alpha, *(_filled(model.item_parameters[name].values, clicked) for name in family.items[1:])]
    shared = np.concatenate([np.zeros(0), *(one.values for one in model.shared_parameters.values())])
    if family.by_rank:
        shared = _filled(shared, np.ones(shared.size))[:-1]
    return family.core(np.array(items), np.nan_to_num(shared, nan=0.5)), family.by_rank
