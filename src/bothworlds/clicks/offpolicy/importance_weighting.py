r"""Importance weighting: every logged impression is weighted by how much more often the target would show it.

Under the item-position model a click at position j depends only on the item there, so the
weight of an impression is a ratio of marginals, :math:`w = x_{ij} / p`, and not of probabilities of whole lists. With
c = 1 for a click, q the click rate in a model fitted to the other fold, and sums over the n impressions at j:

.. math::

    \text{ips} &= \tfrac1n \sum w c &
    \text{snips} &= \sum w c \big/ \sum w &
    \text{clipped} &= \tfrac1n \sum \min(w, M) c

    \text{direct} &= \sum_i x_{ij} q_{ij} &
    \text{dr} &= \text{direct} + \tfrac1n \sum w (c - q)

The estimate of a page is the sum over its positions. If pages differ in length, each is multiplied by :math:`e_j`, the
share of pages that have position j, since clicks are per page. Every
estimate is, or by the delta method nearly is, its expectation plus a sum of terms :math:`\varphi` of impressions:
:math:`(w c - \text{ips})/n`, :math:`w (c - \text{snips})/\sum w`, and so on. Its variance is the sum of
:math:`\varphi^2`; for the whole page :math:`\varphi` is added up page by page first, since the positions of one page
may be dependent. In logs without pages they are assumed to be independent. If no click supports the
target, the upper end of the interval is 3 divided by the effective number of impressions.

If a policy was trained on the log, each fold is a stratum with its own target, and strata are averaged in
proportion to their impressions.

References
----------
Horvitz, Thompson: A generalization of sampling without replacement from a finite universe, JASA 1952 (ips);
Swaminathan, Joachims: The self-normalized estimator for counterfactual learning, NeurIPS 2015 (snips);
Ionides: Truncated importance sampling, JCGS 2008; Bottou et al.: Counterfactual reasoning and learning systems, JMLR
2013 (clipped); Dudik, Langford, Li: Doubly robust policy evaluation and learning, ICML 2011 (dr);
Li et al.: Offline evaluation of ranking policies with click models, KDD 2018 (item-position model);
Kish: Survey Sampling, 1965 (effective sample size).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...kernels import Floats, Ints
from .impressions import Impressions
from .result import Estimate, Support, make_estimate
from .targets import Target

ESTIMATORS = ("logged", "ips", "snips", "clipped", "dr")


class Weighted(NamedTuple):
    """The impressions that can be weighted, as arrays."""

    page: Ints
    place: Ints
    stratum: Ints
    c: Floats  # clicks
    w: Floats  # weights
    q: Floats  # click rates of the model
    base: Floats  # direct estimates of their positions

    def sums(self, values: Any, shape: tuple[int, int]) -> Floats:
        """(m, strata) the sums of one value for each impression."""
        cell, cells = self.place * shape[1] + self.stratum, shape[0] * shape[1]
        return np.bincount(cell, values, minlength=cells).astype(np.float64).reshape(shape)


def weighted_estimates(
    impressions: Impressions, target: Target, rates: Floats, clip: float
) -> tuple[list[Estimate], tuple[Support, ...]]:
    """Return the weighted estimates of a target, per position and for the whole page, and its support by the log.

    ``rates`` (2, n_items, n_positions) are the fitted click rates for each fold.
    """
    rows = _weighted(impressions, target, rates)
    terms = {
        "logged": rows.c,
        "ips": rows.w * rows.c,
        "snips": rows.w * rows.c,
        "clipped": np.minimum(rows.w, clip) * rows.c,
        "dr": rows.w * (rows.c - rows.q) + rows.base,
    }
    shape = len(impressions.positions), 2 if target.learned else 1
    sums = {name: rows.sums(term, shape) for name, term in terms.items()}
    sums |= {"n": rows.sums(np.ones_like(rows.w), shape), "w": rows.sums(rows.w, shape)}
    values = _values(sums)
    errors = _errors(impressions, rows, terms, sums, values)
    support = _supports(impressions, target, rows, sums, clip)
    reach = impressions.reach
    unseen = {
        name: _unseen_clicks(support, values["logged"] if name == "logged" else None, reach) for name in ESTIMATORS
    }
    estimates = []
    for name in ESTIMATORS:
        value = np.append(reach * values[name], (reach * values[name]).sum())
        more = unseen[name]
        if name == "clipped":  # biased where weights were cut: no interval
            more = np.where([part.clipped > 0.0 for part in support], np.nan, more)
        columns = (value.tolist(), errors[name].tolist(), more.tolist())
        estimates += [make_estimate(name, *row) for row in zip((*impressions.positions, None), *columns)]
    return estimates, support


def _unseen_clicks(support: tuple[Support, ...], rates: Floats | None, reach: Floats) -> Floats:
    """(m + 1,) an upper bound on the clicks at positions without any, by the rule of three: 3 / n."""
    if rates is None:
        clicks, n = zip(*((part.effective_clicks, part.effective_impressions) for part in support[:-1]))
    else:
        clicks, n = tuple(rates), tuple(part.impressions for part in support[:-1])
    unseen = reach * np.where(np.array(clicks) > 0.0, 0.0, 3.0 / np.maximum(n, 3.0))
    return np.append(unseen, unseen.sum())


def _weighted(impressions: Impressions, target: Target, rates: Floats) -> Weighted:
    rows = impressions.rows
    if impressions.weighable:
        rows = rows.those(~np.isnan(rows.propensity))
    else:  # the weights are meaningless, but the logged click rates are not
        rows = rows._replace(propensity=np.ones_like(rows.click))
    at = rows.fold, rows.item, rows.place
    base = (target.marginals * rates).sum(axis=1)
    return Weighted(
        rows.page,
        rows.place,
        rows.fold if target.learned else np.zeros_like(rows.fold),
        rows.click,
        target.marginals[at] / rows.propensity,
        rates[at],
        base[rows.fold, rows.place],
    )


def _values(sums: dict[str, Floats]) -> dict[str, Floats]:
    """Estimates (m,) per page that has the position."""
    n = sums["n"].sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        # Sums before division: sums of clicks are integers, and do not depend on the strata.
        values = {name: sums[name].sum(axis=1) / n for name in ESTIMATORS}
        parts = np.where(sums["n"] > 0.0, sums["n"] * sums["snips"] / sums["w"], 0.0)
        values["snips"] = parts.sum(axis=1) / n
    return values


def _errors(
    impressions: Impressions,
    rows: Weighted,
    terms: dict[str, Floats],
    sums: dict[str, Floats],
    values: dict[str, Floats],
) -> dict[str, Floats]:
    """(m + 1,) standard errors of each estimator: per position, and for the whole page."""
    reach, m, every = impressions.reach, len(impressions.positions), impressions.rows
    n, at = sums["n"].sum(axis=1), (rows.place, rows.stratum)
    uneven = bool((reach < 1.0).any())
    pages = impressions.pages if uneven else np.count_nonzero(np.bincount(rows.page))
    errors = {}
    for name, term in terms.items():
        with np.errstate(invalid="ignore", divide="ignore"):
            if name == "snips":
                share = sums["n"] / n[:, None] / sums["w"]
                error = share[at] * rows.w * (rows.c - (sums[name] / sums["w"])[at])
            else:
                error = (term - (sums[name] / sums["n"])[at]) / n[rows.place]
        error *= reach[rows.place]
        variance = np.bincount(rows.place, error**2, minlength=m) * _unbiased(n)
        variance += values[name] ** 2 * reach * (1.0 - reach) / impressions.pages
        whole = variance.sum()
        if impressions.has_pages and np.isfinite(whole):
            page = np.bincount(rows.page, error, minlength=impressions.pages)
            if uneven:
                worth = values[name] / impressions.pages
                page += np.bincount(every.page, worth[every.place]) - (reach * worth).sum()
            whole = (page**2).sum() * _unbiased(np.array([pages]))[0]
        errors[name] = np.sqrt(np.append(variance, whole))
    return errors


def _unbiased(n: Floats) -> Floats:
    return np.divide(n, n - 1.0, out=np.full(n.shape, np.nan), where=n > 1.0)


def _supports(
    impressions: Impressions, target: Target, rows: Weighted, sums: dict[str, Floats], clip: float
) -> tuple[Support, ...]:
    m, shape = len(impressions.positions), sums["n"].shape
    squares = rows.w**2
    sums = sums | {"w2": rows.sums(squares, shape), "w2c": rows.sums(squares * rows.c, shape)}
    sums |= {"cut": rows.sums(rows.w > clip, shape), "kept": rows.sums(np.minimum(rows.w, clip), shape)}
    at = {name: part.sum(axis=1) for name, part in sums.items()}
    spread = np.maximum(sums["w2"] - sums["w"] ** 2 / np.maximum(sums["n"], 1.0), 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean, error = at["w"] / at["n"], np.sqrt(spread.sum(axis=1)) / at["n"]
        kish, clicks = at["w"] ** 2 / at["w2"], at["ips"] ** 2 / at["w2c"]
        share = impressions.reach / at["n"]
        all_clicks = (share * at["ips"]).sum() ** 2 / (share**2 * at["w2c"]).sum()
        cut, lost = at["cut"] / at["n"], 1.0 - at["kept"] / at["w"]
        all_lost = 1.0 - (share * at["kept"]).sum() / (share * at["w"]).sum()
    kish, clicks = np.nan_to_num(kish), np.nan_to_num(clicks)
    missing = unsupported(impressions, target)
    columns = (at["n"], kish, clicks, mean, error, missing, cut, lost)
    supports = [
        Support(p, int(n), *map(float, rest))
        for p, n, *rest in zip(impressions.positions, *map(np.ndarray.tolist, columns))
    ]
    whole = (kish.min(), np.nan_to_num(all_clicks), mean.mean(), np.sqrt((error**2).sum()) / m, missing.mean())
    cut_whole = at["cut"].sum() / at["n"].sum()
    supports.append(Support(None, int(at["n"].sum()), *map(float, (*whole, cut_whole, all_lost))))
    return tuple(supports)


def unsupported(impressions: Impressions, target: Target) -> Floats:
    """(m,) the share of the target's mass at every position that the log never shows with a propensity.

    The share is averaged over queries, and over folds if they have different targets, in proportion to impressions.
    """
    seen = impressions.connection.execute(
        f"""WITH seen AS (
            SELECT query, {"fold" if target.learned else 0} AS fold, code, position, sum(weighable)::BIGINT AS n
            FROM cells JOIN codes USING (item) WHERE weighable > 0 GROUP BY ALL)
        SELECT dense_rank() OVER (ORDER BY query) - 1 AS query, * EXCLUDE (query) FROM seen ORDER BY ALL"""
    ).fetchnumpy()
    place, m = np.searchsorted(impressions.positions, seen["position"]), len(impressions.positions)
    cell, size = (2 * seen["query"] + seen["fold"]) * m + place, 2 * m * impressions.queries
    asked = np.bincount(cell, seen["n"], minlength=size).reshape(-1, m)
    served = np.bincount(cell, target.marginals[seen["fold"], seen["code"], place], minlength=size).reshape(-1, m)
    missing = 1.0 - (asked * served).sum(axis=0) / np.maximum(asked.sum(axis=0), 1.0)
    return np.maximum(np.where(missing > 1e-9, missing, 0.0), target.unknown)
