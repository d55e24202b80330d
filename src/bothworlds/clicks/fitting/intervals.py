"""How far a fit can be trusted: standard errors and 95% intervals of attraction and examination."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels import Floats
from ...statistics.rank_one.batch import LIMIT, Bench
from .design import Design, Links
from .optimiser import Settings, anchors, maximise, start, variances

__all__ = ["Spread", "Z", "bootstrap", "delta", "nothing"]

Z = 1.959964  # 95% of a normal distribution, two sides
DROP = -np.log(0.05)  # where the likelihood has fallen to a twentieth: the rule of three, and Clopper and Pearson's


class Spread(NamedTuple):
    """Standard errors and limits of 95% intervals; NaN where the counts do not say."""

    error: Floats
    low: Floats
    high: Floats


def nothing(design: Design, links: Links, settings: Settings, bench: Bench) -> tuple[Spread, Spread]:
    """No standard errors were asked for."""
    return (
        Spread(*np.full((3, bench.a.size), np.nan)),
        Spread(*np.full((3, *bench.b.shape), np.nan)),
    )


def delta(design: Design, links: Links, settings: Settings, bench: Bench) -> tuple[Spread, Spread]:
    """By the delta method: logs are all but normal, with the inverse of the information as their covariance."""
    spreads = []
    for logs, variance in zip((bench.a, bench.b), variances(design, links, settings, bench)):
        middle, error = np.exp(logs), np.sqrt(variance)
        with np.errstate(over="ignore"):
            spreads.append(Spread(middle * error, middle * np.exp(-Z * error), middle * np.exp(Z * error)))
    return _at_the_limits(design, links, bench, *spreads)


def bootstrap(
    design: Design, links: Links, settings: Settings, bench: Bench, replications: int, seed: int
) -> tuple[Spread, Spread]:
    """By fitting again what users of the fitted model would have clicked, with the same impressions.

    Clicks are drawn from the fitted probabilities, and not from observed rates, since a pair that was shown once would
    otherwise never vary.
    """
    rng, again = np.random.default_rng(seed), start(design)
    shown = design.shown.astype(np.int64)
    probability = np.nan_to_num(np.exp(bench.a[:, None] + bench.b[design.group]))
    drawn: tuple[list[Floats], list[Floats]] = [], []
    for _ in range(replications):
        clicks = rng.binomial(shown, probability).astype(np.float64)
        np.copyto(again.a, np.maximum(bench.a, -49.0))
        np.copyto(again.b, np.maximum(bench.b, -49.0))
        with np.errstate(invalid="ignore"):  # a component may be without clicks this time
            maximise(design._replace(clicked=clicks), links, settings, again, warm=True)
        drawn[0].append(np.exp(again.a))
        drawn[1].append(np.exp(again.b))
    spreads = [
        Spread(np.std(sample, axis=0, ddof=1), *np.quantile(sample, (0.025, 0.975), axis=0))
        for sample in map(np.array, drawn)
    ]
    return _at_the_limits(design, links, bench, *spreads)


def _at_the_limits(
    design: Design, links: Links, bench: Bench, items: Spread, positions: Spread
) -> tuple[Spread, Spread]:
    """One-sided intervals, of likelihood, for what is at 0 or 1; NaN for what was never shown."""
    weight = np.exp(bench.b)[design.group]
    np.minimum(items.high, 1.0, out=items.high)
    never = bench.a == -np.inf
    exposure = (design.shown * weight).sum(axis=1, where=np.isfinite(weight))
    _fill(items, never, np.nan, 0.0, _rule_of_three(exposure))
    full = bench.a > LIMIT
    _fill(items, full, np.nan, 1.0, 1.0)
    items.low[full] = _lower_limits(design.shown[full], design.clicked[full], np.nan_to_num(weight[full]))
    exposure = np.add.reduceat(design.shown * np.nan_to_num(np.exp(bench.a))[:, None], design.starts[:-1])
    _fill(positions, bench.b == -np.inf, np.nan, 0.0, _rule_of_three(exposure))
    unseen = design.shown.sum(axis=1) == 0.0
    _fill(items, unseen, np.nan, np.nan, np.nan)
    _fill(positions, anchors(links, bench) < 0, np.nan, np.nan, np.nan)
    return items, positions


def _rule_of_three(exposure: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.minimum(DROP / exposure, 1.0)


def _fill(spread: Spread, where: NDArray[np.bool_], error: float, low: float, high: Floats | float) -> None:
    spread.error[where], spread.low[where] = error, low
    spread.high[where] = high[where] if isinstance(high, np.ndarray) else high


def _lower_limits(shown: Floats, clicked: Floats, beta: Floats) -> Floats:
    """(n,) attraction at which the likelihood of an item is a twentieth of that at 1, by bisection in the log."""
    low, high = np.full(len(shown), -20.0), np.full(len(shown), -1e-6)

    def likelihood(a: Floats) -> Floats:
        missed = np.log1p(-np.minimum(np.exp(a)[:, None] * beta, 1.0 - 1e-6))
        return (clicked * a[:, None] + (shown - clicked) * missed).sum(axis=1)

    best = likelihood(high)
    for _ in range(50):
        middle = 0.5 * (low + high)
        below = likelihood(middle) < best - DROP
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.exp(high)
