"""How well a model predicts clicks it has not seen."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import xlogy

from ...kernels import Floats, Ints
from ..counts import Counts

__all__ = ["Flat", "Perplexity", "perplexity", "probabilities"]

RARE = 1e-6  # the least chance that a model is taken to give to what happened


class Flat(NamedTuple):
    """One model or many: attraction of (query, item) rows, and the curve of the group that a row belongs to."""

    items: tuple[str, ...]  # of the R rows
    queries: tuple[str, ...]
    positions: tuple[int, ...]
    attraction: Floats  # (R,)
    group: Ints  # (R,)
    examination: Floats  # (G, m)
    of_rows: Ints  # (R,) components: what is in two of them cannot be compared
    of_positions: Ints  # (G, m)


class Perplexity(float):
    """A number that says what it is about: ``impressions`` it was measured on, those ``left_out``, and how many of the
    clicks and missing clicks it was measured on are ``impossible`` by the model, or all but.

    >>> Perplexity(1.5, 90, 10)
    1.5 (10 of 100 impressions left out: the model does not know their items or positions, or cannot compare them)
    """

    impressions: int
    left_out: int
    impossible: int

    def __new__(cls, value: float, impressions: int, left_out: int, impossible: int = 0) -> Perplexity:
        made = super().__new__(cls, value)
        made.impressions, made.left_out, made.impossible = impressions, left_out, impossible
        return made

    def __repr__(self) -> str:
        said, whole = [], self.impressions + self.left_out
        if self.left_out:
            said.append(
                f"{self.left_out:,} of {whole:,} impressions left out: the model does not know their items or "
                "positions, or cannot compare them"
            )
        if self.impossible:
            said.append(
                f"{self.impossible:,} of {whole:,} impressions are impossible by the model, or all but impossible, and "
                "count as one in a million: a prior would have foreseen them"
            )
        return float.__repr__(self) + (f" ({'; '.join(said)})" if said else "")

    __str__ = __repr__


def perplexity(model: Flat, other: Any) -> Perplexity:
    """2 to the minus mean log2-likelihood per impression, over the pairs that the model knows."""
    from ..reading.count import counts as count

    counts = count(other)
    p = probabilities(model, counts)
    known = ~np.isnan(p)
    shown, clicked, p = counts.shown[known], counts.clicked[known], p[known]
    impressions, everything = int(shown.sum()), int(counts.shown.sum())
    if not impressions:
        raise ValueError("the model knows none of the pairs of query, item and position in these counts")
    likelihood = (xlogy(clicked, np.maximum(p, RARE)) + xlogy(shown - clicked, np.maximum(1.0 - p, RARE))).sum()
    impossible = int(clicked[p < RARE].sum() + (shown - clicked)[1.0 - p < RARE].sum())
    return Perplexity(float(np.exp(-likelihood / impressions)), impressions, everything - impressions, impossible)


def probabilities(model: Flat, counts: Counts) -> Floats:
    """(K,) the model's probability of a click for every triple of the counts; NaN where it cannot say."""
    size = len(counts.items)
    queries, items = ({name: k for k, name in enumerate(names)} for names in (counts.queries, counts.items))
    own = np.array([queries.get(name, -1) for name in model.queries], dtype=np.int64) * size
    item = np.array([items.get(name, -1) for name in model.items], dtype=np.int64)
    keys = np.where((own < 0) | (item < 0), -1, own + item)
    order = np.argsort(keys, kind="stable")
    asked = counts.query * size + counts.item
    place = np.minimum(np.searchsorted(keys[order], asked), keys.size - 1)
    row = np.where(keys[order][place] == asked, order[place], -1)
    columns = {position: j for j, position in enumerate(model.positions)}
    column = np.array([columns.get(position, -1) for position in counts.positions], dtype=np.int64)[counts.position]
    p = model.attraction[row] * model.examination[model.group[row], column]
    # Between components the scale is not determined; 0 is 0 on any.
    apart = (model.of_rows[row] != model.of_positions[model.group[row], column]) & (p > 0.0)
    return np.where((row < 0) | (column < 0) | apart, np.nan, p)
