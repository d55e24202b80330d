"""The rank-one fit: optimality conditions and extreme counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothworlds.statistics.rank_one.fit import components, fit_newton
from bothworlds.statistics.rank_one.likelihood import make_workspace
from bothworlds.statistics.rank_one.newton import newton

YANDEX = np.array([1.0, 0.255, 0.0873, 0.0462, 0.0424])


def counts(seed, n=6, m=4, least=1, most=400, examination=None):
    rng = np.random.default_rng(seed)
    shown = rng.integers(least, most, (n, m)).astype(float)
    beta = rng.random(m) if examination is None else np.asarray(examination)
    clicked = rng.binomial(shown.astype(int), np.outer(rng.random(n), beta)).astype(float)
    return shown, clicked


def products(fit):
    return np.outer(fit.attraction, fit.examination)


def gradient(shown, clicked, fit, prior=0.0):
    """Of the log-likelihood in log-parameters, pair by pair."""
    p = products(fit)
    s, f = clicked + prior * (shown > 0), shown - clicked + prior * (shown > 0)
    return s - f * p / (1.0 - p)


@pytest.mark.parametrize("beta", [YANDEX, [0.9, 1.0, 0.3, 0.99], [1.0]])
def test_products_are_recovered_from_counts_without_noise(beta):
    p = np.outer(np.linspace(0.95, 0.02, 10), beta)
    shown = np.random.default_rng(0).integers(200, 20_000, p.shape).astype(float)
    found = fit_newton(shown, shown * p)
    assert found.converged
    np.testing.assert_allclose(products(found), p, rtol=0, atol=1e-8)
    assert found.examination.max() == 1.0


def test_it_takes_a_few_steps():
    steps = [fit_newton(*counts(seed, 10, 5, 200, 20_000)).iterations for seed in range(40)]
    assert np.median(steps) <= 6
    assert max(steps) <= 15


@given(st.integers(0, 10**6), st.sampled_from([(2, 1), (2, 2), (6, 4), (9, 3)]))
def test_the_gradient_vanishes(seed, shape):
    shown, clicked = counts(seed, *shape)
    fit = fit_newton(shown, clicked, prior=0.1)
    assert fit.converged
    g = gradient(shown, clicked, fit, 0.1)
    assert max(np.abs(g.sum(axis=0)).max(), np.abs(g.sum(axis=1)).max()) < 1e-8 * shown.sum()


@pytest.mark.slow
@given(st.integers(0, 10**6), st.integers(2, 7))
def test_the_ordered_fit_satisfies_its_optimality_conditions(seed, m):
    """Order; the gradient of items vanishes; that of positions is a chain of pushes from lower to higher ones."""
    shown, clicked = counts(seed, 7, m)
    fit = fit_newton(shown, clicked, prior=0.1, ordered=True)
    assert fit.converged
    assert (np.diff(fit.examination) <= 0.0).all()
    g = gradient(shown, clicked, fit, 0.1)
    small = 1e-7 * shown.sum()
    assert np.abs(g.sum(axis=1)).max() < small
    push = -np.cumsum(g.sum(axis=0))
    assert push.min() > -small
    assert abs(push[-1]) < small
    assert np.abs(push[:-1] * -np.diff(np.log(fit.examination))).max() < small


def test_the_order_costs_nothing_where_it_holds_anyway():
    shown, clicked = counts(3, 8, 5, 2000, 3000, YANDEX)
    free, ordered = fit_newton(shown, clicked), fit_newton(shown, clicked, ordered=True)
    np.testing.assert_allclose(products(ordered), products(free), rtol=1e-9)


def test_reversed_examination_is_levelled_by_the_order():
    shown, clicked = counts(3, 8, 4, 2000, 3000, [0.2, 0.4, 0.6, 0.8])
    assert fit_newton(shown, clicked, ordered=True).examination.tolist() == [1.0] * 4


def test_a_position_without_clicks_is_not_below_a_later_one():
    shown, clicked = np.full((3, 3), 50.0), np.array([[25.0, 0, 10], [15, 0, 5], [10, 0, 2]])
    assert fit_newton(shown, clicked).examination[1] == 0.0
    fit = fit_newton(shown, clicked, ordered=True)
    assert fit.converged
    assert fit.examination[1] == fit.examination[2] > 0.0
    assert fit_newton(shown, clicked[:, [0, 2, 1]], ordered=True).examination[2] == 0.0


def test_the_normal_form_does_not_depend_on_the_start():
    shown, clicked = counts(5, 6, 4, 50)
    rng, plain = np.random.default_rng(0), fit_newton(shown, clicked)
    for _ in range(10):
        fit = fit_newton(shown, clicked, start=(rng.uniform(0.05, 1.0, 6), rng.uniform(0.05, 1.0, 4)))
        np.testing.assert_allclose(fit.attraction, plain.attraction, rtol=1e-6)
        np.testing.assert_allclose(fit.examination, plain.examination, rtol=1e-6)


def test_starting_from_the_last_fit_saves_steps():
    shown, clicked = counts(2, 10, 5, 2000, 3000)
    w = make_workspace(10, 5)
    first = newton(shown, clicked, 0.1, False, False, 1e-16, w).steps
    again = newton(shown, clicked, 0.1, False, True, 1e-16, w).steps
    soon = newton(shown + 1.0, clicked + 1.0, 0.1, False, True, 1e-8, w).steps
    assert again == 0
    assert soon < first


def test_an_item_without_clicks_has_attraction_zero():
    shown, clicked = counts(7, 5, 3, 50)
    clicked[2] = 0.0
    fit = fit_newton(shown, clicked)
    assert fit.attraction[2] < 1e-9
    others = np.arange(5) != 2
    alone = fit_newton(shown[others], clicked[others])
    np.testing.assert_allclose(products(fit)[others], products(alone), rtol=1e-6)
    assert fit_newton(shown, clicked, prior=0.1).attraction[2] > 1e-4


def test_a_pair_that_is_always_clicked_stays_below_one():
    shown = np.full((3, 2), 100.0)
    clicked = np.array([[100.0, 100.0], [30.0, 30.0], [60.0, 60.0]])
    fit = fit_newton(shown, clicked)
    assert 1.0 - 1e-4 < products(fit).max() < 1.0
    np.testing.assert_allclose(products(fit), clicked / shown, atol=1e-5)
    everything = fit_newton(shown, shown)
    assert np.isfinite(everything.log_likelihood)
    np.testing.assert_allclose(products(everything), 1.0, atol=1e-5)


def test_items_without_impressions_are_nan_and_change_nothing():
    shown, clicked = counts(4, 4, 3, 50)
    wide, wide_clicked = np.zeros((5, 4)), np.zeros((5, 4))
    wide[:4, :3], wide_clicked[:4, :3] = shown, clicked
    fit, plain = fit_newton(wide, wide_clicked), fit_newton(shown, clicked)
    assert np.isnan([fit.attraction[4], fit.examination[3]]).all()
    np.testing.assert_allclose(fit.attraction[:4], plain.attraction, rtol=1e-6)


def test_probabilities_stay_below_one_at_pairs_that_were_never_shown():
    """The second item would need attraction 2 were it not for that."""
    shown, clicked = np.array([[100.0, 100.0], [0.0, 100.0]]), np.array([[80.0, 20.0], [0.0, 50.0]])
    fit = fit_newton(shown, clicked)
    assert 0.999 < fit.attraction[1] <= 1.0


def test_pairs_seen_once_beside_pairs_seen_a_million_times_still_set_the_scale():
    p = np.outer([0.8, 0.6, 0.4], [1.0, 0.5, 0.25])
    shown = np.eye(3) * 1e6 + 1.0
    np.testing.assert_allclose(products(fit_newton(shown, shown * p)), p, rtol=1e-6)


def test_groups_that_cannot_be_compared_are_reported():
    shown = np.array([[5.0, 0, 0, 0], [0, 5, 5, 0], [0, 0, 5, 0], [0, 0, 0, 0]])
    items, positions = components(shown)
    assert items.tolist() == [0, 1, 1, -1]
    assert positions.tolist() == [0, 1, 1, -1]
    with pytest.raises(ValueError, match="2 groups"):
        fit_newton(shown, shown * 0.5)


def test_the_kernel_stays_finite_where_groups_cannot_be_compared():
    shown, w = np.eye(4) * 50.0, make_workspace(4, 4)
    newton(shown, shown * np.linspace(0.2, 0.8, 4), 0.1, False, False, 1e-16, w)
    p = np.exp(w.a[:, None] + w.b)
    assert np.isfinite(w.a).all()
    assert np.isfinite(w.b).all()
    np.testing.assert_allclose(np.diag(p), (50 * np.linspace(0.2, 0.8, 4) + 0.1) / 50.2, rtol=1e-3)


def test_without_clicks_every_attraction_is_zero():
    fit = fit_newton(np.full((3, 2), 9.0), np.zeros((3, 2)))
    assert fit.attraction.tolist() == [0.0] * 3
    assert fit.examination.tolist() == [1.0] * 2


@pytest.mark.parametrize(
    ("shown", "clicked"),
    [([[1.0, 2.0]], [[1.0], [2.0]]), ([[1.0]], [[2.0]]), ([[1.0]], [[-1.0]]), ([[np.nan]], [[0.0]]), ([], [])],
)
def test_impossible_counts_are_refused(shown, clicked):
    with pytest.raises(ValueError, match=r"shown and clicked|no more clicks"):
        fit_newton(shown, clicked)


def test_counts_without_impressions_are_refused():
    with pytest.raises(ValueError, match="no impressions"):
        fit_newton(np.zeros((2, 2)), np.zeros((2, 2)))


def test_more_positions_than_items_are_fitted_as_well():
    alpha, beta = np.array([0.8, 0.4]), np.array([1.0, 0.6, 0.4, 0.2])
    shown = np.full((2, 4), 1000.0)
    fitted = fit_newton(shown, shown * np.outer(alpha, beta))
    assert fitted.converged
    np.testing.assert_allclose(np.outer(fitted.attraction, fitted.examination), np.outer(alpha, beta), rtol=1e-6)


@pytest.mark.parametrize("ordered", [False, True])
def test_an_item_whose_clicks_are_forgotten_everywhere_has_none(ordered):
    w = make_workspace(1, 5)
    done = newton(np.ones((1, 5)), np.full((1, 5), 4e-7), 0.0, ordered, False, 1e-10, w)
    assert done.converged
    assert (w.a.tolist(), w.b.tolist()) == ([-np.inf], [0.0] * 5)
