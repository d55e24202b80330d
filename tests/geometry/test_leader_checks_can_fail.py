"""Every check of ``certificates`` fails on a result that is wrong: a check that cannot fail is a defect."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax

from tests.geometry.certificates import (
    check_certificate,
    check_feasible,
    check_gap_is_honest,
    check_gap_is_small,
    check_leader,
    check_optimality_conditions,
    own_gap,
)
from tests.geometry.problems import Problem
from tests.reference.regularizers import NAMES, marginal


def contest(regularizer="tsallis", n=6, m=3):
    """Two items that everybody wants: their rows are full, and their multipliers positive."""
    loss = 3.0 * np.random.default_rng(11).random((n, m))
    loss[:2] -= 4.0
    problem = Problem(loss, 3.0, regularizer)
    result = problem.solve()
    check_leader(result, *problem)
    if n > m:
        assert (result.mu > 0.1).sum() == 2
    return problem, result


def nudged(x):
    x = x.copy()
    x[0, 0] += 1e-10
    return x


def clipped(x):
    return np.maximum(x, 0.05)


def not_repaired(x):
    return x * (1.0 + 1e-9)


def with_an_overfull_row(x):
    """All columns sum to 1, but item 0 is at two positions at once."""
    x = np.zeros_like(x)
    x[0, :2] = 1.0
    x[1, 2:] = 1.0
    return x


def with_a_negative_entry(x):
    x = x.copy()
    x[:2, 0] = x[0, 0] + x[1, 0] + 1e-6, -1e-6
    return x


def with_nothing(x):
    return np.full_like(x, np.nan)


@pytest.mark.parametrize(
    "broken", [nudged, clipped, not_repaired, with_an_overfull_row, with_a_negative_entry, with_nothing]
)
def test_an_infeasible_point_is_caught(broken):
    _, result = contest()
    with pytest.raises(AssertionError):
        check_feasible(broken(result.marginals))


def towards_uniform(problem, result):
    """Feasible, but not optimal."""
    return replace(result, marginals=0.999 * result.marginals + 0.001 / len(problem.loss))


def of_the_next_round(problem, result):
    other = problem._replace(loss=problem.loss + 0.001 * np.arange(len(problem.loss))[:, None])
    return replace(result, marginals=other.solve().marginals)


def without_row_multipliers(problem, result):
    return replace(result, mu=np.zeros_like(result.mu))


def with_a_negative_multiplier(problem, result):
    return replace(result, mu=result.mu - 1e-3, lam=result.lam + 1e-3)


def with_a_multiplier_for_a_row_with_room(problem, result):
    mu = result.mu.copy()
    mu[-1] += 1e-3
    return replace(result, mu=mu)


def with_a_wrong_column(problem, result):
    return replace(result, lam=result.lam + np.array([1e-3, 0.0, 0.0]))


def with_a_multiplier_that_is_no_number(problem, result):
    return replace(result, lam=result.lam * np.nan)


@pytest.mark.parametrize("regularizer", NAMES)
@pytest.mark.parametrize(
    "broken",
    [
        towards_uniform,
        of_the_next_round,
        without_row_multipliers,
        with_a_negative_multiplier,
        with_a_multiplier_for_a_row_with_room,
        with_a_wrong_column,
        with_a_multiplier_that_is_no_number,
    ],
)
def test_a_point_that_is_not_optimal_is_caught(broken, regularizer):
    problem, result = contest(regularizer)
    twin = broken(problem, result)
    check_feasible(twin.marginals)  # it takes the conditions to see it
    with pytest.raises(AssertionError):
        check_optimality_conditions(twin, *problem)


def test_multipliers_that_do_not_belong_to_the_losses_are_caught():
    """A square problem has x right for any common shift; what is wrong here is the rows' shares of it."""
    problem, result = contest(n=4, m=4)
    with pytest.raises(AssertionError, match="the multipliers belong to marginals"):
        check_optimality_conditions(replace(result, mu=result.mu * 0.9), *problem)


def test_columns_solved_one_by_one_are_caught():
    """Entropy without the rows' limits is a softmax of every column: the usual mistake."""
    problem, _ = contest("shannon")
    alone = softmax(-problem.loss * problem.rate, axis=0)
    assert np.allclose(alone.sum(axis=0), 1.0)
    with pytest.raises(AssertionError, match="a row exceeds 1"):
        check_feasible(alone)


@pytest.mark.parametrize("regularizer", NAMES)
def test_a_gap_that_is_too_small_is_caught(regularizer):
    problem, result = contest(regularizer)
    poor = towards_uniform(problem, result)
    true_gap = own_gap(poor, *problem)
    assert true_gap > 1e-8
    for claimed in (0.0, 0.5 * true_gap):
        with pytest.raises(AssertionError, match="the gap says"):
            check_gap_is_honest(replace(poor, gap=claimed), *problem, best=result.marginals)
        with pytest.raises(AssertionError, match="claimed is"):
            check_certificate(replace(poor, gap=claimed), *problem, factor=1e-12)
    check_gap_is_honest(replace(poor, gap=true_gap), *problem, best=result.marginals)


@pytest.mark.parametrize("gap", [-1e-9, 1e-3, np.inf, np.nan])
def test_a_gap_that_is_too_large_is_caught(gap):
    problem, result = contest()
    with pytest.raises(AssertionError, match="the gap is"):
        check_gap_is_small(replace(result, gap=gap), problem.loss, problem.rate)


@pytest.mark.parametrize("regularizer", NAMES)
def test_the_wrong_regulariser_is_caught(regularizer):
    problem, result = contest(regularizer)
    other = NAMES[NAMES.index(regularizer) - 1]
    with pytest.raises(AssertionError):
        check_leader(result, problem.loss, problem.rate, other)


@pytest.mark.parametrize("regularizer", NAMES)
def test_the_inverse_slopes_of_the_reference_are_inverse(regularizer):
    """The certificates rest on these formulas, so they are held against one another here."""
    from tests.reference.regularizers import conjugate, phi, slope

    x = np.array([1e-9, 1e-4, 0.1, 0.5, 0.9, 1 - 1e-6])
    y = slope(regularizer, x)
    assert np.allclose(marginal(regularizer, y), x, rtol=1e-9)
    assert np.allclose(conjugate(regularizer, y), phi(regularizer, x) - y * x, rtol=1e-9)
