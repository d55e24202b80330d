"""Confidence sequences: the boundary against its definition, strata, and coverage at all times."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothworlds.statistics.confidence_sequence import (
    NARROWEST_AT,
    Estimate,
    difference,
    half_width,
    interval,
    log_ratio,
    standard_errors,
)

ALPHAS = st.sampled_from([0.5, 0.05, 0.025, 1e-3, 1e-6])
UNITS = st.floats(1.5, 7.0).map(lambda exponent: 10.0**exponent)


def rho_squared(alpha: float) -> float:
    return (-2.0 * math.log(alpha) + math.log(1.0 - 2.0 * math.log(alpha))) / NARROWEST_AT


def mixture(total: float, n: float, rho2: float) -> float:
    """The mixture of exp(lam S - lam^2 n / 2) over normal lam with variance rho^2, by the trapezoidal rule."""
    centre, spread = total * rho2 / (n * rho2 + 1.0), math.sqrt(rho2 / (n * rho2 + 1.0))
    lam = np.linspace(centre - 12.0 * spread, centre + 12.0 * spread, 4001)
    weight = np.exp(lam * total - 0.5 * lam**2 * n - 0.5 * lam**2 / rho2) / math.sqrt(2.0 * math.pi * rho2)
    return float(np.trapezoid(weight, lam))


@pytest.mark.slow
@given(UNITS, ALPHAS)
def test_at_the_boundary_the_mixture_of_martingales_is_one_over_alpha(n, alpha):
    total = standard_errors(n, alpha) * math.sqrt(n)
    assert mixture(total, n, rho_squared(alpha)) == pytest.approx(1.0 / alpha, rel=1e-6)


@given(ALPHAS)
def test_the_sequence_is_narrowest_near_the_chosen_number_of_units(alpha):
    def relative(factor):  # of the width at NARROWEST_AT, if it were tuned for another number
        return standard_errors(NARROWEST_AT, alpha, NARROWEST_AT * factor) / standard_errors(NARROWEST_AT, alpha)

    for factor in (0.05, 0.2, 5.0, 20.0):
        assert relative(factor) > 0.999


def random_arms(rng, units, share, means, slots=3):
    """Clicks per page of both arms, as the means of binomial samples."""
    first = round(units * (1.0 - share))
    arms = []
    for count, mean in ((first, means[0]), (units - first, means[1])):
        sample = rng.binomial(slots, mean / slots, count)
        arms.append(Estimate(float(sample.mean()), float(sample.var(ddof=1)) / count, count))
    return tuple(arms)


def test_one_stratum_is_the_plain_formula(rng):
    a, b = random_arms(rng, 4000, 0.2, (0.5, 0.4))
    d = difference((a, b))
    assert d == pytest.approx((a.value - b.value, a.variance + b.variance, 4000))
    r = log_ratio((a, b))
    assert r == pytest.approx((math.log(a.value / b.value), a.variance / a.value**2 + b.variance / b.value**2, 4000))
    rho2 = rho_squared(0.05)
    scale = 4000 * rho2
    half = math.sqrt(d.variance * 2.0 * (scale + 1.0) / scale * math.log(math.sqrt(scale + 1.0) / 0.05))
    assert interval(d, 0.05) == pytest.approx((d.value - half, d.value + half))


def test_strata_are_weighted_by_units_and_their_variances_added(rng):
    strata = [random_arms(rng, 3000, 0.1, (0.5, 0.4)), random_arms(rng, 1000, 0.5, (0.9, 0.8))]
    (a, b), (c, d) = strata
    combined = difference(*strata)
    assert combined.value == pytest.approx(0.75 * (a.value - b.value) + 0.25 * (c.value - d.value))
    expected = 0.75**2 * (a.variance + b.variance) + 0.25**2 * (c.variance + d.variance)
    assert combined.variance == pytest.approx(expected)
    # The second stratum has a smaller variance per unit, and counts for fewer units of the first.
    assert 3000 < combined.units < 4000
    first = 0.75 * a.value + 0.25 * c.value
    second = 0.75 * b.value + 0.25 * d.value
    assert log_ratio(*strata).value == pytest.approx(math.log(first / second))


def test_equal_strata_are_one_stratum_with_twice_the_units():
    a, b = Estimate(0.5, 2e-4, 1000), Estimate(0.4, 4e-4, 500)
    twice = Estimate(0.5, 1e-4, 2000), Estimate(0.4, 2e-4, 1000)
    for compare in (difference, log_ratio):
        assert compare((a, b), (a, b)) == pytest.approx(compare(twice))


def test_without_data_the_interval_is_infinite():
    nothing = Estimate(0.0, math.inf, 0)
    assert half_width(difference((Estimate(0.5, 1e-4, 100), nothing)), 0.05) == math.inf
    assert half_width(Estimate(0.0, 1.0, 0), 0.05) == math.inf


def crossings(rng, multiplier, runs=2000, looks=400, step=500):
    """The share of Gaussian random walks that leave the boundary at some look."""
    n = step * np.arange(1, looks + 1)
    walks = rng.normal(0.0, math.sqrt(step), (runs, looks)).cumsum(axis=1)
    boundary = np.array([multiplier(k) for k in n]) * np.sqrt(n)
    return float((abs(walks) > boundary).any(axis=1).mean())


def test_the_sequence_covers_zero_at_all_times_and_a_fixed_interval_does_not(rng):
    for alpha in (0.05, 0.2):
        error = crossings(rng, lambda n, alpha=alpha: standard_errors(n, alpha))
        assert 0.2 * alpha < error <= alpha + 3.0 * math.sqrt(alpha / 2000)
    assert crossings(rng, lambda n: 1.96) > 0.3


def stratified_errors(rng, compare, runs=400):
    """How often 40 looks at A/A pages claim a difference, if the share and the rate change half way through."""
    wrong = 0
    for _ in range(runs):
        sums = np.zeros((2, 2, 3))  # stratum, arm: pages, clicks, squares
        claimed = False
        for look in range(40):
            late = look >= 20
            share, rate = ((0.1, 0.2), (0.5, 0.6))[late]
            held = rng.binomial(100, share)
            for arm, pages in enumerate((100 - held, held)):
                clicks = rng.binomial(pages, rate)  # at most one click per page: squares are clicks
                sums[int(late), arm] += pages, clicks, clicks
            if look >= 2:
                claimed |= compare(sums)
        wrong += claimed
    return wrong / runs


def estimates(sums):
    means = sums[..., 1] / sums[..., 0]
    variances = np.maximum(sums[..., 2] - sums[..., 1] * means, 1.0) / (sums[..., 0] - 1.0) / sums[..., 0]
    return [tuple(Estimate(*arm) for arm in zip(m, v, n)) for m, v, n in zip(means, variances, sums[..., 0])]


def claims(estimate):
    low, high = interval(estimate, 0.05)
    return not low <= 0.0 <= high


@pytest.mark.slow
def test_strata_prevent_the_false_difference_that_a_changed_share_makes(rng):
    def by_strata(sums):
        return claims(log_ratio(*estimates(sums[:1] if sums[1, :, 1].min() < 30 else sums)))

    def pooled(sums):  # the broken twin: late pages, which get more clicks, are more of one arm than of the other
        return claims(log_ratio(*estimates(sums.sum(axis=0, keepdims=True))))

    assert stratified_errors(rng, by_strata) <= 0.05
    assert stratified_errors(rng, pooled) > 0.9
