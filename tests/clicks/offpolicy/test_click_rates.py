"""Estimates by models: influence terms against resamples, user browsing against its recursion, given curves."""

from __future__ import annotations

import numpy as np
import pytest

from bothworlds.clicks import evaluate, fit
from bothworlds.clicks.offpolicy.click_rates import RateModel
from bothworlds.clicks.offpolicy.evaluation import Evaluator
from tests.clicks.offpolicy.simulated import far_target, near_target, simulate, target_of

SMALL = {"queries": 4, "items": 5, "m": 3, "weeks": 4, "pages": 3000}


@pytest.mark.slow
@pytest.mark.parametrize("model", ["cells", "pbm", "pbm+level", "ubm"])
def test_influence_terms_have_the_spread_of_resampled_pages(model):
    found = simulate("pbm", "uniform", 1, **SMALL)
    judge = Evaluator(found.pages, progress=False)
    target = judge._target(target_of(near_target(found)), None)
    placed, values, rng = target.placements(judge.logged, found.pages.count, 0), [], np.random.default_rng(2)
    for _ in range(300):
        clicks = judge.models[model].fit(rng.poisson(found.pages.count)).predict(placed).clicks
        values.append([*np.bincount(placed.position, clicks), clicks.sum()])
    estimates = judge._value(model, target, [placed]).estimates
    assert [one.position for one in estimates] == [1, 2, 3, None]
    errors = [one.standard_error / judge.factor(model) for one in estimates]
    assert errors == pytest.approx(np.std(values, axis=0), rel=0.16)  # 4 standard errors of 300 resamples


@pytest.mark.slow
def test_user_browsing_has_the_value_of_its_own_world():
    found = simulate("cascade", "uniform", 3, **SMALL | {"queries": 1})
    lists = far_target(found.users)
    result = evaluate(found.pages, target_of(lists), estimator="ubm")
    model = fit(found.pages, "ubm", prior=Evaluator(found.pages).models["ubm"].prior)
    assert result.value == pytest.approx(model.expected_reward([str(i) for i in lists[0]], "0"), rel=1e-6)


@pytest.mark.slow
def test_the_gradient_of_user_browsing_is_that_of_finite_differences():
    found = simulate("cascade", "uniform", 3, **SMALL | {"queries": 2})
    judge = Evaluator(found.pages, progress=False)
    target = judge._target(target_of(far_target(found.users)), None)
    placed, rates = target.placements(judge.logged, found.pages.count, 0), judge.fit("ubm")
    before = rates.predict(placed)
    slope = np.zeros(rates.fitted.column_effect.size)
    np.add.at(slope, before.columns[:, 0], before.slope)
    for column in (0, 1, 2, 4):
        rates.fitted.column_effect[column] += 1e-6
        after = rates.predict(placed).clicks.sum()
        rates.fitted.column_effect[column] -= 1e-6
        assert (after - before.clicks.sum()) / 1e-6 == pytest.approx(slope[column], rel=1e-4, abs=1e-6)


def test_a_given_curve_that_is_the_fitted_one_changes_nothing():
    found = simulate("pbm", "weekly", 4, **SMALL)
    lists = target_of(near_target(found))
    free = evaluate(found.pages, lists, estimator="pbm")
    curve = np.exp(Evaluator(found.pages).fit("pbm").fitted.column_effect)
    fixed = evaluate(found.pages, lists, estimator="pbm", examination=curve.tolist())
    assert fixed.value == pytest.approx(free.value, rel=1e-5)
    assert fixed.estimate("pbm").standard_error < free.estimate("pbm").standard_error


def test_one_window_is_no_window():
    found = simulate("pbm", "weekly", 5, **SMALL)
    p = found.pages
    single = p.__class__(**{**vars(p), "windows": ("2026-01-01",), "window": np.zeros(len(p), np.int64)})
    judge = Evaluator(single)
    target = judge._target(target_of(near_target(found)), None)
    placed = target.placements(judge.logged, p.count, 0)
    one, other = (RateModel(name, judge.logged).fit().predict(placed).clicks for name in ("pbm", "pbm+level"))
    assert one == pytest.approx(other, rel=1e-9)
