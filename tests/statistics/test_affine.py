"""The affine position-based model: derivatives, one likelihood from many starts, and the two free numbers."""

from __future__ import annotations

import numpy as np
import pytest

from bothworlds.statistics.affine import AffineObjective, NormalForm
from bothworlds.statistics.box_newton import maximise


def counts(seed, n=8, m=4, shown=2_000):
    rng = np.random.default_rng(seed)
    gamma, high = rng.uniform(0.0, 1.0, n), np.linspace(0.8, 0.3, m)
    p = np.outer(gamma, high) + np.outer(1.0 - gamma, np.linspace(0.2, 0.02, m))
    return np.full((n, m), float(shown)), rng.binomial(shown, p).astype(float)


def test_derivatives_are_limits_of_differences():
    ob = AffineObjective(*counts(0))
    x, step = np.random.default_rng(1).uniform(0.2, 0.8, 16), 1e-6
    moves = step * np.eye(16)
    first = [(ob.value(x + move) - ob.value(x - move)) / (2.0 * step) for move in moves]
    np.testing.assert_allclose(ob.gradient(x)[1], first, rtol=1e-5, atol=1e-2)
    second = -np.array([(ob.gradient(x + move)[1] - ob.gradient(x - move)[1]) / (2.0 * step) for move in moves])
    arrow = ob.curvature(x)
    np.testing.assert_allclose(arrow.corner, second[8:, 8:], rtol=1e-4, atol=1e-1)
    np.testing.assert_allclose(arrow.border[0], second[:8, 8:], rtol=1e-4, atol=1e-1)
    np.testing.assert_allclose(arrow.diagonal(), np.diag(second), rtol=1e-4, atol=1e-1)


def test_starts_agree_in_probabilities_but_not_in_parameters():
    shown, clicked = counts(2)
    ob, rng = AffineObjective(shown, clicked), np.random.default_rng(3)
    reached = []
    for _ in range(4):
        low = rng.uniform(0.05, 0.3, 4)
        start = np.concatenate([rng.uniform(0.1, 0.9, 8), low + rng.uniform(0.2, 0.6, 4), low])
        reached.append(maximise(ob, start, np.zeros(16, bool)))
    assert all(one.converged for one in reached)
    np.testing.assert_allclose([one.value for one in reached], reached[0].value, atol=1e-6)
    tables = [ob.probabilities(one.x) for one in reached]
    np.testing.assert_allclose(tables[1:], np.broadcast_to(tables[0], (3, 8, 4)), atol=1e-5)
    assert max(np.abs(one.x - reached[0].x).max() for one in reached) > 1e-3


def test_the_normal_form_has_the_same_curvature_along_its_own_parameters():
    shown, clicked = counts(4)
    form, ob = NormalForm(shown, clicked), AffineObjective(shown, clicked)
    rng = np.random.default_rng(5)
    gamma, slopes = rng.uniform(0.3, 0.6, 8), np.array([1.0, 0.7, 0.5, 0.4])
    offsets = np.array([0.0, 0.02, 0.01, 0.03])

    def value(z):
        p = z[:8, None] * np.append(1.0, z[8:11]) + np.append(0.0, z[11:])
        return ob.cells.value(p)

    z, step = np.concatenate([gamma, slopes[1:], offsets[1:]]), 1e-4
    second = [(value(z + step * e) - 2.0 * value(z) + value(z - step * e)) / step**2 for e in np.eye(14)]
    np.testing.assert_allclose(form.curvature(gamma, slopes, offsets).diagonal(), -np.array(second), rtol=1e-4)
    assert value(z) == pytest.approx(ob.cells.value(gamma[:, None] * slopes + offsets))
