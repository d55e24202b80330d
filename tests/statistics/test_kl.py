"""Confidence bounds in Kullback-Leibler divergence, against bisection."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothworlds.statistics import kl, kl_lower, kl_upper

MEANS = st.floats(0.0, 1.0) | st.sampled_from([0.0, 1e-12, 1e-3, 0.5, 1.0 - 1e-3, 1.0 - 1e-12, 1.0])
FLIPS = st.floats(-1.0, 7.0).map(lambda exponent: 10.0**exponent)
LEVELS = st.floats(-4.0, 3.0).map(lambda exponent: 10.0**exponent)


def upper_by_bisection(p: float, n: float, level: float) -> float:
    low, high = p, 1.0
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if n * kl(p, middle) <= level else (low, middle)
    return low


@given(MEANS, FLIPS, LEVELS)
def test_the_upper_bound_is_the_root(p, n, level):
    assert kl_upper(p, n, level) == pytest.approx(upper_by_bisection(p, n, level), abs=1e-11)


@given(MEANS, FLIPS, LEVELS)
def test_the_lower_bound_is_one_minus_the_upper_bound_of_the_complement(p, n, level):
    assert kl_lower(p, n, level) == 1.0 - kl_upper(1.0 - p, n, level)
    assert kl_lower(p, n, level) <= p + 1e-15 <= kl_upper(p, n, level) + 2e-15


@given(MEANS, FLIPS, LEVELS)
def test_more_samples_tighten_and_a_higher_level_widens_the_bound(p, n, level):
    assert kl_upper(p, 2.0 * n, level) <= kl_upper(p, n, level) + 1e-12
    assert kl_upper(p, n, 2.0 * level) >= kl_upper(p, n, level) - 1e-12


@given(MEANS, MEANS)
def test_divergence_is_at_least_pinskers(p, q):
    assert kl(p, q) >= 2.0 * (p - q) ** 2 - 1e-12


def test_divergence_at_the_edges():
    assert kl(0.0, 0.0) == pytest.approx(0.0, abs=1e-14)
    assert kl(1.0, 1.0) == pytest.approx(0.0, abs=1e-14)
    assert kl(0.0, 0.25) == pytest.approx(-math.log(0.75))
    assert math.isfinite(kl(1.0, 0.0))
    assert math.isfinite(kl(0.0, 1.0))


def test_without_samples_the_bounds_are_zero_and_one():
    assert kl_upper(0.3, 0.0, 1.0) == 1.0
    assert kl_lower(0.3, 0.0, 1.0) == 0.0


def test_at_level_zero_the_bound_is_the_average():
    assert kl_upper(0.3, 10.0, 0.0) == 0.3
    assert kl_upper(0.3, 10.0, -1.0) == 0.3


@given(MEANS, FLIPS, LEVELS)
def test_compiled_and_interpreted_agree(p, n, level):
    interpreted = getattr(kl_upper, "py_func", kl_upper)
    assert kl_upper(p, n, level) == pytest.approx(interpreted(p, n, level), abs=1e-12)
