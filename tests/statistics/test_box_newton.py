"""Newton's method in a box: the arrow against dense algebra, and maxima inside and at bounds."""

from __future__ import annotations

import numpy as np
import pytest

from bothworlds.statistics.box_newton import Arrow, maximise, solve_definite


def random_arrow(seed, sizes=(3, 2, 4), shared=2):
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    full = np.zeros((n + shared, n + shared))
    own, start = [], 0
    for size in sizes:
        own.append(np.arange(start, start + size))
        start += size
    for rows in own:
        part = rng.normal(size=(rows.size, rows.size))
        full[np.ix_(rows, rows)] = part @ part.T
        full[rows, n:] = rng.normal(size=(rows.size, shared))
        full[n:, rows] = full[rows, n:].T
    full += np.diag(np.full(n + shared, 8.0))
    arrow = Arrow(own, [full[np.ix_(r, r)] for r in own], [full[r, n:] for r in own], full[n:, n:])
    return arrow, full


@pytest.mark.parametrize("seed", range(5))
def test_an_arrow_is_solved_as_the_dense_matrix(seed):
    arrow, full = random_arrow(seed)
    rng = np.random.default_rng(seed)
    free = rng.random(len(full)) < 0.7
    right, added = rng.normal(size=len(full)), rng.uniform(0.0, 1.0, len(full))
    expected = np.zeros(len(full))
    inside = np.ix_(free, free)
    expected[free] = np.linalg.solve((full + np.diag(added))[inside], right[free])
    np.testing.assert_allclose(arrow.solve(right, free, added), expected, atol=1e-12)
    variance = np.zeros(len(full))
    variance[free] = np.diag(np.linalg.inv((full + np.diag(added))[inside]))
    np.testing.assert_allclose(arrow.variances(free, added), variance, atol=1e-12)
    np.testing.assert_array_equal(arrow.diagonal(), np.diag(full))


def test_blocks_of_size_one_are_solved_together():
    arrow, full = random_arrow(1, sizes=(1,) * 5)
    flat = Arrow((), (np.diag(full)[:5].copy(),), (full[:5, 5:],), full[5:, 5:])
    right, free, added = np.arange(7.0), np.array([True] * 4 + [False] + [True] * 2), np.zeros(7)
    np.testing.assert_allclose(flat.solve(right, free, added), arrow.solve(right, free, added), atol=1e-13)
    np.testing.assert_allclose(flat.variances(free, added), arrow.variances(free, added), atol=1e-13)


def test_an_indefinite_matrix_is_refused():
    assert not solve_definite(np.array([[1.0, 2.0], [2.0, 1.0]]), np.ones((2, 1)))
    arrow, full = random_arrow(0)
    worse = arrow._replace(corner=arrow.corner - 100.0 * np.eye(2))
    assert worse.solve(np.ones(len(full)), np.ones(len(full), bool), np.zeros(len(full))) is None


class Binomial:
    """Independent rates, with a smooth term that couples them through a shared variable."""

    def __init__(self, clicks, misses, target):
        self.clicks, self.misses, self.target = (np.asarray(part, float) for part in (clicks, misses, target))

    def value(self, x):
        with np.errstate(divide="ignore", invalid="ignore"):
            likelihood = np.where(self.clicks > 0, self.clicks * np.log(x[:-1]), 0.0)
            likelihood = likelihood + np.where(self.misses > 0, self.misses * np.log1p(-x[:-1]), 0.0)
        return float(likelihood.sum() - ((x[:-1].sum() + x[-1] - self.target) ** 2))

    def gradient(self, x):
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = np.where(self.clicks > 0, self.clicks / x[:-1], 0.0)
            slope = slope - np.where(self.misses > 0, self.misses / (1.0 - x[:-1]), 0.0)
        pull = -2.0 * (x[:-1].sum() + x[-1] - self.target)
        return self.value(x), np.append(slope + pull, pull)

    def curvature(self, x):
        n = x.size - 1
        with np.errstate(divide="ignore", invalid="ignore"):
            weight = np.where(self.clicks > 0, self.clicks / x[:-1] ** 2, 0.0)
            weight = weight + np.where(self.misses > 0, self.misses / (1.0 - x[:-1]) ** 2, 0.0)
        block = np.diag(weight) + 2.0
        return Arrow([np.arange(n)], [block], [np.full((n, 1), 2.0)], np.array([[2.0]]))


@pytest.mark.parametrize(("target", "ends"), [(0.0, 0.0), (10.0, 1.0), (1.2, None)])
def test_a_maximum_satisfies_the_conditions_at_its_bounds(target, ends):
    problem = Binomial([3.0, 0.0, 5.0], [7.0, 4.0, 0.0], target)
    found = maximise(problem, np.full(4, 0.5), np.zeros(4, bool))
    assert found.converged
    slope = problem.gradient(found.x)[1]
    inside = (found.x > 0.0) & (found.x < 1.0)
    np.testing.assert_allclose((slope / np.sqrt(problem.curvature(found.x).diagonal()))[inside], 0.0, atol=1e-5)
    assert (slope[found.x == 0.0] <= 0.0).all()
    assert (slope[found.x == 1.0] >= 0.0).all()
    if ends is not None:
        assert found.x[-1] == ends


def test_a_start_at_the_wrong_bound_is_released():
    problem = Binomial([3.0, 1.0], [7.0, 1.0], 1.4)
    wrong, right = (maximise(problem, np.array([0.5, 0.5, end]), np.zeros(3, bool)) for end in (0.0, 0.6))
    assert wrong.value == pytest.approx(right.value, abs=1e-10)
    assert wrong.x[-1] > 0.0


def test_fixed_variables_keep_their_values():
    problem = Binomial([3.0, 1.0], [7.0, 1.0], 1.4)
    found = maximise(problem, np.array([0.25, 0.5, 0.5]), np.array([True, False, False]))
    assert found.x[0] == 0.25
    assert found.converged
