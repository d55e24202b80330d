"""Mixtures with uniform lists reach the floor and the requested exposure, and stay in the polytope."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothworlds.geometry.mixtures import mixed, share_needed
from bothworlds.geometry.polytope import as_marginals


@pytest.mark.slow
@given(
    st.integers(1, 8).flatmap(lambda m: st.tuples(st.just(m), st.integers(m, 12))),
    st.integers(0, 2**32),
    st.floats(0.0, 1.0),
    st.floats(0.0, 1.0),
)
def test_mixtures_are_feasible_and_reach_floor_and_exposure(shape, seed, floor, exposure):
    m, n = shape
    rng = np.random.default_rng(seed)
    lists = [rng.permutation(n)[:m] for _ in range(3)]
    x = np.mean([np.eye(n)[:, chosen] for chosen in lists], axis=0)
    y = mixed(x, floor, exposure)
    as_marginals(y)
    assert y.min() >= floor / n - 1e-15
    assert y.sum(axis=1).min() >= min(exposure, m / n) - 1e-12


def test_nothing_more_is_mixed_in_than_needed():
    x = np.eye(4)[:, :2]
    assert share_needed(x, 0.0) == 0.0
    assert np.isclose(mixed(x, 0.0, 0.1).sum(axis=1).min(), 0.1)
    assert np.array_equal(mixed(x, 0.0), x)


def test_an_unreachable_exposure_gives_uniform_lists():
    assert np.allclose(mixed(np.eye(4)[:, :2], 0.01, 0.9), 0.25)
