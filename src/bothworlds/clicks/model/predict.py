"""Predictions: the probability of every click on a set of pages, given the clicks above it and without them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels import Floats, Ints
from ...statistics.click_users import (
    columns_of,
    conditional_probabilities,
    marginal_probabilities,
    ranks_of_column,
    table_of,
    users_of,
)
from ..counts import Counts
from ..pages import Pages
from .model import MODELS, ClickModel

RARE = 1e-6  # a lower bound on the probability of an observed click or missing click


class Prediction(NamedTuple):
    """Probabilities of a click for every result of some pages.

    ``known`` (P,) is whether the model has seen all items of a page, and compares them with their positions. Other
    items are given the mean of each parameter in the log of the model: of attraction over impressions, of satisfaction
    over clicks.
    """

    conditional: Floats  # (K,) given the clicks above
    marginal: Floats  # (K,)
    known: NDArray[np.bool_]


def predict(model: ClickModel, pages: Pages) -> Prediction:
    """Return the predictions of a model. Raises ValueError if the pages have a position that the model lacks."""
    page, m = pages.of_page(), len(model.positions)
    row, rank = _rows(model, pages, pages.query[page]), _ranks(model, pages)
    items, shared = _filled_parameters(model)
    if model.components:
        column = columns_of(pages.starts, rank, pages.click) if model.model == "ubm" else rank
        component, of_column = np.append(model.components["items"], -1), model.components["columns"][column]
        row = np.where((component[row] != of_column) & (of_column >= 0) & (items["attraction"][row] > 0.0), -1, row)
    unseen = np.zeros(len(pages), bool)
    unseen[page[row < 0]] = True
    n = len(model.items)
    users = users_of(model.model, items, shared, n + 1, m)
    row = np.where(row < 0, n, row)
    conditional = np.empty(row.size)
    conditional_probabilities(users, pages.starts, row, rank, pages.click, conditional)
    marginal = conditional
    if MODELS[model.model].dependent:
        marginal = np.empty(row.size)
        marginal_probabilities(users, pages.starts, row, rank, marginal)
    return Prediction(conditional, marginal, ~unseen)


def rates_of_counts(model: ClickModel, counts: Counts) -> Floats:
    """Return the click probability of every (query, item, position) of counts, in a model of independent clicks.

    It is NaN where the model does not determine it.
    """
    values = [
        {name: one.value for name, one in part.items()} for part in (model.item_parameters, model.shared_parameters)
    ]
    items = {name: np.append(one, np.nan) for name, one in values[0].items()}
    table = table_of(users_of(model.model, items, values[1], len(model.items) + 1, len(model.positions)))
    row, rank = _rows(model, counts, counts.query), _ranks(model, counts)
    p = table[row, rank]
    if model.components:  # the scale between components is not determined, but 0 is 0 on any scale
        apart = np.append(model.components["items"], -1)[row] != model.components["columns"][rank]
        p = np.where(apart & (p > 0.0), np.nan, p)
    return np.where((row < 0) & (model.model != "rank-ctr"), np.nan, p)


def _rows(model: ClickModel, log: Pages | Counts, query: Ints) -> Ints:
    """(K,) the row of the model of every result, -1 for an item that it has not seen for the query."""
    number = {pair: k for k, pair in enumerate(zip(model.queries, model.items))}
    n = len(log.items)
    pairs, place = np.unique(query * n + log.item, return_inverse=True)
    own = [number.get((log.queries[pair // n], log.items[pair % n]), -1) for pair in pairs.tolist()]
    row = np.array(own, np.int64)
    row[row >= 0] = np.where(model.item_counts[0][row[row >= 0]] > 0, row[row >= 0], -1)
    return row[place.ravel()]


def _ranks(model: ClickModel, log: Pages | Counts) -> Ints:
    number = {position: j for j, position in enumerate(model.positions)}
    missing = [position for position in log.positions if position not in number]
    if missing:
        raise ValueError(f"the model has no position {missing[0]}; it has {', '.join(map(str, model.positions))}")
    return np.array([number[position] for position in log.positions], np.int64)[log.position]


def _filled_parameters(model: ClickModel) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Parameters of items, with the mean as the last entry, and shared ones, without NaN."""
    items, shared = {}, {}
    scale, of_columns = np.ones(len(model.items)), None
    if model.components:  # divided by the largest of its component, examination is a probability
        gamma, of_columns = model.shared("examination"), model.components["columns"]
        top = np.zeros(gamma.size + 1)
        known = np.isfinite(gamma) & (of_columns >= 0)
        np.maximum.at(top, of_columns[known], gamma[known])
        top = np.where(top > 0.0, top, 1.0)
        scale = top[model.components["items"]]
    for name, one in model.item_parameters.items():
        weight = model.item_counts[1 if name == "satisfaction" else 0].astype(float)
        items[name] = _filled(one.value * scale if name == "attraction" else one.value, weight)
    for name, one in model.shared_parameters.items():
        value = one.value if of_columns is None else one.value / top[of_columns]
        if model.model == "ubm":
            shared[name] = filled_columns(value)
        else:
            shared[name] = _filled(value, np.ones(value.size))[:-1]
    return items, shared


def _filled(values: Floats, weights: Floats) -> Floats:
    """Values with their weighted mean in place of NaN, and once more at the end."""
    known = np.isfinite(values) & (weights > 0.0)
    mean = float(np.average(values[known], weights=weights[known])) if known.any() else 0.5
    return np.append(np.where(np.isfinite(values), values, mean), mean)


def filled_columns(gamma: Floats) -> Floats:
    """Return examination by column, with columns that the log does not determine taken from the nearest one.

    That is the column of the same distance to the last click at the nearest rank, else the column of the same rank
    whose last click is nearest, else 0.5.

    >>> filled_columns(np.array([1.0, 0.5, 0.8, 0.4, 0.5, np.nan])).tolist()
    [1.0, 0.5, 0.8, 0.4, 0.5, 0.8]
    """
    result = gamma.copy()
    ranks = [ranks_of_column(column) for column in range(gamma.size)]
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
