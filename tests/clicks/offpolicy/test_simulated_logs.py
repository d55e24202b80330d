"""Simulated logs with a known truth: how often intervals and bounds hold it, and which logs are refused."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from bothworlds.clicks.offpolicy.evaluation import Evaluator
from tests.clicks.offpolicy.simulated import far_target, made_target, near_target, simulate, target_of

DRIFT = np.linspace(0.6, 1.2, 8)


def judged(users, log, seeds, target=far_target, **options):
    """The simulated logs, evaluations of a target, and its truth."""
    for seed in range(seeds):
        found = simulate(users, log, seed, **options)
        judge = Evaluator(found.pages, progress=False)
        lists = made_target(found, judge) if target is made_target else target(found.users)
        yield found, judge.evaluate(target_of(lists)), found.truth(lists)


def covered(users, log, seeds, estimator, **options):
    """How often the interval of an estimator holds the truth, and its relative errors."""
    inside, errors = [], []
    for _, result, truth in judged(users, log, seeds, **options):
        one = result.estimate(estimator)
        if result.shares[3] > 0.0:  # an item of the target was never shown
            continue
        inside.append(one.lower <= truth <= one.upper)
        errors.append(one.value / truth - 1.0)
    return np.mean(inside), np.array(errors)


@pytest.mark.slow
def test_one_command_answers_a_log_of_weekly_rankings():
    ((found, result, truth),) = judged("pbm", "weekly", 1, queries=12, items=7, m=4, pages=12_000)
    assert result.chosen == "pbm"
    assert "lists held out in turn" in result.reason
    assert result.value == pytest.approx(truth, rel=0.04)
    assert result.change.low < truth / found.logged - 1.0 < result.change.high
    rows = result.backtest.to_pylist()
    assert len(rows) == result.candidates[0].blocks > 80
    assert rows[0]["slope"] == pytest.approx(1.0, abs=0.2)
    assert 0.6 < rows[0]["phi"] < 1.6
    far = np.array([(row["observed"] - row["predicted"]) / row["standard_error"] for row in rows])
    assert np.mean(far**2) == pytest.approx(rows[0]["phi"], rel=0.2)


@pytest.mark.slow
def test_lists_that_follow_demand_are_refused():
    ((_, result, truth),) = judged("pbm", "demand", 1)
    assert result.chosen is None
    assert np.isnan([result.value, *result.change, result.lower_bound]).all()
    assert result.reason.startswith("not from this log: no model predicts the changes that this log has seen")
    assert result.estimate("pbm").value > 1.05 * truth
    assert f"{result.estimate('pbm').value:.4f}" not in repr(result)


@pytest.mark.slow
def test_a_ranking_made_from_a_small_log_is_warned_of():
    (((found, result, truth)),) = judged("pbm", "uniform", 1, made_target, queries=100, pages=10_000, high=0.15)
    assert result.estimate("pbm").value > 1.2 * truth
    assert abs(result.estimate("shrunken").value / truth - 1.0) < 0.12
    assert any("luck of this log" in warning and "--since" in warning for warning in result.warnings)
    best = Evaluator(found.pages, progress=False).evaluate(target_of(near_target(found)))
    assert not any("luck of this log" in warning for warning in best.warnings)


@pytest.mark.slow
def test_three_pages_do_not_tie_positions_surely():
    found = simulate("pbm", "constant", 0, queries=1, items=5, m=3, weeks=1, pages=3000)
    p = found.pages
    first = p.item.reshape(-1, 3)[0].copy()
    rows = np.tile(first, (len(p), 1))
    swapped = np.flatnonzero(p.click.reshape(-1, 3)[:, 0] == 1)[:1]
    rows[swapped] = first[[1, 0, 2]]
    count = p.count.copy()
    count[swapped] = 3
    pages = p.__class__(**{**vars(p), "item": rows.ravel(), "count": count})
    result = Evaluator(pages).evaluate([p.items[i] for i in first[[1, 0, 2]]])
    assert result.shares[0] == pytest.approx(1.0)
    back = Evaluator(pages).evaluate([p.items[i] for i in first[[2, 0, 1]]])
    assert back.shares[3] > 0.0
    assert any("swap positions" in warning for warning in back.warnings)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("log", ["uniform", "weekly"])
def test_intervals_of_position_based_users_cover(log):
    share, errors = covered("pbm", log, 100, "pbm")
    assert share >= 0.85
    assert abs(errors.mean()) < 0.005
    assert np.sqrt(np.mean(errors**2)) < 0.012


@pytest.mark.slow
@pytest.mark.nightly
def test_levels_remove_the_bias_of_drift():
    share, errors = covered("pbm", "weekly", 60, "pbm+level", drift=DRIFT)
    assert share >= 0.87
    assert abs(errors.mean()) < 0.004
    assert np.sqrt(np.mean(errors**2)) < 0.012


@pytest.mark.slow
@pytest.mark.nightly
def test_trust_bias_is_within_the_interval_of_the_change():
    inside = []
    for found, result, truth in judged("trust", "weekly", 30):
        if result.chosen:
            inside.append(result.change.low <= truth / found.logged - 1.0 <= result.change.high)
    assert np.mean(inside) >= 0.9


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("log", ["uniform", "weekly"])
def test_user_browsing_is_nearly_right_where_users_stop(log):
    _, errors = covered("cascade", log, 20, "ubm")
    assert abs(errors.mean()) < 0.006
    _, errors = covered("cascade", log, 5, "pbm")
    assert errors.mean() > 0.2


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize(("users", "log"), [*product(("pbm", "trust"), ("pinned", "constant")), ("dbn", "constant")])
def test_bounds_hold_the_truth(users, log):
    inside = []
    for _, result, truth in judged(users, log, 20):
        assert result.chosen is None
        inside.append(result.lower_bound <= truth <= result.upper_bound)
    assert np.mean(inside) >= 0.95


@pytest.mark.slow
@pytest.mark.nightly
def test_what_is_accepted_and_refused():
    chosen = {
        (users, log): [str(result.chosen) for _, result, _ in judged(users, log, 12)]
        for users, log in (("pbm", "weekly"), ("cascade", "weekly"), ("pbm", "demand"))
    }
    assert chosen["pbm", "weekly"].count("pbm") >= 10
    assert chosen["cascade", "weekly"].count("ubm") >= 9
    assert chosen["pbm", "demand"].count("None") >= 11
