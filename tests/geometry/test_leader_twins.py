"""The compiled leader against independent solvers, on hundreds of random problems."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases import case
from tests.geometry.problems import Problem, random_problem
from tests.reference.leader import by_interior_point, by_slsqp, by_sweeps
from tests.reference.regularizers import NAMES

AGREEMENT = 1e-6


def check_agreement(x, twin):
    away = np.abs(x - twin).max()
    assert away <= AGREEMENT, f"the two differ by {away}"


@pytest.mark.slow
@pytest.mark.parametrize("regularizer", NAMES)
def test_agrees_with_scipy(regularizer):
    """96 problems."""
    for shape in ((2, 1), (2, 2), (3, 2), (4, 3), (4, 4), (6, 2)):
        with case(shape=shape):
            rng = np.random.default_rng([1, *shape, NAMES.index(regularizer)])
            for _ in range(4):
                problem = random_problem(rng, shape, regularizer, size=(-1, 1.5), rate=(-1, 0.5))
                check_agreement(problem.solve().marginals, by_slsqp(*problem))


@pytest.mark.slow
@pytest.mark.parametrize("regularizer", NAMES)
def test_agrees_with_an_interior_point_method(regularizer):
    """480 problems."""
    for shape in ((1, 1), (2, 2), (3, 1), (3, 2), (4, 4), (5, 3), (7, 7), (8, 5), (12, 4), (10, 9)):
        with case(shape=shape):
            rng = np.random.default_rng([2, *shape, NAMES.index(regularizer)])
            # Entropy makes marginals of exp(-rate * loss), too small to be the unknowns of a dense system.
            size = (-1.0, 1.5) if regularizer == "shannon" else (-1.0, 2.5)
            for _ in range(12):
                problem = random_problem(rng, shape, regularizer, size)
                check_agreement(problem.solve().marginals, by_interior_point(*problem))


@pytest.mark.slow
@pytest.mark.parametrize("regularizer", ["tsallis", "shannon", "log-barrier"])
def test_agrees_with_block_coordinate_ascent(regularizer):
    """72 problems, larger ones."""
    for shape in ((12, 3), (30, 6), (50, 10)):
        with case(shape=shape):
            rng = np.random.default_rng([3, *shape, NAMES.index(regularizer)])
            stack = [random_problem(rng, shape, regularizer, size=(-1, 2), rate=(-2, 0)) for _ in range(8)]
            loss = np.array([p.loss for p in stack])
            rate = np.array([np.broadcast_to(p.rate, shape) for p in stack])
            for problem, twin in zip(stack, by_sweeps(loss, rate, regularizer)):
                check_agreement(problem.solve().marginals, twin)


@pytest.mark.parametrize("regularizer", NAMES)
def test_the_twins_agree_with_each_other(regularizer):
    problem = random_problem(np.random.default_rng(4), (4, 2), regularizer, size=(0, 1), rate=(-1, 0))
    check_agreement(by_interior_point(*problem), by_slsqp(*problem))
    check_agreement(by_interior_point(*problem), by_sweeps(*problem))


def test_a_slightly_different_problem_has_another_solution():
    rng = np.random.default_rng(5)
    problem = Problem(rng.random((5, 3)), 1.0, "tsallis")
    other = Problem(problem.loss + 1e-4 * rng.random((5, 3)), 1.0, "tsallis")
    with pytest.raises(AssertionError, match="the two differ"):
        check_agreement(problem.solve().marginals, by_interior_point(*other))
