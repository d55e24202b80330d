"""A batch of leaders: each is the leader of its own problem, with its own certificate, for any number of threads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bothworlds.geometry import ConvergenceError, leader, leaders
from tests.geometry.certificates import check_leader
from tests.geometry.problems import compiled_only, random_problem
from tests.reference.regularizers import NAMES

pytestmark = compiled_only


def batch(shape, regularizer, size, seed=0):
    """Random problems of one shape, each with a rate of its own."""
    rng = np.random.default_rng([seed, *shape, NAMES.index(regularizer)])
    problems = [random_problem(rng, shape, regularizer) for _ in range(size)]
    return np.array([p.loss for p in problems]), np.array([np.max(p.rate) for p in problems])


def check_batch(found, losses, rates, regularizer):
    """Every result is that of ``leader``, bit for bit, and passes the checks of a single result."""
    assert len(found) == len(losses)
    for k, result in enumerate(found):
        alone = leader(losses[k], rates[k], regularizer=regularizer)
        assert (result.marginals == alone.marginals).all(), f"problem {k} has other marginals than alone"
        assert (result.lam == alone.lam).all(), f"problem {k} has other multipliers than alone"
        assert (result.mu == alone.mu).all(), f"problem {k} has other multipliers than alone"
        assert (result.gap, result.iterations) == (alone.gap, alone.iterations), f"problem {k} has another certificate"
        check_leader(result, losses[k], rates[k], regularizer)


@pytest.mark.parametrize("regularizer", NAMES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (10, 5)])
def test_every_result_is_that_of_its_problem_alone(shape, regularizer):
    losses, rates = batch(shape, regularizer, 12)
    check_batch(leaders(losses, rates, regularizer=regularizer), losses, rates, regularizer)


def test_one_rate_for_all_and_one_for_every_pair():
    losses, _ = batch((5, 3), "tsallis", 5)
    check_batch(leaders(losses, 0.25), losses, np.full(5, 0.25), "tsallis")
    rates = np.random.default_rng(1).uniform(0.1, 1.0, losses.shape)
    check_batch(leaders(losses, rates), losses, rates, "tsallis")


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2, 5, None])
def test_the_result_does_not_depend_on_the_number_of_threads(jobs):
    """More problems than one thread takes at a time."""
    losses, rates = batch((4, 2), "tsallis", 700)
    found, alone = leaders(losses, rates, jobs=jobs), leaders(losses, rates, jobs=1)
    for name in ("marginals", "lam", "mu", "gap", "iterations"):
        assert (getattr(found, name) == getattr(alone, name)).all()
    check_batch(found, losses, rates, "tsallis")


def test_no_problems_have_no_leaders():
    found = leaders(np.zeros((0, 4, 2)), 0.5)
    assert len(found) == 0
    assert found.marginals.shape == (0, 4, 2)


def test_a_problem_without_a_leader_is_named():
    losses, rates = np.zeros((2, 4, 2)), np.array([1.0, 1e308])
    with pytest.raises(ConvergenceError, match="problem 1: no leader to tol = 1e-09"):
        leaders(losses, rates)


@pytest.mark.parametrize(
    "broken",
    [
        lambda found: replace(found, marginals=np.roll(found.marginals, 1, axis=0)),
        lambda found: replace(found, mu=np.zeros_like(found.mu)),
        lambda found: replace(found, gap=found.gap[::-1]),
        lambda found: replace(found, iterations=found.iterations + 1),
    ],
    ids=["another problem's marginals", "no multipliers of rows", "another problem's gap", "another number of steps"],
)
def test_a_batch_that_mixes_up_its_problems_is_caught(broken):
    losses, rates = batch((3, 2), "tsallis", 6)
    losses[:, 0] -= 50.0  # so that a row is full
    found = leaders(losses, rates)
    check_batch(found, losses, rates, "tsallis")
    with pytest.raises(AssertionError, match="problem"):
        check_batch(broken(found), losses, rates, "tsallis")
