"""Fitting the chain models: cascade, dcm, sdbn, dbn and ccm.

The smoothed problem, with one success and one failure for every parameter, is solved first, since no parameter can be
stuck at 0 or 1 there; the fit starts from its solution. A second start checks that there is one maximum.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array, diags_array
from scipy.special import xlog1py, xlogy

from ...kernels import Floats
from ...statistics.chain import FAMILIES, ChainLikelihood
from ..model.model import ClickModel, without_intervals
from ..model.predict import RARE
from ..pages import Pages
from .box import Maximum, best_of, maximise
from .design import Design, design_of_pages, fitted_model, positions_of
from .intervals import binomial_estimates, probability_estimates, standard_errors
from .options import Options
from .warnings import box_warnings, undetermined

STARTS = 2


def fit_chain(pages: Pages, name: str, options: Options) -> ClickModel:
    """Return the maximum-likelihood fit of a chain model, or the mode with a prior.

    The prior adds trials to every parameter: of attraction at the mean click rate of the log, of the others with as
    many successes as failures. The first start is the same for every seed.
    """
    prior, starts = options.prior, options.starts or STARTS
    design = design_of_pages(pages, [positions_of(pages)])
    plain = chain_likelihood(pages, design, name)
    rate, n = float(design.clicked.sum() / design.shown.sum()), len(design.items)
    added = np.full((2, plain.parameters), 0.5 * prior)
    added[:, :n] = [[prior * rate], [prior * (1.0 - rate)]]
    rng = np.random.default_rng(options.seed)
    at = [np.full(plain.parameters, 0.5), *(rng.uniform(0.05, 0.95, plain.parameters) for _ in range(starts - 1))]
    best = best_of(lambda start: _climb(plain, design, added, start, pages.pages), at)
    x, known = best.x, plain.informative(best.x)
    value, (family, notes) = np.where(known, x, np.nan), (FAMILIES[name], box_warnings(best))
    estimates, identified = without_intervals(value), True
    if options.intervals:
        inside = known & (x > 0.0) & (x < 1.0)
        of_prior = np.divide(added[0], x**2, where=inside, out=np.zeros(x.size))
        of_prior += np.divide(added[1], (1.0 - x) ** 2, where=inside, out=np.zeros(x.size))
        information = csr_array(plain.information(x) + diags_array(of_prior))
        found = standard_errors(information, x.size - n * len(family.items), inside)
        notes += undetermined(found, inside, int(known.sum()))
        if found is not None:
            estimates = probability_estimates(value, found[0], posterior(plain, added, x)[1])
            identified = bool(found[1][inside].all())
    shared = estimates.take(slice(n * len(family.items), None))
    each = [shared] if family.by_rank else [shared.take(slice(k, k + 1)) for k in range(len(family.shared))]
    return fitted_model(
        design,
        pages,
        name,
        prior,
        item_parameters={word: estimates.take(slice(k * n, k * n + n)) for k, word in enumerate(family.items)},
        shared_parameters=dict(zip(family.shared, each)),
        labels=dict.fromkeys(family.shared, tuple(map(str, pages.positions)) if family.by_rank else ("",)),
        log_likelihood=plain.expect(x).value,
        iterations=best.steps,
        converged=best.converged,
        gain=best.gain,
        identified=identified,
        starts=best.starts,
        warnings=notes,
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
        value += float((xlogy(added[0], x) + xlog1py(added[1], -x)).sum())
        slope = slope + added[0] / np.maximum(x, 1e-300) - added[1] / np.maximum(1.0 - x, 1e-300)
    return value, slope


def _climb(plain: ChainLikelihood, design: Design, added: Floats, start: Floats, pages: int) -> Maximum:
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


def fit_cascade(pages: Pages, name: str, options: Options) -> ClickModel:
    """Return the maximum-likelihood fit of the cascade model to pages that are cut after their first click.

    Attraction is first clicks over impressions at or above the first click: exact, and independent for every item.
    Further clicks are impossible in the model; each counts as one in a million in the log-likelihood.
    """
    prior = options.prior
    design, page = design_of_pages(pages, [positions_of(pages)]), pages.of_page()
    row, size = design.row[design.cell], len(design.items)
    above = np.cumsum(pages.click) - pages.click
    above = above - above[pages.starts[:-1]][page]  # clicks above, on the same page
    weight, seen = pages.count[page], above == 0
    trials: Floats = np.bincount(row[seen], weight[seen], size).astype(np.float64)
    clicks = np.bincount(row[seen], (weight * pages.click)[seen], size)
    beyond = int(weight[(pages.click == 1) & ~seen].sum())
    several = int(pages.count[np.unique(page[(pages.click == 1) & ~seen])].sum())
    mean = design.clicked.sum() / design.shown.sum()
    alpha = np.divide(clicks + prior * mean, trials + prior, where=trials > 0.0, out=np.full(size, np.nan))
    warnings = (
        f"{several:,} of {pages.pages:,} pages have more than one click, which the cascade model rules out; the fit "
        f"ends such a page at its first click, and each of the {beyond:,} others counts as one in a million.",
    )
    known = trials > 0.0
    value = float((xlogy(clicks, alpha) + xlog1py(trials - clicks, -alpha))[known].sum())
    return fitted_model(
        design,
        pages,
        name,
        prior,
        item_parameters={"attraction": binomial_estimates(alpha, trials + prior, options.intervals)},
        shared_parameters={},
        labels={},
        log_likelihood=value + beyond * float(np.log(RARE)),
        method="counts",
        impossible=beyond,
        warnings=warnings if beyond else (),
    )
