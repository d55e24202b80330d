"""Perplexity: how well a model predicts the clicks of another log."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import xlogy

from ...kernels import Floats, Ints
from ..counts import Counts
from ..log import as_counts

RARE = 1e-6  # a lower bound on the probability of an observed click or missing click


class ModelArrays(NamedTuple):
    """One model or many as arrays: the attraction of R (query, item) rows, and the curves of G groups of rows."""

    items: tuple[str, ...]  # of the R rows
    queries: tuple[str, ...]
    positions: tuple[int, ...]
    attraction: Floats  # (R,)
    group: Ints  # (R,)
    examination: Floats  # (G, m)
    of_rows: Ints  # (R,) components: parameters of different components cannot be compared
    of_positions: Ints  # (G, m)


class Perplexity(float):
    """A perplexity, with the number of ``impressions`` it was measured on and of those ``left_out``.

    ``impossible`` is the number of clicks and missing clicks with a probability below one in a million in the model.

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
        remarks, whole = [], self.impressions + self.left_out
        if self.left_out:
            remarks.append(
                f"{self.left_out:,} of {whole:,} impressions left out: the model does not know their items or "
                "positions, or cannot compare them"
            )
        if self.impossible:
            remarks.append(
                f"{self.impossible:,} of {whole:,} impressions are impossible in the model, or nearly so, and count as "
                "one in a million; fit with a prior to avoid this"
            )
        return float.__repr__(self) + (f" ({'; '.join(remarks)})" if remarks else "")

    __str__ = __repr__


def perplexity(model: ModelArrays, other: Any) -> Perplexity:
    """Return 2 to the minus mean log2-likelihood per impression, over the pairs that the model knows.

    ``other`` is a log, its path, a table in memory, or counts. Raises ValueError if no pair is known.
    """
    counts = as_counts(other)
    p = probabilities(model, counts)
    known = ~np.isnan(p)
    shown, clicked, p = counts.shown[known], counts.clicked[known], p[known]
    impressions, everything = int(shown.sum()), int(counts.shown.sum())
    if not impressions:
        raise ValueError("the model knows none of the pairs of query, item and position in these counts")
    likelihood = (xlogy(clicked, np.maximum(p, RARE)) + xlogy(shown - clicked, np.maximum(1.0 - p, RARE))).sum()
    impossible = int(clicked[p < RARE].sum() + (shown - clicked)[1.0 - p < RARE].sum())
    return Perplexity(float(np.exp(-likelihood / impressions)), impressions, everything - impressions, impossible)


def probabilities(model: ModelArrays, counts: Counts) -> Floats:
    """(K,) the probability of a click for every triple of the counts; NaN where the model does not determine it."""
    size = len(counts.items)
    queries, items = ({name: k for k, name in enumerate(names)} for names in (counts.queries, counts.items))
    own = np.array([queries.get(name, -1) for name in model.queries], dtype=np.int64) * size
    item = np.array([items.get(name, -1) for name in model.items], dtype=np.int64)
    keys = np.where((own < 0) | (item < 0), -1, own + item)
    order = np.argsort(keys, kind="stable")
    wanted = counts.query * size + counts.item
    place = np.minimum(np.searchsorted(keys[order], wanted), keys.size - 1)
    row = np.where(keys[order][place] == wanted, order[place], -1)
    columns = {position: j for j, position in enumerate(model.positions)}
    column = np.array([columns.get(position, -1) for position in counts.positions], dtype=np.int64)[counts.position]
    p = model.attraction[row] * model.examination[model.group[row], column]
    # The scale between components is not determined, but 0 is 0 on any scale.
    apart = (model.of_rows[row] != model.of_positions[model.group[row], column]) & (p > 0.0)
    return np.where((row < 0) | (column < 0) | apart, np.nan, p)
