"""The result of ``leader`` is feasible, optimal by its multipliers, and within its gap of the optimum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases import case
from tests.geometry.certificates import (
    check_feasible,
    check_gap_is_honest,
    check_leader,
    distance_bound,
    own_gap,
)
from tests.geometry.problems import EXTREME_SHAPES, compiled_only, extreme_problem, problems
from tests.reference.regularizers import NAMES

pytestmark = compiled_only


@pytest.mark.slow
@settings(max_examples=300)
@given(problems())
def test_the_result_satisfies_its_certificate(problem):
    check_leader(problem.solve(), *problem)


@pytest.mark.slow
@settings(max_examples=150)
@given(problems(), st.floats(-8.0, -0.5))
def test_the_gap_bounds_the_error_at_any_tolerance(problem, exponent):
    rough, fine = problem.solve(tol=10.0**exponent), problem.solve(tol=1e-12)
    check_feasible(rough.marginals)
    check_gap_is_honest(rough, *problem, best=fine.marginals)
    check_gap_is_honest(fine, *problem, best=rough.marginals)


@pytest.mark.slow
@settings(max_examples=100)
@given(problems(), st.floats(-8.0, -0.5))
def test_the_gap_bounds_the_distance_too(problem, exponent):
    """By strong convexity; what the finer result is itself away from the optimum is allowed for."""
    rough, fine = problem.solve(tol=10.0**exponent), problem.solve(tol=1e-12)
    away = np.linalg.norm(rough.marginals - fine.marginals)
    gaps = (rough.gap, own_gap(fine, *problem))
    assert away <= sum(distance_bound(gap, problem.rate, problem.regularizer) for gap in gaps) + 1e-12


@pytest.mark.slow
@settings(max_examples=60)
@given(problems(most=4), st.integers(0, 2**32 - 1))
def test_no_other_point_is_better_than_the_gap_allows(problem, seed):
    result = problem.solve()
    rng = np.random.default_rng(seed)
    n, m = problem.loss.shape
    for _ in range(5):
        other = np.zeros((n, m))
        other[rng.permutation(n)[:m], np.arange(m)] = 1.0
        # Inside the polytope, where all regularisers are finite; near and far.
        step = 10.0 ** rng.uniform(-6, -0.1)
        other = (1.0 - step) * result.marginals + step * (0.9 * other + 0.1 / n)
        check_gap_is_honest(result, *problem, best=other)


@pytest.mark.slow
@pytest.mark.parametrize("regularizer", NAMES)
def test_the_extremes_with_one_rate_are_solved(regularizer):
    """Losses from -1e3 to 1e7, a rate from 1e-5 to 10, shapes to 30 x 30 and 200 x 20."""
    for seed in range(72):
        with case(seed=seed):
            problem = extreme_problem(seed, regularizer)
            check_leader(problem.solve(), *problem)


@pytest.mark.slow
@pytest.mark.parametrize("regularizer", NAMES)
def test_the_extremes_with_a_rate_for_every_pair_are_solved(regularizer):
    """Rates that differ by 1e6 inside one problem."""
    for seed in range(48):
        if EXTREME_SHAPES[seed % len(EXTREME_SHAPES)] != (200, 20):
            problem = extreme_problem(seed, regularizer, rates="one for every pair")
            result = problem.solve()
            check_leader(result, *problem)
            assert result.iterations < 1500
