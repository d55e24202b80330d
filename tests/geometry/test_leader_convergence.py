"""The leader is found for rates that differ from pair to pair, and absurd numbers end in a clear error."""

from __future__ import annotations

import numpy as np
import pytest

import bothworlds
from benchmarks.leader_convergence import check
from bothworlds.geometry import ConvergenceError, leader, leader_state
from bothworlds.geometry.leader_state import lead, make_leading, ready
from bothworlds.geometry.regularizers import Tsallis
from bothworlds.kernels import kernel
from tests.cases import case
from tests.geometry.certificates import check_feasible, check_leader
from tests.geometry.problems import Problem, compiled_only, wide_problem
from tests.reference.regularizers import NAMES

pytestmark = compiled_only


def nothing(amount):
    """Progress that nobody sees."""


@pytest.mark.parametrize("regularizer", NAMES)
@pytest.mark.parametrize("rate", [1e-3, 1e-4, 1e-6])
@pytest.mark.parametrize("shape", [(4, 2), (4, 3), (20, 19)])
def test_one_item_with_a_smaller_rate(shape, rate, regularizer):
    """It fills its row, and its multiplier is far from where the solver starts."""
    rates = np.ones(shape)
    rates[0] = rate
    problem = Problem(np.zeros(shape), rates, regularizer)
    check_leader(problem.solve(), *problem)


def test_entropy_with_one_rate_that_ended_short_of_the_tolerance():
    loss = [
        [351.2626654059681, 353.8935758222567, 320.97739416624745],
        [200.78313298228613, 153.90674990517735, 199.92327709032872],
        [236.0492458427674, 355.00344058260487, 31.557131202296446],
        [390.8932206688001, 164.08277841377395, 136.33189196312128],
    ]
    problem = Problem(np.array(loss), 0.5393325929811272, "shannon")
    check_leader(problem.solve(), *problem)


@pytest.mark.parametrize("regularizer", NAMES)
def test_random_problems_over_many_decades(regularizer):
    failures, _ = check(regularizer, 300, 1, nothing)
    assert not failures


def test_a_problem_that_is_not_solved_is_caught():
    def hopeless(rng, regularizer):
        return wide_problem(rng, regularizer)._replace(rate=1e308)

    failures, _ = check("tsallis", 3, 0, nothing, draw=hopeless)
    assert len(failures) == 3
    assert "no leader to tol" in failures[0]


ABSURD_LOSSES = {"none": 0.0, "1": 1.0, "1e300": 1e300, "1e-300": 1e-300, "the largest": 1.7e308}
ABSURD_RATES = (1e308, 1e-308, 5e-324, 1e150, 1e-150, "from 1e-308 to 1e308")


@pytest.mark.slow
@pytest.mark.parametrize("regularizer", NAMES)
def test_absurd_numbers_have_a_leader_or_a_clear_error(regularizer):
    """It ends, which it did not: a spread of losses that overflows gave an infinite number of stages."""
    for size in ABSURD_LOSSES:
        for rate in ABSURD_RATES:
            with case(size=size, rate=rate):
                check_absurd_numbers(regularizer, size, rate)


def check_absurd_numbers(regularizer, size, rate):
    rng = np.random.default_rng(5)
    for shape in ((1, 1), (3, 2), (4, 4), (7, 6)):
        loss = ABSURD_LOSSES[size] * (2.0 * rng.random(shape) - 1.0)
        rates = 10.0 ** rng.uniform(-308, 308, shape) if isinstance(rate, str) else rate
        try:
            result = leader(loss, rates, regularizer=regularizer)
        except ConvergenceError as error:
            assert "no leader to tol" in str(error)  # noqa: PT017 - a result is as good
        else:
            check_feasible(result.marginals, tol=1e-9)
            assert np.isfinite(result.gap)


@pytest.mark.parametrize("regularizer", NAMES)
def test_losses_with_an_infinite_spread_end_in_an_error(regularizer):
    with pytest.raises(ConvergenceError, match="no leader to tol"):
        leader(np.array([[1.7e308, -1.7e308], [-1.7e308, 1.7e308], [0.0, 0.0]]), 1e308, regularizer=regularizer)


@kernel
def lead_from_scratch(loss, rate, leading):
    leading.cold[0] = 1
    lead(Tsallis(), loss, rate, leading)
    ready(leading)


def test_a_part_without_a_leader_says_so():
    leading = make_leading(4, 2, 1e-6)
    loss = np.arange(8.0).reshape(4, 2)
    lead_from_scratch(loss, 1e308, leading)
    with pytest.raises(ConvergenceError, match="no leader for losses from 0 to 7"):
        leader_state.check_leader(loss, leading)
    check_feasible(leading.marginals)


def test_a_part_may_have_a_tolerance_below_rounding():
    leading, loss = make_leading(30, 30, 1e-300), 1e7 * np.random.default_rng(3).random((30, 30))
    lead_from_scratch(loss, 10.0, leading)
    leader_state.check_leader(loss, leading)
    check_feasible(leading.marginals)


def test_a_round_without_a_leader_keeps_the_last_one():
    policy, rng = bothworlds.policy("ftrl-pbm"), np.random.default_rng(0)
    state = policy.init(4, 2)
    state = state._replace(rule=state.rule._replace(rate=1e308))
    policy.learn(state, policy.decide(state, rng), np.zeros(2))
    check_feasible(state.leading.marginals)
