"""The alternative with the least divergence, against SLSQP and its optimality conditions."""

from __future__ import annotations

import numpy as np
import pytest

from bothworlds.policies.pmed.alternatives import fill_cut, load_weights, make_alternative
from bothworlds.policies.pmed.interior_point import closest_alternative
from tests.reference import exploration as reference

SHAPES = [(4, 3), (3, 3), (5, 2), (6, 4), (3, 1), (2, 2), (8, 5)]


def alternative_of(theta, kappa, q):
    alternative = make_alternative(len(theta), len(kappa))
    alternative.log_theta[:], alternative.log_kappa[:] = np.log(theta), np.log(kappa)
    load_weights(alternative, np.ascontiguousarray(q, dtype=float))
    return alternative


def instance(n, m, seed, share):
    """Sorted parameters, and weights of which a share is not zero."""
    rng = np.random.default_rng([n, m, seed])
    theta = np.sort(rng.uniform(0.05, 0.95, n))[::-1]
    kappa = np.concatenate([[1.0], np.sort(rng.uniform(0.1, 1.0, m - 1))[::-1]])
    return theta, kappa, rng.exponential(20.0, (n, m)) * (rng.random((n, m)) < share)


@pytest.mark.parametrize(("n", "m"), SHAPES)
@pytest.mark.parametrize("share", [1.0, 0.4])
def test_the_least_divergence_is_that_of_slsqp(n, m, share):
    for seed in range(4):
        theta, kappa, q = instance(n, m, seed, share)
        alternative = alternative_of(theta, kappa, q)
        for k in range(n - 1):
            slow, _, _ = reference.closest(theta, kappa, q, k)
            value = closest_alternative(alternative, k, np.inf)
            assert value <= slow + 1e-6 * max(1.0, slow)
            assert value == pytest.approx(slow, rel=2e-4, abs=2e-5)


@pytest.mark.parametrize(("n", "m"), SHAPES)
@pytest.mark.parametrize("share", [1.0, 0.3])
def test_the_cut_belongs_to_an_alternative_and_its_value_is_the_divergence(n, m, share):
    theta, kappa, q = instance(n, m, 9, share)
    off = ~np.eye(n, m, dtype=bool)
    p, shared = np.outer(theta, kappa), np.log(theta[:m] * kappa)
    alternative, row = alternative_of(theta, kappa, q), np.empty(n * m)
    for k in range(n - 1):
        value = closest_alternative(alternative, k, np.inf)
        fill_cut(alternative, k, row)
        cut = row.reshape(n, m)
        assert (cut[~off] == 0.0).all()
        assert (q * cut).sum() == pytest.approx(value, rel=1e-6, abs=1e-7)
        b = alternative.b
        assert b[0] == 0.0
        assert (np.diff(b) <= 1e-12).all()
        a = shared - b
        assert a.max() <= 1e-12
        tied = a[k + 1] if k + 1 < m else a[m - 1]
        assert tied == pytest.approx(a[min(k, m - 1)], abs=1e-12)
        expected = reference.divergences(p[:m], a[:, None] + b)
        np.testing.assert_allclose(cut[:m][off[:m]], expected[off[:m]], atol=1e-10)
        if k + 1 >= m:
            challenger = reference.divergences(p[k + 1], tied + b)
            np.testing.assert_allclose(cut[k + 1], challenger, atol=1e-10)


@pytest.mark.parametrize("seed", range(10))
def test_the_derivatives_of_the_lagrangian_vanish(seed):
    theta, kappa, q = instance(7, 4, seed, 0.7)
    alternative, m = alternative_of(theta, kappa, q), 4
    for k in range(6):
        value = closest_alternative(alternative, k, np.inf)
        lam, slack = alternative.lam, alternative.slack
        live = np.isfinite(slack)
        assert (lam[live] >= 0.0).all()
        assert (lam[live] * slack[live]).sum() <= 1e-8 * max(1.0, value)
        pull = alternative.gradient.copy()
        pull[: m - 1] -= np.where(live[: m - 1], lam[: m - 1], 0.0)
        pull[1:] += np.where(live[: m - 1], lam[: m - 1], 0.0)
        pull -= np.where(live[m:], lam[m:], 0.0)
        for v in range(alternative.variable.max() + 1):
            assert abs(pull[alternative.variable == v].sum()) < 1e-8 * max(1.0, q.sum())


def test_positions_stay_in_order_even_if_that_increases_the_divergence():
    """Item 3 clicked less than expected at 2 and more at 1 would say that position 2 is examined less: it cannot be."""
    theta, kappa = np.array([0.9, 0.6, 0.58]), np.array([1.0, 0.99])
    q = np.array([[0.0, 0.0], [300.0, 0.0], [0.0, 0.0]])
    alternative = alternative_of(theta, kappa, q)
    bound = closest_alternative(alternative, 0, np.inf)
    p = theta[1]
    assert bound == pytest.approx(300.0 * reference.divergences(p, np.log(theta[0])), rel=1e-6)
    closest_alternative(alternative, 1, np.inf)
    assert np.exp(alternative.b).max() <= 1.0


def test_without_weights_every_divergence_is_zero():
    theta, kappa = np.array([0.9, 0.6, 0.5, 0.2]), np.array([1.0, 0.5])
    assert max(closest_alternative(alternative_of(theta, kappa, np.zeros((4, 2))), k, np.inf) for k in range(3)) == 0.0
    best_only = np.zeros((4, 2))
    best_only[0, 0] = best_only[1, 1] = 1e6
    assert max(closest_alternative(alternative_of(theta, kappa, best_only), k, np.inf) for k in range(3)) == 0.0


def test_a_search_that_ends_early_returns_at_least_enough():
    for seed in range(10):
        theta, kappa, q = instance(6, 3, seed, 0.8)
        alternative = alternative_of(theta, kappa, q)
        for k in range(5):
            exact = closest_alternative(alternative, k, np.inf)
            for enough in (0.5 * exact, 0.999 * exact):
                assert closest_alternative(alternative, k, enough) >= enough
            assert closest_alternative(alternative, k, 2.0 * exact) == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("weight", [1e-6, 1.0, 1e6])
def test_nearly_equal_items_and_positions_have_small_finite_divergences(weight):
    theta = np.exp(-0.5 - 1e-3 * np.arange(6))
    kappa = np.array([1.0, 0.5, 0.5, 0.5])
    rng = np.random.default_rng(4)
    for _ in range(5):
        q = weight * rng.random((6, 4)) * (rng.random((6, 4)) < 0.5)
        alternative = alternative_of(theta, kappa, q)
        for k in range(5):
            value = closest_alternative(alternative, k, np.inf)
            assert np.isfinite(value)
            assert 0.0 <= value <= 1e-5 * weight * 24 + 1e-8
