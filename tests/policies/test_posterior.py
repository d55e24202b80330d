"""Draws of attraction against the density they come from, by numerical integration."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import xlog1py, xlogy

from bothworlds.policies.pbm_ts import HAT, put_hat
from tests.cases import case
from tests.reference.posterior import draw_many

CASES = {
    "spread over three positions": ([40, 300, 2000], [18, 55, 120], [0.9, 0.5, 0.1]),
    "nothing known": ([0, 0], [0, 0], [1.0, 0.5]),
    "no click": ([30, 4], [0, 0], [1.0, 0.3]),
    "no click and few looks": ([1, 0], [0, 0], [0.2, 0.1]),
    "one click": ([1, 40], [0, 1], [1.0, 0.05]),
    "always clicked": ([25, 3], [25, 3], [1.0, 0.9]),
    "clicked more often than it can be": ([50, 50], [45, 40], [0.5, 0.6]),
    "one miss": ([100, 0], [99, 0], [1.0, 0.5]),
    "mode near one": ([2000, 10], [1400, 2], [0.7, 0.2]),
    "many": ([3_000_000, 1_000_000], [1_200_000, 100_000], [0.8, 0.2]),
    "rare": ([1_000_000, 5], [3, 0], [1.0, 1.0]),
    "half forgotten": ([0.37, 2.25], [0.11, 0.6], [1.0, 0.4]),
}


def log_density(theta, shown, clicked, examination):
    s, f = np.sum(clicked), np.subtract(shown, clicked)
    return xlogy(s, theta) + xlog1py(f, -np.multiply.outer(theta, examination)).sum(axis=-1)


def support(*counts):
    """Where there is mass."""
    grid = np.linspace(0.0, 1.0, 20_001)
    for _ in range(4):
        h = log_density(grid, *counts)
        inside = np.flatnonzero(h > h.max() - 40.0)
        low, high = grid[max(inside[0] - 1, 0)], grid[min(inside[-1] + 1, grid.size - 1)]
        grid = np.linspace(low, high, 20_001)
    return low, high


def distribution(*counts):
    """The distribution function, by the trapezoidal rule."""
    grid = np.linspace(*support(*counts), 20_001)
    h = log_density(grid, *counts)
    density = np.exp(h - h.max())
    mass = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
    return lambda theta: np.interp(theta, grid, mass / mass[-1])


@pytest.mark.parametrize("counts", CASES.values(), ids=CASES.keys())
def test_draws_follow_the_posterior(counts):
    draws = draw_many(*counts, 100_000, np.random.default_rng(1))
    assert draws.min() >= 0.0
    assert draws.max() <= 1.0
    assert stats.kstest(draws, distribution(*counts)).pvalue > 1e-3


def test_with_full_examination_it_is_a_beta_distribution():
    draws = draw_many([30, 12], [9, 5], [1.0, 1.0], 100_000, np.random.default_rng(2))
    assert stats.kstest(draws, stats.beta(1 + 14, 1 + 28).cdf).pvalue > 1e-3


@pytest.mark.slow
def test_the_test_can_tell_a_wrong_posterior():
    """One click too many, and the first position's share of the counts alone."""
    shown, clicked, examination = CASES["spread over three positions"]
    for wrong in (([40, 300, 2001], [18, 55, 121]), ([40, 0, 0], [18, 0, 0])):
        draws = draw_many(*wrong, examination, 100_000, np.random.default_rng(3))
        assert stats.kstest(draws, distribution(shown, clicked, examination)).pvalue < 1e-3


@pytest.mark.slow
def test_draws_follow_the_posterior_of_random_counts():
    rng = np.random.default_rng(4)
    for _ in range(60):
        m = rng.integers(1, 6)
        shown = rng.integers(0, 10 ** rng.integers(1, 6), m)
        examination = rng.random(m) ** 2
        clicked = rng.binomial(shown, examination * rng.random())
        draws = draw_many(shown, clicked, examination, 5_000, rng)
        assert stats.kstest(draws, distribution(shown, clicked, examination)).pvalue > 1e-5


@pytest.mark.parametrize("counts", CASES.values(), ids=CASES.keys())
def test_the_hat_lies_above_the_density_and_not_much(counts):
    """Wherever the search for the mode starts: an item that was always clicked starts at the end of the interval."""
    for start in (0.0, 1e-9, 0.5, 1.0 - 1e-7, 1.0 - 2.0**-53):
        with case(start=start):
            shown, clicked, examination = (np.array(part, dtype=float) for part in counts)
            hat = np.zeros(HAT)
            hat[0] = start
            put_hat(shown, clicked, examination, hat)
            _, top, left, right, rise, fall, at_0, at_1 = hat
            theta = np.linspace(*support(*counts), 20_001)
            h = log_density(theta, *counts) - top
            above = np.minimum(0.0, np.minimum(rise * (theta - left), fall * (theta - right)))
            assert (h <= above + 1e-6).all()
            area = (right - left) + ((1.0 - at_0) / rise if rise else 0.0) + ((at_1 - 1.0) / fall if fall else 0.0)
            assert np.trapezoid(np.exp(h), theta) > 0.5 * area
            assert abs(h.max()) < 1e-4
