"""Fitting the chain models: cascade, dcm, sdbn, dbn and ccm.

The maximum is found by Newton's method in a box. The smoothed problem, with one success and one failure for every
parameter, is solved first, since no parameter can be stuck at 0 or 1 there; the fit starts from its solution. A second
start checks that there is one maximum.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from ...kernels import Floats
from ...statistics.box_newton import Maximum, maximise
from ...statistics.chain.families import ChainFamily
from ...statistics.chain.likelihood import PageStatistics, core_value, page_statistics
from ...statistics.chain.objective import ChainObjective
from ..model.click_model import ClickModel, Estimates, without_intervals
from ..model.perplexity import RARE
from ..model.predictions import CHAINS
from ..model.uncertainty import Spread, Z
from .intervals import DROP
from .page_rows import PageRows
from .rate_fit import binomial_estimates

LARGEST_BLOCK = 3_000  # parameters of one query for which second derivatives are computed
DISAGREEMENT = 1e-3  # nats between two starts that are reported
DETERMINED = 1e-6  # share of the information on a parameter that must not be shared with the others
RIDGE = 1e-9  # added to the information, relative to its diagonal


class ChainProblem(NamedTuple):
    """The statistics of pages for one chain model."""

    rows: PageRows
    family: ChainFamily
    statistics: PageStatistics

    @property
    def ranks(self) -> int:
        """The number of positions."""
        return len(self.rows.pages.positions)

    @property
    def size(self) -> int:
        """The number of parameters."""
        return len(self.family.items) * len(self.rows.items) + len(self.family.shared(self.ranks))

    def objective(self, attraction: tuple[float, float], others: tuple[float, float]) -> ChainObjective:
        """Return the objective with successes and failures added to attraction, and to all other parameters."""
        successes, failures = (np.full(self.size, number) for number in others)
        successes[: len(self.rows.items)], failures[: len(self.rows.items)] = attraction
        return ChainObjective(self.family, self.statistics, self.rows.firsts, self.ranks, (successes, failures))


def fit_chain(rows: PageRows, name: str, prior: float, intervals: bool, starts: int, seed: int) -> ClickModel:
    """Return the maximum-likelihood fit of a chain model, or the mode with a prior.

    ``prior`` trials are added to every parameter: of attraction at the mean click rate of the log, of the others with
    as many successes as failures. ``starts`` is the number of starts, the first of them the same for every seed.
    """
    problem = chain_problem(rows, name)
    rate = rows.mean_rate
    objective = problem.objective((prior * rate, prior * (1.0 - rate)), (0.5 * prior, 0.5 * prior))
    plain = problem.objective((0.0, 0.0), (0.0, 0.0))
    rng, reached = np.random.default_rng(seed), []
    for k in range(starts):
        first = np.full(problem.size, 0.5) if k == 0 else rng.uniform(0.05, 0.95, problem.size)
        reached.append(_maximum(problem, objective, prior, first))
    best = max(reached, key=lambda one: one.value)
    values = tuple(one.value for one in reached)
    warnings = _warnings(best, values)
    informative = _informative(problem, plain, best.x)
    spread, identified, more = _intervals(problem, objective, best, informative, intervals)
    return _model(
        problem,
        np.where(informative, best.x, np.nan),
        spread,
        log_likelihood=plain.likelihood(best.x),
        method="newton",
        prior=prior,
        steps=best.steps,
        converged=best.converged,
        gain=best.gain,
        identified=identified,
        starts=values,
        warnings=warnings + more,
    )


def chain_problem(rows: PageRows, name: str) -> ChainProblem:
    """Return the problem of fitting the chain model of a name to pages."""
    family, pages = CHAINS[name], rows.pages
    statistics = page_statistics(
        pages.starts, rows.row, pages.position, pages.click, pages.count, len(rows.items), len(pages.positions),
        family.by_rank,
    )  # fmt: skip
    return ChainProblem(rows, family, statistics)


def _maximum(problem: ChainProblem, objective: ChainObjective, prior: float, start: Floats) -> Maximum:
    """The smoothed maximum, and from there the maximum; items without clicks have attraction 0 without a prior."""
    fixed = np.zeros(problem.size, bool)
    smoothed = _climb(problem, problem.objective((1.0, 1.0), (1.0, 1.0)), start, fixed)
    x = smoothed.x.copy()
    if prior == 0.0:
        fixed[: len(problem.rows.items)] = problem.statistics.clicks == 0.0
        x[fixed] = 0.0
    return _climb(problem, objective, x, fixed)


def _climb(problem: ChainProblem, objective: ChainObjective, start: Floats, fixed: NDArray[np.bool_]) -> Maximum:
    if _largest_block(problem) <= LARGEST_BLOCK:
        return maximise(objective, start, fixed)
    return first_order_maximum(objective, start, fixed)


def _largest_block(problem: ChainProblem) -> int:
    return int(np.diff(problem.rows.firsts).max()) * len(problem.family.items)


def first_order_maximum(objective: ChainObjective, start: Floats, fixed: NDArray[np.bool_]) -> Maximum:
    """Return the maximum by L-BFGS in the box, for queries with too many items for second derivatives.

    Variables are scaled by the standard deviation of a binomial rate, so that their curvatures are alike.
    """
    free = ~fixed
    trials = objective.successes + objective.failures + 1.0
    items = objective.statistics.clicks + objective.statistics.skips + objective.statistics.below
    trials[: items.size] += items
    scale = np.sqrt(np.maximum(start * (1.0 - start), 1e-6) / trials)[free]

    def negated(y: Floats) -> tuple[float, Floats]:
        x = start.copy()
        x[free] = np.clip(y * scale, 0.0, 1.0)
        value, slope = objective.gradient(np.clip(x, 1e-12, 1.0 - 1e-12))
        return -value, -slope[free] * scale

    found = minimize(
        negated, start[free] / scale, jac=True, method="L-BFGS-B", bounds=[(0.0, 1.0 / s) for s in scale],
        options={"maxiter": 2_000, "maxfun": 4_000, "ftol": 1e-15, "gtol": 1e-4, "maxcor": 20},
    )  # fmt: skip
    x = start.copy()
    x[free] = np.clip(found.x * scale, 0.0, 1.0)
    value, slope = objective.gradient(x)
    held = fixed | ((x <= 0.0) & (slope <= 0.0)) | ((x >= 1.0) & (slope >= 0.0))
    whole = np.ones(x.size)
    whole[free] = scale
    # A gradient in standard errors: half its squared norm bounds the gain where the curvature is binomial.
    gain = 0.5 * float(((slope * whole)[~held] ** 2).sum())
    return Maximum(x, value, slope, int(found.nit), gain < 1e-2, gain)


def _warnings(best: Maximum, values: tuple[float, ...]) -> tuple[str, ...]:
    sentences = []
    if not best.converged:
        sentences.append(
            f"The fit did not converge in {best.steps} steps; a further one may gain {best.gain:.2g} nats."
        )
    if max(values) - min(values) > DISAGREEMENT:
        sentences.append(
            f"{len(values)} starts ended {max(values) - min(values):.3g} nats apart; the best of them is reported."
        )
    return tuple(sentences)


def _informative(problem: ChainProblem, plain: ChainObjective, x: Floats) -> NDArray[np.bool_]:
    """Whether the log has information on a parameter: the likelihood has a derivative or a curvature in it."""
    if _largest_block(problem) > LARGEST_BLOCK:
        return np.abs(plain.gradient(np.clip(x, 1e-3, 1.0 - 1e-3))[1]) > 0.0
    return (plain.gradient(x)[1] != 0.0) | (plain.curvature(x).diagonal() != 0.0)


def _intervals(
    problem: ChainProblem,
    objective: ChainObjective,
    best: Maximum,
    informative: NDArray[np.bool_],
    wanted: bool,
) -> tuple[Spread, bool, tuple[str, ...]]:
    """Standard errors from the observed information, intervals on the scale of log-odds, one-sided ones at bounds.

    A parameter is not determined, and has no interval, if nearly all information on it is shared with others.
    """
    x, nothing = best.x, Spread(*np.full((3, best.x.size), np.nan))
    if not wanted:
        return nothing, True, ()
    if _largest_block(problem) > LARGEST_BLOCK:
        note = (
            f"A query has more than {LARGEST_BLOCK:,} parameters: there are no intervals and no test of identification."
        )
        return nothing, True, (note,)
    free = informative & (x > 0.0) & (x < 1.0)
    information = objective.curvature(x)
    diagonal = information.diagonal()
    variance = information.variances(free, RIDGE * np.abs(diagonal))
    if variance is None:
        return nothing, False, ("Not identified: the information on the parameters is not definite.",)
    with np.errstate(divide="ignore", invalid="ignore"):
        sure = free & (1.0 / (variance * diagonal) > DETERMINED)
        error = np.where(sure, np.sqrt(variance), np.nan)
        odds, width = np.log(x / (1.0 - x)), Z * error / (x * (1.0 - x))
        reach = np.minimum(DROP / np.abs(objective.gradient(x)[1]), 1.0)
    low, high = expit(odds - width), expit(odds + width)
    for at, least, most in ((0.0, np.zeros(x.size), reach), (1.0, 1.0 - reach, np.ones(x.size))):
        bound = informative & (x == at)
        low, high = np.where(bound, least, low), np.where(bound, most, high)
    low, high = np.where(informative, low, np.nan), np.where(informative, high, np.nan)
    lost = int((free & ~sure).sum())
    notes: tuple[str, ...] = ()
    if lost:
        notes = (
            f"Not identified: {lost:,} of {int(informative.sum()):,} parameters cannot be distinguished from others "
            "and have no intervals; their values are one choice of many.",
        )
    return Spread(error, low, high), not lost, notes


def _model(
    problem: ChainProblem,
    x: Floats,
    spread: Spread,
    *,
    log_likelihood: float,
    method: str,
    prior: float,
    steps: int,
    converged: bool,
    gain: float,
    identified: bool,
    starts: tuple[float, ...],
    warnings: tuple[str, ...],
) -> ClickModel:
    rows, family, size = problem.rows, problem.family, len(problem.rows.items)
    estimates = [
        Estimates(x[k * size : (k + 1) * size], Spread(*(part[k * size : (k + 1) * size] for part in spread)))
        for k in range(len(family.items))
    ]
    shared = Estimates(x[len(family.items) * size :], Spread(*(part[len(family.items) * size :] for part in spread)))
    parameters, labels = _shared(problem, shared)
    return ClickModel(
        model=family.name,
        items=rows.items,
        queries=rows.queries,
        positions=rows.pages.positions,
        item_parameters=dict(zip(family.items, estimates)),
        shared_parameters=parameters,
        labels=labels,
        item_counts=rows.counts,
        log_likelihood=log_likelihood,
        pages=rows.pages.pages,
        method=method,
        prior=float(prior),
        iterations=steps,
        converged=converged,
        gain=gain,
        identified=identified,
        starts=starts,
        warnings=warnings,
        origin=rows.pages.origin,
    )


def _shared(problem: ChainProblem, shared: Estimates) -> tuple[dict[str, Estimates], dict[str, tuple[str, ...]]]:
    """The shared parameters by name: one for every rank, or single numbers."""
    if problem.family.by_rank:
        return {"continuation": shared}, {"continuation": tuple(map(str, problem.rows.pages.positions))}
    names = problem.family.shared(problem.ranks)
    values, spread = shared
    single = {
        name: Estimates(values[k : k + 1], Spread(*(part[k : k + 1] for part in spread)))
        for k, name in enumerate(names)
    }
    return single, dict.fromkeys(names, ("",))


def fit_chain_counts(rows: PageRows, name: str, prior: float) -> ClickModel:
    """Return the published estimate of dcm or sdbn from counts, which is not the maximum of the likelihood.

    It assumes that the last click always ended the session: attraction is clicks over impressions at or above the last
    click (all impressions of a page without clicks), stopping is last clicks over clicks, of ranks or of items.
    """
    problem = chain_problem(rows, name)
    s, rate = problem.statistics, rows.mean_rate
    with np.errstate(invalid="ignore"):
        attraction = (s.clicks + prior * rate) / (s.clicks + s.skips + s.silent + prior)
        stopping = (s.last + 0.5 * prior) / (s.last + s.continued + prior)
    others = 1.0 - stopping if problem.family.by_rank else stopping
    x = np.concatenate([attraction, others])
    # Where there is no estimate, the likelihood is that of the most favourable value.
    filled = np.where(np.isnan(x), 0.0, x)
    alpha, kappa, g = problem.family.core(*problem.objective((0.0, 0.0), (0.0, 0.0)).split(filled))
    note = (
        f"This is the published shortcut for {name}: it takes every last click for the end of the session. It is not "
        "the maximum of the likelihood, and its bias does not vanish with more pages. Method 'newton' gives it."
    )
    return _model(
        problem,
        x,
        Spread(*np.full((3, x.size), np.nan)),
        log_likelihood=core_value(s, alpha, kappa, g),
        method="counts",
        prior=prior,
        steps=0,
        converged=True,
        gain=float("nan"),
        identified=True,
        starts=(),
        warnings=(note,),
    )


def fit_cascade(rows: PageRows, prior: float, intervals: bool) -> ClickModel:
    """Return the maximum-likelihood fit of the cascade model to pages that are cut after their first click.

    Attraction is first clicks over impressions at or above the first click: exact, and independent for every item.
    Further clicks are impossible in the model; each counts as one in a million in the log-likelihood.
    """
    pages, size = rows.pages, len(rows.items)
    page = pages.of_page()
    above = np.cumsum(pages.click) - pages.click
    above = above - above[pages.starts[:-1]][page]  # clicks above, on the same page
    weight = pages.count[page]
    seen = above == 0
    trials: Floats = np.bincount(rows.row[seen], weight[seen], size).astype(np.float64)
    clicks = np.bincount(rows.row[seen], (weight * pages.click)[seen], size)
    beyond = int(weight[(pages.click == 1) & ~seen].sum())
    with np.errstate(invalid="ignore", divide="ignore"):
        alpha = (clicks + prior * rows.mean_rate) / (trials + prior)
        alpha[trials == 0.0] = np.nan
        estimates = binomial_estimates(alpha, trials + prior) if intervals else without_intervals(alpha)
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
        items=rows.items,
        queries=rows.queries,
        positions=pages.positions,
        item_parameters={"attraction": estimates},
        shared_parameters={},
        labels={},
        item_counts=rows.counts,
        log_likelihood=float(terms.sum() + beyond * np.log(RARE)),
        pages=pages.pages,
        method="counts",
        prior=float(prior),
        iterations=0,
        converged=True,
        gain=0.0,
        identified=True,
        impossible=beyond,
        warnings=warnings,
        origin=pages.origin,
    )
