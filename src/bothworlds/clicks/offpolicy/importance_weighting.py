r"""Importance weighting: every logged result is weighted by how much more often the target would show it.

If a click at position j depends only on the item there, the weight of a result is a ratio of marginals of its query,
:math:`w = x_{qij} / p`, and not of probabilities of whole lists. With c = 1 for a click, r the click rate of a
position-based fit to the other half of the pages, and sums over the n results at j:

.. math::

    \text{ips} &= \tfrac1n \sum w c &
    \text{snips} &= \sum w c \big/ \sum w &
    \text{clipped} &= \tfrac1n \sum \min(w, M) c &
    \text{dr} &= \tfrac1n \sum \Big( \sum_i x_{qij} r_{qij} + w (c - r) \Big)

The estimate of a page is the sum over its positions, each times the share of pages that have it. Every estimate nearly
is its expectation plus a sum of terms of results, such as :math:`(w c - \text{ips}) / n`, which are added up by page.

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

from typing import NamedTuple

import numpy as np

from ...kernels import Floats, Ints
from .click_rates import FittedRates, RateModel
from .logged import LoggedPages, Mask, Placements
from .result import Estimate, Support, make_estimate
from .targets import Mass, Target

TOLERATED = 1e-9  # share of a target


class Weighted(NamedTuple):
    """Weighted estimates, the support of the target, and what every page adds to each estimate."""

    estimates: dict[str, list[Estimate]]
    support: tuple[Support, ...]
    terms: dict[str, list[tuple[Ints, Floats]]]


def weighted_estimates(
    logged: LoggedPages, target: Target, model: RateModel, halves: tuple[Ints, Ints], clip: float | None
) -> Weighted:
    """Return the weighted estimates of a target, per position and for the whole page.

    Arrays (2, K) have an entry for every result in both halves of the pages.
    """
    pages, m, at = logged.pages, logged.shape[2], logged.pages.position
    known = ~np.isnan(pages.propensity) if pages.propensity is not None else np.zeros(pages.click.size, bool)
    number = np.array([half[logged.page] * known for half in halves], np.float64)
    fits = [model.fit(half) for half in reversed(halves)]
    w, r, base = np.stack([_weights(logged, target, h, fit, known) for h, fit in enumerate(fits)], axis=1)
    reach = np.bincount(np.arange(logged.shown.size) % m, logged.shown * logged.scale / logged.total, m)
    missing, unknown = _unsupported(logged, target, known, model)

    def total(values: Floats) -> Floats:
        """(m,) sums over results."""
        return np.bincount(at, (number * values).sum(axis=0), m).astype(np.float64)

    shown = total(np.ones_like(number))
    n = np.where(shown > 0.0, shown, np.nan)
    cap = float(np.sqrt(shown[shown > 0.0].min(initial=np.inf))) if clip is None else float(clip)
    c = pages.click.astype(np.float64)
    gains = {"ips": w * c, "snips": w * c, "clipped": np.minimum(w, cap) * c, "dr": base + w * (c - r)}
    of_w, of_w2, of_w2c = total(w), total(w**2), total(w**2 * c)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean, kish = of_w / n, np.nan_to_num(of_w**2 / of_w2)
        clicks = np.nan_to_num(total(w * c) ** 2 / of_w2c)
        error = np.sqrt(np.maximum(of_w2 - of_w**2 / n, 0.0)) / n
        all_clicks = np.nan_to_num((reach / n * total(w * c)).sum() ** 2 / ((reach / n) ** 2 * of_w2c).sum())
    estimates, terms = {}, {}
    for name, gain in gains.items():
        size, each = (of_w, w) if name == "snips" else (n, np.ones_like(w))
        with np.errstate(invalid="ignore", divide="ignore"):
            value = total(gain) / size
            each = (gain - each * value[at]) / size[at]
            variance = total(each**2) * n / (n - 1.0)
        lacking = unknown if name == "dr" else missing
        value = np.where(lacking > TOLERATED, np.nan, reach * value)
        each = np.where(number > 0.0, reach[at] * each, 0.0)
        terms[name] = [(half, logged.by_page(one)) for half, one in zip(halves, each)]
        unseen = reach * np.where(clicks > 0.0, 0.0, 3.0 / np.maximum(kish, 3.0))
        more = np.append(unseen, unseen.sum())
        if name == "clipped":  # biased where weights were cut: no interval
            cut = total((w > cap).astype(np.float64))
            more = np.where(np.append(cut, cut.sum()) > 0.0, np.nan, more)
        errors = [*(reach * np.sqrt(variance)).tolist(), logged.error(terms[name])]
        determined = 1.0 - np.append(lacking, lacking @ reach / reach.sum())
        values = [*value.tolist(), float(value.sum())]
        rows = zip((*pages.positions, None), values, errors, more.tolist(), determined.tolist())
        estimates[name] = [make_estimate(name, *row) for row in rows]
    columns = (shown, kish, clicks, mean, error, missing)
    supports = [
        Support(p, int(size), *map(float, rest))
        for p, size, *rest in zip(pages.positions, *(part.tolist() for part in columns))
    ]
    rest = (kish.min(), all_clicks, mean.mean(), np.sqrt((error**2).sum()) / m, missing @ reach / reach.sum())
    supports.append(Support(None, int(shown.sum()), *map(float, rest)))
    return Weighted(estimates, tuple(supports), terms)


def _weights(logged: LoggedPages, target: Target, part: int, fit: FittedRates, known: Mask) -> Floats:
    """(3, K) the weight of every result, its click rate by a model, and the model's clicks at its position."""
    pages, mass = logged.pages, target.parts[part % len(target.parts)]
    x = _looked_up(mass, logged.place, np.asarray(pages.item, np.int64), logged.shape[1])
    design = fit.design
    r = np.nan_to_num(fit.fitted.predict(design.row, design.columns))[design.cell]
    query, position = np.divmod(mass.place, logged.shape[2])
    zero = np.zeros(mass.place.size, np.int64)
    clicks = fit.predict(Placements(zero, query, query, mass.item, position, zero, mass.x)).clicks
    base = np.bincount(mass.place, np.nan_to_num(clicks), logged.shown.size)[logged.place]
    with np.errstate(invalid="ignore"):
        w = np.where(known, x / np.asarray(pages.propensity, np.float64), 0.0)
    if target.has is not None and not target.has.all():  # queries that keep their rankings
        own = ~target.has[pages.query[logged.page]]
        w, r, base = np.where(own & known, 1.0, w), np.where(own, 0.0, r), np.where(own, 0.0, base)
    return np.array([w, r, base])


def _looked_up(mass: Mass, place: Ints, item: Ints, items: int) -> Floats:
    """The probability in the target of every (place, item)."""
    own = mass.item >= 0
    key, x = mass.place[own] * items + mass.item[own], mass.x[own]
    order = np.argsort(key, kind="stable")
    key, x = key[order], x[order]
    wanted = place * items + item
    at = np.minimum(np.searchsorted(key, wanted), max(key.size - 1, 0))
    return np.where(key[at] == wanted, x[at], 0.0) if key.size else np.zeros(wanted.size)


def _unsupported(logged: LoggedPages, target: Target, known: Mask, model: RateModel) -> tuple[Floats, Floats]:
    """(m,) the share of the target that is never shown with a propensity, and of that what the model does not know."""
    m = logged.shape[2]
    fit, missing, unknown = model.fit(), np.zeros(m), np.zeros(m)
    shown = np.bincount(fit.design.cell, known * logged.pages.count[logged.page], fit.design.shown.size)
    share = np.bincount(np.arange(logged.shown.size) % m, logged.shown * logged.scale / logged.total, m)
    for k in range(len(target.parts)):
        p = target.placements(logged, logged.pages.count, k)
        row, seen = fit.rows(p.query, p.item), np.zeros(p.item.size, bool)
        at = np.flatnonzero(row >= 0)
        cell = fit._cell_of(row[at], p.position[at, None])
        seen[at] = (cell >= 0) & (shown[cell] > 0.0)
        open_too = ~seen & np.isnan(fit.predict(p).clicks)
        missing += np.bincount(p.position, p.weight * ~seen, m)
        unknown += np.bincount(p.position, p.weight * open_too, m)
    share = len(target.parts) * np.maximum(share, 1e-300)
    return missing / share, unknown / share
