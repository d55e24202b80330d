"""Standard errors: coverage of intervals, and when they must be absent."""

from __future__ import annotations

import numpy as np
import pytest

from bothworlds.clicks import Counts, fit
from bothworlds.clicks.fitting.fit import fit_each_query
from tests.clicks.logs import fit_tables, generated

ALPHA, BETA = np.array([0.7, 0.5, 0.3, 0.2, 0.15, 0.1]), np.array([1.0, 0.6, 0.4, 0.25])
REPLICATIONS = 400


def draws():
    """All replications as queries of one log."""
    rng = np.random.default_rng(11)
    shown = rng.integers(40, 400, (1, 6, 4)).repeat(REPLICATIONS, 0)
    clicked = rng.binomial(shown, np.outer(ALPHA, BETA))
    q, i, j = np.nonzero(shown)
    names = tuple(map(str, range(6))), tuple(map(str, range(REPLICATIONS)))
    return Counts(*names, (1, 2, 3, 4), q, i, j, shown[q, i, j], clicked[q, i, j])


@pytest.fixture(scope="module")
def models():
    return list(fit_each_query(draws()).values())


def covered(models, part, truth):
    spreads = [(model.item_parameters | model.shared_parameters)[part] for model in models]
    low, high = (np.array([getattr(spread, end) for spread in spreads]) for end in ("low", "high"))
    return ((low <= truth) & (truth <= high)).mean(axis=0)


def test_intervals_cover_the_truth_as_often_as_they_say(models):
    items, positions = covered(models, "attraction", ALPHA), covered(models, "examination", BETA)[1:]
    # 400 replications: a standard deviation of 1.1 points.
    assert (np.abs(np.concatenate([items, positions]) - 0.95) < 0.045).all()
    assert abs(np.concatenate([items, positions]).mean() - 0.95) < 0.015


def test_intervals_that_are_too_short_would_be_caught(models):
    parts = [model.item_parameters["attraction"] for model in models]
    half = [one._replace(low=one.value - one.error, high=one.value + one.error) for one in parts]
    low, high = (np.array([getattr(spread, end) for spread in half]) for end in ("low", "high"))
    assert ((low <= ALPHA) & (truth_below(high))).mean() < 0.75


def truth_below(high):
    return high >= ALPHA


def test_standard_errors_are_the_standard_deviations_over_replications(models):
    found = np.array([model.attraction for model in models]).std(axis=0)
    message = np.median([model.item_parameters["attraction"].error for model in models], axis=0)
    np.testing.assert_allclose(message, found, rtol=0.15)


def test_the_information_matrix_gives_the_same_variances():
    """The whole matrix, inverted, without the position that is set to 1."""
    counts = generated(seed=6)
    model = fit(counts)
    n, m = 6, 4
    shown, clicked = np.zeros((2, n, m))
    shown[counts.item, counts.position], clicked[counts.item, counts.position] = counts.shown, counts.clicked
    p = np.outer(model.attraction, model.examination)
    weight = (shown - clicked) * p / (1.0 - p) ** 2
    information = np.block([[np.diag(weight.sum(1)), weight], [weight.T, np.diag(weight.sum(0))]])
    free = np.delete(np.arange(n + m), n + model.examination.argmax())
    variance = np.diag(np.linalg.inv(information[np.ix_(free, free)]))
    np.testing.assert_allclose(
        (model.item_parameters["attraction"].error / model.attraction) ** 2, variance[:n], rtol=1e-5
    )
    others = np.delete(model.shared_parameters["examination"].error / model.examination, model.examination.argmax())
    np.testing.assert_allclose(others**2, variance[n:], rtol=1e-5)


def test_standard_errors_are_left_out_where_nobody_asks():
    model = fit(generated(), intervals=False)
    assert np.isnan(model.item_parameters["attraction"].error).all()
    assert np.isnan(model.shared_parameters["examination"].high).all()


def test_a_curve_from_few_clicks_is_called_noise():
    few = fit(generated(1, 20, 3, 40, seed=2, low=0.005, high=0.02, examination=[1.0, 1.0, 1.0]))
    assert any("This curve is noise" in warning for warning in few.warnings)
    assert not any("noise" in warning for warning in fit(generated(1, 6, 4, 3000)).warnings)


def test_a_second_position_above_the_first_is_pointed_out():
    sure = fit(generated(1, 6, 3, 3000, examination=[0.7, 1.0, 0.4]))
    assert "Position 2 is examined more than position 1" in sure.warnings[-1]
    assert "beyond what chance explains" in sure.warnings[-1]
    assert fit(generated(1, 6, 3, 3000, examination=[1.0, 0.7, 0.4])).warnings == ()


@pytest.mark.slow
def test_the_best_of_many_positions_is_not_sure_to_be_better_than_the_first():
    rng, best = np.random.default_rng(0), 0
    for _ in range(100):
        shown = np.full((3, 10), 400)
        model = fit_tables(shown, rng.binomial(shown, 0.1))
        best += any("beyond what chance explains" in warning for warning in model.warnings)
    assert best <= 5  # more than 20 without a correction for the choice
