"""Regularisers without a closed form: the inverse of the slope is exact up to rounding, for all slopes."""

from __future__ import annotations

import numpy as np
import pytest

from bothworlds.geometry.regularizers import Hybrid, HybridBarrier, primal, slope
from tests.reference.regularizers import marginal

SLOPES = np.concatenate([-np.logspace(6, -3, 40), [0.0], np.logspace(-3, np.log10(50.0), 30)])
GAMMAS = [0.1, 1.0, np.log(1e6), 1000.0]
MAKERS = {"hybrid": Hybrid, "barrier": HybridBarrier, "tilted": lambda gamma: HybridBarrier(gamma, 1.0 + gamma)}


def parts(reg, x):
    """The part of the slope that is steep at 0 and its derivative, and the constant."""
    if isinstance(reg, Hybrid):
        return -0.5 / np.sqrt(x), 0.25 * x**-1.5, -reg.gamma
    return -1.0 / x, x**-2.0, reg.tilt - reg.gamma


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
def test_the_slope_at_the_inverse_is_the_given_slope(make, gamma):
    """Where x is too near to 1 to say 1 - x, the derivative of the inverse says it."""
    reg = make(gamma)
    for y in SLOPES:
        x, h = primal(reg, 0.5, -2.0 * y)
        steep, curvature, constant = parts(reg, x)
        rest = 1.0 - x if x < 0.999 else gamma / (0.5 / h - curvature)
        assert 0.0 < x <= 1.0
        assert steep - gamma * np.log(rest) + constant == pytest.approx(y, rel=1e-12, abs=1e-12 * (1.0 + gamma))
        if x < 0.999:
            assert slope(reg, x) == pytest.approx(y, rel=1e-11, abs=1e-11 * (1.0 + gamma))


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
def test_the_returned_derivative_is_that_of_the_inverse(make, gamma):
    reg, rate, step = make(gamma), 0.7, 1e-5
    for z in np.linspace(-20.0, 200.0, 45):
        (_, h), (right, _), (left, _) = (primal(reg, rate, z + d) for d in (0.0, step, -step))
        assert (left - right) / (2.0 * step) == pytest.approx(h, rel=1e-5, abs=1e-10)


@pytest.mark.parametrize(("name", "reg"), [("hybrid", Hybrid()), ("hybrid-barrier", HybridBarrier())])
def test_the_inverse_agrees_with_bisection(name, reg):
    found = [primal(reg, 1.0, -y)[0] for y in SLOPES]
    np.testing.assert_allclose(found, marginal(name, SLOPES), rtol=1e-12)


def test_with_little_entropy_the_hybrid_is_tsallis_below_one():
    for x in (1e-6, 0.1, 0.5, 0.9):
        assert primal(Hybrid(1e-9), 1.0, 0.5 / np.sqrt(x))[0] == pytest.approx(x, rel=1e-7)


def test_a_tilt_is_a_constant_in_the_slope():
    assert slope(HybridBarrier(2.0, 3.0), 0.3) == pytest.approx(slope(HybridBarrier(2.0), 0.3) + 3.0)
    assert primal(HybridBarrier(2.0, 3.0), 0.5, 1.0)[0] == pytest.approx(primal(HybridBarrier(2.0), 0.5, 7.0)[0])
