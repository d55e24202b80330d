"""Properties of the leader that follow from its definition: symmetries, closed forms, warm starts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import softmax

from bothworlds.geometry import ConvergenceError, Leader, best_ranking, leader
from tests.cases import case
from tests.geometry.certificates import blur, check_leader
from tests.geometry.problems import Problem, compiled_only, extreme_problem, problems, random_problem
from tests.reference.regularizers import NAMES, marginal

SAME = 1e-8


def check_same(result, other, problem, tol=SAME):
    """Two ways to the same marginals, up to what rounding does to losses of this size."""
    allowed = tol + blur(result, problem.loss, problem.rate)
    assert np.abs(result.marginals - other.marginals).max() <= allowed


@pytest.mark.slow
@given(problems(), st.data())
def test_a_constant_added_to_a_column_changes_nothing(problem, data):
    m = problem.loss.shape[1]
    shift = np.array(data.draw(st.lists(st.floats(-1e3, 1e3, width=32), min_size=m, max_size=m)))
    shifted = problem._replace(loss=problem.loss + shift)
    check_same(shifted.solve(), problem.solve(), shifted)


@pytest.mark.parametrize("regularizer", NAMES)
def test_a_constant_added_to_a_row_changes_the_marginals(regularizer):
    loss = np.random.default_rng(1).random((5, 2))
    more = loss.copy()
    more[0] += 0.5
    x, y = (leader(a, 1.0, regularizer=regularizer).marginals for a in (loss, more))
    assert (y[0] < x[0] - 1e-3).all()


@compiled_only
@pytest.mark.parametrize("regularizer", NAMES)
def test_a_constant_below_the_multiplier_of_a_full_row_changes_nothing(regularizer):
    """The multiplier pays for it. Beyond the multiplier the row is no longer full, and does feel it."""
    loss = np.random.default_rng(2).random((5, 3))
    loss[0] -= 30.0
    before = leader(loss, 1.0, regularizer=regularizer)
    paid = 0.5 * before.mu[0]
    assert paid > 1.0
    for factor, unmoved in ((1.0, True), (3.0, False)):
        dearer = loss.copy()
        dearer[0] += factor * paid
        after = leader(dearer, 1.0, regularizer=regularizer)
        assert (np.abs(after.marginals - before.marginals).max() < SAME) == unmoved
        if unmoved:
            assert after.mu[0] == pytest.approx(before.mu[0] - paid, rel=1e-6)


@pytest.mark.slow
@given(problems(), st.data())
def test_relabelling_items_and_positions_relabels_the_marginals(problem, data):
    n, m = problem.loss.shape
    items, positions = (np.array(data.draw(st.permutations(range(k)))) for k in (n, m))
    pick = np.ix_(items, positions)
    rate = problem.rate if np.ndim(problem.rate) == 0 else problem.rate[pick]
    relabelled = Problem(problem.loss[pick], rate, problem.regularizer).solve()
    result = problem.solve()
    assert np.abs(relabelled.marginals - result.marginals[pick]).max() <= SAME + blur(result, *problem[:2])


@pytest.mark.slow
@given(problems())
def test_items_with_the_same_losses_get_the_same_marginals(problem):
    twice = Problem(np.repeat(problem.loss, 2, axis=0), float(np.max(problem.rate)), problem.regularizer)
    x = twice.solve().marginals
    assert np.abs(x[::2] - x[1::2]).max() <= SAME


@pytest.mark.slow
@given(problems(), st.integers(-8, 8))
def test_only_the_product_of_rate_and_losses_matters(problem, exponent):
    factor = 2.0**exponent
    scaled = Problem(problem.loss * factor, problem.rate / factor, problem.regularizer)
    check_same(scaled.solve(), problem.solve(), problem)


@pytest.mark.slow
@given(problems())
def test_one_rate_is_the_same_rate_for_every_pair(problem):
    rate = float(np.max(problem.rate))
    one = Problem(problem.loss, rate, problem.regularizer)
    check_same(one._replace(rate=np.full(one.loss.shape, rate)).solve(), one.solve(), one)


@pytest.mark.parametrize("regularizer", NAMES)
@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (5, 2), (6, 6), (200, 20)])
def test_without_losses_the_leader_is_uniform(shape, regularizer):
    for rate in (1e-5, 0.5, 10.0):
        with case(rate=rate):
            result = leader(np.zeros(shape), rate, regularizer=regularizer)
            assert np.abs(result.marginals - 1.0 / shape[0]).max() < 1e-12


@pytest.mark.parametrize("regularizer", NAMES)
@pytest.mark.parametrize("shape", [(6, 4), (5, 5), (40, 8)])
def test_a_list_with_far_smaller_losses_gets_almost_all_probability(shape, regularizer):
    rng = np.random.default_rng(3)
    loss = 1e4 + rng.random(shape)
    best = rng.permutation(shape[0])[: shape[1]]
    loss[best, np.arange(shape[1])] = 0.0
    problem = Problem(loss, 1.0, regularizer)
    result = problem.solve()
    check_leader(result, *problem)
    assert (best_ranking(-loss) == best).all()
    assert (result.marginals[best, np.arange(shape[1])] > 1.0 - 1e-2).all()
    assert result.marginals.min() < 1e-3


@settings(max_examples=60)
@given(st.integers(1, 12), st.integers(0, 2**32 - 1), st.floats(-2.0, 1.0), st.floats(-2.0, 3.0))
def test_one_position_has_one_multiplier(n, seed, exponent, size):
    """With m = 1 and -sqrt(x) this is Tsallis-INF: a single root; no row but a lone one is ever full."""
    loss, rate = 10.0**size * np.random.default_rng(seed).random((n, 1)), 10.0**exponent
    low = -loss.min() + 0.5 / rate
    high = -loss.min() + 0.5 * np.sqrt(n) / rate
    if n == 1:
        expected = np.ones((1, 1))
    else:
        root = brentq(lambda lam: np.sum(0.25 / (rate * (loss + lam)) ** 2) - 1.0, low, high, xtol=1e-300, rtol=1e-15)
        expected = 0.25 / (rate * (loss + root)) ** 2
    assert np.abs(leader(loss, rate).marginals - expected).max() < 1e-9


@settings(max_examples=60)
@given(st.integers(1, 12), st.integers(0, 2**32 - 1), st.floats(-3.0, 1.0), st.floats(-2.0, 3.0))
def test_one_position_with_entropy_is_a_softmax(n, seed, exponent, size):
    loss, rate = 10.0**size * np.random.default_rng(seed).random((n, 1)), 10.0**exponent
    x = leader(loss, rate, regularizer="shannon").marginals
    assert np.abs(x - softmax(-rate * loss, axis=0)).max() < 1e-12


@pytest.mark.parametrize("regularizer", NAMES)
def test_two_by_two_has_one_unknown(regularizer):
    """x = [[p, 1-p], [1-p, p]]: a scalar equation, solved without any multiplier."""
    loss, rate = np.array([[0.3, 1.1], [0.9, 0.2]]), 0.8
    x = leader(loss, rate, regularizer=regularizer).marginals

    def balance(p):
        from tests.reference.regularizers import slope

        return loss[0, 0] + loss[1, 1] - loss[0, 1] - loss[1, 0] + 2 * (
            slope(regularizer, p) - slope(regularizer, 1 - p)
        ) / rate  # fmt: skip

    assert x[0, 0] == pytest.approx(brentq(balance, 1e-9, 1 - 1e-9, xtol=1e-14), abs=1e-10)


@pytest.mark.slow
@compiled_only
@given(problems(), st.integers(0, 2**32 - 1), st.floats(-3.0, 6.0))
def test_any_warm_start_leads_to_the_same_marginals(problem, seed, exponent):
    rng = np.random.default_rng(seed)
    n, m = problem.loss.shape
    cold = problem.solve()
    lam, mu = 10.0**exponent * rng.standard_normal(m), 10.0**exponent * rng.standard_normal(n)
    warm = problem.solve(warm=Leader(cold.marginals, lam, mu, 0.0, 0))
    check_leader(warm, *problem)
    check_same(warm, cold, problem)


@compiled_only
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
@pytest.mark.parametrize("regularizer", NAMES)
def test_a_bad_warm_start_gives_the_same_result(regularizer, value):
    problem = random_problem(np.random.default_rng(4), (5, 3), regularizer)
    cold = problem.solve()
    try:
        warm = problem.solve(warm=Leader(cold.marginals, np.full(3, value), np.full(5, abs(value)), 0.0, 0))
    except (ValueError, ConvergenceError):
        return  # to refuse it is as good
    check_leader(warm, *problem)


@pytest.mark.parametrize("regularizer", NAMES)
def test_a_warm_start_from_another_regulariser_gives_the_same_result(regularizer):
    problem = random_problem(np.random.default_rng(5), (6, 4), regularizer)
    for other in NAMES:
        warm = problem.solve(warm=problem._replace(regularizer=other).solve())
        check_leader(warm, *problem)


@compiled_only
@pytest.mark.slow
@pytest.mark.parametrize("regularizer", NAMES)
def test_a_distant_warm_start_gives_the_same_result(regularizer):
    """From a gentle problem to one at the edge of the range, and back."""
    for seed in range(12):
        with case(seed=seed):
            far = extreme_problem(seed, regularizer)
            near = Problem(np.random.default_rng(seed).random(far.loss.shape), 1.0, regularizer)
            check_leader(far.solve(warm=near.solve()), *far)
            check_leader(near.solve(warm=far.solve()), *near)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(10, 5), (6, 6), (50, 10)])
@pytest.mark.parametrize("regularizer", NAMES)
def test_a_warm_start_from_the_round_before_takes_few_steps(regularizer, shape):
    """A learner's own path: importance-weighted losses are added, the rate falls as 1 / (2 sqrt t)."""
    rng = np.random.default_rng(6)
    loss, positions, steps = np.zeros(shape), np.arange(shape[1]), []
    result = leader(loss, 0.5, regularizer=regularizer)
    for t in range(2, 62):
        shown = rng.permutation(shape[0])[: shape[1]]
        loss[shown, positions] += (rng.random(shape[1]) < 0.5) / np.maximum(result.marginals[shown, positions], 0.02)
        problem = Problem(loss, 0.5 / np.sqrt(t), regularizer)
        result = problem.solve(warm=result)
        check_leader(result, *problem)
        steps.append(result.iterations)
    assert np.mean(steps) <= 8.0
    assert max(steps) <= 25


def test_the_same_problem_again_takes_no_more_than_the_polish():
    problem = random_problem(np.random.default_rng(7), (10, 5), "tsallis")
    first = problem.solve()
    assert problem.solve(warm=first).iterations <= 3


@pytest.mark.parametrize(
    "layout",
    [
        np.asfortranarray,
        lambda a: a.tolist(),
        lambda a: np.repeat(a, 2, axis=0)[::2],
        lambda a: a.astype(np.float32).astype(object),
    ],
)
def test_any_layout_of_the_same_losses_is_the_same_problem(layout):
    loss = np.random.default_rng(8).integers(0, 9, (5, 3)).astype(float)
    assert (leader(layout(loss), 0.3).marginals == leader(loss, 0.3).marginals).all()
    rate = 0.125 + loss
    assert (leader(loss, layout(rate)).marginals == leader(loss, rate).marginals).all()


def test_the_arguments_are_not_changed():
    problem = random_problem(np.random.default_rng(9), (6, 3), "tsallis")
    loss, rate = problem.loss.copy(), np.full((6, 3), 0.7)
    warm = leader(loss, rate)
    lam, mu = warm.lam.copy(), warm.mu.copy()
    leader(loss + 1.0, rate, warm=warm)
    leader(loss, rate, warm=warm)
    assert (loss == problem.loss).all()
    assert (rate == 0.7).all()
    assert (warm.lam == lam).all()
    assert (warm.mu == mu).all()


def test_the_result_has_the_promised_parts():
    result = leader(np.zeros((4, 2)), 0.5)
    assert result.marginals.shape == (4, 2)
    assert result.lam.shape == (2,)
    assert result.mu.shape == (4,)
    assert isinstance(result.gap, float)
    assert isinstance(result.iterations, int)


@pytest.mark.parametrize("regularizer", NAMES)
def test_multipliers_give_the_marginals_back(regularizer):
    """Callers may store (lam, mu) instead of x."""
    problem = random_problem(np.random.default_rng(10), (7, 4), regularizer)
    result = problem.solve()
    z = problem.loss + result.lam + result.mu[:, None]
    assert np.abs(marginal(regularizer, -problem.rate * z) - result.marginals).max() < 1e-9
