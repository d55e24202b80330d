"""The paper's Algorithms 2 and 3, corrected: a mixture that adds up, and conditional gradients that converge."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothworlds.geometry import birkhoff, frank_wolfe, leader
from tests.geometry.certificates import check_feasible
from tests.geometry.problems import extreme_problem
from tests.reference.leader import objective
from tests.reference.regularizers import NAMES


def check_decomposition(weights, rankings, x, tol=1e-9):
    """Rankings, their weights, and x as their mean."""
    m = x.shape[1]
    assert weights.shape == (len(rankings),)
    assert rankings.shape == (len(weights), m)
    assert (weights > 0.0).all(), "a weight is not positive"
    assert abs(weights.sum() - 1.0) < 1e-12, "the weights do not sum to 1"
    assert len({tuple(r) for r in rankings.tolist()}) == len(rankings), "a ranking is listed twice"
    mean = np.zeros(x.shape)
    for weight, ranking in zip(weights, rankings):
        assert len(set(ranking.tolist())) == m, "an item is shown twice"
        mean[ranking, np.arange(m)] += weight
    assert np.abs(mean - x).max() < tol, f"the mixture misses the marginals by {np.abs(mean - x).max()}"


@pytest.mark.slow
@given(st.integers(1, 8), st.data())
def test_a_mixture_is_decomposed_and_adds_up(n, data):
    m = data.draw(st.one_of(st.integers(1, n), st.just(n)))
    lists = data.draw(st.integers(1, 8))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    x = np.zeros((n, m))
    for weight in rng.dirichlet(np.ones(lists)):
        x[rng.permutation(n)[:m], np.arange(m)] += weight
    weights, rankings = birkhoff(x)
    check_decomposition(weights, rankings, x)
    assert len(weights) <= n * n - 2 * n + 2


@pytest.mark.parametrize("regularizer", NAMES)
@pytest.mark.parametrize("seed", [0, 2, 4, 5, 6, 8])
def test_any_leader_is_decomposed_and_adds_up(seed, regularizer):
    x = extreme_problem(seed, regularizer).solve().marginals
    check_decomposition(*birkhoff(x), x)


@pytest.mark.parametrize("shape", [(1, 1), (6, 1), (6, 3), (6, 6), (30, 5)])
def test_uniform_marginals_are_decomposed(shape):
    x = np.full(shape, 1.0 / shape[0])
    check_decomposition(*birkhoff(x), x)


def test_a_ranking_is_its_own_decomposition():
    x = np.zeros((5, 3))
    x[[4, 0, 2], [0, 1, 2]] = 1.0
    weights, rankings = birkhoff(x)
    assert weights.tolist() == [1.0]
    assert rankings.tolist() == [[4, 0, 2]]


@pytest.mark.parametrize(
    ("weights", "rankings"),
    [
        ([0.5, 0.5], [[0, 1], [0, 2]]),
        ([0.4, 0.4], [[0, 1], [1, 0]]),
        ([0.5, 0.5], [[0, 1], [1, 1]]),
        ([0.5, 0.5, 0.0], [[0, 1], [1, 0], [0, 2]]),
        ([0.5, 0.25, 0.25], [[0, 1], [1, 0], [1, 0]]),
    ],
)
def test_a_wrong_decomposition_is_caught(weights, rankings):
    x = np.array([[0.5, 0.5], [0.5, 0.5], [0.0, 0.0]])
    check_decomposition(np.array([0.5, 0.5]), np.array([[0, 1], [1, 0]]), x)
    with pytest.raises(AssertionError):
        check_decomposition(np.array(weights), np.array(rankings), x)


CASES = {
    "4 x 2": ((4, 2), 1.0, 2.0),
    "5 x 5": ((5, 5), 0.5, 3.0),
    "10 x 4": ((10, 4), 2.0, 1.0),
    "one position": ((6, 1), 1.0, 4.0),
    "a rate for every pair": ((6, 3), 0.5 + np.random.default_rng(1).random((6, 3)), 2.0),
}


@pytest.mark.parametrize("name", CASES)
def test_conditional_gradients_approach_the_leader(name):
    shape, rate, size = CASES[name]
    loss = size * np.random.default_rng(2).random(shape)
    exact = leader(loss, rate)
    value = objective(exact.marginals, loss, rate, "tsallis")
    gaps, away = [], []
    for iterations in (10, 100, 1000):
        x = frank_wolfe(loss, rate, iterations=iterations)
        check_feasible(x)
        gaps.append(float(objective(x, loss, rate, "tsallis") - value))
        away.append(np.abs(x - exact.marginals).max())
    assert gaps[0] > gaps[1] > gaps[2] > -exact.gap
    assert gaps[2] < 1e-3
    assert away[2] < 2e-2


def test_conditional_gradients_start_at_the_given_point():
    loss = np.random.default_rng(3).random((5, 3))
    start = leader(loss, 1.0).marginals
    assert (frank_wolfe(loss, 1.0, iterations=0, start=start) == start).all()
    assert (frank_wolfe(loss, 1.0, iterations=0) == 0.2).all()
    # The first step is 2/3 towards a ranking, so a third of the start is left in every entry.
    first = frank_wolfe(loss, 1.0, iterations=1, start=start)
    assert (first >= start / 3 - 1e-15).all()
    assert ((first - start / 3 > 0.5).sum(axis=0) == 1).all()


def test_conditional_gradients_converge_from_every_interior_point():
    rng = np.random.default_rng(4)
    loss = rng.random((5, 3))
    exact = leader(loss, 1.0).marginals
    for start in (leader(20 * rng.random((5, 3)), 1.0).marginals, exact):
        before = start.copy()
        x = frank_wolfe(loss, 1.0, iterations=2000, start=start)
        assert np.abs(x - exact).max() < 1e-2
        assert (start == before).all()
