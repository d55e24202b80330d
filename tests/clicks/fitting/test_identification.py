"""Identification: components, parameters at their limits, and a check by perturbing the maximum."""

from __future__ import annotations

import numpy as np
import pytest

from bothworlds.clicks import Counts, fit
from tests.clicks.logs import fit_tables
from tests.reference.position_based import maximum

FIXED_LIST = Counts.from_tables(np.diag([900, 900, 900]), np.diag([400, 300, 90]), items=["a", "b", "c"])
# Two halves, held together by two pairs that were clicked every time: they can slide against each other.
SLIDING = ([[100, 5], [5, 100]], [[50, 5], [5, 30]])


def shift(shown, clicked, seed, push=1e-4):
    """How far the products of what has clicks move if the likelihood is tilted by a hair, either way."""
    shown, clicked = np.asarray(shown), np.asarray(clicked)
    rows, columns = clicked.sum(1) > 0, clicked.sum(0) > 0
    tilt = np.random.default_rng(seed).normal(size=shown.shape[1]) * columns * push
    ends = [maximum(shown, clicked, sign * tilt) for sign in (-1.0, 1.0)]
    first, second = (np.outer(alpha, beta)[np.ix_(rows, columns)] for alpha, beta, _ in ends)
    return float(np.abs(first - second).max())


@pytest.mark.slow
def test_perturbed_identified_fits_return_to_the_maximum():
    checked = 0
    for seed in range(50):
        rng = np.random.default_rng(seed)
        shown = rng.integers(0, 6, (5, 3)) * (rng.random((5, 3)) < 0.6)
        clicked = rng.binomial(shown, rng.choice([0.3, 0.6, 1.0], (5, 3)))
        if shown.any() and fit_tables(shown, clicked).identified:
            checked += 1
            assert shift(shown, clicked, seed) < 0.02, (shown, clicked)
    assert checked >= 10


@pytest.mark.slow
@pytest.mark.parametrize("counts", [([[9, 0], [0, 9]], [[3, 0], [0, 2]]), SLIDING])
def test_perturbed_unidentified_fits_move(counts):
    assert not fit_tables(*counts).identified
    assert max(shift(*counts, seed) for seed in range(4)) > 0.1


def test_pairs_clicked_every_time_do_not_hold_halves_together():
    model = fit_tables(*SLIDING)
    assert "position 2 can only be compared" in model.warnings[0]
    assert "clicked every time" in model.warnings[0]
    assert fit_tables([[100, 5], [6, 100]], [[50, 5], [5, 30]]).identified


def test_a_fixed_list_is_all_components():
    model = fit(FIXED_LIST)
    assert not model.identified
    assert model.converged
    assert model.components["items"].tolist() == model.components["columns"].tolist() == [0, 1, 2]
    assert model.examination.tolist() == [1.0] * 3
    np.testing.assert_allclose(model.attraction, np.array([400, 300, 90]) / 900, rtol=1e-6)
    assert "3 groups" in model.warnings[0]
    for name in ("'a' at position 1", "'b' at position 2", "'c' at position 3"):
        assert name in model.warnings[0]


def test_components_are_fitted_as_if_each_were_alone():
    shown, clicked = np.zeros((2, 5, 4), int)
    halves = (slice(0, 2), slice(0, 2)), (slice(2, 5), slice(2, 4))
    rng = np.random.default_rng(0)
    for half in halves:
        shown[half] = rng.integers(50, 90, shown[half].shape)
        clicked[half] = rng.binomial(shown[half], 0.4)
    model = fit_tables(shown, clicked)
    assert model.components["items"].tolist() == [0, 0, 1, 1, 1]
    assert model.components["columns"].tolist() == [0, 0, 1, 1]
    likelihoods = 0.0
    for rows, columns in halves:
        alone = fit_tables(shown[rows, columns], clicked[rows, columns])
        np.testing.assert_allclose(model.attraction[rows], alone.attraction, rtol=1e-6)
        np.testing.assert_allclose(model.examination[columns], alone.examination, rtol=1e-6)
        np.testing.assert_allclose(
            model.shared_parameters["examination"].error[columns],
            alone.shared_parameters["examination"].error,
            rtol=1e-4,
        )
        np.testing.assert_allclose(
            model.item_parameters["attraction"].error[rows], alone.item_parameters["attraction"].error, rtol=1e-4
        )
        likelihoods += alone.log_likelihood
    assert model.log_likelihood == pytest.approx(likelihoods)


def test_an_item_without_clicks_links_nothing():
    shown = np.array([[50, 0], [0, 50], [50, 50]])
    linked, cut = np.array([[20, 0], [0, 10], [5, 5]]), np.array([[20, 0], [0, 10], [0, 0]])
    assert fit_tables(shown, linked).identified
    model = fit_tables(shown, cut)
    assert not model.identified
    assert model.attraction[2] == 0.0


def test_a_position_without_clicks_is_not_examined():
    model = fit_tables([[50, 50], [50, 50]], [[20, 0], [10, 0]])
    assert model.identified
    assert model.examination.tolist() == [1.0, 0.0]
    assert model.shared_parameters["examination"].low[1] == 0.0
    assert model.shared_parameters["examination"].high[1] == pytest.approx(3.0 / (50 * 0.4 + 50 * 0.2), rel=0.01)


BLAMELESS = np.array([[0, 50], [50, 50]]), np.array([[0, 0], [20, 0]])  # an item with clicks was at position 2 too


@pytest.mark.parametrize("shown", [[[50, 0], [0, 50]], [[50, 0], [50, 50]]])
def test_a_position_that_only_had_items_without_clicks_is_not_known(shown):
    model = fit_tables(shown, [[20, 0], [0, 0]])
    assert not model.identified
    assert np.isnan([model.examination[1], model.shared_parameters["examination"].high[1]]).all()
    assert model.components["columns"].tolist() == [0, -1]
    assert model.warnings == (
        "Not identified: at position 2 there were no clicks and no items that have clicks elsewhere, so the cause may "
        "be the position or the items.",
    )
    with pytest.raises(ValueError, match="not identified"):
        model.world()
    assert fit_tables(*BLAMELESS).identified
    assert fit_tables(*BLAMELESS).examination.tolist() == [1.0, 0.0]


def test_the_rule_of_three_bounds_items_without_clicks():
    model = fit_tables([[100, 100], [300, 0]], [[40, 40], [0, 0]])
    assert (model.attraction[1], model.item_parameters["attraction"].low[1]) == (0.0, 0.0)
    assert model.item_parameters["attraction"].high[1] == pytest.approx(0.01, rel=0.01)
    assert np.isnan(model.item_parameters["attraction"].error[1])


def test_clopper_and_pearson_bound_items_that_were_always_clicked():
    model = fit_tables([[100], [20]], [[40], [20]])
    assert model.attraction[1] == pytest.approx(1.0, abs=1e-5)
    assert model.item_parameters["attraction"].low[1] == pytest.approx(0.05 ** (1 / 20), rel=1e-3)
    assert model.item_parameters["attraction"].high[1] == 1.0
    assert np.isnan(model.item_parameters["attraction"].error[1])


def test_the_limit_of_an_item_that_was_always_clicked_weighs_all_its_positions():
    """Its likelihood at the limit is a twentieth of that at attraction 1: with one of two clicks where half see it."""
    model = fit_tables([[900, 900], [1, 2]], [[600, 300], [1, 1]])
    beta, low = model.examination[1], model.item_parameters["attraction"].low[1]
    assert model.attraction[1] == pytest.approx(1.0, abs=1e-4)
    ratio = low**2 * (1.0 - low * beta) / (1.0 - beta)
    assert ratio == pytest.approx(0.05, rel=1e-3)


def test_parameters_of_items_never_shown_are_nan():
    model = fit_tables([[9, 9, 0], [0, 0, 0], [9, 9, 0]], [[5, 3, 0], [0, 0, 0], [4, 2, 0]])
    assert np.isnan(model.attraction).tolist() == [False, True, False]
    assert np.isnan(model.examination).tolist() == [False, False, True]
    assert np.isnan(model.item_parameters["attraction"].high).tolist() == [False, True, False]
    assert model.components["items"].tolist() == [0, -1, 0]
    assert model.identified


def test_without_clicks_there_is_no_curve():
    model = fit_tables([[9, 9], [9, 9]], [[0, 0], [0, 0]])
    assert not model.identified
    assert model.attraction.tolist() == [0.0, 0.0]
    assert np.isnan(model.examination).all()
    assert model.warnings == ("Nothing was clicked: there is no curve.",)
    assert model.log_likelihood == 0.0
