r"""Click rates by a model, for placements that were shown or not, and what every page contributes to them.

=============  =======================================================================================================
model          click rate of item i of query q at position j, in window w
=============  =======================================================================================================
``cells``      :math:`C_{qij} / N_{qij}`, only where it was shown
``pbm``        :math:`\alpha_{qi} \beta_j`; examination is shared by all queries
``pbm+level``  :math:`\alpha_{qi} \beta_j \tau_w`; the value is an average over the windows of the log
``ubm``        :math:`\alpha_{qi} \sum_l L_{jl} \gamma_{jl}`, for the probability L that the last click above is at l
``shrunken``   that of ``pbm``, with attraction shrunken by a gamma prior that is fitted to all of them
=============  =======================================================================================================

The position-based fit is the maximum of a concave likelihood, and contains what was published as intervention
harvesting (Agarwal et al., WSDM 2019; Fang et al., SIGIR 2019): an item that moved in any query ties two positions for
all. With the moment estimate of attraction it is the weighting of Li et al. (KDD 2018) by examination. ``cells`` is
inverse propensity weighting with the log's own shares as propensities.

A value is a sum over placements, :math:`V = \sum_t g_t r_t`, and its influence terms follow from the gradient
:math:`\partial V / \partial \log r_t` (:meth:`bothworlds.statistics.log_linear.LogLinear.influence`).
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import gammaln

from ...kernels import Floats, Ints
from ...statistics.log_linear import LogLinear
from ..fitting.design import Design, Factor, design_of_pages, last_clicks_of, positions_of
from ..pages import different_keys
from .logged import LoggedPages, Mask, Placements

PRIOR = 0.2  # impressions for every (query, item, position) that was shown, at the mean rate
REACHED = 1e-3  # clicks above that are rarer need not be determined
CURVE = 1e8  # impressions that a given examination curve is worth
MODELS = ("cells", "pbm", "pbm+level", "ubm")


class Prediction(NamedTuple):
    """Weighted clicks of placements, and the gradient of their sums with respect to log click rates."""

    clicks: Floats  # of some placements, NaN where the log does not determine them
    row: Ints  # (E,) entries of the gradient
    columns: Ints  # (E, factors)
    slope: Floats
    group: Ints


class RateModel:
    """A model of the click rates of a log: ``fit`` returns the fit to some of its pages."""

    def __init__(self, name: str, logged: LoggedPages, curve: Floats | None = None) -> None:
        self.name, self.logged, self.curve = name, logged, curve

    @cached_property
    def design(self) -> Design:
        """The cells of the log; with a given curve also those of a further row, shown everywhere very often."""
        logged, pages = self.logged, self.logged.pages
        if self.name == "ubm":
            return design_of_pages(pages, [last_clicks_of(pages)])
        factors = [positions_of(pages)]
        if self.name == "pbm+level":
            factors.append(Factor(pages.windows, logged.window[logged.page]))
        design = design_of_pages(pages, factors)
        if self.curve is None:
            return design
        m = self.curve.size
        # The mean rate of the log, which the prior has, stays as it is.
        scale = min(design.clicked.sum() / design.shown.sum() / self.curve.mean(), 0.5 / self.curve.max())
        levels = [np.arange(m), *(np.zeros(m, np.int64) for _ in factors[1:])]
        return design._replace(
            items=(*design.items, ""),
            queries=(*design.queries, ""),
            pairs=np.append(design.pairs, np.iinfo(np.int64).max),
            row=np.append(design.row, np.full(m, len(design.items))),
            columns=np.vstack([design.columns, np.column_stack(levels)]),
            shown=np.append(design.shown, np.full(m, CURVE)),
            clicked=np.append(design.clicked, scale * CURVE * self.curve),
        )

    def fit(self, count: Ints | None = None) -> FittedRates:
        """Return the fit to all pages, or to some of them (P,)."""
        design = self.design
        if count is not None:
            given, extra = count[self.logged.page], design.shown.size - self._cells
            parts = (np.bincount(design.cell, part, self._cells) for part in (given, given * self.logged.pages.click))
            ends = design.shown[self._cells :], design.clicked[self._cells :]
            shown, clicked = (np.append(part, end) if extra else part for part, end in zip(parts, ends))
            design = design._replace(shown=shown.astype(np.float64), clicked=clicked.astype(np.float64))
        return FittedRates(self, design)

    @cached_property
    def prior(self) -> float:
        """Impressions to add to every cell: as many in all for every model, or that with more cells shrinks more."""
        return PRIOR * self.logged.n_cells / self._cells

    @property
    def _cells(self) -> int:
        return int(self.design.cell.max()) + 1


class FittedRates:
    """A fit of a model to the counts of a design."""

    def __init__(self, model: RateModel, design: Design) -> None:
        self.model, self.design, self.name = model, design, model.name

    @cached_property
    def fitted(self) -> LogLinear:
        return self.design.fit(self.model.prior)

    def shrunken(self) -> FittedRates:
        """Return the same position-based fit with shrunken attraction."""
        other = FittedRates(self.model, self.design)
        other.fitted, other.name = self.fitted, "shrunken"
        return other

    def predict(self, placements: Placements, some: Mask | None = None) -> Prediction:
        """Return the clicks of some placements; those of ``ubm`` must be lists."""
        if self.name == "ubm":
            return self._browse(placements, np.ones(placements.item.size, bool) if some is None else some)
        if some is not None:
            placements = placements.take(some)
        row = self.rows(placements.query, placements.item)
        columns = placements.position[:, None]
        if self.name == "pbm+level":
            columns = np.column_stack([placements.position, placements.window])
        known = np.flatnonzero(row >= 0)
        clicks = np.full(row.size, np.nan)
        at = row[known], columns[known]
        if self.name == "cells":
            place = self._cell_of(*at)
            sure = self.design.shown[place] * (place >= 0) > 0.0
            rate = self.design.clicked[place] / np.maximum(self.design.shown[place], 1.0)
        else:
            sure = self.fitted.determined(*at)
            rate = self.fitted.predict(*at) * (self._shrinkage[at[0]] if self.name == "shrunken" else 1.0)
        clicks[known[sure]] = (placements.weight[known] * rate)[sure]
        known = known[sure]
        return Prediction(clicks, row[known], columns[known], clicks[known], placements.group[known])

    def terms(self, prediction: Prediction) -> Floats:
        """(P,) what one of every page adds to the sum of all clicks."""
        pages, logged = self.model.logged.pages, self.model.logged
        if self.name != "cells":
            slope = self.fitted.influence(prediction.row, prediction.columns, prediction.slope)
            return logged.by_page(slope[pages.click, self.design.cell])
        place = self._cell_of(prediction.row, prediction.columns)
        shown, clicked = self.design.shown, self.design.clicked
        rate = clicked / np.maximum(shown, 1.0)
        weight = np.bincount(place, prediction.slope, shown.size) / np.maximum(clicked, 1.0)
        cell = self.design.cell
        return logged.by_page(weight[cell] * (pages.click - rate[cell]))

    def unseen(self, prediction: Prediction) -> float:
        """Return an upper bound on what items without a click may earn, by the rule of three: 3 / impressions."""
        if self.name in ("cells", "ubm"):
            return 0.0
        design, size = self.design, len(self.design.items)
        clicked, exposed = np.bincount(design.row, design.clicked, size), self._exposure()
        alone = (clicked[prediction.row] == 0.0) & (prediction.slope > 0.0)
        row = prediction.row[alone]
        worth = np.bincount(row, prediction.slope[alone] / np.exp(self.fitted.row_effect[row]), size)
        bound = np.divide(3.0 * worth, exposed, out=np.zeros(size), where=exposed > 0.0)
        return float(np.sqrt((bound**2).sum()))

    def _exposure(self) -> Floats:
        """(R,) expected clicks of every row if its attraction were 1."""
        design = self.design
        p = np.nan_to_num(self.fitted.predict(design.row, design.columns))
        own = np.exp(self.fitted.row_effect[design.row])
        weight = np.divide(design.shown * p, own, out=np.zeros(p.size), where=own > 0.0)
        return np.bincount(design.row, weight, len(design.items)).astype(np.float64)

    @cached_property
    def _shrinkage(self) -> Floats:
        """(R,) by how much attraction is multiplied.

        Clicks of a row are nearly Poisson, with the attraction times the exposure E; attraction has a gamma prior,
        whose shape and rate maximise the marginal likelihood. The posterior mean is (shape + C) / (rate + E).
        """
        design = self.design
        c, e = np.bincount(design.row, design.clicked, len(design.items)), self._exposure()
        kept = (e > 0.0) & (e < 0.1 * CURVE)

        def loss(log: Floats) -> float:
            a, b = np.exp(log)
            part = gammaln(a + c[kept]) - gammaln(a) + a * np.log(b) - (a + c[kept]) * np.log(b + e[kept])
            return -float(part.sum())

        factor = np.ones(e.size)
        if not kept.any():
            return factor
        mean = max(c[kept].sum(), 0.5) / e[kept].sum()
        found = minimize(loss, np.log([1.0, 1.0 / mean]), method="Nelder-Mead", options={"xatol": 1e-4, "fatol": 1e-6})
        a, b = np.exp(found.x)
        factor[kept] = (a + c[kept]) / (b + e[kept]) / np.exp(self.fitted.row_effect[kept])
        return factor

    def rows(self, query: Ints, item: Ints) -> Ints:
        """Return the rows of items of queries; -1 for items that were never shown there."""
        pairs = self.design.pairs
        key = np.where(item >= 0, query * self.model.logged.shape[1] + item, -1)
        place = np.minimum(np.searchsorted(pairs, key), pairs.size - 1)
        known = pairs[place] == key
        known[known] = self._row_shown[place[known]]
        return np.where(known, place, -1)

    @cached_property
    def _row_shown(self) -> Mask:
        return np.bincount(self.design.row, self.design.shown, len(self.design.items)) > 0.0

    @cached_property
    def _keys(self) -> Ints:
        return self.design.row * len(self.design.labels[0]) + self.design.columns[:, 0]

    def _cell_of(self, row: Ints, columns: Ints) -> Ints:
        """The cells of rows and positions, -1 for those that were never shown."""
        key = row * len(self.design.labels[0]) + columns[:, 0]
        place = np.minimum(np.searchsorted(self._keys, key), self._keys.size - 1)
        return np.where(self._keys[place] == key, place, -1)

    def _browse(self, placements: Placements, some: Mask) -> Prediction:
        r"""Clicks by forward recursion over the last click, and the gradient of some of them by backward recursion.

        The users at rank k whose last click was at rank l are a share :math:`L_{kl}`, click with :math:`q_{kl}`, and
        click on later results, in expectation, as often as those of :math:`(k + 1, k)` after a click and of
        :math:`(k + 1, l)` after a skip.
        """
        m = self.model.logged.shape[2]
        lists, page = different_keys(placements.page, int(placements.page.max(initial=0)) + 1)
        rank, item_row = placements.position, self.rows(placements.query, placements.item)
        row, weight, group = np.full((lists.size, m), -1), np.zeros((lists.size, m)), np.zeros(lists.size, np.int64)
        row[page, rank], weight[page, rank], group[page] = item_row, placements.weight * some, placements.group
        placed = np.zeros((lists.size, m), bool)
        placed[page, rank] = True
        of_column = np.repeat(np.arange(m), np.arange(1, m + 1))
        rows = row[:, of_column]
        q, known, live = np.zeros(rows.shape), ~placed[:, of_column], rows >= 0
        cells = rows[live], np.nonzero(live)[1][:, None]
        q[live], known[live] = np.nan_to_num(self.fitted.predict(*cells)), self.fitted.determined(*cells)
        reach, clicks = np.zeros((lists.size, m + 1)), np.zeros((lists.size, m))
        reach[:, 0], open_share = 1.0, np.zeros((lists.size, m))
        at_rank = []
        for k in range(m):
            own = slice(k * (k + 1) // 2, (k + 1) * (k + 2) // 2)
            at_rank.append(reach[:, : k + 1].copy())
            hit = reach[:, : k + 1] * q[:, own]
            open_share[:, k] = (reach[:, : k + 1] * ~known[:, own]).sum(axis=1)
            clicks[:, k] = hit.sum(axis=1)
            reach[:, : k + 1] -= hit
            reach[:, k + 1] = clicks[:, k]
        later, entries = np.zeros((lists.size, m + 1)), []
        for k in reversed(range(m)):
            own = slice(k * (k + 1) // 2, (k + 1) * (k + 2) // 2)
            gain = weight[:, k, None] + later[:, k + 1, None] - later[:, : k + 1]
            slope = at_rank[k] * q[:, own] * gain
            later = later[:, : k + 1] + q[:, own] * gain
            own_rows = np.flatnonzero(row[:, k] >= 0)
            for last in range(k + 1):
                column = np.full(own_rows.size, k * (k + 1) // 2 + last)
                entries.append((row[own_rows, k], column, slope[own_rows, last], group[own_rows]))
        in_rows, columns, slopes, groups = (np.concatenate(part) for part in zip(*entries))
        worth = np.where(open_share > REACHED, np.nan, clicks)
        return Prediction((placements.weight * worth[page, rank])[some], in_rows, columns[:, None], slopes, groups)


def level_distance(fitted: FittedRates) -> float:
    """Return how far the level of a window is from their mean, in standard errors, at most; 0 if that is unknown."""
    found = fitted.fitted
    low, high = int(found.first[1]), int(found.first[2])
    own = np.isfinite(found.column_effect[low:high])
    if own.sum() < 2:
        return 0.0
    contrast = np.zeros((int(own.sum()), found.column_effect.size))
    contrast[:, low:high][:, own] = np.eye(int(own.sum())) - 1.0 / own.sum()
    tied = np.abs(contrast @ found.null).max(axis=1, initial=0.0) < 1e-6
    error = np.sqrt(np.maximum(np.einsum("is,st,it->i", contrast, found.covariance, contrast), 1e-300))
    distance = np.abs(contrast @ np.nan_to_num(found.column_effect, neginf=0.0)) / error
    return float(distance[tied].max(initial=0.0))
