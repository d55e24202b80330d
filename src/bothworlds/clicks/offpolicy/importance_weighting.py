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

from typing import Any

import numpy as np

from ...extras import import_extra
from ...kernels import Floats
from .impressions import Impressions
from .result import Estimate, Support, make_estimate
from .targets import Target

__all__ = ["ESTIMATORS", "unsupported", "weighted_estimates"]

ESTIMATORS = ("logged", "ips", "snips", "clipped", "dr")

WEIGHTED = """
CREATE OR REPLACE VIEW weighted AS
SELECT i.page, i.position, {stratum} AS stratum, i.click AS c, coalesce(t.x, 0) / {propensity} AS w,
       coalesce(t.q, 0) AS q, b.base
FROM impressions i LEFT JOIN target t USING (fold, item, position) JOIN base b USING (fold, position)
WHERE {propensity} IS NOT NULL"""

SUMS = """
SELECT position, stratum, count(*)::DOUBLE AS n, sum(w) AS w, sum(w * w) AS w2, sum(w * w * c) AS w2c,
       sum((w > {clip})::INT)::DOUBLE AS cut, sum(least(w, {clip})) AS kept,
       sum(c) AS logged, sum(w * c) AS ips, sum(least(w, {clip}) * c) AS clipped, sum(w * (c - q) + base) AS dr
FROM weighted GROUP BY ALL ORDER BY ALL"""

# The term of each impression in the error of each estimate.
TERMS = """
SELECT page, position, z.reach * (c - z.logged) / z.n AS logged, z.reach * (w * c - z.ips) / z.n AS ips,
       z.reach * z.share * w * (c - z.snips) / nullif(z.weight, 0) AS snips,
       z.reach * (least(w, {clip}) * c - z.clipped) / z.n AS clipped,
       z.reach * (w * (c - q) + base - z.dr) / z.n AS dr
FROM weighted JOIN centres z USING (position, stratum)"""

# The term of each page, by the positions that it has, if pages differ in length.
LENGTHS = """
UNION ALL BY NAME SELECT page, position, v.* EXCLUDE (position) FROM impressions JOIN worth v USING (position)"""

SQUARES = ", ".join(f"sum({name} * {name}) AS {name}" for name in ESTIMATORS)
PAGE_SUMS = ", ".join(f"sum(t.{name}) - any_value(middle.{name}) AS {name}" for name in ESTIMATORS)


def weighted_estimates(
    impressions: Impressions, target: Target, rates: Floats, clip: float
) -> tuple[list[Estimate], tuple[Support, ...]]:
    """Return the weighted estimates of a target, per position and for the whole page, and its support by the log.

    ``rates`` (2, n_items, n_positions) are the fitted click rates for each fold.
    """
    _register(impressions, target, rates)
    connection = impressions.connection
    sums = connection.execute(SUMS.format(clip=clip)).fetchnumpy()
    values, centres = _centres(impressions, sums)
    connection.register("centres", _arrow(centres))
    errors = _errors(impressions, clip, values)
    support = _supports(impressions, target, sums)
    reach = impressions.reach
    unseen = {
        name: _unseen_clicks(support, values["logged"] if name == "logged" else None, reach) for name in ESTIMATORS
    }
    estimates = []
    for name in ESTIMATORS:
        value = np.append(reach * values[name], (reach * values[name]).sum())
        columns = (value.tolist(), errors[name].tolist(), unseen[name].tolist())
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


def _register(impressions: Impressions, target: Target, rates: Floats) -> None:
    """Register the target with its rates, and the direct estimate of each position, as tables; create the view."""
    fold, i, j = np.nonzero(target.marginals)
    items, positions = np.array(impressions.items, dtype=object), np.array(impressions.positions)
    x, q = target.marginals[fold, i, j], rates[fold, i, j]
    table = {"fold": fold.astype(np.int8), "item": items[i], "position": positions[j], "x": x, "q": q}
    impressions.connection.register("target", _arrow(table))
    base = (target.marginals * rates).sum(axis=1)
    fold, j = np.nonzero(np.ones_like(base))
    table = {"fold": fold.astype(np.int8), "position": positions[j], "base": base[fold, j]}
    impressions.connection.register("base", _arrow(table))
    # Without propensities the weights are meaningless, but the logged click rates are not.
    view = {
        "stratum": "i.fold" if target.learned else "0",
        "propensity": "i.propensity" if impressions.weighable else "1",
    }
    impressions.connection.execute(WEIGHTED.format(**view))


def _centres(impressions: Impressions, sums: dict[str, Floats]) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Estimates (m,) per page that has the position, and the table of the centres of each stratum."""
    place = np.searchsorted(impressions.positions, sums["position"])
    n: Floats = np.bincount(place, sums["n"], minlength=len(impressions.positions)).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        centre = {name: sums[name] / sums["n"] for name in ESTIMATORS if name != "snips"}
        centre["snips"] = sums["ips"] / sums["w"]
    share = sums["n"] / n[place]
    values: dict[str, Floats] = {}
    for name in ESTIMATORS:
        # Sums before division: sums of clicks are integers, and do not depend on the strata.
        parts = n[place] * share * centre[name] if name == "snips" else sums[name]
        total = np.bincount(place, parts, minlength=n.size)
        values[name] = np.divide(total, n, out=np.full(n.size, np.nan), where=n > 0.0)
    keys = {"position": sums["position"], "stratum": sums["stratum"]}
    rest = {"n": n[place], "share": share, "weight": sums["w"], "reach": impressions.reach[place]}
    return values, {**keys, **centre, **rest}


def _errors(impressions: Impressions, clip: float, values: dict[str, Floats]) -> dict[str, Floats]:
    """(m + 1,) standard errors of each estimator: per position, and for the whole page."""
    terms = TERMS.format(clip=clip)
    execute, reach, pages = impressions.connection.execute, impressions.reach, impressions.pages
    single = execute(f"SELECT position, count(*)::DOUBLE AS n, {SQUARES} FROM ({terms}) GROUP BY position").fetchnumpy()
    place = np.searchsorted(impressions.positions, single["position"])
    by_position = {name: np.full(len(impressions.positions), np.nan) for name in ESTIMATORS}
    for name in ESTIMATORS:
        by_position[name][place] = np.ma.filled(single[name], np.nan) * _unbiased(single["n"])
        by_position[name] += values[name] ** 2 * reach * (1.0 - reach) / pages
    if not impressions.has_pages:
        return {name: np.sqrt(np.append(part, part.sum())) for name, part in by_position.items()}
    whole = _page_squares(impressions, terms, values)
    errors = {}
    for name, part in by_position.items():
        total = np.ma.filled(whole[name], np.nan) * _unbiased(whole["n"])
        errors[name] = np.sqrt(np.append(part, total if np.isfinite(part).all() else np.nan))
    return errors


def _page_squares(impressions: Impressions, terms: str, values: dict[str, Floats]) -> Any:
    """The sums of squares of the error terms of whole pages, and the number of pages."""
    uneven, reach, register = bool((impressions.reach < 1.0).any()), impressions.reach, impressions.connection.register
    worth = {name: value / impressions.pages for name, value in values.items()}
    register("worth", _arrow({"position": np.array(impressions.positions), **worth}))
    register("middle", _arrow({name: [uneven * float((reach * part).sum())] for name, part in worth.items()}))
    pages = f"SELECT {PAGE_SUMS} FROM ({terms} {LENGTHS if uneven else ''}) t, middle GROUP BY page"
    return impressions.connection.execute(f"SELECT count(*)::DOUBLE AS n, {SQUARES} FROM ({pages})").fetchnumpy()


def _unbiased(n: Floats) -> Floats:
    return np.divide(n, n - 1.0, out=np.full_like(n, np.nan), where=n > 1.0)


def _supports(impressions: Impressions, target: Target, sums: dict[str, Floats]) -> tuple[Support, ...]:
    place = np.searchsorted(impressions.positions, sums["position"])
    m = len(impressions.positions)
    at = {name: np.bincount(place, sums[name], minlength=m) for name in sums if name not in ("position", "stratum")}
    spread = np.maximum(sums["w2"] - sums["w"] ** 2 / sums["n"], 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean, error = at["w"] / at["n"], np.sqrt(np.bincount(place, spread, minlength=m)) / at["n"]
        kish, clicks = at["w"] ** 2 / at["w2"], at["ips"] ** 2 / at["w2c"]
        share = impressions.reach / at["n"]
        all_clicks = (share * at["ips"]).sum() ** 2 / (share**2 * at["w2c"]).sum()
        cut, lost = at["cut"] / at["n"], 1.0 - at["kept"] / at["w"]
        all_lost = 1.0 - (share * at["kept"]).sum() / (share * at["w"]).sum()
    kish, clicks = np.nan_to_num(kish), np.nan_to_num(clicks)
    missing = unsupported(impressions, target)
    columns = (at["n"], kish, clicks, mean, error, missing, cut, lost)
    rows = [
        Support(p, int(n), *map(float, rest))
        for p, n, *rest in zip(impressions.positions, *map(np.ndarray.tolist, columns))
    ]
    whole = (kish.min(), np.nan_to_num(all_clicks), mean.mean(), np.sqrt((error**2).sum()) / m, missing.mean())
    cut_whole = at["cut"].sum() / at["n"].sum()
    rows.append(Support(None, int(at["n"].sum()), *map(float, (*whole, cut_whole, all_lost))))
    return tuple(rows)


def unsupported(impressions: Impressions, target: Target) -> Floats:
    """(m,) the share of the target's mass at every position that the log never shows with a propensity.

    The share is averaged over queries, and over folds if they have different targets, in proportion to impressions.
    """
    shares = """
    WITH seen AS (SELECT query, {fold} AS fold, item, position, sum(weighable) AS n FROM cells WHERE weighable > 0
                  GROUP BY ALL),
         asked AS (SELECT query, fold, position, sum(n) AS n FROM seen GROUP BY ALL),
         served AS (SELECT query, fold, position, sum(x) AS x FROM seen JOIN target USING (fold, item, position)
                    GROUP BY ALL)
    SELECT position, 1 - sum(n * coalesce(x, 0)) / sum(n) AS missing
    FROM asked LEFT JOIN served USING (query, fold, position) GROUP BY position"""
    rows = impressions.connection.execute(shares.format(fold="fold" if target.learned else "0")).fetchnumpy()
    missing = np.ones(len(impressions.positions))
    missing[np.searchsorted(impressions.positions, rows["position"])] = rows["missing"]
    return np.maximum(np.where(missing > 1e-9, missing, 0.0), target.unknown)


def _arrow(columns: dict[str, Any]) -> Any:
    return import_extra("pyarrow").table(columns)
