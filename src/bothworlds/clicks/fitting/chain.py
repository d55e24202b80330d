"""Fitting the chain models: cascade, dcm, sdbn, dbn and ccm.

The smoothed problem, with one success and one failure for every parameter, is solved first, since no parameter can be
stuck at 0 or 1 there; the fit starts from its solution. A second start checks that there is one maximum.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import expit

from ...kernels import Floats
from ...statistics.chain import FAMILIES, ChainLikelihood
from ..model.model import ClickModel, Estimates, Z, without_intervals
from ..model.predict import RARE
from ..pages import Pages
from .box import Maximum, maximise, not_converged, starts_disagree
from .design import Design, design_of_pages, positions_of
from .rates import DROP, binomial_estimates

STARTS = 2
LARGEST_BLOCK = 3_000  # parameters of one query for which standard errors are computed
DETERMINED = 1e-6  # share of the information on a parameter that must not be shared with the others
FLAT = 1e-9  # smaller eigenvalues of an information matrix with diagonal 1 count as this
CURVED = 1e-3  # and it has a maximum only if none is below minus this


def fit_chain(pages: Pages, name: str, prior: float, intervals: bool, seed: int, starts: int = STARTS) -> ClickModel:
    """Return the maximum-likelihood fit of a chain model, or the mode with a prior.

    ``prior`` trials are added to every parameter: of attraction at the mean click rate of the log, of the others with
    as many successes as failures. ``starts`` is the number of starts, the first of them the same for every seed.
    """
    design = design_of_pages(pages, [positions_of(pages)])
    plain = chain_likelihood(pages, design, name)
    rate, n = float(design.clicked.sum() / design.shown.sum()), len(design.items)
    added = np.full((2, plain.parameters), 0.5 * prior)
    added[:, :n] = [[prior * rate], [prior * (1.0 - rate)]]
    rng, reached = np.random.default_rng(seed), []
    for k in range(starts):
        start = np.full(plain.parameters, 0.5) if k == 0 else rng.uniform(0.05, 0.95, plain.parameters)
        reached.append(_maximum(plain, design, added, start, pages.pages))
    best = max(reached, key=lambda one: one.value)
    values = tuple(one.value for one in reached)
    x, known = best.x, plain.informative(best.x)
    spread, identified, notes = _intervals(plain, design, added, x, known) if intervals else (None, True, ())
    value = np.where(known, x, np.nan)
    estimates = without_intervals(value) if spread is None else Estimates(value, *spread)
    family, items = FAMILIES[name], len(FAMILIES[name].items)
    shared = estimates.take(slice(items * n, None))
    labels = (
        {"continuation": tuple(map(str, pages.positions))} if family.by_rank else dict.fromkeys(family.shared, ("",))
    )
    return ClickModel(
        model=name,
        items=design.items,
        queries=design.queries,
        positions=pages.positions,
        item_parameters={word: estimates.take(slice(k * n, k * n + n)) for k, word in enumerate(family.items)},
        shared_parameters={
            word: shared if family.by_rank else shared.take(slice(k, k + 1)) for k, word in enumerate(family.shared)
        },
        labels=labels,
        item_counts=design.row_counts,
        log_likelihood=plain.expect(x).value,
        pages=pages.pages,
        prior=float(prior),
        iterations=best.steps,
        converged=best.converged,
        gain=best.gain,
        identified=identified,
        starts=values,
        warnings=(*not_converged(best), *starts_disagree(values), *notes),
        origin=pages.origin,
    )


def chain_likelihood(pages: Pages, design: Design, name: str) -> ChainLikelihood:
    """Return the likelihood of a chain model for pages; ``design`` has their rows."""
    return ChainLikelihood(
        FAMILIES[name], pages.starts, design.row[design.cell], pages.position, pages.click, pages.count,
        len(design.items), len(pages.positions),
    )  # fmt: skip


def posterior(plain: ChainLikelihood, added: Floats, x: Floats) -> tuple[float, Floats]:
    """Return the log-likelihood with successes and failures (2, size) added to parameters, and its derivatives."""
    value, slope = plain.gradient(x)
    if added.any():
        value += float(added[0] @ np.log(np.maximum(x, 1e-300)) + added[1] @ np.log(np.maximum(1.0 - x, 1e-300)))
        slope = slope + added[0] / np.maximum(x, 1e-300) - added[1] / np.maximum(1.0 - x, 1e-300)
    return value, slope


def _maximum(plain: ChainLikelihood, design: Design, added: Floats, start: Floats, pages: int) -> Maximum:
    """The smoothed maximum, and from there the maximum; items without clicks have attraction 0 without a prior."""
    shown, clicked = design.row_counts
    fixed, trials = np.zeros(start.size, bool), np.full(start.size, 1.0 + pages)
    trials[: len(plain.family.items) * shown.size] = 1.0 + np.tile(shown, len(plain.family.items))
    ones = np.ones((2, start.size))
    smoothed = maximise(lambda x: posterior(plain, ones, x), start, trials + 2.0, fixed, rounds=1)
    x = smoothed.x.copy()
    if not added.any():
        fixed[: shown.size] = clicked == 0
        x[fixed] = 0.0
    best = maximise(lambda x: posterior(plain, added, x), x, trials, fixed)
    return best._replace(steps=best.steps + smoothed.steps)


def _intervals(
    plain: ChainLikelihood, design: Design, added: Floats, x: Floats, known: NDArray[np.bool_]
) -> tuple[tuple[Floats, Floats, Floats] | None, bool, tuple[str, ...]]:
    """Standard errors from the observed information, intervals on the scale of log-odds, one-sided ones at bounds.

    A parameter is not determined, and has no interval, if nearly all information on it is shared with others.
    """
    p = len(plain.family.items)
    first = [0, *(k for k in range(1, len(design.items)) if design.queries[k] != design.queries[k - 1]), plain.rows]
    if p * int(np.diff(first).max()) > LARGEST_BLOCK:
        note = f"A query has more than {LARGEST_BLOCK:,} parameters: no intervals, and no test of identification."
        return None, True, (note,)
    free = known & (x > 0.0) & (x < 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        extra = np.where(added[0] > 0.0, added[0] / x**2 + added[1] / (1.0 - x) ** 2, 0.0)
    information = plain.information(x)
    diagonal = information.diagonal() + extra
    groups = [
        np.concatenate([k * plain.rows + np.arange(low, high) for k in range(p)]) for low, high in pairwise(first)
    ]
    variance = arrow_variances(information, extra, groups, np.arange(p * plain.rows, x.size), free)
    if variance is None:
        return None, False, ("Not identified: the information on the parameters is not definite.",)
    slope = posterior(plain, added, x)[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        sure = free & (1.0 / (variance * diagonal) > DETERMINED)
        error = np.where(sure, np.sqrt(variance), np.nan)
        odds, width = np.log(x / (1.0 - x)), Z * error / (x * (1.0 - x))
        reach = np.minimum(DROP / np.abs(slope), 1.0)
    low, high = expit(odds - width), expit(odds + width)
    for at, least, most in ((0.0, np.zeros(x.size), reach), (1.0, 1.0 - reach, np.ones(x.size))):
        bound = known & (x == at)
        low, high = np.where(bound, least, low), np.where(bound, most, high)
    low, high = np.where(known, low, np.nan), np.where(known, high, np.nan)
    lost = int((free & ~sure).sum())
    notes: tuple[str, ...] = ()
    if lost:
        notes = (
            f"Not identified: {lost:,} of {int(known.sum()):,} parameters cannot be distinguished from others "
            "and have no intervals; their values are one choice of many.",
        )
    return (error, low, high), not lost, notes


def arrow_variances(
    matrix: csr_array, extra: Floats, groups: list[Any], shared: Any, free: NDArray[np.bool_]
) -> Floats | None:
    """Return the diagonal of the inverse of an information matrix over its free entries, NaN elsewhere.

    Groups of parameters have no entries in common, but with the shared ones, which are eliminated last. ``extra`` is
    added to the diagonal. Returns None if the matrix is not positive definite.
    """
    result, border = np.full(extra.size, np.nan), shared[free[shared]]
    corner = matrix[border][:, border].toarray() + np.diag(extra[border])
    solved = []
    try:
        for own in (group[free[group]] for group in groups):
            rows = matrix[own]
            block = _inverse(rows[:, own].toarray() + np.diag(extra[own]))
            side = rows[:, border].toarray()
            solved.append((own, block, block @ side))
            corner -= side.T @ block @ side
        inverse = _inverse(corner)
    except np.linalg.LinAlgError:
        return None
    for own, block, side in solved:
        result[own] = block.diagonal() + np.einsum("is,st,it->i", side, inverse, side)
    result[border] = inverse.diagonal()
    return result


def _inverse(information: Floats) -> Floats:
    """Return the inverse, in which flat directions are large; raise LinAlgError if the matrix is not definite."""
    if (information.diagonal() <= 0.0).any():
        raise np.linalg.LinAlgError
    scale = 1.0 / np.sqrt(information.diagonal())
    values, vectors = np.linalg.eigh(information * scale[:, None] * scale)
    if values.min(initial=1.0) < -CURVED:
        raise np.linalg.LinAlgError
    sides = vectors * scale[:, None]
    return (sides / np.maximum(values, FLAT)) @ sides.T


def fit_cascade(pages: Pages, prior: float, intervals: bool) -> ClickModel:
    """Return the maximum-likelihood fit of the cascade model to pages that are cut after their first click.

    Attraction is first clicks over impressions at or above the first click: exact, and independent for every item.
    Further clicks are impossible in the model; each counts as one in a million in the log-likelihood.
    """
    design, page = design_of_pages(pages, [positions_of(pages)]), pages.of_page()
    row, size = design.row[design.cell], len(design.items)
    above = np.cumsum(pages.click) - pages.click
    above = above - above[pages.starts[:-1]][page]  # clicks above, on the same page
    weight, seen = pages.count[page], above == 0
    trials: Floats = np.bincount(row[seen], weight[seen], size).astype(np.float64)
    clicks = np.bincount(row[seen], (weight * pages.click)[seen], size)
    beyond = int(weight[(pages.click == 1) & ~seen].sum())
    mean = design.clicked.sum() / design.shown.sum()
    with np.errstate(invalid="ignore", divide="ignore"):
        alpha = np.where(trials > 0.0, (clicks + prior * mean) / (trials + prior), np.nan)
        terms = np.where(clicks > 0, clicks * np.log(alpha), 0.0)
        terms += np.where(trials > clicks, (trials - clicks) * np.log1p(-alpha), 0.0)
    warnings: tuple[str, ...] = ()
    if beyond:
        several = int(pages.count[np.add.reduceat(pages.click.astype(np.int64), pages.starts[:-1]) > 1].sum())
        warnings = (
            f"{several:,} of {pages.pages:,} pages have more than one click, which the cascade model rules out; the "
            f"fit ends such a page at its first click, and each of the {beyond:,} others counts as one in a million.",
        )
    return ClickModel(
        model="cascade",
        items=design.items,
        queries=design.queries,
        positions=pages.positions,
        item_parameters={"attraction": binomial_estimates(alpha, trials + prior, intervals)},
        shared_parameters={},
        labels={},
        item_counts=design.row_counts,
        log_likelihood=float(terms.sum() + beyond * np.log(RARE)),
        pages=pages.pages,
        method="counts",
        prior=float(prior),
        impossible=beyond,
        warnings=warnings,
        origin=pages.origin,
    )
