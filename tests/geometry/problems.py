"""Leader problems for tests: from Hypothesis, random by seed, and at the limits of the supported range.

``benchmarks/leader_convergence.py`` solves many more of the wide ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bothworlds.geometry import leader
from tests.reference.regularizers import NAMES

# Kernels count on IEEE arithmetic, where exp overflows to inf and log(0) is -inf. Plain Python raises instead, so
# what is hard for floating point is left out where nothing is compiled (as it is to measure coverage).
compiled_only = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="IEEE arithmetic needs compiled kernels")


class Problem(NamedTuple):
    """One problem: loss (n, m), a rate or one for every pair, and the name of the regulariser."""

    loss: np.ndarray
    rate: float | np.ndarray
    regularizer: str

    def solve(self, **options):
        return leader(self.loss, self.rate, regularizer=self.regularizer, **options)


@st.composite
def shapes(draw, most=7):
    """m <= n, with squares, one item more than positions, and single positions more often than by chance."""
    n = draw(st.integers(1, most))
    return n, draw(st.one_of(st.integers(1, n), st.just(n), st.just(max(1, n - 1)), st.just(1)))


@st.composite
def losses(draw, shape):
    """Losses of any magnitude: all different, with ties, with identical rows, or the same for every item."""
    n, m = shape
    kind = draw(st.sampled_from(["floats", "ties", "identical rows", "columns"]))
    size = 10.0 ** draw(st.integers(-4, 4))
    if kind == "floats":
        return size * draw(arrays(float, shape, elements=st.floats(-1.0, 1.0, width=32)))
    if kind == "ties":
        return size * draw(arrays(np.int64, shape, elements=st.integers(-2, 2)))
    if kind == "identical rows":
        rows = draw(arrays(float, (2, m), elements=st.floats(-1.0, 1.0, width=16)))
        return size * rows[draw(arrays(np.int64, n, elements=st.integers(0, 1)))]
    return size * np.repeat(draw(arrays(float, (1, m), elements=st.floats(-1.0, 1.0, width=32))), n, axis=0)


@st.composite
def problems(draw, most=7):
    """Any regulariser, a rate from 1e-5 to 10 for all pairs or for each."""
    shape = draw(shapes(most))
    exponent = st.floats(-5.0, 1.0, width=16)
    rate = draw(st.one_of(exponent, arrays(float, shape, elements=exponent)))
    return Problem(draw(losses(shape)), 10.0**rate, draw(st.sampled_from(NAMES)))


def random_problem(rng, shape, regularizer, size=(-1.0, 2.5), rate=(-2.0, 0.5), spread=0.5):
    """Moderate losses and rates (ranges of exponents), for solvers that cannot take more; half with ties."""
    n, m = shape
    loss = rng.random((n, m)) if rng.random() < 0.5 else rng.integers(0, 4, (n, m)) / 3.0
    eta = 10.0 ** rng.uniform(*rate)
    if rng.random() < 0.5:
        eta = eta * 10.0 ** rng.uniform(-spread, spread, (n, m))
    return Problem(10.0 ** rng.uniform(*size) * loss, eta, regularizer)


def wide_problem(rng, regularizer, most=50):
    """Up to ``most`` items, often one more than positions; losses over eight decades, rates over six, also by pair."""
    n = int(rng.integers(1, most + 1)) if rng.random() < 0.5 else int(rng.integers(1, 9))
    m = [int(rng.integers(1, n + 1)), max(1, n - 1), n][rng.choice(3, p=[0.4, 0.45, 0.15])]
    shape, size = (n, m), 10.0 ** rng.uniform(-4, 4)
    loss = [
        lambda: np.zeros(shape),
        lambda: size * rng.random(shape),
        lambda: size * rng.integers(0, 3, shape),
        lambda: 10.0 ** rng.uniform(-4, 4, shape) * rng.choice([-1, 1], shape),
        lambda: size * np.outer(rng.random(n), rng.random(m)),
    ][rng.integers(5)]()
    exponent = [
        lambda: rng.uniform(-5, 1),
        lambda: rng.uniform(-5, 1, shape),
        lambda: np.repeat(rng.uniform(-5, 1, (n, 1)), m, axis=1),
        lambda: np.where(rng.random(shape) < 0.15, *rng.uniform(-5, 1, 2)),  # single pairs differ from the rest
    ][rng.integers(4)]()
    return Problem(loss, 10.0**exponent, regularizer)


LOW, HIGH = -1e3, 1e7  # the range of losses for which the leader has to be found
EXTREME_SHAPES = [
    (1, 1),
    (2, 1),
    (2, 2),
    (3, 2),
    (4, 4),
    (5, 3),
    (8, 8),
    (12, 5),
    (20, 19),
    (30, 30),
    (30, 12),
    (200, 20),
]


def extreme_problem(seed, regularizer, rates="one"):
    """Losses from -1e3 to 1e7 and rates from 1e-5 to 10, in all the ways that make a solver's life hard."""
    rng = np.random.default_rng([seed, NAMES.index(regularizer), len(rates)])
    shape = EXTREME_SHAPES[seed % len(EXTREME_SHAPES)]
    n, m = shape
    size = 10.0 ** rng.uniform(-6, 7)
    loss = [
        lambda: rng.uniform(LOW, HIGH, shape),
        lambda: np.where(rng.random(shape) < 0.5, LOW, HIGH),
        lambda: 10.0 ** rng.uniform(-3, 7, shape),
        lambda: size * rng.random(shape),
        lambda: size * rng.integers(0, 3, shape),
        lambda: size * np.outer(rng.random(n), rng.random(m)),
        lambda: _one_list_stands_out(rng, shape, size),
        lambda: rng.uniform(LOW, HIGH, (1, m)) + 10.0 ** rng.uniform(-3, 3) * rng.standard_normal(shape),
    ][rng.integers(8)]()
    rate = 10.0 ** (rng.uniform(-5, 1) if rates == "one" else rng.uniform(-5, 1, shape))
    return Problem(np.clip(loss, LOW, HIGH), rate, regularizer)


def _one_list_stands_out(rng, shape, size):
    loss = np.full(shape, size)
    loss[rng.permutation(shape[0])[: shape[1]], np.arange(shape[1])] = LOW * rng.random()
    return loss
