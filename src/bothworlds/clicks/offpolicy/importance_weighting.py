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

from typing import Any, NamedTuple

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
    clip: float


class _Half(NamedTuple):
    """The results with a propensity of one half of the pages, or of all of them."""

    often: Ints  # (P,) counts of pages
    number: Floats  # (K,) of results, 0 without a propensity
    w: Floats
    r: Floats  # (K,) click rates of the model
    base: Floats  # (K,) clicks by the model at the position of the result


def weighted_estimates(
    logged: LoggedPages, target: Target, model: RateModel, halves: tuple[Ints, Ints], clip: float | None
) -> Weighted:
    """Return the weighted estimates of a target, per position and for the whole page."""
    pages, m = logged.pages, logged.shape[2]
    known = ~np.isnan(pages.propensity) if pages.propensity is not None else np.zeros(pages.click.size, bool)
    fits = [model.fit(half) for half in reversed(halves)]
    parts = [_half(logged, target, h, fit, half, known) for h, (fit, half) in enumerate(zip(fits, halves))]
    shown = np.bincount(pages.position, known * pages.count[logged.page], m).astype(np.float64)
    clip = float(np.sqrt(shown[shown > 0.0].min(initial=np.inf))) if clip is None else float(clip)
    n = np.where(shown > 0.0, shown, np.nan)
    reach = np.bincount(np.arange(logged.shown.size) % m, logged.shown * logged.scale / logged.total, m)
    missing, unknown = _unsupported(logged, target, known, model)

    def total(values: list[Floats]) -> Floats:
        return np.asarray(
            sum(np.bincount(pages.position, half.number * part, m) for half, part in zip(parts, values)), np.float64
        )

    c = pages.click.astype(np.float64)
    wc, w = [half.w * c for half in parts], [half.w for half in parts]
    gains = {
        "ips": wc,
        "snips": wc,
        "clipped": [np.minimum(half.w, clip) * c for half in parts],
        "dr": [half.base + half.w * (c - half.r) for half in parts],
    }
    of_w, of_w2, of_w2c = total(w), total([one**2 for one in w]), total([one**2 * c for one in w])
    cut = total([(one > clip).astype(np.float64) for one in w])
    with np.errstate(invalid="ignore", divide="ignore"):
        mean, kish, clicks = of_w / n, np.nan_to_num(of_w**2 / of_w2), np.nan_to_num(total(wc) ** 2 / of_w2c)
        error = np.sqrt(np.maximum(of_w2 - of_w**2 / n, 0.0)) / n
        share = reach / n
        all_clicks = np.nan_to_num((share * total(wc)).sum() ** 2 / (share**2 * of_w2c).sum())
    estimates, terms = {}, {}
    for name, gain in gains.items():
        with np.errstate(invalid="ignore", divide="ignore"):
            value = total(gain) / (of_w if name == "snips" else n)
            at, base = pages.position, of_w if name == "snips" else n
            each = [(g - (half.w if name == "snips" else 1.0) * value[at]) / base[at] for half, g in zip(parts, gain)]
            variance = total([one**2 for one in each]) * n / (n - 1.0)
        lacking = unknown if name == "dr" else missing
        value = np.where(lacking > TOLERATED, np.nan, reach * value)
        each = [reach[at] * one for one in each]
        by_page = [
            (half.often, logged.by_page(np.where(half.number > 0.0, one, 0.0))) for half, one in zip(parts, each)
        ]
        terms[name] = by_page
        unseen = reach * np.where(clicks > 0.0, 0.0, 3.0 / np.maximum(kish, 3.0))
        more = np.append(unseen, unseen.sum())
        if name == "clipped":  # biased where weights were cut: no interval
            more = np.where(np.append(cut, cut.sum()) > 0.0, np.nan, more)
        errors = [*(reach * np.sqrt(variance)).tolist(), logged.error(by_page)]
        known = 1.0 - np.append(lacking, lacking @ reach / reach.sum())
        values = [*value.tolist(), float(value.sum())]
        rows = zip((*pages.positions, None), values, errors, more.tolist(), known.tolist())
        estimates[name] = [make_estimate(name, *row) for row in rows]
    columns = (np.nan_to_num(n), kish, clicks, mean, error, missing)
    supports = [
        Support(p, int(number), *map(float, rest))
        for p, number, *rest in zip(pages.positions, *(part.tolist() for part in columns))
    ]
    rest: tuple[Any, ...] = (kish.min(), all_clicks, mean.mean(), np.sqrt((error**2).sum()) / m)
    rest += (missing @ reach / reach.sum(),)
    supports.append(Support(None, int(shown.sum()), *map(float, rest)))
    return Weighted(estimates, tuple(supports), terms, clip)


def _half(
    logged: LoggedPages,
    target: Target,
    part: int,
    fit: FittedRates,
    count: Ints,
    known: Mask,
) -> _Half:
    pages, mass = logged.pages, target.parts[part % len(target.parts)]
    x = _looked_up(mass, logged.place, np.asarray(pages.item, np.int64), logged.shape[1])
    design = fit.design
    r = np.nan_to_num(fit.fitted.predict(design.row, design.columns))[design.cell]
    query, position = np.divmod(mass.place, logged.shape[2])
    zero = np.zeros(mass.place.size, np.int64)
    clicks = fit.predict(Placements(zero, query, query, mass.item, position, zero, mass.x)).clicks
    base: Any = np.bincount(mass.place, np.nan_to_num(clicks), logged.shown.size)[logged.place]
    with np.errstate(invalid="ignore"):
        w = np.where(known, x / np.asarray(pages.propensity), 0.0)
    if target.has is not None and not target.has.all():  # queries that keep their rankings
        own = ~target.has[pages.query[logged.page]]
        w, r, base = np.where(own & known, 1.0, w), np.where(own, 0.0, r), np.where(own, 0.0, base)
    number = np.asarray(count[logged.page] * known, np.float64)
    return _Half(count, number, np.asarray(w, np.float64), r, np.asarray(base, np.float64))


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
